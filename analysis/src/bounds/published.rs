//! The published figures of the paper's bound.

/// One of the four benchmark graphs of the paper, with 1,000 tasks for each slot.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Published {
    /// The name in the paper.
    pub name: &'static str,
    /// Our generator of it, without its keys.
    pub generator: &'static str,
    /// Of the bound at 128K slots: figure 12 and its text.
    pub throughput_per_s: f64,
    /// The mean share of the bound that MATRIX reached on up to 200 slots: table 4.
    pub reached_share: f64,
}

/// "128K-core (128M tasks)" with 1,000 tasks per slot.
pub const PUBLISHED_SLOTS: u32 = 128_000;

pub const PUBLISHED: [Published; 4] = [
    Published {
        name: "BOT",
        generator: "bag",
        throughput_per_s: 2.33e6,
        reached_share: 0.991_396_36,
    },
    Published {
        name: "Pipeline",
        generator: "pipeline",
        throughput_per_s: 1.85e6,
        reached_share: 0.882_381_18,
    },
    Published {
        name: "FanOut",
        generator: "fan-out",
        throughput_per_s: 1.16e6,
        reached_share: 0.856_903_23,
    },
    Published {
        name: "FanIn",
        generator: "fan-in",
        throughput_per_s: 852.15e3,
        reached_share: 0.906_052_18,
    },
];

impl Published {
    /// The workload of table 3 on this number of slots.
    #[must_use]
    pub fn workload(&self, slots: u32) -> String {
        format!("{}:preset=table3,slots={slots}", self.generator)
    }
}
