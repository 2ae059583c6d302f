//! Changes between two looks at a cluster. Nodes are not asked for them: while no page is open,
//! none is seen.

use std::collections::{BTreeMap, HashSet, VecDeque};

use serde::Serialize;

use crate::cluster::node::NodeRow;
use crate::views::jobs::JobRow;

/// The changes that are kept.
const CHANGES_MAX: usize = 500;

/// A change that was seen.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Change {
    pub(crate) time_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<String>,
    pub(crate) text: String,
    /// It should not happen in a healthy cluster.
    pub(crate) bad: bool,
}

/// The state of the cluster in the last look, and the changes until then.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    nodes: BTreeMap<u32, (u32, &'static str, bool)>,
    jobs: BTreeMap<String, (&'static str, bool, u32)>,
    has_looked: bool,
    /// A complete list of jobs was seen.
    has_listed: bool,
    pub(crate) seen: VecDeque<Change>,
}

impl Changes {
    /// Compares with the last look. `jobs` is `None` if some are missing: their changes are seen in
    /// the next complete list.
    pub(crate) fn look(&mut self, now_s: f64, nodes: &[NodeRow], jobs: Option<&[JobRow]>) {
        for node in nodes {
            let next = (node.incarnation, node.state, node.slow);
            let last = self.nodes.insert(node.id, next);
            for (text, bad) in of_node(node, last) {
                let node = Some(node.id);
                self.add(Change { time_s: now_s, node, job: None, text, bad });
            }
        }
        self.has_looked = true;
        let Some(jobs) = jobs else { return };
        let has_listed = std::mem::replace(&mut self.has_listed, true);
        for job in jobs {
            let next = (job.state, job.stall.is_some(), job.round.unwrap_or(0));
            let last = self.jobs.insert(job.job.clone(), next);
            for (text, bad) in of_job(job, last) {
                let job = Some(job.job.clone());
                if has_listed {
                    self.add(Change { time_s: now_s, node: None, job, text, bad });
                }
            }
        }
        let listed: HashSet<&str> = jobs.iter().map(|job| job.job.as_str()).collect();
        self.jobs.retain(|known, _| listed.contains(known.as_str()));
    }

    fn add(&mut self, change: Change) {
        if self.has_looked {
            self.seen.push_back(change);
        }
        while self.seen.len() > CHANGES_MAX {
            self.seen.pop_front();
        }
    }
}

fn of_node(node: &NodeRow, last: Option<(u32, &'static str, bool)>) -> Vec<(String, bool)> {
    let Some((incarnation, state, slow)) = last else {
        return vec![("is in the cluster".to_owned(), false)];
    };
    let mut texts = Vec::new();
    if state != node.state {
        let bad = node.state == "down";
        texts.push((format!("is {} (was {state})", node.state), bad));
    }
    // A node that is down has no incarnation of its own to report.
    if node.incarnation > incarnation && incarnation > 0 {
        texts.push((format!("runs again, incarnation {}", node.incarnation), false));
    }
    if slow != node.slow {
        let text = if node.slow { "is slow" } else { "is not slow any more" };
        texts.push((text.to_owned(), node.slow));
    }
    texts
}

/// The state of a job in which some of its work is not done.
fn is_bad(state: &str) -> bool {
    matches!(state, "failed" | "lost")
}

fn of_job(job: &JobRow, last: Option<(&'static str, bool, u32)>) -> Vec<(String, bool)> {
    let Some((state, is_stalled, round)) = last else {
        return vec![(format!("is {}", job.state), is_bad(job.state))];
    };
    let mut texts = Vec::new();
    if state != job.state {
        texts.push((format!("is {} (was {state})", job.state), is_bad(job.state)));
    }
    if let Some(next) = job.round.filter(|&next| next > round) {
        texts.push((format!("is run again, round {next}"), false));
    }
    match (is_stalled, job.stall.is_some()) {
        (false, true) => texts.push(("makes no progress".to_owned(), true)),
        (true, false) => texts.push(("makes progress again".to_owned(), false)),
        _ => {}
    }
    texts
}

#[cfg(test)]
mod tests {
    use proto::NodeId;
    use proto::wire::JobState;

    use super::*;

    fn node(id: u32, incarnation: u32, state: &'static str) -> NodeRow {
        let mut row = NodeRow::down(NodeId(id));
        (row.incarnation, row.state) = (incarnation, state);
        row
    }

    fn texts(changes: &Changes) -> Vec<&str> {
        changes.seen.iter().map(|change| change.text.as_str()).collect()
    }

    #[test]
    fn the_first_look_is_no_change_and_a_lost_node_is_one() {
        let mut changes = Changes::default();
        changes.look(1.0, &[node(0, 1, "up"), node(1, 1, "up")], Some(&[]));
        assert!(changes.seen.is_empty());
        changes.look(2.0, &[node(0, 1, "up"), node(1, 0, "down")], Some(&[]));
        assert_eq!(texts(&changes), ["is down (was up)"]);
        assert_eq!((changes.seen[0].node, changes.seen[0].bad), (Some(1), true));
        changes.look(3.0, &[node(0, 2, "up"), node(1, 1, "up"), node(2, 1, "up")], Some(&[]));
        assert_eq!(
            texts(&changes)[1..],
            ["runs again, incarnation 2", "is up (was down)", "is in the cluster"]
        );
    }

    #[test]
    fn a_job_appears_ends_and_is_forgotten() {
        let mut changes = Changes::default();
        let mut state = JobState { job: 3, ..JobState::default() };
        changes.look(1.0, &[], Some(&[]));
        state.set_phase(proto::wire::JobPhase::Running);
        changes.look(2.0, &[], Some(&[JobRow::new(&state)]));
        state.set_phase(proto::wire::JobPhase::Lost);
        changes.look(3.0, &[], Some(&[JobRow::new(&state)]));
        assert_eq!(texts(&changes), ["is running", "is lost (was running)"]);
        assert!(changes.seen[1].bad && changes.seen[1].job.as_deref() == Some("3"));
        changes.look(4.0, &[], None);
        changes.look(5.0, &[], Some(&[JobRow::new(&state)]));
        assert_eq!(changes.seen.len(), 2, "an incomplete list changes nothing");
        changes.look(6.0, &[], Some(&[]));
        assert!(changes.jobs.is_empty());
    }

    #[test]
    fn old_changes_go() {
        let mut changes = Changes::default();
        for round in 0..2 * CHANGES_MAX as u32 {
            let state = if round % 2 == 0 { "up" } else { "down" };
            changes.look(f64::from(round), &[node(0, 1, state)], Some(&[]));
        }
        assert_eq!(changes.seen.len(), CHANGES_MAX);
    }
}
