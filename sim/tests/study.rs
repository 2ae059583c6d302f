//! Studies: with nothing but tasks and network to wait for, times can be told beforehand.

use proto::{NodeId, Span, limits, wire};
use scheduler::{Policy, Tuning};
use sim::{
    ByteTimes, CostModel, NetworkModel, NodeFailures, Racks, Simulation, SimulationOptions, Submit,
    simulate,
};
use workloads::{Graph, GraphBuilder, Placement, TaskInit, generate};

const MS: u64 = 1_000_000;

/// Nothing takes time but the tasks.
fn ideal(nodes: u32, slots: u32) -> SimulationOptions {
    SimulationOptions {
        service: CostModel::zero(),
        network: NetworkModel::MaxMin { latency: Span::ZERO, bytes_per_s: f64::INFINITY },
        ..SimulationOptions::new(nodes, slots)
    }
}

fn run(graph: &Graph, options: &SimulationOptions) -> Simulation {
    simulate(graph, options).expect("no demand is broken")
}

#[test]
fn with_a_slot_for_each_task_a_graph_takes_its_critical_path() {
    for text in [
        "pipeline:tasks=60,length=6,duration=uniform(0,100ms),output=1MB,seed=4",
        "fan-out:tasks=111,degree=10,duration=uniform(0,100ms),output=1MB,seed=5",
        "fan-in:tasks=111,degree=10,duration=uniform(0,100ms),output=1MB,seed=6",
        "bag:tasks=50,duration=uniform(0,100ms),seed=7",
    ] {
        let graph = generate(text).unwrap();
        let options = ideal(1, graph.len() as u32);
        let makespan = run(&graph, &options).makespan;
        assert_eq!(makespan, Span(graph.critical_path_ns()), "{text}");
    }
}

#[test]
fn a_bag_is_within_one_task_of_its_area() {
    for seed in 1..6 {
        let text = format!("bag:tasks=400,duration=uniform(0,100ms),seed={seed}");
        let graph = generate(&text).unwrap();
        let (makespan, area) = (run(&graph, &ideal(1, 8)).makespan, graph.work_ns() as u64 / 8);
        let longest = graph.critical_path_ns();
        assert!(makespan.0 >= area && makespan.0 <= area + longest, "{makespan:?}, area {area}");
    }
}

/// One node makes an object of 125 MB, another reads it: over a card of 1 Gbit/s a second; two
/// that are read at once over one card two seconds.
#[test]
fn objects_take_the_time_of_the_cards_they_share() {
    let makespan = |tasks: u32, model: fn(Span, f64) -> NetworkModel| {
        let text = format!("pipeline:tasks={tasks},length=2,duration=10ms,output=125MB");
        let graph = generate(&text).unwrap();
        let mut options = ideal(2, 8);
        options.network = model(Span::ZERO, 125e6);
        options.tuning = Tuning { policy: Policy::Mlb, ..Tuning::default() };
        let simulation = run(&graph, &options);
        (simulation.makespan.0 / MS, simulation.report().data.bytes_moved)
    };
    let shared = |latency, bytes_per_s| NetworkModel::MaxMin { latency, bytes_per_s };
    let flat = |latency, bytes_per_s| NetworkModel::Flat { latency, bytes_per_s };
    let (one_ms, one_bytes) = makespan(2, shared);
    assert_eq!(makespan(2, flat), (one_ms, one_bytes));
    match one_bytes {
        // Both tasks of the chain may have the same home.
        0 => assert_eq!(one_ms, 20),
        _ => assert_eq!((one_ms, one_bytes), (1_020, 125_000_000)),
    }
    let (many_ms, many_bytes) = makespan(8, shared);
    let (flat_ms, flat_bytes) = makespan(8, flat);
    println!("{many_bytes} bytes in {many_ms} ms shared, {flat_bytes} in {flat_ms} ms flat");
    assert!(many_bytes >= 250_000_000, "some chains cross");
    assert_eq!(flat_ms, 1_020, "alone each object takes a second");
    assert!(many_ms >= 2_020, "two share a card");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let graph = generate("fan-in:tasks=1111,degree=10,duration=uniform(0,9ms),output=1MB").unwrap();
    let options = SimulationOptions::new(8, 2);
    let (first, second) = (run(&graph, &options), run(&graph, &options));
    assert_eq!(first.report(), second.report());
    assert_eq!((first.packets, first.steps), (second.packets, second.steps));
    let other = run(&graph, &SimulationOptions { seed: 2, ..options });
    assert_ne!((first.packets, first.steps), (other.packets, other.steps));
}

