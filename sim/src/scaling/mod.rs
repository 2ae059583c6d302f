/*!
Scaling studies: one workflow on a healthy cluster of real [`node::Node`]s, with thousands of nodes
and a cost for every action.

The fault world ([`crate::World`]) needs disks that can lose writes and its own record of the
truth. A study needs neither, because nothing fails. So a run costs little more than the nodes
themselves. Four invariants are always checked. Every task ends exactly once. No slot runs two
tasks. No task runs without its inputs. The run ends.

Service times are charged step by step. A node takes all inputs at hand, like the loop of a real
node, and is busy for the time in [`crate::CostModel`]. Only then its packets leave, its tasks start
and its writes count.
*/

mod cluster;
mod counting;
mod event_queue;
mod machine;
mod node_failures;
mod probe_events;
mod submitter;
mod traffic;
mod transport;

use analysis::{Fold, Kinds, RunFacts, RunReport};
use node::Mutant;
use proto::{JobId, LocalId, NodeId, PartitionId, Span, Time, wire};
use scheduler::Tuning;
use workloads::{Graph, Placement, Plan};

use crate::checkers::Violation;
use crate::costs::{CostModel, Counts};
pub use node_failures::{InjectedFailures, NodeFailureError, NodeFailures};
pub use transport::NetworkModel;

/// The only job of a study.
const JOB: JobId = JobId(1);
/// The begin of virtual time.
const BEGIN: Time = Time(1_000_000_000_000);

/// The nodes that get the tasks in their partitions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Submit {
    /// Every node gets its share.
    #[default]
    Best,
    /// One node gets everything, as in the paper's worst case.
    Worst,
    Nodes(Vec<NodeId>),
}

/// The cluster on which a workflow is simulated.
#[derive(Clone, Debug)]
pub struct SimulationOptions {
    pub seed: u64,
    pub nodes: u32,
    /// Of each node.
    pub slots: u32,
    pub tuning: Tuning,
    pub placement: Placement,
    pub submit: Submit,
    pub network: NetworkModel,
    pub service: CostModel,
    /// Bytes are also written and read, which takes additional time.
    pub real_data: bool,
    pub node_failures: NodeFailures,
    /// Collects the attempts for a run record.
    pub collects: bool,
    /// A seeded bug.
    pub mutant: Option<Mutant>,
}

impl SimulationOptions {
    /// The paper's network and the built-in service times.
    #[must_use]
    pub fn new(nodes: u32, slots: u32) -> Self {
        Self {
            seed: 1,
            nodes,
            slots,
            tuning: Tuning::default(),
            placement: Placement::Hash,
            submit: Submit::Best,
            network: NetworkModel::KODIAK,
            service: CostModel::default(),
            real_data: false,
            node_failures: NodeFailures::default(),
            collects: false,
            mutant: None,
        }
    }
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// From the start of the submission to the client's knowledge of the end.
    pub makespan: Span,
    pub job: wire::JobState,
    /// Tasks launched, by node.
    pub launches: Vec<u64>,
    /// From the first launch until every node had launched a task. `None`: some node launched none.
    pub spread: Option<Span>,
    /// Packets between nodes, and steps of all nodes.
    pub packets: u64,
    pub steps: u64,
    /// Injected faults.
    pub struck: InjectedFailures,
    /// The home of the job.
    pub job_home: NodeId,
    /// The busy time of event loops, by node.
    pub loop_busy: Vec<Span>,
    /// Bytes of objects over the busiest card, in its busier direction.
    pub card_bytes_max: u64,
    pub nodes: Vec<wire::NodeState>,
    /// For [`RunReport::new`]. The caller adds bounds, CPU time and memory.
    pub fold: Fold,
    pub facts: RunFacts,
    /// The attempts of all nodes, if they were to be collected.
    pub collected: Option<Collected>,
}

/// What a run record is made of.
#[derive(Clone, Debug)]
pub struct Collected {
    pub attempts: lens::Collector,
    /// The id of each task of the graph.
    pub ids: Vec<LocalId>,
}

