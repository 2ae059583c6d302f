//! From the events of a job to its attempts.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use proto::{Attempt, Event, JobId, NodeId, TaskId, Time};

use crate::attempt::{AttemptRow, Outcome, SLOT_UNKNOWN, coarse};

/// An attempt that has not ended.
#[derive(Clone, Debug, Default)]
struct Pending {
    queued: Option<Time>,
    /// The start of the first fetch, and the end of the last one.
    fetched: Option<(Time, Time)>,
    started: Option<Time>,
    slot: u32,
    more: Vec<u32>,
    is_part: bool,
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    incarnation: u32,
    last: Time,
}

/// Joins the events of attempts. The events of each node come in their order; the nodes may come
/// one after another or mixed.
#[derive(Clone, Debug)]
pub struct Joiner {
    job: JobId,
    origin: Time,
    pending: HashMap<(NodeId, TaskId, Attempt), Pending, FixedState>,
    seen: BTreeMap<NodeId, Seen>,
}

impl Joiner {
    /// `origin`: time 0 of the attempts.
    #[must_use]
    pub fn new(job: JobId, origin: Time) -> Self {
        Self { job, origin, pending: HashMap::default(), seen: BTreeMap::new() }
    }

    /// Microseconds since the origin; 0 for an earlier time.
    #[must_use]
    pub fn micros(&self, time: Time) -> u64 {
        time.since(self.origin).0 / 1_000
    }

    /// True if the event is of this job, or of a node.
    #[must_use]
    pub fn wants(&self, event: &Event) -> bool {
        event.job().is_none_or(|job| job == self.job)
    }

    /// Adds an event. `in_detail`: with waits. `emit` gets attempts that ended by it.
    pub fn push(
        &mut self,
        node: NodeId,
        time: Time,
        event: &Event,
        in_detail: bool,
        emit: &mut dyn FnMut(AttemptRow),
    ) {
        if let Event::NodeStarted { incarnation, .. } = *event {
            self.node_started(node, incarnation, emit);
        }
        if event.job() != Some(self.job) {
            return;
        }
        let seen = self.seen.entry(node).or_default();
        seen.last = seen.last.max(time);
        match *event {
            Event::Queued { task, attempt, .. } if in_detail => {
                let pending = self.pending.entry((node, task, attempt)).or_default();
                pending.queued = pending.queued.or(Some(time));
            }
            Event::Pushed { task, attempt, .. } => {
                self.pending.remove(&(node, task, attempt));
            }
            Event::Stolen { task, attempt, from } => {
                self.pending.remove(&(from, task, attempt));
            }
            Event::Fetched { task, attempt, took, .. } if in_detail => {
                let from = Time(time.0.saturating_sub(took.0));
                let pending = self.pending.entry((node, task, attempt)).or_default();
                let known = pending.fetched.unwrap_or((from, time));
                pending.fetched = Some((known.0.min(from), known.1.max(time)));
            }
            Event::Started { task, attempt, slot } => {
                let pending = self.pending.entry((node, task, attempt)).or_default();
                pending.started = Some(time);
                pending.slot = slot;
            }
            Event::Widened { task, attempt, slot } => {
                self.pending.entry((node, task, attempt)).or_default().more.push(slot);
            }
            Event::PartBegan { task, attempt, slot } => {
                let pending = self.pending.entry((node, task, attempt)).or_default();
                match pending.is_part {
                    true => pending.more.push(slot),
                    false => {
                        let started = Some(time);
                        *pending = Pending { started, slot, is_part: true, ..Pending::default() };
                    }
                }
            }
            Event::PartEnded { task, attempt } => {
                let key = (node, task, attempt);
                if self.pending.get(&key).is_some_and(|known| known.is_part)
                    && let Some(known) = self.pending.remove(&key)
                {
                    let started = known.started.unwrap_or(time);
                    emit(self.row(node, (task, attempt), known, (started, time)));
                }
            }
            Event::Dismissed { task, attempt } => {
                let known = self.pending.get(&(node, task, attempt));
                let is_queued = known.is_some_and(|known| known.started.is_none());
                if is_queued {
                    self.pending.remove(&(node, task, attempt));
                }
            }
            Event::Ended { task, attempt, end, started, moved_bytes, local_bytes } => {
                let known = self.pending.remove(&(node, task, attempt)).unwrap_or_default();
                let row = self.row(node, (task, attempt), known, (started, time));
                emit(AttemptRow { outcome: end.into(), moved_bytes, local_bytes, ..row });
            }
            _ => {}
        }
    }

    /// The attempts without an end were stopped at the latest at the end of the job, or of the
    /// log of their node.
    pub fn finish(&mut self, end: Option<Time>, emit: &mut dyn FnMut(AttemptRow)) {
        let pending = std::mem::take(&mut self.pending);
        self.stop(pending.into_iter().collect(), end, emit);
    }

    /// A new incarnation runs nothing of the earlier one.
    fn node_started(&mut self, node: NodeId, incarnation: u32, emit: &mut dyn FnMut(AttemptRow)) {
        let earlier = self.seen.get(&node).map_or(0, |seen| seen.incarnation);
        self.seen.entry(node).or_default().incarnation = incarnation;
        if earlier == 0 || earlier == incarnation {
            return;
        }
        let gone = self.pending.extract_if(|key, _| key.0 == node).collect();
        self.stop(gone, None, emit);
    }

