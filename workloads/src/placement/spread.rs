//! Evaluates a placement: its evenness, and the edges and bytes it cuts.

use proto::{JobId, PartitionId, limits};

use crate::graph::Graph;
use crate::placement::place::{self, Placement};

/// The figures of a graph on a number of homes.
#[derive(Clone, PartialEq, Debug)]
pub struct Spread {
    pub homes: u32,
    /// The number of tasks of the fullest home.
    pub tasks_most: u64,
    pub tasks_mean: f64,
    /// The work (durations times slots) of the busiest home, over the mean; 1 without work.
    pub work_most_over_mean: f64,
    /// Edges and bytes, and those between different homes. Two tasks joined by several objects have
    /// an edge for each. An object that several tasks of a home read counts for each.
    pub edges: u64,
    pub edges_cut: u64,
    pub bytes: u64,
    pub bytes_cut: u64,
}

/// The number of partitions per home, which is the minimum in a cluster.
const PARTITIONS_PER_HOME: u32 = 8;
const _: () = assert!(limits::NODES_MAX * PARTITIONS_PER_HOME <= limits::PARTITIONS_MAX);

impl Graph {
    /// The figures of a placement of the graph over `homes` homes with equal numbers of partitions.
    ///
    /// # Panics
    /// When there are no homes, or more than nodes in the largest cluster.
    #[must_use]
    pub fn spread(&self, placement: Placement, homes: u32) -> Spread {
        assert!((1..=limits::NODES_MAX).contains(&homes), "{homes} homes are no cluster");
        let partition = |home, at| PartitionId(home * PARTITIONS_PER_HOME + at);
        let of_home = |home| (0..PARTITIONS_PER_HOME).map(|at| partition(home, at)).collect();
        let partitions: Vec<Vec<PartitionId>> = (0..homes).map(of_home).collect();
        let layout = place::layout(self, JobId(1), placement, &partitions);
        let home = |task| layout.local_id(task).partition().0 / PARTITIONS_PER_HOME;
        let home_of: Vec<u32> = self.indices().map(home).collect();
        let mut tasks = vec![0_u64; homes as usize];
        let mut work = vec![0_f64; homes as usize];
        for task in self.indices() {
            let at = home_of[task as usize] as usize;
            tasks[at] += 1;
            work[at] += self.task(task).duration_ns as f64 * f64::from(self.cpus(task));
        }
        let mean = work.iter().sum::<f64>() / f64::from(homes);
        let most = work.iter().copied().fold(0.0, f64::max);
        let mut spread = Spread {
            homes,
            tasks_most: tasks.iter().copied().max().unwrap_or(0),
            tasks_mean: self.len() as f64 / f64::from(homes),
            work_most_over_mean: if mean > 0.0 { most / mean } else { 1.0 },
            edges: self.edges(),
            edges_cut: 0,
            bytes: 0,
            bytes_cut: 0,
        };
        for child in self.indices() {
            for edge in self.parents(child) {
                let bytes = self.edge_bytes(edge.task, edge.output);
                spread.bytes = spread.bytes.saturating_add(bytes);
                if home_of[edge.task as usize] != home_of[child as usize] {
                    spread.edges_cut += 1;
                    spread.bytes_cut = spread.bytes_cut.saturating_add(bytes);
                }
            }
        }
        spread
    }
}
