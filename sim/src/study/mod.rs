/*!
Scaling studies: one workflow on a healthy cluster of real [`node::Node`]s, at the size of a machine
room, with time charged for everything.

The world of the faults ([`crate::World`]) keeps disks that can be cut back and a truth to compare
with; here nothing fails, so a run needs neither, and costs little more than the nodes themselves.
What is still checked, always: every task ends exactly once, no slot runs two tasks, no task runs
without its inputs, and the run ends.

Service times are charged step by step: a node takes all inputs at hand, as the loop of a real one
does, works for as long as its [`crate::CostModel`] says, and only then do its packets leave, its
tasks start and its writes count.
*/

mod cluster;
mod event_queue;
mod machine;
mod node_failures;
mod probe_events;
mod submitter;
mod traffic;
mod transport;

use analysis::{Fold, Kinds, RunFacts, RunReport};
use proto::{JobId, NodeId, PartitionId, Span, Time, wire};
use scheduler::{Mutant, Tuning};
use workloads::{Graph, Placement, Plan};

use crate::checkers::Violation;
use crate::costs::{CostModel, Counts};
pub use node_failures::{InjectedFailures, NodeFailureError, NodeFailures};
pub use transport::NetworkModel;

/// The job of a study; the cluster is its own.
const JOB: JobId = JobId(1);
/// Virtual time begins here.
const BEGIN: Time = Time(1_000_000_000_000);

/// Which nodes' partitions get the tasks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Submit {
    /// Every node gets its share.
    #[default]
    Best,
    /// Everything goes to one node, the paper's worst case.
    Worst,
    Nodes(Vec<NodeId>),
}

/// The cluster a workflow is simulated on.
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
    /// Bytes are written and read, which takes time of its own, not only moved.
    pub real_data: bool,
    pub node_failures: NodeFailures,
    /// A bug on purpose.
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
            mutant: None,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// From the first byte of the submission to the client's knowledge of the end.
    pub makespan: Span,
    pub job: wire::JobState,
    /// Tasks launched, by node.
    pub launches: Vec<u64>,
    /// From the first launch until every node had launched something; `None`: some never did.
    pub spread: Option<Span>,
    /// Packets between nodes, and steps all nodes took.
    pub packets: u64,
    pub steps: u64,
    /// Faults that were injected.
    pub struck: InjectedFailures,
    /// The node that is home of the job.
    pub job_home: NodeId,
    /// Slot time and loop time that the nodes were busy, by node: who was short of what.
    pub loop_busy: Vec<Span>,
    /// Bytes of objects over the busiest card, in the direction that carried more.
    pub card_bytes_max: u64,
    pub nodes: Vec<wire::NodeState>,
    /// For [`RunReport::new`]; bounds, CPU time and memory are for the caller to fill in.
    pub fold: Fold,
    pub facts: RunFacts,
}

impl Simulation {
    /// What `run --json` says of a real run.
    #[must_use]
    pub fn report(&self) -> RunReport {
        RunReport::new(&self.fold, &self.facts)
    }
}

/// Where a step of a node stands, for those who take its time.
#[derive(Clone, Copy, Debug)]
pub enum Mark<'c> {
    /// The node begins to work, or goes on.
    Work,
    /// What follows is the simulator's own business.
    Rest,
    /// The step is over, and this is what it was.
    Over(&'c Counts),
}

/// Sees the steps of all nodes.
pub type Meter<'m> = &'m mut dyn FnMut(Mark<'_>);

/// Runs a graph from submission to its end.
///
/// # Errors
/// When a demand does not hold: a bug of the nodes, not of the graph. Also when the nodes to submit
/// to do not exist.
pub fn simulate(graph: &Graph, options: &SimulationOptions) -> Result<Simulation, Violation> {
    simulate_metered(graph, options, None)
}

/// As [`simulate`], for those who measure steps.
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

/// The partitions of each node that takes part.
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

/// The report's facts that a run knows.
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
