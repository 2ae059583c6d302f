//! From the events of a job to the attempts of a record.

use std::collections::BTreeMap;

use proto::{Event, JobId, LocalId, NodeId, Span, Time};

use crate::attempt::{AttemptRow, Outcome};
use crate::join::Joiner;
use crate::record::{MetaNode, Record};
use crate::view::{Lens, Sampling, VIEW_KINDS_MAX, View};

/// Time 0 of a record is this much before the submission: the clocks of nodes differ.
pub const BEFORE_SUBMISSION: Span = Span::from_secs(10);
/// The kind of tasks beyond [`VIEW_KINDS_MAX`] kinds.
const OTHERS: &str = "others";

/// Collects the attempts of a job, and sums up its other events.
#[derive(Clone, Debug)]
pub struct Collector {
    joiner: Joiner,
    rows: Vec<AttemptRow>,
    /// Without attempts.
    lens: Lens<fn(LocalId) -> u32>,
    origin: Time,
    submitted: Time,
}

impl Collector {
    #[must_use]
    pub fn new(job: JobId, submitted: Time) -> Self {
        let origin = Time(submitted.0.saturating_sub(BEFORE_SUBMISSION.0));
        let none: fn(LocalId) -> u32 = |_| 0;
        let lens = Lens::new(job, origin, Sampling::default(), Vec::new(), none);
        Self { joiner: Joiner::new(job, origin), rows: Vec::new(), lens, origin, submitted }
    }

    pub fn push(&mut self, node: NodeId, time: Time, event: &Event) {
        let rows = &mut self.rows;
        self.joiner.push(node, time, event, true, &mut |row| rows.push(row));
        self.lens.count(node, event);
    }

    /// Stores all in a record. `kind_of`: the number of a task's kind. Nodes of which only the log
    /// has slots are added. Returns the attempts that still run `now`, if the job has not ended.
    pub fn finish(
        mut self,
        ended: Option<Time>,
        now: Time,
        record: &mut Record,
        mut kind_of: impl FnMut(LocalId) -> u32,
    ) -> Vec<AttemptRow> {
        let (rows, mut running) = (&mut self.rows, Vec::new());
        match ended {
            Some(_) => self.joiner.finish(ended, &mut |row| rows.push(row)),
            None => self.joiner.finish(Some(now), &mut |row| running.push(row)),
        }
        running.iter_mut().for_each(|row| row.kind = kind_of(row.task));
        self.rows.iter_mut().for_each(|row| row.kind = kind_of(row.task));
        let meta = &mut record.meta;
        meta.schema = 1;
        meta.origin_ns = self.origin.0;
        meta.submitted_us = self.joiner.micros(self.submitted);
        meta.ended_us = ended.map(|ended| self.joiner.micros(ended));
        let view: View = self.lens.finish(None);
        meta.steals = view.counts.stolen;
        meta.pushes = view.counts.pushed;
        let mut nodes: BTreeMap<u32, MetaNode> =
            std::mem::take(&mut meta.nodes).into_iter().map(|node| (node.node, node)).collect();
        for (&node, &slots) in &view.slots {
            let known = nodes.entry(node).or_default();
            known.node = node;
            known.slots = if known.slots == 0 { slots } else { known.slots };
        }
        meta.nodes = nodes.into_values().collect();
        (record.parts, record.attempts) = self.rows.into_iter().partition(|row| row.is_part);
        end_as_attempts(&mut record.parts, &record.attempts);
        number_by_start(&mut record.attempts);
        record.set_links(&view);
        record.sort();
        running
    }
}

/// A part ends as the attempt of its gang, which is on another node.
fn end_as_attempts(parts: &mut [AttemptRow], attempts: &[AttemptRow]) {
    if parts.is_empty() {
        return;
    }
    let key = |row: &AttemptRow| (row.task, row.number);
    let ends: BTreeMap<_, _> = attempts.iter().map(|row| (key(row), row.outcome)).collect();
    for part in parts {
        part.outcome = ends.get(&key(part)).copied().unwrap_or(Outcome::Stopped);
        part.number = 1;
    }
}

