/*!
Estee's global work stealing (`ws`), a model of Dask's. A ready task goes at once to the worker
that needs the fewest further bytes, however busy that is. Then every worker with free cores steals
tasks from workers that have more than they can run. The tasks with the lowest transfer cost for
their length are stolen first (Beránek, Böhm, et al., 2022).

A steal of a running task is refused, and the thief learns that at the next event. Estee does the
same, and it costs idle cores.
*/

use std::collections::{BTreeMap, BTreeSet};

use super::b_levels;
use super::greedy_transfer::{cheapest, missing_bytes};
use super::random::shuffle;
use crate::SimRng;
use crate::baselines::plan::Ordered;
use crate::baselines::view::{Assignment, Scheduler, Update, View};

/// In the comparison of costs, shorter tasks count as this long, in ns.
const LENGTH_MIN_NS: f64 = 1e6;

#[derive(Clone, Debug, Default)]
pub(super) struct WorkStealing {
    levels: Vec<f64>,
    /// Cores minus those of all assigned tasks, including waiting ones.
    free_cores: Vec<i64>,
    tasks: Vec<BTreeSet<u32>>,
    assigned: Vec<Option<u32>>,
}

impl WorkStealing {
    fn add(&mut self, view: &View<'_>, task: u32, worker: usize) {
        self.free_cores[worker] -= i64::from(view.problem.tasks[task as usize].cores);
        self.tasks[worker].insert(task);
    }

    fn remove(&mut self, view: &View<'_>, task: u32, worker: usize) {
        if self.tasks[worker].remove(&task) {
            self.free_cores[worker] += i64::from(view.problem.tasks[task as usize].cores);
        }
    }

    fn steal(
        &mut self,
        view: &View<'_>,
        thief: usize,
        plan: &mut BTreeMap<u32, usize>,
        dice: &mut SimRng,
    ) {
        let crowded = (0..self.tasks.len()).filter(|&worker| self.free_cores[worker] < 0);
        let mut tasks: Vec<u32> =
            crowded.flat_map(|worker| self.tasks[worker].iter().copied()).collect();
        shuffle(&mut tasks, dice);
        tasks.sort_by_cached_key(|&task| {
            let length_ns = view.estimates.length_ns(task as usize).max(LENGTH_MIN_NS);
            Ordered(missing_bytes(view, &self.assigned, task, thief) / length_ns)
        });
        for task in tasks {
            let cores = view.problem.tasks[task as usize].cores;
            let from = plan.get(&task).copied();
            let from = from.or_else(|| self.assigned[task as usize].map(|it| it as usize));
            let from = from.expect("it is some worker's task");
            let cores_here = i64::from(cores);
            let evens = self.free_cores[from] - cores_here < self.free_cores[thief]
                && self.free_cores[from] + cores_here <= 0;
            if cores <= view.problem.workers[thief].cores && evens {
                self.remove(view, task, from);
                self.add(view, task, thief);
                plan.insert(task, thief);
            }
        }
    }
}

impl Scheduler for WorkStealing {
    fn schedule(&mut self, view: &View<'_>, update: &Update, dice: &mut SimRng) -> Vec<Assignment> {
        let workers = view.problem.workers.len();
        if update.first {
            self.levels = b_levels(view);
            let cores = view.problem.workers.iter().map(|worker| i64::from(worker.cores));
            self.free_cores = cores.collect();
            self.tasks = vec![BTreeSet::new(); workers];
            self.assigned = vec![None; view.problem.tasks.len()];
        }
        for &task in &update.refused {
            for worker in 0..workers {
                self.remove(view, task, worker);
            }
            let at = view.worker_of(task).expect("it runs somewhere");
            self.assigned[task as usize] = Some(at);
            self.add(view, task, at as usize);
        }
        for &task in &update.finished {
            for worker in 0..workers {
                self.remove(view, task, worker);
            }
        }
        let mut plan = BTreeMap::new();
        for &task in &update.ready {
            let cores = view.problem.tasks[task as usize].cores;
            let fits = |worker: &usize| view.problem.workers[*worker].cores >= cores;
            let fitting: Vec<usize> = (0..workers).filter(fits).collect();
            let worker = cheapest(view, &self.assigned, task, &fitting, dice);
            plan.insert(task, worker);
            self.add(view, task, worker);
        }
        for thief in 0..workers {
            if self.free_cores[thief] > 0 {
                self.steal(view, thief, &mut plan, dice);
            }
        }
        let assign = |(task, worker): (u32, usize)| {
            self.assigned[task as usize] = Some(worker as u32);
            let level_ns = self.levels[task as usize];
            Assignment {
                priority: level_ns,
                block: level_ns - view.estimates.length_ns(task as usize),
                ..Assignment::new(task as usize, worker)
            }
        };
        plan.into_iter().map(assign).collect()
    }
}
