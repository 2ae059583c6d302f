//! Each task goes to a random worker, with a probability proportional to its cores, before the run.

use crate::SimRng;
use crate::baselines::view::{Assignment, Scheduler, Update, View};

#[derive(Clone, Copy, Debug)]
pub(super) struct Random;

impl Scheduler for Random {
    fn schedule(&mut self, view: &View<'_>, update: &Update, dice: &mut SimRng) -> Vec<Assignment> {
        if !update.first {
            return Vec::new();
        }
        let workers = &view.problem.workers;
        let cores: u64 = workers.iter().map(|worker| u64::from(worker.cores)).sum();
        let mut order: Vec<usize> = (0..view.problem.tasks.len()).collect();
        shuffle(&mut order, dice);
        let draw = |task: usize| loop {
            let mut ticket = dice.below(cores);
            let drawn = workers.iter().position(|worker| {
                let here = ticket < u64::from(worker.cores);
                ticket = ticket.saturating_sub(u64::from(worker.cores));
                here
            });
            let worker = drawn.expect("there is a core for every ticket");
            if workers[worker].cores >= view.problem.tasks[task].cores {
                return Assignment::new(task, worker);
            }
        };
        order.into_iter().map(draw).collect()
    }
}

/// Fisher-Yates shuffle.
pub(super) fn shuffle<T>(items: &mut [T], dice: &mut SimRng) {
    for at in (1..items.len()).rev() {
        items.swap(at, dice.index(at + 1));
    }
}
