//! Decisions about the order of jobs on machines at one node, and their consequences.

use crate::problems::jobshop::Instance;
use crate::problems::jobshop::machine::{Window, end_of, find_last, jackson};

/// No schedule below the cutoff satisfies all decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Infeasible;

/// By machine and job: the jobs that come after it, closed under transitivity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Orders {
    jobs: usize,
    after: Vec<u64>,
    /// By machine and job: the earliest start, duration, and the least time after the end.
    windows: Vec<Window>,
}

impl Orders {
    pub(crate) fn new(instance: &Instance) -> Self {
        let durations = instance.durations().into_iter();
        let windows = durations.map(|duration| Window { head: 0, duration, tail: 0 }).collect();
        let jobs = instance.jobs.len();
        Self { jobs, after: vec![0; jobs * instance.machines], windows }
    }

    /// The operations of a machine, by job.
    pub(crate) fn machine(&self, machine: usize) -> &[Window] {
        &self.windows[machine * self.jobs..][..self.jobs]
    }

    pub(crate) fn starts(&self) -> Vec<i64> {
        self.windows.iter().map(|window| window.head).collect()
    }

    pub(crate) fn is_first(&self, machine: usize, one: usize, other: usize) -> bool {
        self.after[machine * self.jobs + one] >> other & 1 == 1
    }

    pub(crate) fn is_decided(&self, machine: usize, one: usize, other: usize) -> bool {
        self.is_first(machine, one, other) || self.is_first(machine, other, one)
    }

    /// The jobs that come before one.
    fn before(&self, machine: usize, job: usize) -> u64 {
        let first = |other: usize| u64::from(self.is_first(machine, other, job)) << other;
        (0..self.jobs).map(first).fold(0, |set, bit| set | bit)
    }

    /// Decides that one job is before another on a machine, with all that follows by transitivity.
    pub(crate) fn decide(
        &mut self,
        machine: usize,
        one: usize,
        other: usize,
    ) -> Result<(), Infeasible> {
        if self.is_first(machine, other, one) || one == other {
            return Err(Infeasible);
        }
        let row = machine * self.jobs;
        let later = self.after[row + other] | 1 << other;
        let earlier = self.before(machine, one) | 1 << one;
        for job in (0..self.jobs).filter(|job| earlier >> job & 1 == 1) {
            self.after[row + job] |= later;
        }
        Ok(())
    }

    /// Draws all conclusions, for schedules that are shorter than the cutoff.
    pub(crate) fn propagate(&mut self, instance: &Instance, cutoff: i64) -> Result<(), Infeasible> {
        loop {
            self.move_windows(instance, cutoff)?;
            let mut is_changed = false;
            for machine in 0..instance.machines {
                is_changed |= self.find_orders(machine, cutoff - 1)?;
            }
            if !is_changed {
                return Ok(());
            }
        }
    }

    /// The greatest of the bounds of all machines.
    pub(crate) fn bound(&self) -> i64 {
        self.windows.chunks(self.jobs).map(jackson).max().unwrap_or(0)
    }

    /// Raises heads and tails until all decisions hold. Each round raises one, and none may
    /// exceed the cutoff: so this ends.
    fn move_windows(&mut self, instance: &Instance, cutoff: i64) -> Result<(), Infeasible> {
        loop {
            let mut is_changed = false;
            for (job, operations) in instance.jobs.iter().enumerate() {
                let (mut head, mut tail) = (0, 0);
                for operation in operations {
                    let window = &mut self.windows[operation.machine * self.jobs + job];
                    is_changed |= raise(&mut window.head, head);
                    head = window.head + window.duration;
                }
                for operation in operations.iter().rev() {
                    let window = &mut self.windows[operation.machine * self.jobs + job];
                    is_changed |= raise(&mut window.tail, tail);
                    tail = window.tail + window.duration;
                }
            }
            for machine in 0..instance.machines {
                is_changed |= self.move_machine(machine);
            }
            let length = |window: &Window| window.head + window.duration + window.tail;
            if self.windows.iter().any(|window| length(window) >= cutoff) {
                return Err(Infeasible);
            }
            if !is_changed {
                return Ok(());
            }
        }
    }

    fn move_machine(&mut self, machine: usize) -> bool {
        let row = machine * self.jobs;
        let mut is_changed = false;
        for job in 0..self.jobs {
            let before = self.before(machine, job);
            let head = end_of(self.machine(machine), before);
            is_changed |= raise(&mut self.windows[row + job].head, head);
        }
        let reversed: Vec<Window> =
            self.machine(machine).iter().map(|window| window.reversed()).collect();
        for job in 0..self.jobs {
            let tail = end_of(&reversed, self.after[row + job]);
            is_changed |= raise(&mut self.windows[row + job].tail, tail);
        }
        is_changed
    }

    /// Decides all pairs of a machine that have one order only.
    fn find_orders(&mut self, machine: usize, limit: i64) -> Result<bool, Infeasible> {
        let windows = self.machine(machine).to_vec();
        let mut found = Vec::new();
        for one in 0..self.jobs {
            for other in (0..self.jobs).filter(|&other| other != one) {
                let (first, second) = (windows[one], windows[other]);
                let length = first.head + first.duration + second.duration + second.tail;
                if length > limit {
                    found.push((other, one));
                }
            }
        }
        let bits = |set: u64| (0..windows.len()).filter(move |job| set >> job & 1 == 1);
        find_last(&windows, limit, |last, set| found.extend(bits(set).map(|job| (job, last))));
        let reversed: Vec<Window> = windows.iter().map(|window| window.reversed()).collect();
        find_last(&reversed, limit, |first, set| found.extend(bits(set).map(|job| (first, job))));
        let mut is_changed = false;
        for (one, other) in found {
            if !self.is_first(machine, one, other) {
                self.decide(machine, one, other)?;
                is_changed = true;
            }
        }
        Ok(is_changed)
    }
}

/// Raises a number to at least another one.
fn raise(number: &mut i64, least: i64) -> bool {
    let is_less = *number < least;
    *number = least.max(*number);
    is_less
}
