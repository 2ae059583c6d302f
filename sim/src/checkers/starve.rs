//! *Starve*: no ready task waits in a queue while a slot that fits it is free all the time. A task
//! in a shared queue may run anywhere; one in a dedicated local queue, by its policy's will, waits
//! for its own node alone.
//!
//! Demanded where nothing is broken: of a faultless world, and of any world once it is healed.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::Spared;
use proto::limits::CRASHES_ALONE_MIN;
use proto::{Attempt, Event, PartitionId, Span, TaskId, Time};

use super::{Verdict, Violation};

const NAME: &str = "starve";

/// How long a task may wait beside a free slot that could run it. A thief that has gone quiet hears
/// a hint within a second of a surplus.
const WAIT_MAX: Span = Span::from_secs(20);
/// Where thieves take a whole queue at once, which they may not pass on before its homes know, and
/// syncs are slow: who asks meanwhile gets nothing, and the next thief takes it all again.
const WAIT_MAX_OF_WHOLE_QUEUES: Span = Span::from_secs(60);
const SYNC_SLOW: Span = Span::from_millis(50);

/// A ready task in some queue.
#[derive(Clone, Copy, Debug)]
struct ReadyTask {
    attempt: Attempt,
    node: usize,
    local_queue: bool,
    since: Time,
    cpus: u32,
}

/// How a machine's slots are taken.
#[derive(Clone, Debug)]
struct SlotUse {
    slots: u32,
    busy: u32,
    /// Objects on their way to it: a free slot may be waiting for them.
    fetches: u32,
    /// Its store may refuse what is more than one task at a time.
    is_cramped: bool,
    /// It takes no further work.
    leaves: bool,
    /// It takes no work yet.
    waits: bool,
    /// Nor is any given to it.
    is_slow: bool,
    /// For each number of slots since when at least so many have been free.
    since: Vec<Option<Time>>,
}

impl SlotUse {
    fn settle(&mut self, now: Time, is_usable: bool) {
        let is_usable = is_usable
            && !(self.leaves || self.waits || self.is_slow)
            && self.fetches == 0
            && !(self.is_cramped && self.busy > 0);
        let free = if is_usable { self.slots.saturating_sub(self.busy) } else { 0 };
        for (width, since) in (1..).zip(&mut self.since) {
            match (width <= free, &since) {
                (true, None) => *since = Some(now),
                (false, Some(_)) => *since = None,
                _ => {}
            }
        }
    }
}

/// What is ready and what is free, as the trace tells.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    waiting: BTreeMap<TaskId, ReadyTask>,
    /// Suspects of crashes, which start on a node where nothing else runs.
    alone: BTreeSet<TaskId>,
    machines: Vec<SlotUse>,
    /// Nobody serves these: who may not start a task of theirs without being told waits.
    unserved: BTreeSet<PartitionId>,
    is_cramped: bool,
    wait_max: Span,
    /// Nothing before this counts: there were faults.
    from: Time,
}

impl Watch {
    pub(crate) fn new(slots: impl Iterator<Item = u32>, is_cramped: bool, now: Time) -> Self {
        let waiting = BTreeMap::new();
        let (alone, unserved) = (BTreeSet::new(), BTreeSet::new());
        let (machines, wait_max) = (Vec::new(), WAIT_MAX);
        let mut watch =
            Self { waiting, alone, machines, unserved, is_cramped, wait_max, from: now };
        slots.for_each(|slots| watch.joins(slots));
        watch
    }

    /// Where one steal takes so much of a victim's shared queue, and a sync so long.
    pub(crate) fn expect_steals(&mut self, share: f64, sync_max: Span) {
        let circles = share >= 1.0 && sync_max >= SYNC_SLOW;
        self.wait_max = if circles { WAIT_MAX_OF_WHOLE_QUEUES } else { WAIT_MAX };
    }

    /// One more machine.
    pub(crate) fn joins(&mut self, slots: u32) {
        let (since, is_cramped) = (vec![None; slots as usize], self.is_cramped);
        let (leaves, waits, is_slow) = (false, false, false);
        let (busy, fetches) = (0, 0);
        let free = SlotUse { slots, busy, fetches, is_cramped, leaves, waits, is_slow, since };
        self.machines.push(free);
    }

    /// The map shows that the process which runs there lives, or does not.
    pub(crate) fn shows(&mut self, now: Time, node: usize, is_alive: bool) {
        self.machines[node].waits = !is_alive;
        self.machines[node].settle(now, is_alive);
    }

    /// A machine hands over what it has.
    pub(crate) fn leaves(&mut self, now: Time, node: usize) {
        self.machines[node].leaves = true;
        self.machines[node].settle(now, false);
    }

