/*!
Estee's *greedy transfer* variants (`blevel-gt`, `tlevel-gt`, `mcp-gt`, `random-gt`). They use the
list orders of other schedulers. But a ready task is assigned only when a worker has free cores for
it, and then to the one that needs the fewest further bytes (Beránek, Böhm, et al., 2022).

If no worker has enough free cores, later tasks may only use workers that are too small for it.
*/

use std::collections::BTreeSet;

use super::{b_levels, random::shuffle, t_levels};
use crate::SimRng;
use crate::baselines::plan::Ordered;
use crate::baselines::view::{Assignment, Scheduler, Update, View};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    BLevel,
    TLevel,
    /// By the t-levels that Estee computes.
    EsteeTLevel,
    Alap,
    Random,
}

#[derive(Clone, Debug)]
pub(super) struct GreedyTransfer {
    order: Order,
    /// The place of each task in the list.
    place: Vec<usize>,
    /// Ready tasks by place.
    ready: BTreeSet<(usize, u32)>,
    free_cores: Vec<u32>,
    assigned: Vec<Option<u32>>,
}

impl GreedyTransfer {
    pub(super) fn new(order: Order) -> Self {
        let (place, free_cores, assigned) = (Vec::new(), Vec::new(), Vec::new());
        Self { order, place, ready: BTreeSet::new(), free_cores, assigned }
    }

    fn begin(&mut self, view: &View<'_>, dice: &mut SimRng) {
        let tasks = view.problem.tasks.len();
        let mut list: Vec<usize> = (0..tasks).collect();
        // Ties are broken at random.
        shuffle(&mut list, dice);
        match self.order {
            Order::BLevel => {
                let levels = b_levels(view);
                list.sort_by_key(|&task| Ordered(-levels[task]));
            }
            Order::TLevel => {
                let levels = t_levels(view);
                list.sort_by_key(|&task| Ordered(levels[task]));
            }
            Order::EsteeTLevel => {
                let run = |task: usize| view.estimates.length_ns(task);
                let levels = crate::baselines::levels::estee_t_levels(view.problem, run);
                list.sort_by_key(|&task| Ordered(levels[task]));
            }
            Order::Alap => {
                let keys = latest_starts(view);
                list.sort_by(|&a, &b| keys[a].cmp(&keys[b]));
            }
            Order::Random => {}
        }
        self.place = vec![0; tasks];
        for (place, task) in list.into_iter().enumerate() {
            self.place[task] = place;
        }
        self.free_cores = view.problem.workers.iter().map(|worker| worker.cores).collect();
        self.assigned = vec![None; tasks];
    }
}

impl Scheduler for GreedyTransfer {
    fn schedule(&mut self, view: &View<'_>, update: &Update, dice: &mut SimRng) -> Vec<Assignment> {
        if update.first {
            self.begin(view, dice);
        }
        for &task in &update.finished {
            let worker = self.assigned[task as usize].expect("it ran where it was assigned");
            self.free_cores[worker as usize] += view.problem.tasks[task as usize].cores;
        }
        self.ready.extend(update.ready.iter().map(|&task| (self.place[task as usize], task)));
        let mut allowed: Vec<usize> = (0..view.problem.workers.len()).collect();
        let mut assignments = Vec::new();
        let mut given = Vec::new();
        for &(place, task) in &self.ready {
            let cores = view.problem.tasks[task as usize].cores;
            let fits = |worker: &&usize| self.free_cores[**worker] >= cores;
            let workers: Vec<usize> = allowed.iter().filter(fits).copied().collect();
            if workers.is_empty() {
                allowed.retain(|&worker| view.problem.workers[worker].cores < cores);
                if allowed.is_empty() {
                    break;
                }
                continue;
            }
            let worker = cheapest(view, &self.assigned, task, &workers, dice);
            self.free_cores[worker] -= cores;
            self.assigned[task as usize] = Some(worker as u32);
            given.push((place, task));
            assignments.push(Assignment::new(task as usize, worker));
        }
        for entry in given {
            self.ready.remove(&entry);
        }
        assignments
    }
}

/// The bytes that a worker would have to fetch for a task. An object counts a tenth if it will
/// arrive anyway, because its maker or another reader is assigned there.
pub(super) fn missing_bytes(
    view: &View<'_>,
    assigned: &[Option<u32>],
    task: u32,
    worker: usize,
) -> f64 {
    let cost = |&object: &u32| {
        if view.has(worker, object) {
            return 0.0;
        }
        let spec = &view.problem.objects[object as usize];
        let comes = |reader: &u32| assigned[*reader as usize] == Some(worker as u32);
        let share = if spec.readers.iter().any(comes) { 0.1 } else { 1.0 };
        spec.bytes as f64 * share
    };
    view.problem.tasks[task as usize].inputs.iter().map(cost).sum()
}

/// The worker that misses the fewest bytes; ties are broken at random.
pub(super) fn cheapest(
    view: &View<'_>,
    assigned: &[Option<u32>],
    task: u32,
    workers: &[usize],
    dice: &mut SimRng,
) -> usize {
    let costs: Vec<f64> =
        workers.iter().map(|&worker| missing_bytes(view, assigned, task, worker)).collect();
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let best: Vec<usize> =
        workers.iter().zip(&costs).filter(|(_, cost)| **cost == least).map(|(it, _)| *it).collect();
    dice.pick(&best)
}

/// Estee's sort keys for `mcp` and `mcp-gt`: the latest starts of a task and its children, the
/// latest first. Between two tasks it counts all outputs of the first as one transfer. It fixes the
/// ends of the graph at their t-levels.
pub(super) fn latest_starts(view: &View<'_>) -> Vec<Vec<Ordered>> {
    let problem = view.problem;
    let machines = problem.workers.len().max(2);
    let carry = |object: u32| view.wiring.mean_ns(machines, view.estimates.bytes(object));
    let run = |task: usize| view.estimates.length_ns(task);
    let levels = crate::baselines::t_levels(problem, run, carry);
    let mut latest = vec![0.0_f64; problem.tasks.len()];
    for task in problem.topological().into_iter().rev() {
        let outputs = problem.tasks[task].outputs.iter();
        let out_ns: f64 = outputs
            .filter(|&&object| problem.objects[object as usize].travels)
            .map(|&object| carry(object))
            .sum();
        let children = problem.reads(task).map(|(reader, _)| latest[reader] - out_ns);
        let before = children.fold(f64::INFINITY, f64::min);
        latest[task] = if before.is_finite() { before - run(task) } else { levels[task] };
    }
    let key = |task: usize| {
        let mut readers: Vec<usize> = problem.reads(task).map(|(reader, _)| reader).collect();
        readers.sort_unstable();
        readers.dedup();
        let mut key: Vec<Ordered> = readers.into_iter().map(|it| Ordered(latest[it])).collect();
        key.push(Ordered(latest[task]));
        key.sort_by(|a, b| b.cmp(a));
        key
    };
    (0..problem.tasks.len()).map(key).collect()
}
