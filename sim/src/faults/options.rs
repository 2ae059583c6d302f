//! The options of a simulated world, and the hooks of directed tests.

use crate::Mutant;
use node::Effect;
use proto::{NodeId, Span, Time, wire};
use scheduler::{Policy, Tuning};

use crate::faults::kinds::node_offers::NodeOffers;
use crate::faults::network::NetworkOptions;

/// The cluster, its models and its checks.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    pub seed: u64,
    pub nodes: u32,
    pub partitions: u32,
    /// Replicas of each partition. With more than one, homes move.
    pub copies: u32,
    /// Slots by node, repeated as needed.
    pub slots: Vec<u32>,
    /// The resources of the nodes besides their slots.
    pub offers: NodeOffers,
    /// Nodes that end, each with its end after the begin of the world, and its margin.
    pub ends: Vec<(usize, Span, Span)>,
    pub tuning: Tuning,
    pub mutant: Option<Mutant>,
    pub network: NetworkOptions,
    pub sync_min: Span,
    pub sync_max: Span,
    /// The duration of one step of a node.
    pub step_min: Span,
    pub step_max: Span,
    /// The most inputs of one step.
    pub batch_max: usize,
    pub launch_max: Span,
    pub skew_max: Span,
    /// The paces of clocks by node, repeated as needed, in thousandths of true time.
    pub paces: Vec<u64>,
    /// The largest page of records that is read, in bytes.
    pub page_bytes_max: usize,
    /// Slowness by node, repeated as needed.
    pub slowness: Vec<u64>,
    /// Lost requests and answers of clients, per thousand.
    pub client_lost_permille: u64,
    /// Steps of all nodes between two censuses of all tasks; 0 disables them.
    pub census_steps: u64,
    /// No faults are injected: the strict checkers apply.
    pub faultless: bool,
    /// Jobs may stall here, and nodes may report them as stalled.
    pub stalls: bool,
    /// The share of tasks that make other bytes in each attempt. With 0, outputs have no checksums.
    pub varies_permille: u64,
    /// A number from which outputs, names and edges of spawned tasks and refused turns are drawn. A
    /// world without it has none of them.
    pub more_turns: Option<u64>,
    /// Tasks of a turn name children of earlier turns, by hashes with this number.
    pub late_inputs: Option<u64>,
    /// A number from which the variables of jobs and their values are drawn. A world without it has
    /// none of them.
    pub variables: Option<u64>,
    /// A number from which events between tasks are drawn. A world without it has none of them.
    pub mail: Option<u64>,
    /// Clients know the first map, and learn changes from the nodes that answer them.
    pub clients_learn: bool,
    /// Nodes join a cluster that was created with more replicas than nodes.
    pub grows: Option<GrowthPlan>,
    /// Some tasks hold several nodes at once.
    pub gangs: bool,
    /// Each node is of one of two groups.
    pub grouped: bool,
    /// Some commands get a signal before an end.
    pub noticed: bool,
}

/// The growth of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct GrowthPlan {
    /// The largest number of joins.
    pub joins_max: u32,
    /// The share of growth steps at which a node dies.
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
            offers: NodeOffers::None,
            ends: Vec::new(),
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
            more_turns: None,
            mail: None,
            late_inputs: None,
            variables: None,
            clients_learn: false,
            grows: None,
            gangs: false,
            grouped: false,
            noticed: false,
        }
    }
}

/// The action of a directed test on one effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Carry,
    /// Skips the effect.
    Drop,
    /// The node dies just before the effect.
    Crash,
    /// Carries out the effect, then the other node dies at once.
    CrashOther(NodeId),
    /// Like `Crash`, but unsynced writes are lost.
    PowerCut,
}

/// Called for each command that changes the map.
pub type AgreedHook = Box<dyn FnMut(&wire::MapCommand) + Send>;
/// Called before each effect is carried out.
pub type EffectHook = Box<dyn FnMut(Time, NodeId, &Effect) -> Action + Send>;
