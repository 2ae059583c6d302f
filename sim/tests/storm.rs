//! A thousand idle nodes around a loaded one, and around none: thieves neither starve nor storm.

use proto::limits::{STEAL_INTERVAL_BOUND, STEAL_INTERVAL_START, STEAL_NEIGHBOURS_MAX};
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

/// One task that runs for long, and nothing to steal: thieves back off and go quiet.
#[test]
fn idle_nodes_go_quiet() {
    let simulation = run("bag:tasks=1,duration=200s", Policy::Eft);
    let most = tries_until_quiet();
    for (node, state) in simulation.nodes.iter().enumerate() {
        assert!(state.steals_tried <= 2 * most, "node {node}: {} tries", state.steals_tried);
    }
    let sent: u64 = simulation.nodes.iter().map(|state| state.messages).sum();
    let each = sent / u64::from(NODES);
    // Of each try a probe to every neighbour, and as many answers to the probes of others.
    let bound = 2 * most * STEAL_NEIGHBOURS_MAX as u64 + 16;
    assert!(each <= bound, "{each} messages a node, at most {bound}");
}
