//! The delay until the tasks of a failed node run elsewhere, from the event logs.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use analysis::Entry;
use proto::{Event, NodeId, TaskId, Time};

use super::latencies::Latencies;

/// The progress of a task that ran on a node when it was killed.
#[derive(Debug)]
struct KilledTasks {
    killed_at: Time,
    noticed: bool,
    placed: bool,
}

/// Receives the kills, and all events of a job in the order of time.
#[derive(Debug, Default)]
pub(super) struct Reruns {
    /// Future kills, the next one last.
    kills: Vec<(Time, NodeId)>,
    running: HashMap<NodeId, HashSet<TaskId>>,
    struck: HashMap<TaskId, KilledTasks>,
    /// From the kill until the home gives the task a further attempt.
    pub(super) noticed: Latencies,
    /// From the kill until it waits for a slot on some node.
    pub(super) placed: Latencies,
    /// From the kill to the start of that attempt.
    pub(super) rerun: Latencies,
}

impl Reruns {
    /// Begins a further job with its kills.
    pub(super) fn kills(&mut self, kills: &[(Time, NodeId)]) {
        self.kills = kills.to_vec();
        self.kills.sort_unstable_by_key(|&(at, _)| std::cmp::Reverse(at));
        self.running.clear();
        self.struck.clear();
    }

    pub(super) fn see(&mut self, entry: &Entry) {
        while let Some(&(killed_at, node)) = self.kills.last()
            && killed_at <= entry.time
        {
            self.kills.pop();
            for task in self.running.remove(&node).unwrap_or_default() {
                self.struck.insert(task, KilledTasks { killed_at, noticed: false, placed: false });
            }
        }
        let since = |at: Time| Duration::from_nanos(entry.time.since(at).0);
        match entry.event {
            Event::Started { task, .. } => {
                if let Some(struck) = self.struck.remove(&task) {
                    self.rerun.record(since(struck.killed_at));
                }
                self.running.entry(entry.node).or_default().insert(task);
            }
            Event::Ended { task, .. } => {
                self.running.entry(entry.node).or_default().remove(&task);
            }
            // The task had ended before, and the log with its end was lost with the node.
            Event::Committed { task, .. } => {
                self.struck.remove(&task);
                self.running.values_mut().for_each(|tasks| _ = tasks.remove(&task));
            }
            Event::Queued { task, .. } => {
                if let Some(struck) = self.struck.get_mut(&task)
                    && !std::mem::replace(&mut struck.placed, true)
                {
                    self.placed.record(since(struck.killed_at));
                }
            }
            Event::Replaced { task, .. } => {
                if let Some(struck) = self.struck.get_mut(&task)
                    && !std::mem::replace(&mut struck.noticed, true)
                {
                    self.noticed.record(since(struck.killed_at));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::event::{End, RetryReason};
    use proto::{Attempt, JobId, LocalId};

    use super::*;

    #[test]
    fn only_what_ran_on_the_dead_node_counts_from_its_death() {
        let task = |local| TaskId { job: JobId(1), local: LocalId(local) };
        let (first, second) = (Attempt(1), Attempt(2));
        let started = |local, attempt| Event::Started { task: task(local), attempt, slot: 0 };
        let committed = |local, attempt| {
            let (end, node) = (End::Done, NodeId(0));
            Event::Committed { task: task(local), attempt, end, node, output_bytes: 0 }
        };
        let replaced = |local| Event::Replaced {
            task: task(local),
            attempt: second,
            why: RetryReason::HolderGone,
        };
        let mut reruns = Reruns::default();
        reruns.kills(&[(Time(100_000_000), NodeId(1))]);
        let story = [
            (10, 1, started(1, first)), // Runs when the node fails.
            (20, 1, started(2, first)), // Only its home's log has its end.
            (30, 0, started(3, first)), // Runs elsewhere.
            (90, 0, committed(2, first)),
            (400, 0, replaced(1)),
            (450, 0, started(1, second)),
            (500, 0, committed(1, second)),
            (510, 2, replaced(3)),
            (520, 2, started(3, second)),
        ];
        for (ms, node, event) in story {
            reruns.see(&Entry { node: NodeId(node), time: Time(ms * 1_000_000), event });
        }
        let counts = [&reruns.noticed, &reruns.placed, &reruns.rerun].map(Latencies::calls);
        assert_eq!(counts, [1, 0, 1]);
        for (latencies, expected_ms) in [(&reruns.noticed, 300.0), (&reruns.rerun, 350.0)] {
            let found_ms = latencies.longest().expect("one call").as_secs_f64() * 1e3;
            assert!((found_ms - expected_ms).abs() < 1.0, "{found_ms} for {expected_ms}");
        }
    }
}
