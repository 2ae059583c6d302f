//! *Starve*: no ready task waits in a queue while a fitting slot is free all the time. A task in a
//! shared queue may run anywhere. A task that the policy put into a local queue waits for its own
//! node.
//!
//! The check applies only without faults: to faultless worlds, and to every world after healing.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::Spared;
use proto::limits::CRASHES_ALONE_MIN;
use proto::{Attempt, Event, PartitionId, Span, TaskId, Time};
use resources::EndOfLife;

use crate::checkers::{Verdict, Violation};

const NAME: &str = "starve";

/// The longest wait of a task beside a free slot that fits. A dormant thief gets a hint within a
/// second of a surplus.
const WAIT_MAX: Span = Span::from_secs(20);
/// The longest wait where thieves take a whole queue and syncs are slow. A thief may not pass tasks
/// on before their homes know. Other thieves get nothing meanwhile, and the next one takes the
/// whole queue again.
const WAIT_MAX_OF_WHOLE_QUEUES: Span = Span::from_secs(60);
/// Beside gangs, and where nodes end, the wait of one task is not bounded: *progress* demands that
/// all end.
const WAIT_UNBOUNDED: Span = Span::from_secs(1_000_000);
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

/// The slots of a machine and their use.
#[derive(Clone, Debug)]
struct SlotUse {
    slots: u32,
    busy: u32,
    /// Objects in transfer to it. A free slot may wait for them.
    fetches: u32,
    /// Its small store may refuse more than one task at a time.
    is_cramped: bool,
    /// It is draining and takes no further work.
    leaves: bool,
    /// It takes no work yet.
    waits: bool,
    /// It is slow and gets no work.
    is_slow: bool,
    /// Its known end: a task that asks for time starts only if it ends before.
    end: Option<EndOfLife>,
    /// For each number of slots, the time since which at least this number is free.
    since: Vec<Option<Time>>,
    /// For each request of this world, whether its resources are free, and since when.
    fits: Vec<bool>,
    fits_since: Vec<Option<Time>>,
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
        for (fits, since) in self.fits.iter().zip(&mut self.fits_since) {
            *since = (*fits && free > 0).then(|| since.unwrap_or(now));
        }
    }
}

/// The ready tasks and the free slots, by the trace.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    waiting: BTreeMap<TaskId, ReadyTask>,
    /// Suspects of crashes, which start only on a node where nothing else runs.
    alone: BTreeSet<TaskId>,
    machines: Vec<SlotUse>,
    /// The requests of tasks, by their place in `fits`.
    classes: BTreeMap<TaskId, usize>,
    /// The time requests of tasks.
    lengths: BTreeMap<TaskId, Span>,
    /// Partitions without a serving home. Their tasks may wait for a start permission.
    unserved: BTreeSet<PartitionId>,
    wait_max: Span,
    /// Times before this do not count, because of faults.
    from: Time,
}

impl Watch {
    pub(crate) fn new(slots: impl Iterator<Item = u32>, now: Time) -> Self {
        let waiting = BTreeMap::new();
        let (alone, unserved) = (BTreeSet::new(), BTreeSet::new());
        let (machines, wait_max) = (Vec::new(), WAIT_MAX);
        let (classes, lengths, from) = (BTreeMap::new(), BTreeMap::new(), now);
        let mut watch =
            Self { waiting, alone, machines, classes, lengths, unserved, wait_max, from };
        slots.for_each(|slots| watch.joins(slots));
        watch
    }

    /// Allows longer waits if one steal takes a whole queue and syncs are slow.
    pub(crate) fn expect_steals(&mut self, share: f64, sync_max: Span) {
        let circles = share >= 1.0 && sync_max >= SYNC_SLOW;
        self.wait_max = if circles { WAIT_MAX_OF_WHOLE_QUEUES } else { WAIT_MAX };
    }

