//! The points to measure: command lines of this program, as data.

use serde::Serialize;

/// Placeholder for the number of a repeat in a command line.
pub(super) const SEED: &str = "{seed}";

/// Kodiak, as the paper describes it: 1 GbE, full duplex. The latency is not given; 100 us is
/// assumed.
const KODIAK: [&str; 6] = ["--network", "maxmin", "--bandwidth", "1Gbit", "--latency", "100us"];

/// The origin of a figure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FigureSource {
    /// The nodes' own code under virtual time.
    Simulated,
    /// Processes on this machine.
    Real,
    /// Bounds: nothing runs.
    Computed,
}

/// A point of a figure. Two figures with the same point share its runs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Point {
    pub(super) arm: FigureSource,
    words: Vec<String>,
}

impl Point {
    /// A workflow on simulated nodes of Kodiak.
    pub(super) fn simulated(workload: &str, nodes: u32, slots: u32) -> Self {
        Self::new(FigureSource::Simulated, &["sim", workload])
            .on(nodes, slots)
            .with(&KODIAK)
            .with(&["--seed", SEED])
    }

    /// As [`Self::simulated`], over a network given by its flags.
    pub(super) fn simulated_over(network: &[&str], workload: &str, nodes: u32, slots: u32) -> Self {
        Self::new(FigureSource::Simulated, &["sim", workload])
            .on(nodes, slots)
            .with(network)
            .with(&["--seed", SEED])
    }

    /// A workflow on node processes of this machine.
    pub(super) fn real(workload: &str, nodes: u32, slots: u32) -> Self {
        Self::new(FigureSource::Real, &["run", workload]).on(nodes, slots).with(&["--processes"])
    }

    /// A benchmark of this machine, which makes its own rounds.
    pub(super) fn bench(words: &[&str]) -> Self {
        Self::new(FigureSource::Real, &["bench"]).with(words)
    }

    /// The bounds of a workflow on Kodiak.
    pub(super) fn bound(workload: &str, nodes: u32, slots: u32) -> Self {
        Self::new(FigureSource::Computed, &["bound", workload]).on(nodes, slots).with(&[
            "--bandwidth",
            "1Gbit",
            "--latency",
            "100us",
        ])
    }

    /// The published figures of the paper's bound, beside the same calculated here.
    pub(super) fn published() -> Self {
        Self::new(FigureSource::Computed, &["bound", "--published"])
    }

    fn new(arm: FigureSource, words: &[&str]) -> Self {
        Self { arm, words: Vec::new() }.with(words)
    }

    fn on(self, nodes: u32, slots: u32) -> Self {
        self.with(&["--nodes", &nodes.to_string(), "--slots", &slots.to_string()])
    }

    #[must_use]
    pub(super) fn with(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    /// The nodes of its cluster; 0 if the command line names none.
    pub(super) fn nodes(&self) -> u32 {
        let at = self.words.iter().position(|word| word == "--nodes");
        let number = at.and_then(|at| self.words.get(at + 1)?.parse().ok());
        number.unwrap_or(0)
    }

    /// Whether its runs can write a run record: a workflow runs on nodes.
    pub(super) fn has_record(&self) -> bool {
        let is_run = matches!(self.words.first().map(String::as_str), Some("run" | "sim"));
        is_run && !self.words.iter().any(|word| word == "--scheduler")
    }

    /// The arguments of one of its runs.
    pub(super) fn arguments(&self, seed: u64) -> Vec<String> {
        let seed = seed.to_string();
        self.words.iter().map(|word| word.replace(SEED, &seed)).collect()
    }

    /// The command line of one of its runs, for a shell.
    pub(super) fn command(&self, seed: u64) -> String {
        let quoted = |word: String| match word.contains(['(', ')', ' ', '*', '{']) {
            true => format!("'{word}'"),
            false => word,
        };
        let words: Vec<String> = self.arguments(seed).into_iter().map(quoted).collect();
        format!("starling {}", words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_workflows_have_records() {
        let simulated = Point::simulated("bag:tasks=5", 4, 2);
        assert!(simulated.has_record() && Point::real("bag:tasks=5", 1, 1).has_record());
        assert!(!simulated.with(&["--scheduler", "heft"]).has_record());
        assert!(!Point::bound("bag:tasks=5", 1, 1).has_record());
    }

    #[test]
    fn a_command_line_can_be_typed_again() {
        let point = Point::simulated("bag:tasks=5,duration=uniform(0,1s),seed={seed}", 4, 2);
        assert_eq!(
            point.with(&["--policy", "mlb"]).command(7),
            "starling sim 'bag:tasks=5,duration=uniform(0,1s),seed=7' --nodes 4 --slots 2 \
             --network maxmin --bandwidth 1Gbit --latency 100us --seed 7 --policy mlb"
        );
    }
}