/// Numbers the attempts of each task from 1. Homes number the attempts of all their tasks.
fn number_by_start(rows: &mut [AttemptRow]) {
    rows.sort_unstable_by_key(|row| (row.task, row.start_us, row.number, row.node));
    for of_task in rows.chunk_by_mut(|a, b| a.task == b.task) {
        (1..).zip(of_task).for_each(|(number, row)| row.number = number);
    }
}

/// Numbers kinds by their names, in the order of first appearance.
#[derive(Clone, Debug, Default)]
pub struct KindNumbers {
    numbers: BTreeMap<String, u32>,
    pub names: Vec<String>,
}

impl KindNumbers {
    pub fn number(&mut self, kind: &str) -> u32 {
        if let Some(&number) = self.numbers.get(kind) {
            return number;
        }
        let is_full = self.names.len() >= VIEW_KINDS_MAX - 1;
        let kind = if is_full { OTHERS } else { kind };
        let next = self.names.len() as u32;
        let number = *self.numbers.entry(kind.to_owned()).or_insert(next);
        if number == next {
            self.names.push(kind.to_owned());
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use proto::event::End;
    use proto::{Attempt, TaskId};

    use super::*;

    #[test]
    fn a_record_has_attempts_links_and_nodes() {
        let s = 1_000_000_000;
        let mut collector = Collector::new(JobId(3), Time(100 * s));
        let node = NodeId(4);
        let (task, attempt, end) = (TaskId::new(3, 9), Attempt(1), End::Done);
        let (bytes, took, from) = (77, Span(s), NodeId(1));
        let started = Time(102 * s);
        let ended = Event::Ended { task, attempt, end, started, moved_bytes: 77, local_bytes: 0 };
        collector.push(node, Time(s), &Event::NodeStarted { node, incarnation: 1, slots: 6 });
        collector.push(node, Time(101 * s), &Event::Fetched { task, attempt, from, bytes, took });
        collector.push(node, started, &Event::Started { task, attempt, slot: 2 });
        collector.push(node, Time(103 * s), &ended);
        let mut record = Record::default();
        let mut running = collector.clone();
        collector.finish(Some(Time(104 * s)), Time(105 * s), &mut record, |_| 5);
        assert_eq!(
            (record.meta.submitted_us, record.meta.ended_us),
            (10_000_000, Some(14_000_000))
        );
        assert_eq!((record.attempts.len(), record.attempts[0].kind), (1, 5));
        assert_eq!((record.meta.nodes[0].node, record.meta.nodes[0].slots), (4, 6));
        assert_eq!((record.meta.links[0].from, record.meta.links[0].bytes), (1, 77));

        let task = TaskId::new(3, 10);
        running.push(node, Time(103 * s), &Event::Started { task, attempt, slot: 0 });
        let mut record = Record::default();
        let rows = running.finish(None, Time(108 * s), &mut record, |_| 0);
        assert_eq!((rows.len(), rows[0].ran_us, record.attempts.len()), (1, 5_000_000, 1));
        assert_eq!(record.meta.ended_us, None);
    }

    #[test]
    fn attempts_are_numbered_by_task() {
        let row = |task, start_us, number| AttemptRow {
            task: LocalId(task),
            start_us,
            number,
            ..AttemptRow::default()
        };
        let mut rows = [row(2, 5, 70), row(1, 9, 80), row(2, 1, 60)];
        number_by_start(&mut rows);
        assert_eq!(rows, [row(1, 9, 1), row(2, 1, 1), row(2, 5, 2)]);
    }

    #[test]
    fn kinds_are_bounded() {
        let mut kinds = KindNumbers::default();
        let numbers: Vec<u32> = (0..100).map(|n| kinds.number(&format!("k{n}"))).collect();
        assert_eq!((numbers[0], numbers[62], numbers[63], numbers[99]), (0, 62, 63, 63));
        assert_eq!((kinds.names.len(), kinds.number("k5")), (VIEW_KINDS_MAX, 5));
    }
}
