//! Earliest time first (ETF): Hwang, Chow, Anger, Lee, "Scheduling precedence graphs in systems
//! with interprocessor communication times", SIAM J. Computing 18(2), 1989.

use super::static_levels;
use crate::SimRng;
use crate::baselines::plan::{GapPolicy, Plan};
use crate::baselines::view::{Assignment, Scheduler, Update, View};

/// The pair of a ready task and a worker with the earliest start, then the task of the higher
/// static level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Etf;

impl Scheduler for Etf {
    fn schedule(&mut self, view: &View<'_>, update: &Update, _: &mut SimRng) -> Vec<Assignment> {
        if !update.first {
            return Vec::new();
        }
        let levels = static_levels(view);
        let good = |offer: &_| {
            let offer: &crate::baselines::plan::PlacementOption = offer;
            (-offer.start_ns, levels[offer.task])
        };
        Plan::new(view).place_pairs(&levels, GapPolicy::Lost, good)
    }
}