#[test]
fn tasks_go_to_the_nodes_of_their_submission() {
    let graph = generate("bag:tasks=64,duration=0ms").unwrap();
    let launches = |submit| {
        let options = SimulationOptions { submit, ..ideal(4, 1) };
        run(&graph, &options).launches
    };
    assert_eq!(launches(Submit::Best), [16, 16, 16, 16]);
    assert_eq!(launches(Submit::Worst), [64, 0, 0, 0]);
    assert_eq!(launches(Submit::Nodes(vec![NodeId(1), NodeId(3)])), [0, 32, 0, 32]);
    let twice = Submit::Nodes(vec![NodeId(1), NodeId(1)]);
    assert!(simulate(&graph, &SimulationOptions { submit: twice, ..ideal(4, 1) }).is_err());
}

/// A step costs what its service says: two thousand no-ops on one node take at least their ends.
#[test]
fn service_times_are_charged() {
    let graph = generate("bag:tasks=2000").unwrap();
    let mut options = ideal(1, 1);
    assert_eq!(run(&graph, &options).makespan, Span::ZERO);
    options.service.core_ns.insert("task_ended".to_owned(), 10_000.0);
    let simulation = run(&graph, &options);
    assert_eq!(simulation.makespan, Span(20 * MS));
    assert_eq!(simulation.loop_busy, [Span(20 * MS)]);
}

#[test]
fn a_report_of_a_study_is_complete() {
    let graph = generate("all-pairs:files=8,size=1MB,duration=5ms").unwrap();
    let options = SimulationOptions { placement: Placement::Graph, ..SimulationOptions::new(4, 2) };
    let simulation = run(&graph, &options);
    let report = simulation.report();
    assert_eq!((report.nodes, report.slots, report.tasks.done), (4, 8, graph.len() as u64));
    assert!(report.load_s > 0.0 && report.makespan_s > 0.0);
    assert!(simulation.makespan.as_secs_f64() > report.makespan_s);
    assert!(report.utilization > 0.0 && report.utilization <= 1.0);
    assert!(!report.utilization_series.values.is_empty() && report.per_node.len() == 4);
    assert!(report.messages > 0 && report.data.bytes_moved + report.data.bytes_read_local > 0);
}

/// Two racks of two nodes; what one rack's tasks made, the other's read.
#[test]
fn racks_share_their_way_out() {
    let makespan = |network| {
        let graph = generate("all-pairs:files=24,size=10MB,duration=1ms").unwrap();
        let options = SimulationOptions { network, ..ideal(4, 1) };
        run(&graph, &options).makespan
    };
    let (latency, bytes_per_s) = (Span::ZERO, 1e8);
    let tree = |oversubscription| {
        let racks = Racks { racks: 2, oversubscription };
        makespan(NetworkModel::Tree { latency, bytes_per_s, racks })
    };
    let cards = makespan(NetworkModel::MaxMin { latency, bytes_per_s });
    // Shares of four links are added up in another order than those of two: a rounding apart.
    let apart_ns = tree(1.0).0.abs_diff(cards.0);
    assert!(apart_ns <= 10, "a way out as wide as its cards takes nothing, not {apart_ns} ns");
    let slow = tree(20.0);
    assert!(slow.0 > 2 * cards.0, "{slow:?} through a way of a tenth of a card, {cards:?} without");
}