impl Simulation {
    /// The same report as that of `run --json` for a real run.
    #[must_use]
    pub fn report(&self) -> RunReport {
        RunReport::new(&self.fold, &self.facts)
    }
}

/// A point in a step of a node, for time measurements.
#[derive(Clone, Copy, Debug)]
pub enum Mark<'c> {
    /// The node begins to work, or continues.
    Work,
    /// The simulator works from here on.
    Rest,
    /// The step is over, with these counts.
    Over(&'c Counts),
}

/// Called at the marks of all nodes' steps.
pub type Meter<'m> = &'m mut dyn FnMut(Mark<'_>);

/// Runs a graph from submission to its end.
///
/// # Errors
/// When an invariant is violated: a bug of the nodes, not of the graph. Also when a node of
/// `submit` does not exist.
pub fn simulate(graph: &Graph, options: &SimulationOptions) -> Result<Simulation, Violation> {
    simulate_metered(graph, options, None)
}

/// Like [`simulate`], with a meter for the steps.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_metered(
    graph: &Graph,
    options: &SimulationOptions,
    meter: Option<Meter<'_>>,
) -> Result<Simulation, Violation> {
    let partitions = kvs::default_partitions(options.nodes);
    let mut map = kvs::make_map(options.seed | 1, options.nodes, partitions);
    for member in &mut map.members {
        member.slots = options.slots;
    }
    let plan = Plan::new(graph, JOB, options.placement, &homes(&map, &options.submit)?);
    cluster::run(graph, &plan, options, map, meter)
}

/// The partitions of each node that gets tasks.
fn homes(map: &wire::ClusterMap, submit: &Submit) -> Result<Vec<Vec<PartitionId>>, Violation> {
    let mut held: Vec<Vec<PartitionId>> = vec![Vec::new(); map.members.len()];
    for (at, entry) in map.partitions.iter().enumerate() {
        held[entry.replicas[0] as usize].push(PartitionId(at as u32));
    }
    let chosen = match submit {
        Submit::Best => return Ok(held),
        Submit::Worst => vec![NodeId(0)],
        Submit::Nodes(nodes) => nodes.clone(),
    };
    let mut homes = Vec::with_capacity(chosen.len());
    for node in chosen {
        match held.get_mut(node.0 as usize).map(std::mem::take) {
            Some(partitions) if !partitions.is_empty() => homes.push(partitions),
            _ => {
                let text = format!("no node {node} to submit to, or named twice");
                return Err(Violation::new("submission", text));
            }
        }
    }
    Ok(homes)
}

/// The facts of the report that a run knows.
fn facts(
    graph: &Graph,
    plan: &Plan<'_>,
    options: &SimulationOptions,
    fold: &Fold,
    kinds: Kinds,
) -> RunFacts {
    let data_edges = graph.indices().flat_map(|child| {
        graph.parents(child).filter(|edge| edge.output > 0).map(move |edge| {
            let bytes = graph.edge_bytes(edge.task, edge.output);
            (plan.local_id(edge.task), plan.local_id(child), bytes)
        })
    });
    RunFacts {
        job: JOB.to_string(),
        state: "finished".to_owned(),
        policy: options.tuning.policy.name().to_owned(),
        nodes: options.nodes,
        slots: options.nodes * options.slots,
        tasks: graph.len() as u64,
        edges: graph.edge_pairs(),
        submitted: Some(BEGIN),
        one_process: true,
        remote_bytes: Some(fold.remote_bytes(JOB, data_edges)),
        kinds,
        clock_starts_after_loads: graph.clock_starts_after_loads(),
        ..RunFacts::default()
    }
}

/// The work of a graph divided by all slots.
fn area(graph: &Graph, options: &SimulationOptions) -> Span {
    let work = |task| graph.task(task).duration_ns as f64 * f64::from(graph.cpus(task));
    let slots = f64::from(options.nodes) * f64::from(options.slots);
    Span((graph.indices().map(work).sum::<f64>() / slots) as u64)
}
