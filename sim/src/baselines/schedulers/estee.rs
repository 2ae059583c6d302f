/*!
The list schedulers of Estee with its own estimate of a worker's free time (`blevel-estee`,
`tlevel-estee`, `dls-estee`, `mcp-estee`, `etf-estee`). They reproduce the published results of
that study.

The estimate is poor in three ways. First, an input counts as absent from every worker, even from
the one that has it, so transfers never favour a place. Second, waiting tasks of a worker count
only if its running tasks leave too few cores. Third, the two plain ones do not learn of starts, so
every worker always looks free. They give everything to the first worker that is wide enough.

A better result than theirs proves nothing. The textbook's own schedulers have the plain names.
*/

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::greedy_transfer::latest_starts;
use super::{b_levels, t_levels};
use crate::SimRng;
use crate::baselines::plan::Ordered;
use crate::baselines::view::{Assignment, Scheduler, Update, View};

/// The length of a task with unknown length, in ns.
const LENGTH_UNKNOWN_NS: f64 = 1e9;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    BLevel,
    TLevel,
    Mcp,
    Dls,
    Etf,
}

#[derive(Clone, Debug)]
pub(super) struct Estee {
    rule: Rule,
    levels: Vec<f64>,
    latest: Vec<Vec<Ordered>>,
    /// By worker: assigned tasks that have not started, and running tasks with their start.
    waiting: Vec<Vec<u32>>,
    running: Vec<Vec<(u32, f64)>>,
}

impl Estee {
    pub(super) fn new(rule: Rule) -> Self {
        let (levels, latest) = (Vec::new(), Vec::new());
        Self { rule, levels, latest, waiting: Vec::new(), running: Vec::new() }
    }

    fn begin(&mut self, view: &View<'_>) {
        match self.rule {
            Rule::BLevel | Rule::Dls | Rule::Etf => self.levels = b_levels(view),
            Rule::TLevel => self.levels = t_levels(view),
            Rule::Mcp => self.latest = latest_starts(view),
        }
        self.waiting = vec![Vec::new(); view.problem.workers.len()];
        self.running = vec![Vec::new(); view.problem.workers.len()];
    }

    fn note(&mut self, view: &View<'_>, update: &Update) {
        for &task in &update.started {
            let worker = view.worker_of(task).expect("it started somewhere") as usize;
            self.running[worker].push((task, view.now_ns as f64));
            if let Some(at) = self.waiting[worker].iter().position(|&other| other == task) {
                self.waiting[worker].remove(at);
            }
        }
        for &task in &update.finished {
            let worker = view.worker_of(task).expect("it ran somewhere") as usize;
            self.running[worker].retain(|(other, _)| *other != task);
        }
    }

    /// Estee's estimate of the delay until a task can start on a worker, in ns.
    fn wait_ns(&self, view: &View<'_>, task: u32, worker: usize, given: &[(u32, usize)]) -> f64 {
        let problem = view.problem;
        let carry = |&object: &u32| {
            let machines = problem.workers.len().max(2);
            view.wiring.mean_ns(machines, view.bytes(object))
        };
        let inputs = problem.tasks[task as usize].inputs.iter();
        let inputs = inputs.filter(|&&object| problem.objects[object as usize].travels);
        let transfer_ns = inputs.map(carry).fold(0.0, f64::max);
        transfer_ns.max(self.cores_ns(view, task, worker, given))
    }

