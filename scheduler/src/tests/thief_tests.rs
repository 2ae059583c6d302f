//! Thieves that find nothing, and the events that wake them.

use proto::wire::message::Body;
use proto::{NodeId, Span, Time, wire};

use crate::output::Out;
use crate::stealing::thief::neighbours_after;
use crate::tests::test_nodes;
use crate::{Policy, Scheduler, Tuning};

/// An idle node beside another one that never has tasks.
fn thief(tuning: Tuning) -> Scheduler {
    let homes = test_nodes::homes(0, vec![test_nodes::member(0), test_nodes::member(1)], &[0, 1]);
    test_nodes::scheduler(0, 1, tuning, homes)
}

/// Lets the thief act at each of its deadlines up to `until`. Returns the times of its probes.
fn probes(thief: &mut Scheduler, from: Time, until: Time) -> Vec<Time> {
    let (mut now, mut probes) = (from, Vec::new());
    for _ in 0..10_000 {
        let mut out = Out::default();
        thief.act(now, &mut out);
        for (_, body) in std::mem::take(&mut out.best_effort) {
            let Body::StealProbe(probe) = body else { continue };
            probes.push(now);
            let load = wire::StealLoad { probe: probe.probe, shared: 0 };
            thief.on_message(now, NodeId(1), Body::StealLoad(load), &mut out);
        }
        match thief.deadline(now).filter(|at| *at <= until) {
            Some(at) => now = at.max(now),
            None => return probes,
        }
    }
    panic!("it never goes quiet");
}

/// Probes come in rounds of growing intervals: returns the beginnings of the rounds.
fn rounds(probes: &[Time], start: Span) -> Vec<Time> {
    let mut begun: Vec<Time> = probes.first().copied().into_iter().collect();
    for three in probes.windows(3) {
        let [before, first, second] = *three else { unreachable!("windows of three") };
        if second.since(first).0 <= 2 * start.0 && first.since(before) > second.since(first) {
            begun.push(first);
        }
    }
    begun
}

#[test]
fn a_dormant_thief_wakes_once_when_the_longest_wait_of_flds_is_small() {
    let hour = Span::from_secs(3_600);
    let day = Time(0) + Span::from_secs(86_400);
    // The figures of the paper's table 3, and a wait that failures alone do not reduce enough.
    for (wait_s, bound_ms) in [(10, 50_000), (3_600, 1_024)] {
        let tuning = Tuning {
            wait_max: Span::from_secs(wait_s),
            steal_interval_bound: Span::from_millis(bound_ms),
            ..Tuning::of(Policy::Flds)
        };
        let (start, bound) = (tuning.steal_interval_start, tuning.steal_interval_bound);
        let mut thief = thief(tuning);
        let first = probes(&mut thief, Time(0), day);
        let begun = rounds(&first, start);
        assert_eq!(begun.len(), 2, "{wait_s} {bound_ms} {first:?}");
        let last_before = first.iter().rev().find(|at| **at < begun[1]).expect("the first round");
        assert!(begun[1].since(*last_before) >= bound, "it was quiet: {first:?}");
        assert_eq!(thief.deadline(day), None, "then it is quiet until there is news");
        // Tasks were shared since, and the wait has doubled: this wakes the thief once.
        thief.policy.pretend_wait_max(hour);
        thief.stealing.rearm(day + bound);
        let next = day + hour;
        assert_eq!(rounds(&probes(&mut thief, day, next), start).len(), 1);
        assert_eq!(thief.deadline(next), None);
    }
}

#[test]
fn under_other_policies_a_dormant_thief_stays_dormant() {
    for policy in [Policy::Mlb, Policy::Mdl, Policy::Rlds, Policy::Eft] {
        let tuning = Tuning::of(policy);
        let mut thief = thief(tuning);
        let probes = probes(&mut thief, Time(0), Time(0) + Span::from_secs(3_600));
        assert_eq!(rounds(&probes, tuning.steal_interval_start).len(), 1, "{policy:?}");
        assert_eq!(thief.policy.wait_max(), tuning.wait_max, "{policy:?}");
    }
}

#[test]
fn each_failure_halves_the_neighbours_but_some_are_asked() {
    let asked = |nodes| [0, 1, 2, 3, 11, 40].map(|failures| neighbours_after(nodes, failures));
    assert_eq!(asked(1_000_000), [32, 16, 8, 4, 4, 4], "at most the limit");
    assert_eq!(asked(100), [10, 5, 4, 4, 4, 4]);
    assert_eq!(asked(7), [3; 6], "few enough as it is");
    assert_eq!(asked(1), [1; 6]);
}
