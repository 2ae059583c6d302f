//! Admission control for the disk: whether the inputs and outputs of a task fit on this node.

use crate::limits::{STORE_BYPASS_TIME, STORE_BYPASSES_MIN, STORE_FULL_TIMEOUT};
use proto::{TaskId, Time};

/// The decision about the next task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Now,
    /// The task fits only after tasks that run or are staged here have ended.
    Later,
    /// The task does not fit even if it runs alone.
    Never {
        needed_bytes: u64,
        budget_bytes: u64,
        taken_bytes: u64,
    },
}

/// `needed`: bytes of the task's inputs and outputs. `taken`: bytes that eviction cannot free, plus
/// reservations. The pair holds the soft and the hard limit. `busy`: some task runs or is staged
/// here. Otherwise nothing frees space by itself: the task is admitted up to the hard limit, or it
/// fails.
#[must_use]
pub(crate) fn admit(needed: u64, taken: u64, (soft, hard): (u64, u64), busy: bool) -> Admission {
    let after = taken.saturating_add(needed);
    if after <= soft {
        Admission::Now
    } else if busy {
        Admission::Later
    } else if after <= hard {
        Admission::Now
    } else {
        Admission::Never { needed_bytes: needed, budget_bytes: hard, taken_bytes: taken }
    }
}

/// The timeout of a node that has no space for its next task while nothing runs or is staged here.
/// Readers on other nodes may still end and free space, so the task waits for
/// `STORE_FULL_TIMEOUT`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SpaceTimeout {
    /// The next task, and the end of its timeout.
    waiting: Option<(TaskId, Time)>,
    spent: bool,
}

impl SpaceTimeout {
    /// Resets the timeout after a task was admitted or refused, or when no task is left.
    pub(crate) fn renew(&mut self) {
        *self = Self::default();
    }
    /// The next task does not fit. Returns true while it may wait.
    pub(crate) fn waits(&mut self, now: Time, task: TaskId) -> bool {
        match self.waiting {
            Some((other, until)) if other == task => self.spent |= until <= now,
            _ => {
                let waiting = Some((task, now + STORE_FULL_TIMEOUT));
                *self = Self { waiting, spent: false };
            }
        }
        !self.spent
    }
    pub(crate) fn tick(&mut self, now: Time) {
        self.spent |= self.waiting.is_some_and(|(_, until)| until <= now);
    }
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.waiting.map(|(_, until)| until).filter(|_| !self.spent)
    }
}

/// The next task, which does not fit, and how often other tasks have overtaken it. Overtaking is
/// bounded; after that all tasks wait until the next one fits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    task: TaskId,
    since: Time,
    times: u32,
}

impl Passed {
    /// The next task does not fit. Only one such task is remembered.
    pub(crate) fn note(passed: &mut Option<Self>, now: Time, task: TaskId) {
        if passed.is_none_or(|passed| passed.task != task) {
            *passed = Some(Self { task, since: now, times: 0 });
        }
    }
    pub(crate) fn is_of(&self, task: TaskId) -> bool {
        self.task == task
    }
    pub(crate) fn once_more(&mut self) {
        self.times = self.times.saturating_add(1);
    }
    /// Whether tasks may still overtake: for `STORE_BYPASS_TIME` or `STORE_BYPASSES_MIN` times,
    /// whichever lasts longer.
    pub(crate) fn may(&self, now: Time) -> bool {
        self.times < STORE_BYPASSES_MIN || now < self.since + STORE_BYPASS_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_passed_for_a_while_and_by_a_few_at_least() {
        let (task, mut passed) = (TaskId::new(1, 1), None);
        Passed::note(&mut passed, Time(5), task);
        let late = Time(5) + STORE_BYPASS_TIME;
        let mut of_task = passed.expect("it is noted");
        (0..STORE_BYPASSES_MIN).for_each(|_| {
            assert!(of_task.may(late), "long tasks: a few still pass");
            of_task.once_more();
        });
        assert!(of_task.may(Time(late.0 - 1)) && !of_task.may(late), "short tasks: for a while");
        passed = Some(of_task);
        Passed::note(&mut passed, late, task);
        assert!(passed.is_some_and(|it| !it.may(late)), "it has not become younger");
        Passed::note(&mut passed, late, TaskId::new(1, 2));
        assert!(passed.is_some_and(|it| it.may(late)), "another one");
    }

    #[test]
    fn patience_ends_once_and_is_renewed_by_progress() {
        let mut patience = SpaceTimeout::default();
        assert_eq!(patience.deadline(), None);
        let (task, other) = (TaskId::new(1, 1), TaskId::new(1, 2));
        assert!(patience.waits(Time(5), task));
        let until = Time(5) + STORE_FULL_TIMEOUT;
        assert_eq!(patience.deadline(), Some(until));
        patience.tick(until);
        assert_eq!(patience.deadline(), None, "nothing is left to wait for");
        assert!(!patience.waits(until, task));
        assert!(patience.waits(until, other), "another one has not waited yet");
        assert_eq!(patience.deadline(), Some(until + STORE_FULL_TIMEOUT));
        patience.renew();
        assert!(patience.waits(until, task));
    }

    #[test]
    fn the_marks() {
        let marks = (100, 120);
        assert_eq!(admit(40, 60, marks, true), Admission::Now);
        assert_eq!(admit(41, 60, marks, true), Admission::Later);
        assert_eq!(admit(41, 60, marks, false), Admission::Now);
        let never = Admission::Never { needed_bytes: 61, budget_bytes: 120, taken_bytes: 60 };
        assert_eq!(admit(61, 60, marks, false), never);
        assert_eq!(admit(61, 60, marks, true), Admission::Later);
        assert_eq!(admit(u64::MAX, 60, (u64::MAX, u64::MAX), true), Admission::Now);
    }

    /// With any limits and any tasks, a node gets through all tasks: each is run or refused.
    #[test]
    fn it_never_dead_locks() {
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..2_000 {
            let hard = draw(200);
            let soft = draw(hard + 1);
            let mut waiting: Vec<u64> = (0..draw(20)).map(|_| draw(120)).collect();
            let (mut running, mut kept) = (Vec::new(), 0);
            let mut steps = 0;
            while !waiting.is_empty() || !running.is_empty() {
                steps += 1;
                assert!(steps < 1_000, "it makes no progress");
                let taken = kept + running.iter().sum::<u64>();
                let next = waiting.last().copied().filter(|_| running.len() < 4);
                match next.map(|needed| admit(needed, taken, (soft, hard), !running.is_empty())) {
                    Some(Admission::Now) => {
                        let needed = waiting.pop().expect("looked at above");
                        assert!(taken + needed <= hard, "above the hard mark");
                        running.push(needed);
                    }
                    Some(Admission::Never { .. }) => {
                        waiting.pop();
                    }
                    Some(Admission::Later) | None => {
                        let ended = running.pop().expect("later only while something runs");
                        kept += draw(ended / 4 + 1);
                    }
                }
            }
        }
    }
}
