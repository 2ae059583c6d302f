//! What a world is made of, and how a directed test may interfere with it.

use node::Effect;
use proto::{NodeId, Span, Time, wire};
use scheduler::{Mutant, Policy, Tuning};

use crate::network::NetworkOptions;

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    pub seed: u64,
    pub nodes: u32,
    pub partitions: u32,
    /// Of each partition; with more than one, homes move.
    pub copies: u32,
    /// Slots by node, repeated as needed.
    pub slots: Vec<u32>,
    pub tuning: Tuning,
    pub mutant: Option<Mutant>,
    pub network: NetworkOptions,
    pub sync_min: Span,
    pub sync_max: Span,
    /// How long one step of a node takes.
    pub step_min: Span,
    pub step_max: Span,
    /// Inputs one step may take at most.
    pub batch_max: usize,
    pub launch_max: Span,
    pub skew_max: Span,
    /// Of clocks, by node, repeated as needed: thousandths of true time.
    pub paces: Vec<u64>,
    /// What one page of records that is read may have at most, in bytes.
    pub page_bytes_max: usize,
    /// Slowness by node, repeated as needed.
    pub slowness: Vec<u64>,
    /// Requests and answers of clients that get lost, out of a thousand.
    pub client_lost_permille: u64,
    /// Steps of all nodes together between two counts of all tasks; 0: they are never counted.
    pub census_steps: u64,
    /// Nothing is broken on purpose: the strict checkers apply.
    pub faultless: bool,
    /// A job may get no further here, and be said to.
    pub stalls: bool,
    /// Tasks that make other bytes in each attempt, out of a thousand. 0: outputs have no
    /// checksums.
    pub varies_permille: u64,
    /// Clients know the first map, and learn the rest from those they ask.
    pub clients_learn: bool,
    /// Nodes come to a cluster that was made for more copies than it had nodes.
    pub grows: Option<GrowthPlan>,
}

/// How a cluster grows.
#[derive(Clone, Copy, Debug)]
pub struct GrowthPlan {
    /// How many nodes come at most.
    pub joins_max: u32,
    /// Out of a thousand steps of the growth, those at which a node dies.
    pub kills_permille: u64,
}

impl WorldOptions {
    /// A healthy small cluster.
    #[must_use]
    pub fn healthy(seed: u64, nodes: u32, slots: u32) -> Self {
        Self {
            seed,
            nodes,
            partitions: kvs::default_partitions(nodes).min(64.max(nodes.next_power_of_two())),
            copies: 1,
            slots: vec![slots],
            tuning: Tuning { bandwidth_bytes_per_s: 1e9, ..Tuning::of(Policy::Mlb) },
            mutant: None,
            network: NetworkOptions::flat(Span::from_micros(50), 1e9),
            sync_min: Span::from_micros(200),
            sync_max: Span::from_millis(1),
            step_min: Span::from_micros(2),
            step_max: Span::from_micros(10),
            batch_max: 64,
            launch_max: Span::from_micros(20),
            skew_max: Span::ZERO,
            paces: vec![1_000],
            page_bytes_max: usize::MAX,
            slowness: vec![1],
            client_lost_permille: 0,
            census_steps: 0,
            faultless: true,
            stalls: false,
            varies_permille: 0,
            clients_learn: false,
            grows: None,
        }
    }
}

/// What a directed test does to one effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Carry,
    /// It never happens.
    Drop,
    /// The node dies just before it.
    Crash,
    /// It happens, and the other node dies at once.
    CrashOther(NodeId),
    /// As `Crash`, and what was not synced is gone.
    PowerCut,
}

/// Hears of each command that has changed the map.
pub type AgreedHook = Box<dyn FnMut(&wire::MapCommand) + Send>;
/// Sees each effect just before it is carried out.
pub type EffectHook = Box<dyn FnMut(Time, NodeId, &Effect) -> Action + Send>;
