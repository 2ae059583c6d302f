//! Highest level first with estimated times (HLFET): Adam, Chandy, Dickson, "A comparison of list
//! schedules for parallel processing systems", CACM 17(12), 1974.

use super::static_levels;
use crate::SimRng;
use crate::baselines::plan::{GapPolicy, Ordered, Plan};
use crate::baselines::view::{Assignment, Scheduler, Update, View};

/// By falling static b-level, each task where it starts earliest.
#[derive(Clone, Copy, Debug)]
pub(super) struct BLevel;

impl Scheduler for BLevel {
    fn schedule(&mut self, view: &View<'_>, update: &Update, _: &mut SimRng) -> Vec<Assignment> {
        if !update.first {
            return Vec::new();
        }
        let levels = static_levels(view);
        Plan::new(view).place_all(
            |task| Ordered(levels[task]),
            GapPolicy::Lost,
            |offer| offer.start_ns,
        )
    }
}
