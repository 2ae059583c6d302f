//! A thousand idle nodes around a loaded one, and around none: thieves neither starve nor storm.

use proto::limits::{
    STEAL_INTERVAL_BOUND, STEAL_INTERVAL_START, STEAL_NEIGHBOURS_MAX, STEAL_NEIGHBOURS_MIN,
};
use scheduler::{Policy, Tuning};
use sim::{Simulation, SimulationOptions, Submit, simulate};

const NODES: u32 = 1024;

fn run(workload: &str, policy: Policy) -> Simulation {
    let graph = workloads::generate(workload).expect("the line is right");
    let mut options = SimulationOptions::new(NODES, 1);
    options.tuning = Tuning::of(policy);
    options.submit = Submit::Worst;
    simulate(&graph, &options).expect("no demand is broken")
}

/// Tries of one thief from the start of its interval to the bound, where it goes quiet.
fn tries_until_quiet() -> u64 {
    u64::from((STEAL_INTERVAL_BOUND.0 / STEAL_INTERVAL_START.0).ilog2()) + 2
}

/// All tasks start at one node, sixteen for each slot of the cluster.
#[test]
fn work_spreads_in_few_rounds() {
    for policy in [Policy::Mlb, Policy::Eft] {
        let simulation = run("bag:tasks=16384,duration=500ms", policy);
        let report = simulation.report();
        let idle = simulation.launches.iter().filter(|&&launches| launches == 0).count();
        assert_eq!(idle, 0, "{policy:?}: nodes without work");
        // Sixteen rounds of tasks take 8 s. Doubling from one node to all takes ten rounds, each a
        // hint and a steal; a node that is served late begins late, and ends late by as much.
        assert!(report.makespan_s < 9.0, "{policy:?}: {} s", report.makespan_s);
        assert!(report.utilization > 0.9, "{policy:?}: {}", report.utilization);
        let tried = report.steals.tried as f64 / f64::from(NODES);
        assert!(tried < 4.0 * tries_until_quiet() as f64, "{policy:?}: {tried} tries a node");
    }
}

/// Messages of a node, on the average, and tries of the thief that tried most, where each node has
/// one task, which ends sooner or later, and nobody anything to give away.
fn idle(neighbours: u32) -> (u64, u64) {
    let graph = workloads::generate("bag:tasks=1024,duration=uniform(0,100s)").expect("a line");
    let mut options = SimulationOptions::new(NODES, 1);
    options.tuning.steal_neighbours = neighbours;
    let simulation = simulate(&graph, &options).expect("no demand is broken");
    let sent: u64 = simulation.nodes.iter().map(|state| state.messages).sum();
    let tries = simulation.nodes.iter().map(|state| state.steals_tried).max();
    (sent / u64::from(NODES), tries.unwrap_or(0))
}

/// Thieves that find nothing back off, ask fewer and fewer, and go quiet.
#[test]
fn idle_nodes_go_quiet() {
    let most = tries_until_quiet();
    let (each, tries) = idle(0);
    assert!(tries >= most - 2 && tries <= 2 * most, "{tries} tries of a thief");
    // Of each try a probe to every neighbour, each time half as many as before down to the least,
    // and as many answers to the probes of others.
    let bound = 4 * STEAL_NEIGHBOURS_MAX as u64 + 2 * most * STEAL_NEIGHBOURS_MIN as u64 + 16;
    let (fixed, _) = idle(STEAL_NEIGHBOURS_MAX as u32);
    println!("{each} messages a node, at most {bound}; {fixed} of those that always ask as many");
    assert!(each <= bound, "{each} messages a node, at most {bound}");
    assert!(fixed > 2 * bound, "{fixed} messages of those that always ask as many");
}
