//! The urgency of a task: the longest path from its start to an end of the graph.

use proto::wire::{self, spec::Body};

use crate::graph::Graph;

/// The assumed duration of a command without an estimate, so that its level counts.
const COMMAND_GUESS_NS: u64 = 1_000_000_000;

impl Graph {
    /// For each task its *b-level* in nanoseconds: its own duration and the longest path after it.
    /// Every task counts at least 1, so that levels of no-ops differ. Empty if there are no edges,
    /// because the durations then suffice.
    #[must_use]
    pub fn urgencies(&self) -> Vec<u64> {
        if self.edges() == 0 {
            return Vec::new();
        }
        let own_ns = self.assumed_ns();
        let mut urgency: Vec<u64> = vec![0; self.len()];
        for at in (0..self.len() as u32).rev() {
            let task = self.order.as_ref().map_or(at, |order| order[at as usize]);
            let after = self.children(task).map(|edge| urgency[edge.task as usize]).max();
            urgency[task as usize] = after.unwrap_or(0).saturating_add(own_ns(task));
        }
        urgency
    }

    /// The sum over all tasks of duration times slots, in nanoseconds, with the assumptions of
    /// [`Self::urgencies`].
    #[must_use]
    pub fn assumed_work_ns(&self) -> u64 {
        let own_ns = self.assumed_ns();
        let work_ns = |task: u32| {
            let spec = &self.specs[self.task_spec[task as usize] as usize];
            own_ns(task).saturating_mul(u64::from(spec.cpus.max(1)))
        };
        (0..self.len() as u32).fold(0, |sum, task| sum.saturating_add(work_ns(task)))
    }

    /// The assumed duration of a task in nanoseconds, at least 1.
    fn assumed_ns(&self) -> impl Fn(u32) -> u64 + '_ {
        let is_command =
            |spec: &wire::Spec| matches!(spec.body, Some(Body::Command(_) | Body::Call(_)));
        let commands: Vec<bool> = self.specs.iter().map(is_command).collect();
        move |task| match self.task_duration_ns[task as usize] {
            0 if commands[self.task_spec[task as usize] as usize] => COMMAND_GUESS_NS,
            duration_ns => duration_ns.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::generate;
    use crate::graph::builder::{GraphBuilder, TaskInit};
    use proto::wire;

    #[test]
    fn the_longest_way_to_an_end() {
        // 0 -> 1 -> 3, 0 -> 2 -> 3 and 4 alone; numbered against the edges.
        let mut builder = GraphBuilder::new("levels");
        let spec = builder.spec(wire::Spec::default());
        for duration_ns in [7, 20, 5, 100, 3] {
            builder.task(TaskInit { duration_ns, ..TaskInit::of(spec) });
        }
        for (parent, child) in [(3, 1), (3, 2), (1, 0), (2, 0)] {
            builder.edge(parent, child, 0);
        }
        let graph = builder.finish().expect("it is acyclic");
        assert_eq!(graph.urgencies(), [7, 27, 12, 127, 3]);
        let longest = graph.urgencies().into_iter().max();
        assert_eq!(longest, Some(graph.critical_path_ns()));
    }

    #[test]
    fn levels_count_where_durations_are_unknown() {
        assert!(generate("bag:tasks=5,duration=1s").expect("a bag").urgencies().is_empty());
        assert_eq!(generate("chain:tasks=4").expect("a chain").urgencies(), [4, 3, 2, 1]);
        let mut builder = GraphBuilder::new("commands");
        let command = wire::spec::Body::Command(wire::Command::default());
        let spec = builder.spec(wire::Spec { body: Some(command), ..wire::Spec::default() });
        for duration_ns in [0, 5_000_000_000, 0] {
            builder.task(TaskInit { duration_ns, ..TaskInit::of(spec) });
        }
        builder.edge(0, 1, 0);
        builder.edge(1, 2, 0);
        let graph = builder.finish().expect("it is acyclic");
        assert_eq!(graph.urgencies(), [7_000_000_000, 6_000_000_000, 1_000_000_000]);
    }
}
