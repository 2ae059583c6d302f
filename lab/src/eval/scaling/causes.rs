//! The measured causes of a run's lost time.

use serde_json::Value;

use crate::eval::results::number;

/// A curve breaks when it falls below this share of the true lower bound.
pub(super) const BROKEN_BELOW: f64 = 0.8;
/// A loop that is busy for a smaller share of the makespan is no bottleneck.
const BUSY: f64 = 0.5;
/// A smaller share of the makespan is no cause.
const NOTABLE: f64 = 0.03;

/// A mechanism, and its share of the makespan.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Cause {
    pub(super) name: &'static str,
    pub(super) share: f64,
    pub(super) figures: String,
}

/// The true lower bound over the makespan.
pub(super) fn bound_share(report: &Value) -> Option<f64> {
    number(report, "/simulated/bound_ratio")
}

/// The measured causes, the largest first. Shares overlap: a loop may be busy during the
/// submission.
pub(super) fn causes(report: &Value) -> Vec<Cause> {
    let at = |path: &str| number(report, path).unwrap_or(0.0);
    let makespan_s = at("/makespan_s").max(f64::MIN_POSITIVE);
    let share = |seconds: f64| seconds / makespan_s;
    let busy = |seconds: f64| if share(seconds) >= BUSY { share(seconds) } else { 0.0 };
    let (submit_s, first_s) = (at("/submit_s"), at("/first_start_s"));
    let client_s = at("/simulated/client_busy_s");
    let (ramp_s, tail_s) = (at("/simulated/ramp_s"), at("/simulated/tail_s"));
    let job_home_s = at("/simulated/loop_busy_job_home_s");
    let (mean_s, most_s) = (at("/simulated/loop_busy_s"), at("/simulated/loop_busy_max_s"));
    let cards = at("/simulated/card_share");
    let (tried, won) = (at("/steals/tried"), at("/steals/won"));
    let nodes = at("/nodes").max(1.0);
    let mut causes = vec![
        Cause {
            name: "submission: one client, and acceptance by the homes",
            share: share(submit_s),
            figures: format!("{submit_s:.3} s until accepted, the client busy for {client_s:.3} s"),
        },
        Cause {
            name: "announcement of the commit by the job's home to all homes",
            share: share((first_s - submit_s).max(0.0)),
            figures: format!("first start {:.3} s after acceptance", (first_s - submit_s).max(0.0)),
        },
        Cause {
            name: "filling the slots: word of the commit, steals",
            share: share(ramp_s),
            figures: format!(
                "{ramp_s:.3} s from the first start to full slots, {:.1} rounds of probes a node, \
                 {won} steals",
                tried / nodes
            ),
        },
        Cause {
            name: "emptying: the last tasks, uneven ends",
            share: share(tail_s),
            figures: format!("{tail_s:.3} s with idle slots before the end"),
        },
        Cause {
            name: "the loop of the job's home",
            share: busy(job_home_s),
            figures: format!("busy for {job_home_s:.3} s"),
        },
        Cause {
            name: "the loop of the busiest node",
            share: if most_s > job_home_s { busy(most_s) } else { 0.0 },
            figures: format!("busy for {most_s:.3} s"),
        },
        Cause {
            name: "all nodes' loops: too many tasks a second",
            share: busy(mean_s),
            figures: format!("each busy for {mean_s:.3} s on the average"),
        },
        Cause {
            name: "the cards: bytes that had to move",
            share: if cards >= BUSY { cards } else { 0.0 },
            figures: format!("cards used to {:.0} % on the average", cards * 100.0),
        },
    ];
    causes.retain(|cause| cause.share >= NOTABLE);
    causes.sort_by(|a, b| b.share.total_cmp(&a.share));
    causes
}

/// A sentence with the first cause, and the next if it is at least half as large.
pub(super) fn sentence(report: &Value) -> String {
    let causes = causes(report);
    let tell = |cause: &Cause| {
        format!("{} ({:.0} % of the time: {})", cause.name, cause.share * 100.0, cause.figures)
    };
    match causes.as_slice() {
        [] => "nothing that was measured: idle slots in between".to_owned(),
        [first, second, ..] if second.share * 2.0 >= first.share => {
            format!("{}; then {}", tell(first), tell(second))
        }
        [first, ..] => tell(first),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_largest_share_is_the_cause() {
        let mut report = json!({
            "makespan_s": 10.0, "submit_s": 6.0, "first_start_s": 6.1, "nodes": 4,
            "steals": {"tried": 40, "won": 3},
            "simulated": {
                "bound_ratio": 0.3, "client_busy_s": 5.5, "ramp_s": 0.5, "tail_s": 0.1,
                "loop_busy_s": 1.0, "loop_busy_max_s": 4.0, "loop_busy_job_home_s": 4.0,
                "card_share": 0.1
            }
        });
        let names = |report: &Value| causes(report).iter().map(|it| it.name).collect::<Vec<_>>();
        assert!(names(&report)[0].starts_with("submission"));
        assert!(sentence(&report).contains("60 % of the time: 6.000 s until accepted"));
        report["simulated"]["loop_busy_job_home_s"] = json!(9.0);
        report["simulated"]["loop_busy_max_s"] = json!(9.0);
        assert_eq!(names(&report)[0], "the loop of the job's home");
        report["simulated"]["loop_busy_max_s"] = json!(9.5);
        assert_eq!(names(&report)[0], "the loop of the busiest node");
        report["simulated"]["card_share"] = json!(0.97);
        assert!(names(&report)[0].starts_with("the cards"));
    }

    #[test]
    fn a_run_that_lost_nothing_has_no_cause() {
        let report = json!({"makespan_s": 10.0, "submit_s": 0.01, "first_start_s": 0.02});
        assert_eq!(causes(&report), []);
        assert!(sentence(&report).starts_with("nothing that was measured"));
    }
}
