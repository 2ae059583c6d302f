//! Whether there is room for a task's inputs and outputs on the disk of this node.

use proto::limits::{STORE_BYPASS_TIME, STORE_BYPASSES_MIN, STORE_FULL_TIMEOUT};
use proto::{TaskId, Time};

/// What to do with a task that is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Now,
    /// When something that runs or is staged here has ended.
    Later,
    /// Not even alone.
    Never {
        needed_bytes: u64,
        budget_bytes: u64,
        taken_bytes: u64,
    },
}

/// `needed`: bytes that come with it; `taken`: bytes that cannot go by eviction, and those promised
/// to others; `marks`: soft and hard. While nothing is under way nothing will make room by itself:
/// then a task is admitted above the soft mark, or it fails.
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

/// How long a node has had no room for its next task while nothing was under way: readers on other
/// nodes may yet end and make room, but not for ever.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SpaceTimeout {
    /// The task that is next, and until when it may wait.
    waiting: Option<(TaskId, Time)>,
    spent: bool,
}

impl SpaceTimeout {
    /// A task was admitted or refused, or none is left: whatever comes next may wait anew.
    pub(crate) fn renew(&mut self) {
        *self = Self::default();
    }
    /// There is no room for the next one. True while it may wait.
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

/// The task that is next and has no room. Others that have pass it, but not for ever: then all wait
/// until what is under way has made room for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    task: TaskId,
    since: Time,
    times: u32,
}

impl Passed {
    /// There is no room for the task that is next. What is remembered is of one task only.
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
    /// Whether others may still pass it.
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

    /// A node with any marks and tasks works through all of them: each is run or refused.
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
