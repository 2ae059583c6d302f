//! A thousand idle nodes around a loaded one, and around none: thieves neither starve nor flood the
//! network.

use proto::limits::{
    STEAL_INTERVAL_BOUND, STEAL_INTERVAL_START, STEAL_NEIGHBOURS_MAX, STEAL_NEIGHBOURS_MIN,
};
use scheduler::{Policy, Tuning};
use sim::{Simulation, SimulationOptions, Submit, simulate};

const NODES: u32 = 1024;

fn run(nodes: u32, workload: &str, policy: Policy) -> Simulation {
    let graph = workloads::generate(workload).expect("the line is right");
    let mut options = SimulationOptions::new(nodes, 1);
    options.tuning = Tuning::of(policy);
    options.submit = Submit::Worst;
    simulate(&graph, &options).expect("no demand is broken")
}

/// Tries of one thief from its first interval to the bound, where it becomes dormant.
fn tries_until_quiet() -> u64 {
    u64::from((STEAL_INTERVAL_BOUND.0 / STEAL_INTERVAL_START.0).ilog2()) + 2
}

/// All tasks start at one node, sixteen for each slot of the cluster.
#[test]
fn work_spreads_in_few_rounds() {
    for policy in [Policy::Mlb, Policy::Eft] {
        let simulation = run(NODES, "bag:tasks=16384,duration=500ms", policy);
        let report = simulation.report();
        let idle = simulation.launches.iter().filter(|&&launches| launches == 0).count();
        assert_eq!(idle, 0, "{policy:?}: nodes without work");
        // Sixteen rounds of tasks take 8 s. Doubling from one node to all takes ten rounds, each
        // with a hint and a steal. A node that gets tasks late starts and ends late.
        assert!(report.makespan_s < 9.0, "{policy:?}: {} s", report.makespan_s);
        assert!(report.utilization > 0.9, "{policy:?}: {}", report.utilization);
        let tried = report.steals.tried as f64 / f64::from(NODES);
        assert!(tried < 4.0 * tries_until_quiet() as f64, "{policy:?}: {tried} tries a node");
    }
}

/// Sixteen times the nodes take ten rounds instead of six, and not sixteen times as long.
#[test]
fn rounds_grow_as_the_logarithm_of_the_nodes() {
    // The time of the last node varies by seed, so the mean of several is used.
    let spread_ms = |nodes: u32| {
        let graph = workloads::generate(&format!("bag:tasks={},duration=2s", 4 * nodes));
        let graph = graph.expect("the line is right");
        let each = [1, 2].map(|seed| {
            let mut options = SimulationOptions::new(nodes, 1);
            options.tuning = Tuning::of(Policy::Mlb);
            options.submit = Submit::Worst;
            options.seed = seed;
            let simulation = simulate(&graph, &options).expect("no demand is broken");
            simulation.spread.expect("all nodes get work").as_secs_f64() * 1e3
        });
        f64::midpoint(each[0], each[1])
    };
    let sizes = [64, 256, 1024];
    let spread = sizes.map(spread_ms);
    let round = |at: usize| spread[at] / f64::from(sizes[at]).log2();
    println!("{spread:.1?} ms, {:.1?} ms a round", [0, 1, 2].map(round));
    // A round takes about the same time in all sizes: the factor is at most three. Linear growth
    // would make it ten.
    assert!(round(2) < 3.0 * round(0), "{spread:?}");
}

/// A loaded node has enough tasks for a quarter of all nodes. Counts the messages until all other
/// nodes are dormant.
#[test]
fn around_one_loaded_node_a_period_of_back_off_costs_few_messages() {
    for nodes in [64, 256, 1024] {
        let bag = format!("bag:tasks={},duration=20s", nodes / 4);
        let simulation = run(nodes, &bag, Policy::Eft);
        let sum = |of: fn(&proto::wire::NodeState) -> u64| -> f64 {
            simulation.nodes.iter().map(of).sum::<u64>() as f64
        };
        let periods = sum(|state| state.steals_tried);
        let messages = sum(|state| state.messages);
        let (each, tries) = (messages / periods, periods / f64::from(nodes));
        println!("{nodes}: {each:.1} messages a node and period, {tries:.1} periods");
        // A probe to √n neighbours, half as many each time, and answers to the same number of
        // probes.
        let most = 2 * (f64::from(nodes).sqrt() as u64).min(STEAL_NEIGHBOURS_MAX as u64);
        assert!(each <= most as f64, "{nodes}: {each} messages, at most {most}");
        assert!(tries <= 2.0 * tries_until_quiet() as f64, "{nodes}: {tries} periods");
    }
}

/// The mean number of messages of a node, and the most tries of a thief. Each node has one task of
/// random length, and no node has a task to give.
fn idle(neighbours: u32) -> (u64, u64) {
    let graph = workloads::generate("bag:tasks=1024,duration=uniform(0,100s)").expect("a line");
    let mut options = SimulationOptions::new(NODES, 1);
    options.tuning.steal_neighbours = neighbours;
    let simulation = simulate(&graph, &options).expect("no demand is broken");
    let sent: u64 = simulation.nodes.iter().map(|state| state.messages).sum();
    let tries = simulation.nodes.iter().map(|state| state.steals_tried).max();
    (sent / u64::from(NODES), tries.unwrap_or(0))
}

/// Thieves without success back off, probe fewer neighbours each time, and become dormant.
#[test]
fn idle_nodes_go_quiet() {
    let most = tries_until_quiet();
    let (each, tries) = idle(0);
    assert!(tries >= most - 2 && tries <= 2 * most, "{tries} tries of a thief");
    // Each try probes every neighbour. The number halves each time down to the minimum, and the
    // same number of answers goes to other nodes' probes.
    let bound = 4 * STEAL_NEIGHBOURS_MAX as u64 + 2 * most * STEAL_NEIGHBOURS_MIN as u64 + 16;
    let (fixed, _) = idle(STEAL_NEIGHBOURS_MAX as u32);
    println!("{each} messages a node, at most {bound}; {fixed} of those that always ask as many");
    assert!(each <= bound, "{each} messages a node, at most {bound}");
    assert!(fixed > 2 * bound, "{fixed} messages of those that always ask as many");
}