#[test]
fn nodes_that_die_come_back_and_nothing_is_lost() {
    for text in [
        "bag:tasks=2000,duration=20ms",
        "pipeline:tasks=2000,length=10,duration=20ms,output=1MB",
        "fan-in:tasks=1111,degree=10,duration=20ms,output=1MB",
    ] {
        let graph = generate(text).unwrap();
        for seed in 1..=4 {
            let placement = Placement::Graph;
            let quiet = SimulationOptions { seed, placement, ..SimulationOptions::new(10, 2) };
            let half_second = Span::from_millis(500);
            let node_failures = NodeFailures {
                kills: 3,
                restart_after: half_second,
                pauses: 2,
                pause: half_second,
            };
            let broken = SimulationOptions { node_failures, ..quiet.clone() };
            let (quiet, broken) = (run(&graph, &quiet), run(&graph, &broken));
            let report = broken.report();
            assert_eq!((broken.struck.kills, broken.struck.pauses), (3, 2), "{text} seed {seed}");
            assert_eq!(report.tasks.done, graph.len() as u64);
            assert!(report.tasks.executions >= graph.len() as u64);
            assert!(broken.makespan > quiet.makespan, "{text} seed {seed}: a fault takes time");
        }
    }
    let many = NodeFailures { kills: 9, pauses: 2, ..NodeFailures::default() };
    let options = SimulationOptions { node_failures: many, ..SimulationOptions::new(10, 2) };
    let graph = generate("bag:tasks=10,duration=1ms").unwrap();
    assert!(simulate(&graph, &options).is_err(), "each fault strikes another node");
}

/// What an idle node costs must not grow with the cluster: thieves that find nothing meet most
/// others, and remember few.
#[test]
fn what_a_round_of_probes_leaves_behind_is_bounded() {
    // Whose task is short looks for another while the long ones run.
    let graph = generate("bag:tasks=1200,duration=uniform(0,6s)").unwrap();
    let simulation = run(&graph, &SimulationOptions::new(600, 2));
    let most = simulation.nodes.iter().map(|node| node.messages).max().unwrap_or(0);
    assert!(most > 2 * limits::PEERS_KEPT_MAX as u64, "each has met more than it may keep");
    assert_eq!(simulation.report().tasks.done, 1200);
}

/// Tasks of 2 s that are released every 10 s, the last of which reads the first.
#[test]
fn no_task_starts_before_its_release() {
    let mut builder = GraphBuilder::new("arrivals");
    let body = Some(wire::spec::Body::Sleep(wire::Sleep::default()));
    let spec = builder.spec(wire::Spec { cpus: 1, body, ..Default::default() });
    for number in 0..6 {
        let (duration_ns, release_ns) = (2_000 * MS, 10_000 * MS * number);
        builder.task(TaskInit { duration_ns, release_ns, ..TaskInit::of(spec) });
    }
    builder.edge(0, 5, 0);
    let graph = builder.finish().unwrap();
    for nodes in [1, 3] {
        let simulation = run(&graph, &ideal(nodes, 2));
        assert_eq!(simulation.makespan, Span(52_000 * MS), "on {nodes} nodes");
        let cluster = analysis::Cluster::new(nodes, 2, analysis::Network::Free);
        let lower = analysis::LowerBounds::of(&graph, &cluster).lower();
        assert_eq!(lower, simulation.makespan, "the last release and its task");
    }
}

