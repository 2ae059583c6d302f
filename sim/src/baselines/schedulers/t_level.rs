//! Smallest co-level first with estimated times (SCFET): Adam, Chandy, Dickson, CACM 17(12), 1974.

use super::t_levels;
use crate::SimRng;
use crate::baselines::plan::{GapPolicy, Ordered, Plan};
use crate::baselines::view::{Assignment, Scheduler, Update, View};

/// By rising t-level, each task where it starts earliest.
#[derive(Clone, Copy, Debug)]
pub(super) struct TLevel;

impl Scheduler for TLevel {
    fn schedule(&mut self, view: &View<'_>, update: &Update, _: &mut SimRng) -> Vec<Assignment> {
        if !update.first {
            return Vec::new();
        }
        let levels = t_levels(view);
        Plan::new(view).place_all(
            |task| Ordered(-levels[task]),
            GapPolicy::Lost,
            |offer| offer.start_ns,
        )
    }
}
