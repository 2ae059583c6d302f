//! Heterogeneous earliest finish time (HEFT): Topcuoglu, Hariri, Wu, "Performance-effective and
//! low-complexity task scheduling for heterogeneous computing", IEEE TPDS 13(3), 2002.

use super::{Reading, mean_carry};
use crate::SimRng;
use crate::baselines::plan::{GapPolicy, Ordered, Plan};
use crate::baselines::view::{Assignment, Scheduler, Update, View};

/// By falling upward rank (b-level of mean lengths and mean transfers), each task where it ends
/// earliest, with use of gaps.
///
/// DSLab's reading differs in three points. The mean of transfers includes the origin and each
/// machine's zero transfer to itself. Unread outputs are transferred to the origin at the end of a
/// path. The plan ignores the latency of transfers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heft {
    pub reading: Reading,
}

impl Scheduler for Heft {
    fn schedule(&mut self, view: &View<'_>, update: &Update, _: &mut SimRng) -> Vec<Assignment> {
        if !update.first {
            return Vec::new();
        }
        let mut plan = Plan::new(view);
        let levels = match self.reading {
            Reading::Printed => {
                let run = |task: usize| view.estimates.mean_run_ns(view.problem, task);
                crate::baselines::b_levels(view.problem, run, |object| mean_carry(view, object))
            }
            Reading::Dslab => {
                plan.latency_counts = false;
                let workers = view.problem.workers.len() as f64;
                let per_length: f64 = view.problem.workers.iter().map(|it| 1.0 / it.speed).sum();
                dslab_levels(view, per_length / workers)
            }
        };
        plan.place_all(|task| Ordered(levels[task]), GapPolicy::Used, |offer| offer.end_ns)
    }
}

/// DSLab's b-levels, with this time for a unit of length.
pub(super) fn dslab_levels(view: &View<'_>, per_length: f64) -> Vec<f64> {
    let problem = view.problem;
    let machines = problem.workers.len() as f64 + 1.0;
    let carry = |object: u32| {
        if !problem.objects[object as usize].travels {
            return 0.0;
        }
        let (workers, bytes) = (problem.workers.len() + 1, view.estimates.bytes(object));
        let alone_ns = view.wiring.mean_ns(workers, bytes) - view.wiring.mean_ns(workers, 0.0);
        alone_ns * (machines - 1.0) / machines
    };
    let returned_ns = |task: usize| {
        let outputs = problem.tasks[task].outputs.iter();
        let unread = outputs.filter(|&&it| problem.objects[it as usize].readers.is_empty());
        unread.map(|&object| carry(object)).fold(0.0, f64::max)
    };
    // A path may end with an output's transfer to the origin: only tasks without readers add this
    // length.
    let run = |task: usize| {
        let is_last = problem.reads(task).next().is_none();
        let back_ns = if is_last { returned_ns(task) } else { 0.0 };
        view.estimates.length_ns(task) * per_length + back_ns
    };
    crate::baselines::b_levels(problem, run, carry)
}
