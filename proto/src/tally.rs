//! The work of one node for one job, summed from the node's own events.

use std::collections::{BTreeMap, VecDeque};

use crate::busy::{BUCKETS_MAX, BusySeries};
use crate::event::{End, Event};
use crate::{Attempt, TaskId, Time, wire};

/// An attempt that has not ended.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Runs {
    what: (TaskId, Attempt),
    started: Time,
    /// The first of its slots.
    slot: u32,
}

/// One slot of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Slot {
    first_start: Time,
    last_end: Time,
    attempts: u64,
}

/// Sums one node's events of one job, which arrive in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tally {
    part: wire::NodeTally,
    slots: Vec<Slot>,
    /// In the order of starts. Tasks without duration end in the same order.
    running: VecDeque<Runs>,
    /// The further slots of wide tasks.
    wide: BTreeMap<(TaskId, Attempt), Vec<u32>>,
    busy: BusySeries,
}

impl Tally {
    /// `now` is the time of the event. For an end that is recorded later it is the end of the
    /// attempt.
    pub fn push(&mut self, now: Time, event: &Event) {
        let part = &mut self.part;
        match *event {
            Event::Started { task, attempt, slot } => {
                self.running.push_back(Runs { what: (task, attempt), started: now, slot });
            }
            Event::Widened { task, attempt, slot } => {
                self.wide.entry((task, attempt)).or_default().push(slot);
            }
            Event::PartBegan { task, attempt, slot } => self.part_began(now, (task, attempt), slot),
            // Whether the gang has succeeded is known at its first node.
            Event::PartEnded { task, attempt } => {
                let worked_ns = self.stop(now, (task, attempt));
                self.part.work_ns = self.part.work_ns.saturating_add(worked_ns);
            }
            Event::Ended { task, attempt, end, started, moved_bytes, local_bytes } => {
                let ran_ns = self.end((task, attempt), started, now);
                let part = &mut self.part;
                part.executions += 1;
                if end == End::Done {
                    part.work_ns = part.work_ns.saturating_add(ran_ns);
                }
                part.moved_bytes = part.moved_bytes.saturating_add(moved_bytes);
                part.local_bytes = part.local_bytes.saturating_add(local_bytes);
            }
            Event::Fetched { took, .. } => {
                part.fetches += 1;
                part.fetch_ns = part.fetch_ns.saturating_add(took.0);
            }
            Event::Stolen { .. } => part.stolen += 1,
            Event::Pushed { .. } => part.pushed += 1,
            Event::Committed { output_bytes, .. } => {
                part.produced_bytes = part.produced_bytes.saturating_add(output_bytes);
            }
            Event::Replaced { .. } => part.replaced += 1,
            Event::Stale { .. } => part.stale += 1,
            Event::MissedWakeupRepaired { .. } => part.wakeups_repaired += 1,
            _ => {}
        }
    }

    /// Ends an attempt that was stopped, without an end event. Returns the time of its slots.
    pub fn stop(&mut self, now: Time, what: (TaskId, Attempt)) -> u64 {
        let at = self.running.iter().position(|runs| runs.what == what);
        at.map_or(0, |at| self.end(what, self.running[at].started, now))
    }

    /// A part of a gang has a slot; its first one, or one more.
    fn part_began(&mut self, now: Time, what: (TaskId, Attempt), slot: u32) {
        match self.running.iter().any(|runs| runs.what == what) {
            true => self.wide.entry(what).or_default().push(slot),
            false => self.running.push_back(Runs { what, started: now, slot }),
        }
    }

    /// Frees the slots of an attempt and returns their time. An attempt that ended before it had a
    /// slot counts as one slot.
    fn end(&mut self, what: (TaskId, Attempt), started: Time, ended: Time) -> u64 {
        let mut width = 1;
        let at = self.running.iter().position(|runs| runs.what == what);
        if let Some(runs) = at.and_then(|at| self.running.remove(at)) {
            self.used(runs.slot, started, ended);
        }
        if !self.wide.is_empty()
            && let Some(more) = self.wide.remove(&what)
        {
            width += more.len() as u32;
            more.into_iter().for_each(|slot| self.used(slot, started, ended));
        }
        let ran_ns = ended.since(started).0.saturating_mul(width.into());
        let part = &mut self.part;
        part.busy_ns = part.busy_ns.saturating_add(ran_ns);
        if part.first_start_ns == 0 || started.0 < part.first_start_ns {
            part.first_start_ns = started.0;
        }
        part.last_end_ns = part.last_end_ns.max(ended.0);
        self.busy.add(started, ended, width);
        ran_ns
    }

