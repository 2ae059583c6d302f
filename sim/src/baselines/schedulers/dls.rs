//! Dynamic level scheduling (DLS): Sih, Lee, "A compile-time scheduling heuristic for
//! interconnection-constrained heterogeneous processor architectures", IEEE TPDS 4(2), 1993.

use super::{Reading, heft};
use crate::SimRng;
use crate::baselines::plan::{GapPolicy, PlacementOption, Plan};
use crate::baselines::view::{Assignment, Scheduler, Update, View};

/// Picks the pair of a ready task and a worker with the greatest dynamic level. This is the static
/// level (lengths on a median worker, no transfers), minus the start time there, plus the time
/// saved against the median worker.
///
/// In DSLab's reading, static levels contain mean transfers as in its [`Heft`](super::Heft). The
/// plan uses gaps and ignores the latency of transfers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dls {
    pub reading: Reading,
}

impl Scheduler for Dls {
    fn schedule(&mut self, view: &View<'_>, update: &Update, _: &mut SimRng) -> Vec<Assignment> {
        if !update.first {
            return Vec::new();
        }
        let medians: Vec<f64> =
            (0..view.problem.tasks.len()).map(|task| median_run_ns(view, task)).collect();
        let mut plan = Plan::new(view);
        let (levels, gaps) = match self.reading {
            Reading::Printed => {
                let run = |task: usize| medians[task];
                (crate::baselines::b_levels(view.problem, run, |_| 0.0), GapPolicy::Lost)
            }
            Reading::Dslab => {
                plan.latency_counts = false;
                let speeds = view.problem.workers.iter();
                let per_length = median(speeds.map(|it| 1.0 / it.speed).collect());
                (heft::dslab_levels(view, per_length), GapPolicy::Used)
            }
        };
        let good = |offer: &PlacementOption| {
            let faster_ns = medians[offer.task] - (offer.end_ns - offer.start_ns);
            (levels[offer.task] - offer.start_ns + faster_ns, 0.0)
        };
        plan.place_pairs(&levels, gaps, good)
    }
}

fn median_run_ns(view: &View<'_>, task: usize) -> f64 {
    let workers = 0..view.problem.workers.len();
    median(workers.map(|it| view.estimates.run_ns(view.problem, task, it)).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle], values[middle - 1])
    }
}