    fn cores_ns(&self, view: &View<'_>, task: u32, worker: usize, given: &[(u32, usize)]) -> f64 {
        let problem = view.problem;
        let cores_of = |task: u32| i64::from(problem.tasks[task as usize].cores);
        let length_ns = |task: u32| match view.estimates.length_ns(task as usize) {
            0.0 => LENGTH_UNKNOWN_NS,
            length_ns => length_ns,
        };
        let mut free = i64::from(problem.workers[worker].cores);
        let mut ends = BinaryHeap::new();
        let mut age = 0;
        for &(running, since_ns) in &self.running[worker] {
            ends.push(Reverse((Ordered(since_ns + length_ns(running)), age, running)));
            age += 1;
            free -= cores_of(running);
        }
        let mut waiting: VecDeque<u32> = self.waiting[worker].iter().copied().collect();
        waiting.extend(given.iter().filter(|(_, at)| *at == worker).map(|(task, _)| *task));
        let mut clock_ns = view.now_ns as f64;
        while free < cores_of(task) {
            let Some(Reverse((Ordered(end_ns), _, ended))) = ends.pop() else { break };
            clock_ns = end_ns;
            free += cores_of(ended);
            while let Some(&next) = waiting.front().filter(|next| free >= cores_of(**next)) {
                waiting.pop_front();
                ends.push(Reverse((Ordered(clock_ns + length_ns(next)), age, next)));
                age += 1;
                free -= cores_of(next);
            }
        }
        clock_ns - view.now_ns as f64
    }

    /// The pair of the least value, then the first worker, then the first task.
    fn best_pair(
        &self,
        view: &View<'_>,
        tasks: &[u32],
        given: &[(u32, usize)],
        value: impl Fn(u32, f64) -> (f64, f64),
    ) -> (u32, usize) {
        let mut best: Option<((f64, f64), (u32, usize))> = None;
        for worker in 0..view.problem.workers.len() {
            let cores = view.problem.workers[worker].cores;
            for &task in tasks.iter().filter(|it| view.problem.tasks[**it as usize].cores <= cores)
            {
                let found = value(task, self.wait_ns(view, task, worker, given));
                if best.as_ref().is_none_or(|(least, _)| found < *least) {
                    best = Some((found, (task, worker)));
                }
            }
        }
        best.expect("every task fits some worker").1
    }
}

impl Scheduler for Estee {
    fn wants_starts(&self) -> bool {
        matches!(self.rule, Rule::Mcp | Rule::Dls | Rule::Etf)
    }

    fn schedule(&mut self, view: &View<'_>, update: &Update, _: &mut SimRng) -> Vec<Assignment> {
        if update.first {
            self.begin(view);
        }
        if self.wants_starts() {
            self.note(view, update);
        }
        let mut tasks = update.ready.clone();
        match self.rule {
            Rule::BLevel => tasks.sort_by_key(|&task| Ordered(-self.levels[task as usize])),
            Rule::TLevel => tasks.sort_by_key(|&task| Ordered(self.levels[task as usize])),
            Rule::Mcp => {
                tasks.sort_by(|&a, &b| self.latest[a as usize].cmp(&self.latest[b as usize]))
            }
            Rule::Dls | Rule::Etf => {}
        }
        let mut given: Vec<(u32, usize)> = Vec::with_capacity(tasks.len());
        while let Some(&first) = tasks.first() {
            let chosen = match self.rule {
                Rule::Dls => {
                    let less =
                        |task: u32, wait_ns: f64| (wait_ns - self.levels[task as usize], 0.0);
                    self.best_pair(view, &tasks, &given, less)
                }
                Rule::Etf => {
                    let less = |task: u32, wait_ns: f64| (wait_ns, -self.levels[task as usize]);
                    self.best_pair(view, &tasks, &given, less)
                }
                Rule::BLevel | Rule::TLevel | Rule::Mcp => {
                    self.best_pair(view, &[first], &given, |_, wait_ns| (wait_ns, 0.0))
                }
            };
            tasks.retain(|&task| task != chosen.0);
            given.push(chosen);
            if self.rule == Rule::Mcp {
                // Here Estee counts the assignments of this round twice.
                self.waiting[chosen.1].push(chosen.0);
            }
        }
        if self.wants_starts() && self.rule != Rule::Mcp {
            for &(task, worker) in &given {
                self.waiting[worker].push(task);
            }
        }
        given.into_iter().map(|(task, worker)| Assignment::new(task as usize, worker)).collect()
    }
}
