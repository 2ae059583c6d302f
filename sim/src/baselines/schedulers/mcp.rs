//! Modified critical path (MCP): Wu, Gajski, "Hypertool: a programming aid for message-passing
//! systems", IEEE TPDS 1(3), 1990.

use std::cmp::Reverse;

use super::mean_carry;
use crate::SimRng;
use crate::baselines::plan::{GapPolicy, Ordered, Plan};
use crate::baselines::view::{Assignment, Scheduler, Update, View};

/// By rising latest start (ALAP), ties by the latest starts of the children. Each task goes where
/// it starts earliest, with use of gaps. (The paper breaks ties by all descendants; implementations
/// commonly use the children.)
#[derive(Clone, Copy, Debug)]
pub(super) struct Mcp;

impl Scheduler for Mcp {
    fn schedule(&mut self, view: &View<'_>, update: &Update, _: &mut SimRng) -> Vec<Assignment> {
        if !update.first {
            return Vec::new();
        }
        let problem = view.problem;
        let run = |task: usize| view.estimates.mean_run_ns(problem, task);
        let levels = crate::baselines::b_levels(problem, run, |object| mean_carry(view, object));
        let path = levels.iter().copied().fold(0.0, f64::max);
        let latest = |task: usize| Ordered(path - levels[task]);
        let urgency = |task: usize| {
            let mut children: Vec<Ordered> =
                problem.reads(task).map(|(reader, _)| latest(reader)).collect();
            children.sort_unstable();
            Reverse((latest(task), children))
        };
        Plan::new(view).place_all(urgency, GapPolicy::Used, |offer| offer.start_ns)
    }
}