    fn used(&mut self, slot: u32, started: Time, ended: Time) {
        let slot = slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, Slot::default());
        }
        let slot = &mut self.slots[slot];
        if slot.attempts == 0 {
            slot.first_start = started;
        } else {
            self.part.paused_ns += started.since(slot.last_end).0;
        }
        slot.first_start = slot.first_start.min(started);
        slot.attempts += 1;
        slot.last_end = slot.last_end.max(ended);
    }

    /// The sums so far.
    #[must_use]
    pub fn part(&self) -> wire::NodeTally {
        let used = || self.slots.iter().filter(|slot| slot.attempts > 0);
        let (first, last) = (Time(self.part.first_start_ns), Time(self.part.last_end_ns));
        let sum = |of: &dyn Fn(&Slot) -> u64| used().map(of).fold(0, u64::saturating_add);
        wire::NodeTally {
            used_slots: used().count() as u64,
            fill_ns: sum(&|slot| slot.first_start.since(first).0),
            drain_ns: sum(&|slot| last.since(slot.last_end).0),
            slot_attempts: sum(&|slot| slot.attempts),
            busy: self.busy.to_wire(BUCKETS_MAX),
            ..self.part.clone()
        }
    }
}

/// Adds the work of another node.
pub fn merge(sum: &mut wire::NodeTally, part: &wire::NodeTally) {
    let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
    if part.used_slots > 0 {
        rebase(sum, part);
    }
    add(&mut sum.used_slots, part.used_slots);
    add(&mut sum.paused_ns, part.paused_ns);
    add(&mut sum.slot_attempts, part.slot_attempts);
    sum.slots = sum.slots.saturating_add(part.slots);
    add(&mut sum.executions, part.executions);
    add(&mut sum.busy_ns, part.busy_ns);
    add(&mut sum.work_ns, part.work_ns);
    add(&mut sum.moved_bytes, part.moved_bytes);
    add(&mut sum.local_bytes, part.local_bytes);
    add(&mut sum.fetches, part.fetches);
    add(&mut sum.fetch_ns, part.fetch_ns);
    add(&mut sum.stolen, part.stolen);
    add(&mut sum.pushed, part.pushed);
    add(&mut sum.produced_bytes, part.produced_bytes);
    add(&mut sum.replaced, part.replaced);
    add(&mut sum.stale, part.stale);
    add(&mut sum.wakeups_repaired, part.wakeups_repaired);
    add(&mut sum.cpu_ns, part.cpu_ns);
    add(&mut sum.peak_rss_bytes, part.peak_rss_bytes);
    add(&mut sum.messages, part.messages);
    add(&mut sum.steals_tried, part.steals_tried);
    add(&mut sum.steals_won, part.steals_won);
    sum.others_ran |= part.others_ran;
    sum.began_late |= part.began_late;
    sum.unmeasured |= part.unmeasured;
}

