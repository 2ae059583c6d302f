//! The size of the evaluation: the paper's scale, or fast fractions of it.

/// Sizes of all experiments.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Scale {
    pub(super) quick: bool,
    /// The seed of generators with the same graph in every repeat.
    pub(super) seed: u64,
    /// Repeats of simulated points that a claim rests on, and of points of a curve.
    pub(super) seeds: u32,
    pub(super) seeds_of_curves: u32,
    /// Repeats of real points.
    pub(super) rounds: u32,
    /// The largest cluster, and the node counts of curves up to it. Two slots each.
    pub(super) nodes: u32,
    pub(super) ladder: &'static [u32],
    pub(super) strong_ladder: &'static [u32],
    /// Beyond the paper's largest cluster.
    pub(super) above: &'static [u32],
    /// Nodes of the image stacking sweep: 128 cores in the paper.
    pub(super) stacking_nodes: u32,
    /// Locality, and tasks and files if they are not the generator's own.
    pub(super) localities: &'static [(&'static str, Option<(u32, u32)>)],
    /// Files of each set of all-pairs.
    pub(super) files: u32,
    pub(super) tasks_per_slot: u32,
    pub(super) noop_tasks_per_instance: u32,
    pub(super) instances: &'static [u32],
    pub(super) processes: &'static [u32],
    pub(super) noop_tasks_per_process: u32,
    /// Tasks of the heavy-tailed bag; `None`: the generator's own number.
    pub(super) heavy_tail_tasks: Option<u32>,
    pub(super) recorded_max: usize,
}

/// Executing threads of a node, in all of the paper's set-ups.
pub(super) const SLOTS: u32 = 2;

impl Scale {
    pub(super) fn full(seed: u64) -> Self {
        Self {
            quick: false,
            seed,
            seeds: 3,
            seeds_of_curves: 1,
            rounds: 3,
            nodes: 100,
            ladder: &[1, 5, 10, 25, 50, 75, 100],
            strong_ladder: &[50, 100],
            above: &[200, 400],
            stacking_nodes: 64,
            localities: &[
                ("1", None),
                ("1.38", None),
                ("2", None),
                ("3", None),
                ("4", None),
                ("5", None),
                ("10", None),
                ("20", None),
                ("30", None),
            ],
            files: 500,
            tasks_per_slot: 1000,
            noop_tasks_per_instance: 16_000,
            instances: &[1, 2, 4, 8, 16, 32, 64],
            processes: &[1, 2, 4, 8],
            noop_tasks_per_process: 128_000,
            heavy_tail_tasks: None,
            recorded_max: 40,
        }
    }

    pub(super) fn quick(seed: u64) -> Self {
        Self {
            quick: true,
            seeds: 1,
            rounds: 1,
            nodes: 16,
            ladder: &[4, 16],
            strong_ladder: &[8, 16],
            above: &[24],
            stacking_nodes: 8,
            localities: &[("1", Some((640, 640))), ("30", Some((1920, 64)))],
            files: 48,
            tasks_per_slot: 100,
            noop_tasks_per_instance: 500,
            instances: &[1, 4],
            processes: &[1, 2],
            noop_tasks_per_process: 2_000,
            heavy_tail_tasks: Some(500),
            recorded_max: 1,
            ..Self::full(seed)
        }
    }

    pub(super) fn slots(&self) -> u32 {
        self.nodes * SLOTS
    }
}