    fn stop(
        &self,
        mut gone: Vec<((NodeId, TaskId, Attempt), Pending)>,
        end: Option<Time>,
        emit: &mut dyn FnMut(AttemptRow),
    ) {
        gone.sort_unstable_by_key(|(key, _)| *key);
        for ((node, task, attempt), pending) in gone {
            let Some(started) = pending.started else { continue };
            let last = self.seen.get(&node).map_or(started, |seen| seen.last);
            let ended = end.unwrap_or(last).max(started);
            let row = self.row(node, (task, attempt), pending, (started, ended));
            emit(AttemptRow { outcome: Outcome::Stopped, ..row });
        }
    }

    fn row(
        &self,
        node: NodeId,
        (task, attempt): (TaskId, Attempt),
        known: Pending,
        (started, ended): (Time, Time),
    ) -> AttemptRow {
        let start_us = self.micros(started);
        let queued = known.queued.unwrap_or(started).min(started);
        let wait_us = coarse(started.since(queued).0 / 1_000);
        let fetched = known
            .fetched
            .map_or(0, |(from, until)| until.min(started).since(from.max(queued)).0 / 1_000);
        AttemptRow {
            node: node.0,
            slot: if known.started.is_some() { known.slot } else { SLOT_UNKNOWN },
            more: known.more.into(),
            start_us,
            ran_us: self.micros(ended).saturating_sub(start_us),
            wait_us,
            fetch_us: coarse(fetched).min(wait_us),
            task: task.local,
            number: attempt.0 as u32,
            is_part: known.is_part,
            ..AttemptRow::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Span;
    use proto::event::{End, Reason};

    const MS: u64 = 1_000_000;

    fn rows(events: &[(u32, u64, Event)]) -> Vec<AttemptRow> {
        let mut joiner = Joiner::new(JobId(1), Time(10 * MS));
        let mut rows = Vec::new();
        for (node, at_ms, event) in events {
            let mut emit = |row| rows.push(row);
            joiner.push(NodeId(*node), Time(at_ms * MS), event, true, &mut emit);
        }
        joiner.finish(None, &mut |row| rows.push(row));
        rows
    }

    #[test]
    fn the_part_of_a_gang_has_its_slots_and_an_end() {
        let (task, attempt) = (TaskId::new(1, 5), Attempt::new(3, 2));
        let began = |slot| Event::PartBegan { task, attempt, slot };
        let found = rows(&[
            (1, 20, began(3)),
            (1, 20, began(1)),
            (2, 21, began(0)),
            (1, 24, Event::PartEnded { task, attempt }),
            (1, 25, Event::PartEnded { task, attempt }),
            (2, 23, Event::NodeStarted { node: NodeId(2), incarnation: 1, slots: 1 }),
        ]);
        let shown: Vec<_> = found.iter().map(|it| (it.node, it.width(), it.outcome)).collect();
        assert_eq!(shown, [(1, 2, Outcome::Done), (2, 1, Outcome::Stopped)]);
        assert!(found.iter().all(|it| it.is_part));
        assert_eq!((found[0].slot, found[0].start_us, found[0].ran_us), (3, 10_000, 4_000));
    }

    fn started(node: u32, incarnation: u32) -> Event {
        Event::NodeStarted { node: NodeId(node), incarnation, slots: 2 }
    }

    #[test]
    fn an_attempt_has_its_waits_and_slots() {
        let (task, attempt) = (TaskId::new(1, 5), Attempt::new(3, 2));
        let other = TaskId::new(2, 5);
        let (reason, input_bytes) = (Reason::Stolen, 9);
        let queued =
            |task| Event::Queued { task, attempt, local_queue: false, reason, input_bytes };
        let fetched =
            Event::Fetched { task, attempt, from: NodeId(2), bytes: 9, took: Span(2 * MS) };
        let (end, started) = (End::Failed, Time(20 * MS));
        let found = rows(&[
            (0, 12, queued(task)),
            (0, 12, queued(other)),
            (0, 16, fetched),
            (0, 20, Event::Started { task, attempt, slot: 1 }),
            (0, 20, Event::Widened { task, attempt, slot: 0 }),
            (0, 25, Event::Ended { task, attempt, end, started, moved_bytes: 9, local_bytes: 1 }),
        ]);
        let expected = AttemptRow {
            slot: 1,
            more: [0].into(),
            start_us: 10_000,
            ran_us: 5_000,
            wait_us: coarse(8_000),
            fetch_us: coarse(2_000),
            task: task.local,
            number: 2,
            outcome: Outcome::Failed,
            moved_bytes: 9,
            local_bytes: 1,
            ..AttemptRow::default()
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn attempts_without_an_end_are_stopped_when_their_node_was_last_seen() {
        let start = |task| Event::Started { task, attempt: Attempt(1), slot: 0 };
        let found = rows(&[
            (0, 10, started(0, 1)),
            (1, 10, started(1, 1)),
            (0, 11, start(TaskId::new(1, 1))),
            (1, 12, start(TaskId::new(1, 2))),
            (0, 15, Event::Visible { job: JobId(1) }),
            (0, 40, started(0, 2)),
            (0, 41, started(0, 2)),
            (1, 50, Event::Visible { job: JobId(1) }),
        ]);
        let ran: Vec<_> = found.iter().map(|row| (row.task.0, row.ran_us, row.outcome)).collect();
        assert_eq!(ran, [(1, 4_000, Outcome::Stopped), (2, 38_000, Outcome::Stopped)]);
    }

    #[test]
    fn an_end_without_a_start_has_no_slot() {
        let (task, attempt, end) = (TaskId::new(1, 1), Attempt(1), End::Done);
        let started = Time(11 * MS);
        let ended = Event::Ended { task, attempt, end, started, moved_bytes: 0, local_bytes: 0 };
        let found = rows(&[(0, 12, ended)]);
        assert_eq!(
            (found[0].slot, found[0].start_us, found[0].ran_us),
            (SLOT_UNKNOWN, 1_000, 1_000)
        );
    }
}