/// Refers the sums of both parts to their common first start and last end.
fn rebase(sum: &mut wire::NodeTally, part: &wire::NodeTally) {
    let first = match sum.used_slots {
        0 => part.first_start_ns,
        _ => sum.first_start_ns.min(part.first_start_ns),
    };
    let last = sum.last_end_ns.max(part.last_end_ns);
    let shift = |by: u64, slots: u64| by.saturating_mul(slots);
    let fill = |it: &wire::NodeTally| {
        it.fill_ns.saturating_add(shift(it.first_start_ns.saturating_sub(first), it.used_slots))
    };
    let drain = |it: &wire::NodeTally| {
        it.drain_ns.saturating_add(shift(last.saturating_sub(it.last_end_ns), it.used_slots))
    };
    let (fill_ns, drain_ns) =
        (fill(sum).saturating_add(fill(part)), drain(sum).saturating_add(drain(part)));
    (sum.fill_ns, sum.drain_ns) = (fill_ns, drain_ns);
    (sum.first_start_ns, sum.last_end_ns) = (first, last);
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn ended(task: TaskId, started: u64) -> Event {
        Event::Ended {
            task,
            attempt: Attempt(1),
            end: End::Done,
            started: Time(started * S),
            moved_bytes: 3,
            local_bytes: 4,
        }
    }

    fn run(tally: &mut Tally, number: u64, slots: &[u32], from: u64, to: u64) {
        let (task, attempt) = (TaskId::new(1, number), Attempt(1));
        tally.push(Time(from * S), &Event::Started { task, attempt, slot: slots[0] });
        for &slot in &slots[1..] {
            tally.push(Time(from * S), &Event::Widened { task, attempt, slot });
        }
        tally.push(Time(to * S), &ended(task, from));
    }

    #[test]
    fn a_wide_task_counts_on_all_its_slots() {
        let mut tally = Tally::default();
        run(&mut tally, 1, &[0, 2], 10, 14);
        run(&mut tally, 2, &[0], 15, 16);
        let part = tally.part();
        assert_eq!((part.executions, part.busy_ns, part.work_ns), (2, 9 * S, 9 * S));
        assert_eq!((part.used_slots, part.slot_attempts), (2, 3));
        assert_eq!((part.fill_ns, part.paused_ns, part.drain_ns), (0, S, 2 * S));
        assert_eq!((part.moved_bytes, part.local_bytes), (6, 8));
        assert_eq!(part.busy.unwrap().busy_ns.iter().sum::<u64>(), 9 * S);
    }

    /// With copies, an end is recorded only when other nodes have the outputs. Other tasks use its
    /// slots before that.
    #[test]
    fn an_end_that_is_reported_late_counts_on_all_its_slots_until_then() {
        let mut tally = Tally::default();
        let (task, attempt) = (TaskId::new(1, 1), Attempt(1));
        tally.push(Time(10 * S), &Event::Started { task, attempt, slot: 0 });
        tally.push(Time(10 * S), &Event::Widened { task, attempt, slot: 1 });
        run(&mut tally, 2, &[0], 14, 15);
        run(&mut tally, 3, &[1], 14, 16);
        tally.push(Time(14 * S), &ended(task, 10));
        let part = tally.part();
        assert_eq!((part.busy_ns, part.slot_attempts), (11 * S, 4));
        assert_eq!((part.fill_ns, part.paused_ns, part.drain_ns), (0, 0, S));
    }

    #[test]
    fn an_attempt_that_was_stopped_counts_until_then() {
        let mut tally = Tally::default();
        let (task, attempt) = (TaskId::new(1, 1), Attempt(1));
        tally.push(Time(10 * S), &Event::Started { task, attempt, slot: 0 });
        tally.push(Time(10 * S), &Event::Widened { task, attempt, slot: 1 });
        tally.stop(Time(13 * S), (task, attempt));
        tally.stop(Time(14 * S), (task, attempt));
        let part = tally.part();
        assert_eq!((part.executions, part.busy_ns, part.work_ns), (0, 6 * S, 0));
        assert_eq!((part.used_slots, part.last_end_ns), (2, 13 * S));
    }

    #[test]
    fn the_parts_of_two_nodes_are_the_slots_of_both() {
        let (mut one, mut other) = (Tally::default(), Tally::default());
        run(&mut one, 1, &[0], 10, 14);
        run(&mut other, 2, &[1], 12, 20);
        let mut sum = wire::NodeTally::default();
        for part in [wire::NodeTally::default(), one.part(), other.part()] {
            merge(&mut sum, &part);
        }
        // The second slot starts 2 s after the first, which ends 6 s before it.
        assert_eq!((sum.fill_ns, sum.drain_ns, sum.used_slots), (2 * S, 6 * S, 2));
        assert_eq!((sum.first_start_ns, sum.last_end_ns), (10 * S, 20 * S));
        assert_eq!((sum.executions, sum.busy_ns), (2, 12 * S));
    }

    #[test]
    fn a_part_of_a_gang_has_slot_time_and_is_no_attempt() {
        let (task, attempt) = (TaskId::new(1, 4), Attempt(1));
        let mut tally = Tally::default();
        tally.push(Time(10 * S), &Event::PartBegan { task, attempt, slot: 2 });
        tally.push(Time(10 * S), &Event::PartBegan { task, attempt, slot: 5 });
        tally.push(Time(13 * S), &Event::PartEnded { task, attempt });
        tally.push(Time(14 * S), &Event::PartEnded { task, attempt });
        let part = tally.part();
        assert_eq!((part.executions, part.busy_ns, part.work_ns), (0, 6 * S, 6 * S));
        assert_eq!((part.used_slots, part.last_end_ns), (2, 13 * S));
    }
}