/// Sixty jobs of an hour that arrive eight hours apart: idle time costs no messages.
#[test]
fn a_sparse_log_costs_by_event_and_not_by_second() {
    let hour_ns = 3_600_000 * MS;
    let mut builder = GraphBuilder::new("sparse");
    let body = Some(wire::spec::Body::Sleep(wire::Sleep::default()));
    let spec = builder.spec(wire::Spec { cpus: 1, body, ..Default::default() });
    for number in 0..60 {
        let (duration_ns, release_ns) = (hour_ns, 8 * hour_ns * number);
        builder.task(TaskInit { duration_ns, release_ns, ..TaskInit::of(spec) });
    }
    let graph = builder.finish().unwrap();
    let simulation = run(&graph, &ideal(60, 2));
    assert_eq!(simulation.makespan, Span((59 * 8 + 1) * hour_ns));
    let messages = simulation.report().messages;
    // One look of the stall detector at 60 homes each 40 s would take 2,500,000.
    assert!(messages < 10_000, "{messages} messages for 60 jobs");
}

/// One task writes 1 MiB, another reads it and writes as much; on another node it is fetched first.
#[test]
fn real_bytes_take_their_time_in_the_slot_and_on_the_way() {
    let bytes = ByteTimes {
        write_object_ns: 2e6,
        write_kib_ns: 1e3,
        read_object_ns: 3e6,
        read_kib_ns: 2e3,
        ..ByteTimes::default()
    };
    let graph = generate("pipeline:tasks=2,length=2,duration=10ms,output=1MiB").unwrap();
    let options = |real_data| {
        let service = CostModel { bytes, ..CostModel::zero() };
        SimulationOptions { real_data, service, ..ideal(1, 1) }
    };
    let (sizes_alone, real) = (run(&graph, &options(false)), run(&graph, &options(true)));
    assert_eq!(sizes_alone.makespan, Span(20 * MS));
    let (write, read) = (2 * MS + 1_024_000, 3 * MS + 2_048_000);
    assert_eq!(real.makespan, Span(20 * MS + 2 * write + read));
    let waits = real.report().waits;
    assert_eq!((waits.slots, waits.fetches), (1, 0));
    assert!((waits.busy_s - real.makespan.as_secs_f64()).abs() < 1e-9, "{waits:?}");

    let graph = generate("fan-in:tasks=3,degree=2,duration=10ms,output=1MiB").unwrap();
    let fetching = |fetch_object_ns| {
        let service =
            CostModel { bytes: ByteTimes { fetch_object_ns, ..bytes }, ..CostModel::zero() };
        run(&graph, &SimulationOptions { real_data: true, service, ..ideal(2, 1) }).report()
    };
    let (at_once, later) = (fetching(0.0), fetching(4e6));
    assert_eq!((at_once.waits.fetches, later.waits.fetches), (1, 1));
    assert!((later.makespan_s - at_once.makespan_s - 0.004).abs() < 1e-9, "{later:?}");
    assert!((later.waits.fetch_s - 0.004).abs() < 1e-6, "{:?}", later.waits);
}

/// Two sets of 8 files of 25 MB on two nodes with cards of 1 Gbit/s.
#[test]
fn a_load_that_is_clocked_takes_the_time_of_its_bytes() {
    let makespan_s = |load: &str, bytes_per_s: f64| {
        let text = format!("all-pairs:files=8,size=25MB,duration=100ms,seed=3{load}");
        let network = NetworkModel::MaxMin { latency: Span::ZERO, bytes_per_s };
        let options = SimulationOptions { network, ..SimulationOptions::new(2, 2) };
        run(&generate(&text).unwrap(), &options).report().makespan_s
    };
    let (card, clocked) = (125e6, ",data-load=clocked");
    // However they are spread, one of the two cards brings in at least half of them.
    let least_s = 16.0 * 25e6 / card / 2.0;
    let (free, paid) = (makespan_s("", card), makespan_s(clocked, card));
    assert!(paid >= free + 0.9 * least_s && paid > least_s, "{paid} s, without the loads {free} s");
    // And it is the card that they wait for.
    assert!(makespan_s(clocked, 2.0 * card) < paid - 0.4 * least_s);
}