    /// Nodes drain for gangs while narrow tasks wait.
    pub(crate) fn expect_gangs(&mut self, gangs: bool) {
        if gangs {
            self.wait_max = WAIT_UNBOUNDED;
        }
    }

    /// Commands with a signal wait for the nodes that do not end, while others have free slots.
    pub(crate) fn expect_moves(&mut self, moves: bool) {
        if moves {
            self.wait_max = WAIT_UNBOUNDED;
        }
    }

    /// Adds a machine.
    pub(crate) fn joins(&mut self, slots: u32) {
        let (since, is_cramped) = (vec![None; slots as usize], false);
        let (leaves, waits, is_slow) = (false, false, false);
        let (busy, fetches) = (0, 0);
        let (fits, fits_since) = (Vec::new(), Vec::new());
        self.machines.push(SlotUse {
            slots,
            busy,
            fetches,
            is_cramped,
            leaves,
            waits,
            is_slow,
            end: None,
            since,
            fits,
            fits_since,
        });
    }

    /// A task asks for more than cpus: for a request of this world, by its place.
    pub(crate) fn asks(&mut self, task: TaskId, class: usize) {
        self.classes.insert(task, class);
    }
    /// A task asks for time.
    pub(crate) fn asks_for_time(&mut self, task: TaskId, length: Span) {
        self.lengths.insert(task, length);
    }
    /// The machine ends at a known time.
    pub(crate) fn ends(&mut self, node: usize, end: Option<EndOfLife>) {
        self.machines[node].end = end;
    }
    /// The resources of a machine have changed.
    pub(crate) fn set_fits(&mut self, now: Time, node: usize, fits: Vec<bool>, is_up: bool) {
        let machine = &mut self.machines[node];
        machine.fits_since.resize(fits.len(), None);
        machine.fits = fits;
        machine.settle(now, is_up);
    }

    /// The map changes whether the machine's process is alive.
    pub(crate) fn shows(&mut self, now: Time, node: usize, is_alive: bool) {
        self.machines[node].waits = !is_alive;
        self.machines[node].settle(now, is_alive);
    }

    /// The machine is draining.
    pub(crate) fn leaves(&mut self, now: Time, node: usize) {
        self.machines[node].leaves = true;
        self.machines[node].settle(now, false);
    }

