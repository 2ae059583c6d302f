//! Under every policy the same tasks are done, each once. Random graphs and the applications run
//! under every policy, placement, queue order and way of submission.

use proto::event::End;
use proto::{JobId, NodeId, PartitionId, Span, TaskId, wire};
use scheduler::{Order, Policy, Tuning};
use sim::{CostModel, NetworkModel, SimRng, Simulation, SimulationOptions, Submit, simulate};
use workloads::{Graph, GraphBuilder, Placement, Plan, TaskInit, generate};

const NODES: u32 = 5;
const SLOTS: u32 = 2;
/// The job of every study.
const JOB: JobId = JobId(1);
const GRAPHS: u64 = 25;

/// Tasks of several widths, lengths and outputs. Each reads from a few earlier ones.
fn random_graph(seed: u64) -> Graph {
    let mut dice = SimRng::new(seed);
    let mut builder = GraphBuilder::new("random");
    let mut specs = Vec::new();
    for outputs in 0..3 {
        for cpus in 1..=SLOTS {
            let output = |k: u32| wire::Output { key: k.to_string(), ..wire::Output::default() };
            specs.push(builder.spec(wire::Spec {
                kind: format!("kind{outputs}"),
                cpus,
                body: Some(wire::spec::Body::Sleep(wire::Sleep {})),
                outputs: (0..outputs).map(output).collect(),
                ..wire::Spec::default()
            }));
        }
    }
    let tasks = 1 + dice.below(120) as u32;
    let bytes_max = dice.pick(&[0, 100_000, 8_000_000]);
    let length_max = Span::from_millis(dice.pick(&[0, 5, 60]));
    let near = dice.pick(&[3, 20, 1_000]);
    let mut outputs_of = Vec::new();
    for task in 0..tasks {
        let at = dice.index(specs.len());
        let outputs = at as u64 / u64::from(SLOTS);
        let sizes: Vec<u64> = (0..outputs).map(|_| dice.below(bytes_max + 1)).collect();
        let duration_ns = dice.span(Span::ZERO, length_max).0;
        builder.task(TaskInit {
            duration_ns,
            entry: u64::from(task),
            output_sizes: &sizes,
            ..TaskInit::of(specs[at])
        });
        for _ in 0..dice.below(4).min(u64::from(task)) {
            let back = 1 + dice.below(near.min(u64::from(task))) as u32;
            let parent = task - back;
            let output = dice.below(outputs_of[parent as usize] + 1) as u32;
            builder.edge(parent, task, output);
        }
        outputs_of.push(outputs);
    }
    builder.finish().expect("edges go forward")
}

/// All ways to run a graph.
fn ways(seed: u64) -> Vec<SimulationOptions> {
    let submits =
        [Submit::Best, Submit::Worst, Submit::Nodes(vec![NodeId(1), NodeId(4), NodeId(2)])];
    let mut ways = Vec::new();
    for policy in Policy::ALL {
        for placement in [Placement::Hash, Placement::Graph] {
            for submit in &submits {
                let turn = ways.len();
                let tuning = Tuning {
                    policy,
                    order: [Order::Bytes, Order::Urgency, Order::Critical][turn / 2 % 3],
                    threshold: [0.01, 0.5, 5.0][turn % 3],
                    // Short enough that FLDS's monitor acts.
                    wait_max: Span::from_millis(50),
                    cache_bytes: [u64::MAX, 0, 9_000_000][turn / 3 % 3],
                    ..Tuning::default()
                };
                ways.push(SimulationOptions {
                    seed: seed + 1,
                    tuning,
                    placement,
                    submit: submit.clone(),
                    network: if turn % 5 == 0 {
                        NetworkModel::Flat { latency: Span::from_micros(50), bytes_per_s: 1e8 }
                    } else {
                        NetworkModel::KODIAK
                    },
                    service: if turn % 4 == 0 { CostModel::zero() } else { CostModel::default() },
                    ..SimulationOptions::new(NODES, SLOTS)
                });
            }
        }
    }
    ways
}

/// The placement that the study used.
fn plan<'g>(graph: &'g Graph, options: &SimulationOptions) -> Plan<'g> {
    let map = kvs::make_map(options.seed | 1, NODES, kvs::default_partitions(NODES));
    let mut held: Vec<Vec<PartitionId>> = vec![Vec::new(); NODES as usize];
    for (at, entry) in map.partitions.iter().enumerate() {
        held[entry.replicas[0] as usize].push(PartitionId(at as u32));
    }
    let homes = match &options.submit {
        Submit::Best => held,
        Submit::Worst => vec![held.swap_remove(0)],
        Submit::Nodes(nodes) => nodes.iter().map(|node| held[node.0 as usize].clone()).collect(),
    };
    Plan::new(graph, JOB, options.placement, &homes)
}

fn check(graph: &Graph, options: &SimulationOptions, ran: &Simulation) {
    let what = format!("{}: {:?} {:?}", graph.name(), options.tuning, options.submit);
    let plan = plan(graph, options);
    for task in graph.indices() {
        let id = TaskId { job: JOB, local: plan.local_id(task) };
        let end = ran.fold.ended_at(id).map(|(_, end)| end);
        assert_eq!(end, Some(End::Done), "{what}: task {task}");
    }
    assert_eq!(ran.fold.committed_twice(), 0, "{what}");
    let sum = ran.job.sum.clone().unwrap_or_default();
    let all = graph.len() as u64;
    assert_eq!((sum.done, sum.executions), (all, all), "{what}: each runs once");
    assert_eq!(ran.launches.iter().sum::<u64>(), all, "{what}");
    let area = graph.work_ns() as u64 / u64::from(NODES * SLOTS);
    assert!(ran.makespan.0 >= area.max(graph.critical_path_ns()), "{what}: below a true bound");
    for state in &ran.nodes {
        let left = state.ready_local + state.ready_shared + state.running;
        assert_eq!((left, state.waiting), (0, 0), "{what}: nothing is left");
    }
}

#[test]
fn the_same_tasks_are_done_once_with_each_policy() {
    for seed in 0..GRAPHS {
        let graph = random_graph(seed);
        for options in ways(seed) {
            match simulate(&graph, &options) {
                Ok(ran) => check(&graph, &options, &ran),
                Err(violation) => panic!("graph {seed}, {options:?}: {violation}"),
            }
        }
    }
}

#[test]
fn the_applications_are_done_once_with_each_policy() {
    for text in [
        "image-stacking:tasks=60,files=20,duration=20ms",
        "all-pairs:files=7,size=3MB,duration=20ms,tile=3",
        "all-pairs:files=6,output=1kB,order=random,duration=gaussian(20ms,5ms)",
        "moldyn:molecules=3,width=5,gather=2,duration=10ms",
        "fmri:volumes=9,duration=exponential(10ms)",
        "fan-out:preset=table3,tasks=120",
        "fan-in:preset=table3,tasks=120",
    ] {
        let graph = generate(text).expect(text);
        for options in ways(1) {
            match simulate(&graph, &options) {
                Ok(ran) => check(&graph, &options, &ran),
                Err(violation) => panic!("{text}, {options:?}: {violation}"),
            }
        }
    }
}
