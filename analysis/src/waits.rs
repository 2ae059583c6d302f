//! Divides a makespan into the phases of the slots, so that two runs of the same graph can be
//! compared.

use std::collections::BTreeMap;

use proto::{Attempt, NodeId, Span, TaskId, Time};
use serde::Serialize;

/// Means over the slots that ran an attempt, except for fetches and launches. With `busy_s` they
/// add up to the makespan if every slot ran an attempt.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Waits {
    pub slots: u64,
    /// From the start of the clock to a slot's first attempt.
    pub fill_s: f64,
    /// In attempts, which read and write their bytes.
    pub busy_s: f64,
    /// Between the end of an attempt and the start of the next one in the same slot.
    pub paused_s: f64,
    /// From a slot's last end to the last end of all slots.
    pub drain_s: f64,
    /// From the last end until the client knows it.
    pub told_s: f64,
    /// Mean of a pause, and of an attempt.
    pub launch_lag_s: f64,
    pub attempt_s: f64,
    /// Transfers, and the mean time from request to arrival.
    pub fetches: u64,
    pub fetch_s: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Slot {
    first_start: Option<Time>,
    running: Option<(TaskId, Attempt, Time)>,
    last_end: Option<Time>,
    paused: Span,
    busy: Span,
    attempts: u64,
}

/// The slots of all nodes. Unlike the rest of a fold it needs each node's events in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    by_node: BTreeMap<NodeId, Vec<Slot>>,
    fetches: u64,
    fetching: Span,
}

impl Slots {
    pub(crate) fn fetched(&mut self, took: Span) {
        self.fetches += 1;
        self.fetching.0 += took.0;
    }

    pub(crate) fn started(
        &mut self,
        node: NodeId,
        slot: u32,
        (task, attempt): (TaskId, Attempt),
        at: Time,
    ) {
        let slots = self.by_node.entry(node).or_default();
        let index = slot as usize;
        if slots.len() <= index {
            slots.resize(index + 1, Slot::default());
        }
        let slot = &mut slots[index];
        slot.first_start = Some(slot.first_start.map_or(at, |known| known.min(at)));
        if let Some(ended) = slot.last_end.filter(|_| slot.running.is_none()) {
            slot.paused.0 += at.since(ended).0;
        }
        slot.running = Some((task, attempt, at));
    }

    pub(crate) fn ended(&mut self, node: NodeId, key: (TaskId, Attempt), at: Time) {
        let Some(slots) = self.by_node.get_mut(&node) else { return };
        let is_it = |slot: &&mut Slot| slot.running.is_some_and(|it| (it.0, it.1) == key);
        for slot in slots.iter_mut().filter(is_it) {
            let Some((.., since)) = slot.running.take() else { continue };
            slot.busy.0 += at.since(since).0;
            slot.attempts += 1;
            slot.last_end = slot.last_end.max(Some(at));
        }
    }

    pub(crate) fn waits(&self, begin: Time, end: Time) -> Waits {
        let used = || self.by_node.values().flatten().filter(|slot| slot.attempts > 0);
        let slots = used().count() as u64;
        let last = used().filter_map(|slot| slot.last_end).max().unwrap_or(end);
        let mean = |of: &dyn Fn(&Slot) -> Span, over: u64| {
            let sum: f64 = used().map(|slot| of(slot).as_secs_f64()).sum();
            sum / over.max(1) as f64
        };
        let fill = |slot: &Slot| slot.first_start.unwrap_or(begin).since(begin);
        let drain = |slot: &Slot| last.since(slot.last_end.unwrap_or(last));
        let attempts: u64 = used().map(|slot| slot.attempts).sum();
        let paused = |slot: &Slot| slot.paused;
        let busy = |slot: &Slot| slot.busy;
        Waits {
            slots,
            fill_s: mean(&fill, slots),
            busy_s: mean(&busy, slots),
            paused_s: mean(&paused, slots),
            drain_s: mean(&drain, slots),
            told_s: end.since(last).as_secs_f64(),
            launch_lag_s: mean(&paused, attempts.saturating_sub(slots)),
            attempt_s: mean(&busy, attempts),
            fetches: self.fetches,
            fetch_s: self.fetching.as_secs_f64() / self.fetches.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_makespan_is_the_sum_of_its_parts() {
        let mut slots = Slots::default();
        let mut run = |slot, number, from, to| {
            let key = (TaskId::new(1, number), Attempt(1));
            slots.started(NodeId(0), slot, key, Time(from * S));
            slots.ended(NodeId(0), key, Time(to * S));
        };
        run(0, 1, 12, 15);
        run(1, 2, 13, 14);
        run(0, 3, 16, 20);
        run(0, 4, 22, 23);
        slots.fetched(Span(3 * S));
        slots.fetched(Span(S));
        let waits = slots.waits(Time(10 * S), Time(24 * S));
        let expected = Waits {
            slots: 2,
            fill_s: 2.5,
            busy_s: 4.5,
            paused_s: 1.5,
            drain_s: 4.5,
            told_s: 1.0,
            launch_lag_s: 1.5,
            attempt_s: 2.25,
            fetches: 2,
            fetch_s: 2.0,
        };
        assert_eq!(waits, expected);
        let Waits { fill_s, busy_s, paused_s, drain_s, told_s, .. } = waits;
        assert_eq!(fill_s + busy_s + paused_s + drain_s + told_s, 14.0);
    }
}