    /// Its store is small now, or is not any more.
    pub(crate) fn is_cramped(&mut self, now: Time, node: usize, is_cramped: bool) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        if std::mem::replace(&mut machine.is_cramped, is_cramped) != is_cramped {
            machine.settle(now, true);
        }
    }

    /// Other nodes give the machine no tasks, or do so again.
    pub(crate) fn is_slow(&mut self, now: Time, node: usize, is_slow: bool, is_up: bool) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        if std::mem::replace(&mut machine.is_slow, is_slow) != is_slow {
            machine.settle(now, is_up);
        }
    }

    /// A partition gets or loses its serving home.
    pub(crate) fn serves(&mut self, now: Time, partition: PartitionId, is_served: bool) {
        if !is_served {
            self.unserved.insert(partition);
        } else if self.unserved.remove(&partition) {
            let of_it = self.waiting.iter_mut().filter(|(task, _)| task.partition() == partition);
            of_it.for_each(|(_, waiting)| waiting.since = now);
        }
    }

    /// Ignores times before `from`; with `Time::MAX` nothing counts.
    pub(crate) fn count_from(&mut self, from: Time) {
        self.from = from;
    }

    /// Handles an event of a node; `cpus` is the width of its task.
    pub(crate) fn on_event(&mut self, now: Time, node: usize, event: &Event, cpus: u32) -> Verdict {
        match *event {
            Event::Queued { task, attempt, local_queue, .. } => {
                let fresh = ReadyTask { attempt, node, local_queue, since: now, cpus };
                let waiting = self.waiting.entry(task).or_insert(fresh);
                if waiting.attempt == attempt && waiting.local_queue == local_queue {
                    waiting.node = node; // A move does not shorten its wait.
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
            // It may have failed without a start, for lack of inputs.
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
            // The event does not name the tasks, so all waits on this node restart.
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
        // A machine that was idle for long takes a task: judge all waits until now.
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

    /// Checks whether some machine could have run it all along.
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
            let free = match self.classes.get(&task) {
                Some(_) if alone => continue,
                Some(&class) => machine.fits_since.get(class),
                None => machine.since.get(width),
            };
            let Some(Some(free)) = free else { continue };
            let both = since.max(*free).max(self.from);
            // Later it would not end before the machine does.
            let latest = machine.end.zip(self.lengths.get(&task));
            let latest = latest.map(|(end, length)| end.latest_start_ns(length.0).unwrap_or(0));
            let until = latest.map_or(now, |latest| Time(latest).min(now));
            let waited = if both < until { until.since(both) } else { Span::ZERO };
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

    /// An attempt in a slot has ended.
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

    /// The process died, or restarted with free slots.
    pub(crate) fn on_up(&mut self, now: Time, node: usize, is_up: bool) {
        let machine = &mut self.machines[node];
        (machine.busy, machine.fetches) = (0, 0);
        machine.settle(now, is_up);
        self.waiting.retain(|_, waiting| waiting.node != node);
    }

    /// All jobs have ended: a task that still waits was forgotten. Judges its wait.
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
        let mut watch = Watch::new([2, 2].into_iter(), seconds(0));
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
        // Too wide for the one remaining slot.
        watch.on_event(seconds(5), 0, &queued(false), 2).expect("it begins to wait");
        watch.on_ended(seconds(30), 0, 2);
        watch.on_launch(seconds(31), 0, at(), 2).expect("only for a second could it run");
        // A slot that waits for objects does not count, and neither does time before the healing.
        watch.on_event(seconds(40), 0, &queued(false), 1).expect("it begins to wait");
        watch.on_fetch(seconds(40), 1);
        watch.on_launch(seconds(90), 0, at(), 1).expect("n1 waits for its object");
        watch.on_fetched(seconds(90), 1);
        watch.on_event(seconds(100), 0, &queued(false), 1).expect("it begins to wait");
        watch.count_from(seconds(190));
        watch.on_launch(seconds(200), 1, at(), 1).expect("it was healed ten seconds ago");
    }

    #[test]
    fn a_busy_machine_with_a_small_store_does_not_count() {
        let mut watch = watch();
        let other = (TaskId::new(1, 8), Attempt(1));
        watch.on_launch(seconds(1), 0, other, 2).expect("it waited nowhere");
        watch.on_launch(seconds(1), 1, other, 1).expect("it waited nowhere");
        watch.is_cramped(seconds(2), 1, true);
        watch.on_event(seconds(5), 0, &queued(false), 1).expect("it begins to wait");
        watch.is_cramped(seconds(30), 1, false);
        watch.on_launch(seconds(31), 0, at(), 1).expect("its store was small until now");
        watch.on_event(seconds(40), 0, &queued(false), 1).expect("it begins to wait");
        assert!(watch.on_launch(seconds(70), 0, at(), 1).is_err(), "n1 had space");
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

    /// The task fails for lack of inputs, and should have started long before.
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

    #[test]
    fn a_machine_that_ends_too_early_does_not_count() {
        for asks in [false, true] {
            let mut watch = watch();
            watch.ends(1, Some(EndOfLife::from_parts(seconds(6).0, 0)));
            if asks {
                watch.asks_for_time(at().0, Span::from_secs(2));
            }
            let other = (TaskId::new(1, 8), Attempt(1));
            watch.on_launch(seconds(1), 0, other, 2).expect("it waited nowhere");
            watch.on_event(seconds(5), 0, &queued(false), 1).expect("it begins to wait");
            assert_eq!(watch.on_launch(seconds(30), 0, at(), 1).is_err(), !asks);
        }
    }
}
