//! Figures of a graph, for `workload info` and for the bounds.

use hashbrown::HashSet;

use crate::graph::{Graph, expand};

/// The figures of a graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Info {
    pub name: String,
    pub tasks: u64,
    /// Distinct pairs of parent and child.
    pub edges: u64,
    pub roots: u64,
    pub sinks: u64,
    /// The number of tasks on the longest path.
    pub depth: u64,
    /// The number of tasks on the fullest level, where a level is the longest distance from a root.
    pub level_width_max: u64,
    pub fan_in_max: u64,
    pub fan_out_max: u64,
    /// The largest number of slots of a task.
    pub cpus_max: u32,
    /// The sum of durations times slots.
    pub work_ns: u128,
    /// The longest path by durations.
    pub critical_path_ns: u64,
    /// The number of files that tasks write.
    pub files: u64,
    pub bytes_produced: u64,
    /// Distinct files that exist before the run.
    pub external_files: u64,
    pub external_bytes: u64,
}

impl Graph {
    /// The duration of a task, if it is fixed before the run or was measured. 0 for other commands,
    /// even with an estimate, because bounds must not depend on estimates.
    #[must_use]
    pub fn known_duration_ns(&self, task: u32) -> u64 {
        match self.is_command(task) && !self.commands_are_measured {
            true => 0,
            false => self.task_duration_ns[task as usize],
        }
    }

    /// The sum of durations times slots, in nanoseconds.
    #[must_use]
    pub fn work_ns(&self) -> u128 {
        self.indices()
            .map(|task| u128::from(self.known_duration_ns(task)) * u128::from(self.cpus(task)))
            .sum()
    }

    /// The longest path by durations, in nanoseconds; a lower bound for any number of slots.
    #[must_use]
    pub fn critical_path_ns(&self) -> u64 {
        let mut finish_ns = vec![0_u64; self.len()];
        let mut longest_ns = 0;
        for task in self.topological() {
            let start_ns =
                self.parents(task).map(|edge| finish_ns[edge.task as usize]).max().unwrap_or(0);
            let end_ns = start_ns.saturating_add(self.known_duration_ns(task));
            finish_ns[task as usize] = end_ns;
            longest_ns = longest_ns.max(end_ns);
        }
        longest_ns
    }

    /// The bytes that all tasks write.
    #[must_use]
    pub fn bytes_produced(&self) -> u64 {
        let per_spec: Vec<usize> = self.specs.iter().map(|spec| spec.outputs.len()).collect();
        let outputs = |task: u32| per_spec[self.task_spec[task as usize] as usize];
        self.indices()
            .flat_map(|task| (0..outputs(task)).map(move |output| (task, output)))
            .fold(0, |sum: u64, (task, output)| sum.saturating_add(self.output_bytes(task, output)))
    }

    /// For each task its longest distance from a root, in edges.
    #[must_use]
    pub fn levels(&self) -> Vec<u32> {
        let mut level = vec![0_u32; self.len()];
        for task in self.topological() {
            level[task as usize] =
                self.parents(task).map(|edge| level[edge.task as usize] + 1).max().unwrap_or(0);
        }
        level
    }

    /// All figures, in time linear in tasks and edges.
    #[must_use]
    pub fn info(&self) -> Info {
        let levels = self.levels();
        let mut width = vec![0_u64; levels.iter().max().map_or(0, |deepest| *deepest as usize + 1)];
        for level in &levels {
            width[*level as usize] += 1;
        }
        let (external_files, external_bytes) = self.externals();
        Info {
            name: self.name.clone(),
            tasks: self.len() as u64,
            edges: self.edge_pairs,
            roots: self.roots().count() as u64,
            sinks: self.sinks().count() as u64,
            depth: width.len() as u64,
            level_width_max: width.iter().copied().max().unwrap_or(0),
            fan_in_max: self.indices().map(|task| u64::from(self.slots(task))).max().unwrap_or(0),
            fan_out_max: self.indices().map(|t| u64::from(self.fan_out(t))).max().unwrap_or(0),
            cpus_max: self.indices().map(|task| self.cpus(task)).max().unwrap_or(0),
            work_ns: self.work_ns(),
            critical_path_ns: self.critical_path_ns(),
            files: self.tasks().map(|task| task.spec.outputs.len() as u64).sum(),
            bytes_produced: self.bytes_produced(),
            external_files,
            external_bytes,
        }
    }

    fn externals(&self) -> (u64, u64) {
        let fixed = foldhash::fast::FixedState::default();
        let mut seen: HashSet<String, _> = HashSet::with_hasher(fixed);
        let mut bytes: u64 = 0;
        for task in self.tasks() {
            for external in &task.spec.externals {
                let place = if external.path.is_empty() { &external.file } else { &external.path };
                if seen.insert(expand(place, task.entry)) {
                    bytes = bytes.saturating_add(external.size_bytes);
                }
            }
        }
        (seen.len() as u64, bytes)
    }
}
