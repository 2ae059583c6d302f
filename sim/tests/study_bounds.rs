//! Workflows on healthy simulated clusters: no makespan below the lower bound, none far above it.

use proto::{NodeId, Span};
use scheduler::{Policy, Tuning};
use sim::{NetworkModel, Simulation, SimulationOptions, Submit, simulate};
use workloads::{Graph, generate};

fn options(nodes: u32, slots: u32) -> SimulationOptions {
    let (latency, bytes_per_s) = (Span::from_micros(50), 125e6);
    SimulationOptions {
        tuning: Tuning::of(Policy::Mlb),
        network: NetworkModel::Flat { latency, bytes_per_s },
        ..SimulationOptions::new(nodes, slots)
    }
}

fn run(graph: &Graph, options: &SimulationOptions) -> Simulation {
    let simulation = simulate(graph, options).expect("no demand is broken");
    let bound = analysis::Bounds::of(graph, options.nodes * options.slots).lower();
    assert!(simulation.makespan >= bound, "{:?} < {bound:?}", simulation.makespan);
    let sum = simulation.job.sum.clone().expect("an ended job has counts");
    assert_eq!(sum.done, graph.len() as u64);
    simulation
}

#[test]
fn the_paper_s_four_graphs_come_near_their_bound() {
    for (text, times_bound) in [
        ("bag:tasks=2000,duration=50ms", 1.3),
        ("fan-out:tasks=2000,degree=10,duration=50ms", 1.5),
        ("fan-in:tasks=2000,degree=10,duration=50ms", 1.5),
        ("pipeline:tasks=2000,length=10,duration=50ms", 1.5),
    ] {
        let graph = generate(text).unwrap();
        let options = options(8, 2);
        let simulation = run(&graph, &options);
        let bound = analysis::Bounds::of(&graph, 16).lower();
        let ratio = simulation.makespan.as_secs_f64() / bound.as_secs_f64();
        println!("{text}: {ratio:.3} times the bound, {} packets", simulation.packets);
        assert!(ratio < times_bound, "{text}: {ratio:.3} times the bound");
    }
}

#[test]
fn worst_case_submission_spreads_by_stealing() {
    let graph = generate("bag:tasks=2000,duration=50ms").unwrap();
    let mut options = options(16, 1);
    options.submit = Submit::Nodes(vec![NodeId(3)]);
    let simulation = run(&graph, &options);
    let ran = &simulation.launches;
    println!("{:?} by node, {:?}", ran, simulation.makespan);
    // An even share is 125.
    assert!(ran.iter().all(|&n| n > 60), "{ran:?}");
}

/// Pipelines with expensive transfers: policies differ in the bytes they move.
#[test]
fn locality_moves_fewer_bytes_than_balancing() {
    let graph = generate("pipeline:tasks=400,length=20,duration=10ms,output=20MB").unwrap();
    let moved = |policy| {
        let mut options = options(8, 1);
        options.tuning.policy = policy;
        run(&graph, &options).job.sum.unwrap().moved_bytes
    };
    let (mlb, mdl) = (moved(Policy::Mlb), moved(Policy::Mdl));
    let rlds = moved(Policy::Rlds);
    println!("bytes moved: mlb {mlb}, rlds {rlds}, mdl {mdl}");
    assert!(mdl < mlb, "mdl {mdl}, mlb {mlb}");
    assert!(rlds < mlb, "rlds {rlds}, mlb {mlb}");
}

/// Edge lists that span chunks, credits that span messages, and a job as deep as it is long.
#[test]
fn wide_and_deep_graphs_run() {
    for text in ["star-out:tasks=100000", "star-in:tasks=100000", "chain:tasks=20000"] {
        let graph = generate(text).unwrap();
        let simulation = run(&graph, &options(4, 2));
        let steps_per_task = simulation.steps as f64 / graph.len() as f64;
        println!(
            "{text}: {:?}, {} packets, {steps_per_task:.2} steps a task",
            simulation.makespan, simulation.packets
        );
        assert!(steps_per_task < 12.0, "{text}: {steps_per_task} steps a task");
    }
}
