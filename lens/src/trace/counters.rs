//! The numbers of running and queued attempts by node, in a bounded number of samples.

use crate::record::Record;

/// The maximum number of samples of a node.
const SAMPLES_MAX: u64 = 2048;

/// The numbers of a node from a time on, after the submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sample {
    pub(super) node: u32,
    pub(super) at_us: u64,
    pub(super) running: u32,
    pub(super) queued: u32,
}

/// A change of the numbers of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    node: u32,
    at_us: u64,
    running: i32,
    queued: i32,
}

/// The samples by node and time: of each step of time the numbers after its last change.
pub(super) fn counters(record: &Record) -> Vec<Sample> {
    let changes = changes(record);
    let last = changes.iter().map(|change| change.at_us).max().unwrap_or(0);
    let width = (last + 1).div_ceil(SAMPLES_MAX);
    let mut samples = Vec::new();
    for of_node in changes.chunk_by(|a, b| a.node == b.node) {
        let (mut running, mut queued) = (0u32, 0u32);
        for of_step in of_node.chunk_by(|a, b| a.at_us / width == b.at_us / width) {
            let (mut more_running, mut more_queued) = (0, 0);
            for change in of_step {
                more_running += change.running;
                more_queued += change.queued;
            }
            running = running.saturating_add_signed(more_running);
            queued = queued.saturating_add_signed(more_queued);
            if let Some(&Change { node, at_us, .. }) = of_step.last() {
                samples.push(Sample { node, at_us, running, queued });
            }
        }
    }
    samples
}

/// The changes by node and time. The parts of gangs are no attempts.
fn changes(record: &Record) -> Vec<Change> {
    let origin = record.meta.submitted_us;
    let mut changes = Vec::with_capacity(4 * record.attempts.len());
    for row in &record.attempts {
        let mut add = |at_us: u64, running, queued| {
            let at_us = at_us.saturating_sub(origin);
            changes.push(Change { node: row.node, at_us, running, queued });
        };
        if row.wait_us > 0 {
            add(row.start_us.saturating_sub(row.wait_us), 0, 1);
            add(row.start_us, 0, -1);
        }
        add(row.start_us, 1, 0);
        add(row.end_us(), -1, 0);
    }
    changes.sort_unstable();
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AttemptRow;

    #[test]
    fn numbers_follow_queues_starts_and_ends() {
        let row = |node, start_us, ran_us, wait_us| AttemptRow {
            node,
            start_us,
            ran_us,
            wait_us,
            ..AttemptRow::default()
        };
        let mut record = Record::default();
        record.meta.submitted_us = 100;
        record.attempts = vec![row(0, 120, 30, 10), row(0, 130, 10, 0), row(1, 90, 0, 5)];
        let samples: Vec<_> =
            counters(&record).iter().map(|it| (it.node, it.at_us, it.running, it.queued)).collect();
        let expected = [(0, 10, 0, 1), (0, 20, 1, 0), (0, 30, 2, 0), (0, 40, 1, 0), (0, 50, 0, 0)];
        assert_eq!(samples[..5], expected);
        assert_eq!(samples[5..], [(1, 0, 0, 0)]);
    }

    #[test]
    fn samples_of_many_attempts_are_bounded_and_end_at_zero() {
        let record = crate::record::tests::large(20_000);
        let samples = counters(&record);
        for of_node in samples.chunk_by(|a, b| a.node == b.node) {
            assert!(of_node.len() <= SAMPLES_MAX as usize);
            assert!(of_node.is_sorted_by_key(|it| it.at_us));
            assert!(of_node.iter().all(|it| it.running <= 20_000 && it.queued <= 20_000));
            let last = of_node.last().map(|it| (it.running, it.queued));
            assert_eq!(last, Some((0, 0)));
        }
    }
}