    /// Others give a machine nothing, or do again.
    pub(crate) fn is_slow(&mut self, now: Time, node: usize, is_slow: bool, is_up: bool) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        if std::mem::replace(&mut machine.is_slow, is_slow) != is_slow {
            machine.settle(now, is_up);
        }
    }

    /// A partition has a home again, or has none.
    pub(crate) fn serves(&mut self, now: Time, partition: PartitionId, is_served: bool) {
        if !is_served {
            self.unserved.insert(partition);
        } else if self.unserved.remove(&partition) {
            let of_it = self.waiting.iter_mut().filter(|(task, _)| task.partition() == partition);
            of_it.for_each(|(_, waiting)| waiting.since = now);
        }
    }

    /// What was before counts no more, or nothing counts until further notice (`Time::MAX`).
    pub(crate) fn count_from(&mut self, from: Time) {
        self.from = from;
    }

    /// A node says what it does; `cpus` of the task it speaks of.
    pub(crate) fn on_event(&mut self, now: Time, node: usize, event: &Event, cpus: u32) -> Verdict {
        match *event {
            Event::Queued { task, attempt, local_queue, .. } => {
                let fresh = ReadyTask { attempt, node, local_queue, since: now, cpus };
                let waiting = self.waiting.entry(task).or_insert(fresh);
                if waiting.attempt == attempt && waiting.local_queue == local_queue {
                    waiting.node = node; // A move does not make its wait any shorter.
                } else {
                    *waiting = fresh;
                }
            }
            Event::Pushed { task, .. }
            | Event::Replaced { task, .. }
            | Event::Committed { task, .. }
            | Event::Dismissed { task, .. } => {
                self.waiting.remove(&task);
            }
            // It may have failed without a start, for want of inputs.
            Event::Ended { task, attempt, .. } if self.waits_for(task, attempt) => {
                let waited = self.waiting.remove(&task);
                return waited.map_or(Ok(()), |waiting| self.judge(now, task, waiting));
            }
            Event::CrashCounted { task, count, .. } if count >= CRASHES_ALONE_MIN => {
                self.alone.insert(task);
            }
            Event::Spared { task, why: Spared::Apart | Spared::Beside, .. } => {
                self.alone.insert(task);
            }
            // Which ones is not told: all that wait here begin anew.
            Event::Shifted { .. } => {
                for waiting in self.waiting.values_mut().filter(|w| w.node == node) {
                    waiting.since = now;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn waits_for(&self, task: TaskId, attempt: Attempt) -> bool {
        self.waiting.get(&task).is_some_and(|waiting| waiting.attempt == attempt)
    }

    pub(crate) fn on_launch(
        &mut self,
        now: Time,
        node: usize,
        (task, attempt): (TaskId, Attempt),
        cpus: u32,
    ) -> Verdict {
        let waited = self.waiting.get(&task).filter(|waiting| waiting.attempt == attempt).copied();
        let mut verdict = waited.map_or(Ok(()), |waiting| self.judge(now, task, waiting));
        // A machine that stood idle for long takes something at last: who waited meanwhile?
        let idle = self.machines[node].since.iter().flatten().min().copied();
        if idle.is_some_and(|since| now.since(since) > self.wait_max) {
            for (task, waiting) in self.waiting.clone() {
                verdict = verdict.and_then(|()| self.judge(now, task, waiting));
            }
        }
        self.waiting.remove(&task);
        self.machines[node].busy += cpus;
        self.machines[node].settle(now, true);
        verdict
    }

    /// Whether some machine could have run it all along.
    fn judge(&self, now: Time, task: TaskId, waiting: ReadyTask) -> Verdict {
        let ReadyTask { node, local_queue, since, cpus, .. } = waiting;
        if self.unserved.contains(&task.partition()) {
            return Ok(());
        }
        let alone = self.alone.contains(&task);
        for (at, machine) in self.machines.iter().enumerate() {
            if local_queue && at != node {
                continue;
            }
            let cpus = if alone { machine.slots.max(cpus) } else { cpus.max(1) };
            let width = cpus as usize - 1;
            let Some(Some(free)) = machine.since.get(width) else { continue };
            let both = since.max(*free).max(self.from);
            let waited = if both < now { now.since(both) } else { Span::ZERO };
            if waited > self.wait_max {
                let queue = if local_queue { "local" } else { "shared" };
                let text = format!(
                    "{task} has waited {waited:?} in the {queue} queue of n{node} while n{at} had \
                     {cpus} slots free"
                );
                return Err(Violation::new(NAME, text));
            }
        }
        Ok(())
    }

    /// An attempt in a slot is over.
    pub(crate) fn on_ended(&mut self, now: Time, node: usize, cpus: u32) {
        let machine = &mut self.machines[node];
        machine.busy = machine.busy.saturating_sub(cpus);
        machine.settle(now, true);
    }

    pub(crate) fn on_fetch(&mut self, now: Time, node: usize) {
        self.machines[node].fetches += 1;
        self.machines[node].settle(now, true);
    }

    pub(crate) fn on_fetched(&mut self, now: Time, node: usize) {
        let machine = &mut self.machines[node];
        machine.fetches = machine.fetches.saturating_sub(1);
        machine.settle(now, true);
    }

    /// The process is gone, or is there again with nothing in its slots.
    pub(crate) fn on_up(&mut self, now: Time, node: usize, is_up: bool) {
        let machine = &mut self.machines[node];
        (machine.busy, machine.fetches) = (0, 0);
        machine.settle(now, is_up);
        self.waiting.retain(|_, waiting| waiting.node != node);
    }

    /// All jobs have ended: whoever still waits was forgotten, and by now for how long.
    pub(crate) fn on_end(&mut self, now: Time) -> Verdict {
        self.waiting
            .clone()
            .into_iter()
            .try_for_each(|(task, waiting)| self.judge(now, task, waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::event::Reason;

    fn at() -> (TaskId, Attempt) {
        (TaskId::new(1, 7), Attempt(1))
    }
    fn seconds(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }
    fn queued(local_queue: bool) -> Event {
        let (task, attempt) = at();
        Event::Queued { task, attempt, local_queue, reason: Reason::NoInput, input_bytes: 0 }
    }
    /// Two machines of two slots that have just started.
    fn watch() -> Watch {
        let mut watch = Watch::new([2, 2].into_iter(), false, seconds(0));
        watch.on_up(seconds(0), 0, true);
        watch.on_up(seconds(0), 1, true);
        watch
    }

    #[test]
    fn a_task_beside_a_free_slot_starves() {
        let mut watch = watch();
        watch.on_event(seconds(5), 0, &queued(false), 2).expect("it begins to wait");
        assert!(watch.on_launch(seconds(30), 0, at(), 2).is_err(), "n1 was free for 25 s");
    }

    #[test]
    fn what_is_not_free_does_not_count() {
        let mut watch = watch();
        let other = (TaskId::new(1, 8), Attempt(1));
        watch.on_launch(seconds(1), 0, other, 2).expect("it waited nowhere");
        watch.on_launch(seconds(1), 1, other, 1).expect("it waited nowhere");
        // Too wide for the one slot that is left.
        watch.on_event(seconds(5), 0, &queued(false), 2).expect("it begins to wait");
        watch.on_ended(seconds(30), 0, 2);
        watch.on_launch(seconds(31), 0, at(), 2).expect("only for a second could it run");
        // Nor does what a slot waits for, nor what was before the healing.
        watch.on_event(seconds(40), 0, &queued(false), 1).expect("it begins to wait");
        watch.on_fetch(seconds(40), 1);
        watch.on_launch(seconds(90), 0, at(), 1).expect("n1 waits for its object");
        watch.on_fetched(seconds(90), 1);
        watch.on_event(seconds(100), 0, &queued(false), 1).expect("it begins to wait");
        watch.count_from(seconds(190));
        watch.on_launch(seconds(200), 1, at(), 1).expect("it was healed ten seconds ago");
    }

    #[test]
    fn a_local_task_waits_for_its_node_alone() {
        let mut watch = watch();
        let other = (TaskId::new(1, 8), Attempt(1));
        watch.on_launch(seconds(1), 0, other, 2).expect("it waited nowhere");
        watch.on_event(seconds(5), 0, &queued(true), 1).expect("it begins to wait");
        watch.on_ended(seconds(60), 0, 2);
        watch.on_launch(seconds(61), 0, at(), 1).expect("its node was busy");
        watch.on_event(seconds(70), 1, &queued(true), 1).expect("it begins to wait");
        assert!(watch.on_end(seconds(99)).is_err(), "n1 could have run it");
    }

    /// It is lost for want of inputs, and should have been long before.
    #[test]
    fn a_task_that_ends_without_a_start_has_waited_too() {
        let (task, attempt) = at();
        let ended = Event::Ended {
            task,
            attempt,
            end: proto::event::End::Failed,
            started: seconds(0),
            moved_bytes: 0,
            local_bytes: 0,
        };
        for (until, starves) in [(20, false), (40, true)] {
            let mut watch = watch();
            watch.on_event(seconds(5), 0, &queued(false), 1).expect("it begins to wait");
            let verdict = watch.on_event(seconds(until), 0, &ended, 0);
            assert_eq!(verdict.is_err(), starves);
            watch.on_end(seconds(99)).expect("it waits no more");
        }
    }
}
