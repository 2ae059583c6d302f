//! Everything on the worker with the most cores, by b-level.

use super::b_levels;
use crate::SimRng;
use crate::baselines::view::{Assignment, Scheduler, Update, View};

#[derive(Clone, Debug, Default)]
pub(super) struct Single {
    levels: Vec<f64>,
}

impl Scheduler for Single {
    fn schedule(&mut self, view: &View<'_>, update: &Update, _: &mut SimRng) -> Vec<Assignment> {
        if update.first {
            self.levels = b_levels(view);
        }
        let most = view.problem.workers.iter().map(|worker| worker.cores).max();
        let first = view.problem.workers.iter().position(|worker| Some(worker.cores) == most);
        let worker = first.expect("there are workers");
        let assign = |&task: &u32| Assignment {
            priority: self.levels[task as usize],
            ..Assignment::new(task as usize, worker)
        };
        update.ready.iter().map(assign).collect()
    }
}
