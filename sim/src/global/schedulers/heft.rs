//! Heterogeneous earliest finish time (HEFT): Topcuoglu, Hariri, Wu, "Performance-effective and
//! low-complexity task scheduling for heterogeneous computing", IEEE TPDS 13(3), 2002.

use super::{Reading, mean_carry};
use crate::Dice;
use crate::global::plan::{Gaps, Ordered, Plan};
use crate::global::view::{Assignment, Scheduler, Update, View};

/// By falling upward rank (b-level of mean lengths and mean transfers), each where it ends first,
/// gaps used.
///
/// DSLab's reading: the mean length over n workers is a sum divided by n - 1; the mean transfer
/// counts a worker's way to itself, which takes nothing, as a pair; latency and inputs that no task
/// makes are left out of the plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heft {
    pub reading: Reading,
}

impl Scheduler for Heft {
    fn schedule(&mut self, view: &View<'_>, update: &Update, _: &mut Dice) -> Vec<Assignment> {
        if !update.first {
            return Vec::new();
        }
        let mut plan = Plan::new(view);
        let levels = match self.reading {
            Reading::Printed => {
                let run = |task: usize| view.estimates.mean_run_ns(view.problem, task);
                crate::global::b_levels(view.problem, run, |object| mean_carry(view, object))
            }
            Reading::Dslab => {
                plan.latency_counts = false;
                plan.loads_count = false;
                let workers = view.problem.workers.len() as f64;
                let per_length: f64 = view.problem.workers.iter().map(|it| 1.0 / it.speed).sum();
                // Of a single worker DSLab divides by zero.
                dslab_levels(view, per_length / (workers - 1.0).max(1.0))
            }
        };
        plan.place_all(|task| Ordered(levels[task]), Gaps::Used, |offer| offer.end_ns)
    }
}

/// B-levels as DSLab has them, with this time for a unit of length.
pub(super) fn dslab_levels(view: &View<'_>, per_length: f64) -> Vec<f64> {
    let workers = view.problem.workers.len() as f64;
    let run = |task: usize| view.estimates.length_ns(task) * per_length;
    let carry = |object: u32| {
        if !view.problem.objects[object as usize].travels {
            return 0.0;
        }
        let (machines, bytes) = (view.problem.workers.len(), view.estimates.bytes(object));
        let alone_ns = view.wiring.mean_ns(machines, bytes) - view.wiring.mean_ns(machines, 0.0);
        alone_ns * (workers - 1.0) / workers
    };
    crate::global::b_levels(view.problem, run, carry)
}
