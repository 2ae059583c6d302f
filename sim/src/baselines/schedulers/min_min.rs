//! Min-min: Ibarra, Kim, "Heuristic algorithms for scheduling independent tasks on nonidentical
//! processors", J. ACM 24(2), 1977, for tasks as they become ready.

use crate::SimRng;
use crate::baselines::problem::Maker;
use crate::baselines::view::{Assignment, Scheduler, Update, View};

/// Repeatedly assigns the ready task with the earliest possible end to its best worker. A worker
/// counts as free at the estimated end of its last assigned task, whatever its cores.
#[derive(Clone, Debug, Default)]
pub struct MinMin {
    ready: Vec<u32>,
    free_ns: Vec<f64>,
    ended_ns: Vec<f64>,
}

impl MinMin {
    fn end_ns(&self, view: &View<'_>, task: u32, worker: usize) -> f64 {
        let inputs = view.problem.tasks[task as usize].inputs.iter();
        let arrival = |&object: &u32| {
            let (from, made_ns) = match view.problem.objects[object as usize].maker {
                Maker::Task(maker) => {
                    let at = view.worker_of(maker).expect("it has ended");
                    (at as usize, self.ended_ns[maker as usize])
                }
                Maker::Worker(at) => (at as usize, 0.0),
                Maker::Origin => (view.problem.origin(), 0.0),
            };
            let bytes = view.bytes(object);
            let carry_ns = view.wiring.alone_ns(from, worker, bytes);
            made_ns + if view.has(worker, object) { 0.0 } else { carry_ns }
        };
        let inputs_ns = inputs.map(arrival).fold(0.0, f64::max);
        let run_ns = view.estimates.run_ns(view.problem, task as usize, worker);
        self.free_ns[worker].max(inputs_ns).max(view.now_ns as f64) + run_ns
    }
}

impl Scheduler for MinMin {
    fn schedule(&mut self, view: &View<'_>, update: &Update, _: &mut SimRng) -> Vec<Assignment> {
        if update.first {
            self.free_ns = vec![0.0; view.problem.workers.len()];
            self.ended_ns = vec![0.0; view.problem.tasks.len()];
        }
        for &task in &update.finished {
            self.ended_ns[task as usize] = view.now_ns as f64;
        }
        self.ready.extend(&update.ready);
        self.ready.sort_unstable();
        let mut assignments = Vec::with_capacity(self.ready.len());
        while !self.ready.is_empty() {
            let pairs = self.ready.iter().flat_map(|&task| {
                let cores = view.problem.tasks[task as usize].cores;
                let workers = 0..view.problem.workers.len();
                workers
                    .filter(move |&worker| view.problem.workers[worker].cores >= cores)
                    .map(move |worker| (task, worker))
            });
            let ends = pairs.map(|(task, worker)| (self.end_ns(view, task, worker), task, worker));
            let first = ends.min_by(|a, b| a.0.total_cmp(&b.0));
            let (end_ns, task, worker) = first.expect("every task fits some worker");
            self.free_ns[worker] = end_ns;
            self.ready.retain(|&other| other != task);
            let mut assignment = Assignment::new(task as usize, worker);
            assignment.priority = -end_ns;
            assignment.block = -end_ns;
            assignments.push(assignment);
        }
        assignments
    }
}
