//! One workflow on a healthy simulated cluster: how long, how many messages, who ran what.

use proto::{JobId, NodeId, PartitionId, Span, wire};
use scheduler::Tuning;
use workloads::{Graph, Placement};

use crate::checkers::Violation;
use crate::client::ClientPlan;
use crate::network::NetworkOptions;
use crate::options::WorldOptions;
use crate::workload::Submission;
use crate::world::World;

/// A job that has not ended after this much virtual time is given up.
const SIMULATED_MAX: Span = Span::from_secs(1_000_000);

/// The cluster a workflow is simulated on.
#[derive(Clone, Debug)]
pub struct SimulationOptions {
    pub seed: u64,
    pub nodes: u32,
    pub slots: u32,
    /// How nodes decide.
    pub tuning: Tuning,
    pub placement: Placement,
    /// Who gets the tasks; empty: all nodes.
    pub submit_to: Vec<NodeId>,
    /// Flat: a latency, and a bandwidth for objects.
    pub latency: Span,
    pub bandwidth_bytes_per_s: f64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// From the first byte of the submission to the client's knowledge of the end.
    pub makespan: Span,
    pub job: wire::JobState,
    /// Tasks launched, by node.
    pub launches: Vec<u64>,
    pub packets: u64,
    pub nodes: Vec<wire::NodeState>,
    pub steps: u64,
}

/// Runs a graph from submission to its end.
///
/// # Errors
/// When one of the checkers finds a demand broken: a bug of the nodes, not of the graph.
pub fn simulate(graph: &Graph, options: &SimulationOptions) -> Result<Simulation, Violation> {
    let mut world_options = WorldOptions::healthy(options.seed, options.nodes, options.slots);
    world_options.tuning = options.tuning;
    world_options.network = NetworkOptions::flat(options.latency, options.bandwidth_bytes_per_s);
    let mut world = World::new(world_options);
    let all = || (0..options.nodes).map(NodeId).collect();
    let homes = if options.submit_to.is_empty() { all() } else { options.submit_to.clone() };
    let held: Vec<Vec<PartitionId>> =
        homes.iter().map(|node| world.partitions_of(node.0 as usize)).collect();
    let job = JobId(options.seed | 1 << 32);
    let submission = Submission::of_graph(graph, job, options.placement, &held);
    let client = world.add_job(submission, ClientPlan::simple());
    world.run_until(world.now() + SIMULATED_MAX, |world| world.told(client).is_some());
    if let Some(violation) = world.violation() {
        return Err(violation.clone());
    }
    let Some(makespan) = world.makespan(client) else {
        let text = format!("{job} has not ended after {SIMULATED_MAX:?}");
        return Err(Violation::new("progress", text));
    };
    let state = world.told(client).cloned().unwrap_or_default();
    let packets = world.packets();
    Ok(Simulation {
        makespan,
        job: state,
        launches: world.launches(),
        packets,
        steps: world.steps,
        nodes: world.node_states()?,
    })
}
