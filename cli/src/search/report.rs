//! The result of a search.

use std::time::Duration;

use ::search::{Goal, Solution};
use searcher::Outcome;
use serde::Serialize;
use verb::errors::Failure;
use verb::output::Output;
use verb::units;

use crate::search::{Ended, progress};
use crate::views::reports;

/// The value of `search --json`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) problem: String,
    /// The optimum, or the count; the best of what is known if it is not proved.
    pub(super) result: Option<i64>,
    /// The whole tree was searched or cut off.
    proved: bool,
    witness: Vec<i64>,
    nodes: u64,
    leaves: u64,
    depth: u32,
    pruned: u64,
    splits: u64,
    pieces: u64,
    /// The part of the slots' time in which they searched.
    efficiency: f64,
    /// With the time before the slots ran.
    wall_s: f64,
    cpu_s: f64,
    slots: usize,
    /// While the slots ran.
    nodes_per_s: f64,
    /// The value that no solution can beat; null for a count.
    bound: Option<i64>,
    gap: Option<f64>,
    #[serde(skip)]
    pub(super) ended: Option<Ended>,
}

impl Report {
    pub(super) fn new(
        outcome: &Outcome,
        ended: Option<Ended>,
        slots: usize,
        elapsed: Duration,
    ) -> Self {
        let last = &outcome.last;
        Self {
            problem: String::new(),
            result: None,
            proved: outcome.is_complete,
            witness: Vec::new(),
            nodes: last.tally.nodes,
            leaves: last.tally.leaves,
            depth: last.tally.depth,
            pruned: last.tally.pruned,
            splits: last.splits,
            pieces: outcome.pieces,
            efficiency: last.efficiency,
            wall_s: elapsed.as_secs_f64(),
            cpu_s: reports::own_cpu().as_secs_f64(),
            slots,
            nodes_per_s: last.tally.nodes as f64 / last.wall.as_secs_f64().max(1e-9),
            bound: None,
            gap: None,
            // The tree may have been searched just before the request to stop.
            ended: ended.filter(|_| !outcome.is_complete),
        }
    }

    /// `open`: the bound of the nodes that are left.
    pub(super) fn optimum(&mut self, goal: Goal, solution: Option<Solution>, open: Option<i64>) {
        self.result = solution.as_ref().map(|solution| solution.value);
        self.bound =
            if self.proved { self.result } else { progress::bound(goal, self.result, open) };
        self.gap = progress::gap(self.result, self.bound);
        self.witness = solution.map_or_else(Vec::new, |solution| solution.witness);
    }

    pub(super) fn print(&self, output: &Output) -> Result<(), Failure> {
        if output.json { output.json(self) } else { output.text(&self.text()) }
    }

    fn text(&self) -> String {
        let mut lines = vec![("problem", self.problem.clone())];
        let state = if self.proved { "proved" } else { "not proved" };
        lines.push(match self.result {
            Some(result) => ("result", format!("{result} ({state})")),
            None if self.proved => ("result", "there is no solution (proved)".to_owned()),
            None => ("result", "no solution found yet".to_owned()),
        });
        if let Some(bound) = self.bound.filter(|_| !self.proved) {
            let gap =
                self.gap.map_or_else(String::new, |gap| format!(", gap {}", units::percent(gap)));
            lines.push(("bound", format!("{bound}{gap}")));
        }
        if !self.witness.is_empty() {
            let witness: Vec<String> = self.witness.iter().map(i64::to_string).collect();
            lines.push(("witness", witness.join(" ")));
        }
        lines.push((
            "nodes",
            format!(
                "{}, {} leaves, {} pruned, depth {}",
                units::count(self.nodes),
                units::count(self.leaves),
                units::count(self.pruned),
                self.depth
            ),
        ));
        lines.push((
            "time",
            format!(
                "{}, {} of CPU, {} nodes/s",
                units::seconds(self.wall_s),
                units::seconds(self.cpu_s),
                units::count(self.nodes_per_s as u64)
            ),
        ));
        let slots = units::number_of(self.slots as u64, "slot");
        let efficiency = units::percent(self.efficiency);
        let splits = units::number_of(self.splits, "split");
        lines.push(("efficiency", format!("{efficiency} of {slots}, {splits}")));
        lines.iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect()
    }
}
