/*!
Schedules that are made before the run. Tasks are placed one after another on the cores of workers,
by estimated lengths and by transfers without contention.

All list schedulers of the textbook share this. They differ in the order of the tasks, in the
measure of a good place, and in the use of gaps. In the run each core keeps its order; the times
follow from the actual events.
*/

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::problem::{Maker, Problem};
use super::timeline::Timeline;
use super::view::{Assignment, View};

/// A possible place of a task.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct PlacementOption {
    pub task: usize,
    pub worker: usize,
    pub start_ns: f64,
    pub end_ns: f64,
}

/// Whether a task may go into gaps before planned tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GapPolicy {
    Used,
    Lost,
}

pub(super) struct Plan<'v> {
    view: &'v View<'v>,
    timelines: Vec<Timeline>,
    placed: Vec<Option<PlacementOption>>,
    assignments: Vec<(f64, Assignment)>,
    unplaced_parents: Vec<usize>,
    /// True if the plan includes the latency of transfers.
    pub latency_counts: bool,
}

impl<'v> Plan<'v> {
    pub(super) fn new(view: &'v View<'v>) -> Self {
        let problem = view.problem;
        let tasks = 0..problem.tasks.len();
        Self {
            view,
            timelines: problem.workers.iter().map(|it| Timeline::new(it.cores)).collect(),
            placed: vec![None; problem.tasks.len()],
            assignments: Vec::with_capacity(problem.tasks.len()),
            unplaced_parents: tasks.map(|task| problem.parents(task).count()).collect(),
            latency_counts: true,
        }
    }

    fn problem(&self) -> &'v Problem {
        self.view.problem
    }

    /// The estimated time at which the last input is on the worker.
    fn inputs_ns(&self, task: usize, worker: usize) -> f64 {
        let inputs = self.problem().tasks[task].inputs.iter();
        let released_ns = self.problem().tasks[task].release_ns as f64;
        inputs.map(|&object| self.input_ns(object, worker)).fold(released_ns, f64::max)
    }

    fn input_ns(&self, object: u32, worker: usize) -> f64 {
        let spec = &self.problem().objects[object as usize];
        let (from, made_ns) = match spec.maker {
            Maker::Task(maker) => {
                let maker = self.placed[maker as usize].expect("parents are placed first");
                (maker.worker, maker.end_ns)
            }
            Maker::Worker(at) => (at as usize, 0.0),
            Maker::Origin => (self.problem().origin(), 0.0),
        };
        if from == worker || !spec.travels {
            return made_ns;
        }
        let wiring = self.view.wiring;
        let latency_ns = if self.latency_counts { 0.0 } else { wiring.alone_ns(from, worker, 0.0) };
        made_ns + wiring.alone_ns(from, worker, self.view.estimates.bytes(object)) - latency_ns
    }

    /// The place that a worker offers; `None` if the task does not fit.
    pub(super) fn offer(
        &self,
        task: usize,
        worker: usize,
        gaps: GapPolicy,
    ) -> Option<PlacementOption> {
        let cores = self.problem().tasks[task].cores;
        let timeline = &self.timelines[worker];
        if timeline.cores() < cores {
            return None;
        }
        let from_ns = self.inputs_ns(task, worker);
        let length_ns = self.view.estimates.run_ns(self.problem(), task, worker);
        let start_ns = match gaps {
            GapPolicy::Used => timeline.earliest_gap(from_ns, length_ns, cores),
            GapPolicy::Lost => timeline.earliest_behind(from_ns, cores),
        };
        Some(PlacementOption { task, worker, start_ns, end_ns: start_ns + length_ns })
    }

    /// The best of all workers' offers: the least value of `badness`, then the first worker.
    pub(super) fn best(
        &self,
        task: usize,
        gaps: GapPolicy,
        badness: impl Fn(&PlacementOption) -> f64,
    ) -> PlacementOption {
        let offers = (0..self.timelines.len()).filter_map(|it| self.offer(task, it, gaps));
        let best = offers.min_by(|a, b| badness(a).total_cmp(&badness(b)));
        best.expect("every task fits some worker")
    }

    /// Places a task. Returns the tasks that may be placed after it.
    pub(super) fn place(&mut self, offer: PlacementOption) -> Vec<usize> {
        let cores = self.problem().tasks[offer.task].cores;
        let length_ns = offer.end_ns - offer.start_ns;
        let lanes = self.timelines[offer.worker].take(offer.start_ns, length_ns, cores);
        self.placed[offer.task] = Some(offer);
        let mut assignment = Assignment::new(offer.task, offer.worker);
        // Inputs that are needed first are fetched first.
        assignment.priority = -offer.start_ns;
        assignment.block = f64::NEG_INFINITY;
        assignment.lanes = lanes;
        self.assignments.push((offer.start_ns, assignment));
        let mut freed = Vec::new();
        let mut readers: Vec<usize> =
            self.problem().reads(offer.task).map(|(reader, _)| reader).collect();
        readers.sort_unstable();
        readers.dedup();
        for reader in readers {
            self.unplaced_parents[reader] -= 1;
            if self.unplaced_parents[reader] == 0 {
                freed.push(reader);
            }
        }
        freed
    }

    /// Tasks without parents.
    pub(super) fn first_tasks(&self) -> Vec<usize> {
        (0..self.placed.len()).filter(|&task| self.unplaced_parents[task] == 0).collect()
    }

    /// Places all tasks by falling `urgency`, then by number, each after its parents and where
    /// `badness` is least.
    pub(super) fn place_all<K: Ord>(
        mut self,
        urgency: impl Fn(usize) -> K,
        gaps: GapPolicy,
        badness: impl Fn(&PlacementOption) -> f64,
    ) -> Vec<Assignment> {
        let first = self.first_tasks().into_iter();
        let mut ready: BinaryHeap<_> = first.map(|task| (urgency(task), Reverse(task))).collect();
        while let Some((_, Reverse(task))) = ready.pop() {
            let best = self.best(task, gaps, &badness);
            let freed = self.place(best).into_iter();
            ready.extend(freed.map(|task| (urgency(task), Reverse(task))));
        }
        self.finish()
    }

    /// Places all tasks. Each time it takes the best offer for all tasks with placed parents. That
    /// is the greatest `goodness`, then the first in `order`, then the first worker.
    pub(super) fn place_pairs(
        mut self,
        order: &[f64],
        gaps: GapPolicy,
        goodness: impl Fn(&PlacementOption) -> (f64, f64),
    ) -> Vec<Assignment> {
        let offers = |plan: &Self, task: usize| -> Vec<Option<PlacementOption>> {
            (0..plan.timelines.len()).map(|worker| plan.offer(task, worker, gaps)).collect()
        };
        let first = self.first_tasks().into_iter();
        let mut ready: Vec<(usize, Vec<Option<PlacementOption>>)> =
            first.map(|task| (task, offers(&self, task))).collect();
        while !ready.is_empty() {
            ready.sort_by(|(a, _), (b, _)| order[*b].total_cmp(&order[*a]).then(a.cmp(b)));
            let mut best: Option<((f64, f64), PlacementOption)> = None;
            for &offer in ready.iter().flat_map(|(_, offers)| offers).flatten() {
                let good = goodness(&offer);
                if best.as_ref().is_none_or(|(most, _)| good > *most) {
                    best = Some((good, offer));
                }
            }
            let (_, taken) = best.expect("every task fits some worker");
            ready.retain(|(task, _)| *task != taken.task);
            let freed = self.place(taken);
            // Only this worker has less time than before.
            for (task, offers) in &mut ready {
                offers[taken.worker] = self.offer(*task, taken.worker, gaps);
            }
            ready.extend(freed.into_iter().map(|task| (task, offers(&self, task))));
        }
        self.finish()
    }

    /// The assignments in the order of the planned starts.
    fn finish(mut self) -> Vec<Assignment> {
        self.assignments.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.assignments.into_iter().map(|(_, assignment)| assignment).collect()
    }
}

/// A number with a total order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ordered(pub f64);
impl Eq for Ordered {}
impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
