use proptest::prelude::*;
use proto::wire;
use workloads::generate::Implicit;
use workloads::{GraphBuilder, TaskInit, generate};

use super::*;

const S: u64 = 1_000_000_000;

/// A unit of data, large enough to share links.
const UNIT_BYTES: u64 = 1 << 20;

/// Tasks as (seconds, cpus, units of output); edges as (parent, child), with data along each.
fn graph(tasks: &[(u64, u32, u64)], edges: &[(u32, u32)]) -> Graph {
    let mut builder = GraphBuilder::new("test");
    for &(seconds, cpus, units) in tasks {
        let size_bytes = units * UNIT_BYTES;
        let output = wire::Output { size_bytes, ..wire::Output::default() };
        let spec = wire::Spec { cpus, outputs: vec![output], ..wire::Spec::default() };
        let spec = builder.spec(spec);
        builder.task(TaskInit { duration_ns: seconds * S, ..TaskInit::of(spec) });
    }
    edges.iter().for_each(|&(parent, child)| builder.edge(parent, child, 1));
    builder.finish().unwrap()
}

/// One unit of data takes one second.
fn slow(nodes: u32, slots: u32) -> Cluster {
    let bytes_per_s = UNIT_BYTES as f64;
    Cluster::new(nodes, slots, Network::Shared { bytes_per_s, latency: Span::ZERO })
}

fn free(nodes: u32, slots: u32) -> Cluster {
    Cluster::new(nodes, slots, Network::Free)
}

#[test]
fn a_chain_is_bound_by_its_length_and_a_bag_by_its_work() {
    let chain = graph(&[(1, 1, 0), (2, 1, 0), (3, 1, 0)], &[(0, 1), (1, 2)]);
    let bounds = Bounds::of(&chain, 4);
    assert_eq!((bounds.critical_path, bounds.area), (Span(6 * S), Span(3 * S / 2)));
    assert_eq!(bounds.lower(), Span(6 * S));
    let bag = graph(&[(1, 1, 0), (2, 3, 0), (3, 1, 0)], &[]);
    assert_eq!(Bounds::of(&bag, 2).lower(), Span(5 * S));
}

#[test]
fn inputs_that_take_nothing_at_all_stand_among_others() {
    let mut tasks: Vec<(u64, u32, u64)> = Vec::new();
    for number in 0..60 {
        tasks.push(((number * 7) % 3, 1, (number * 5) % 4));
    }
    tasks.push((1, 1, 0));
    let edges: Vec<(u32, u32)> = (0..60).map(|parent| (parent, 60)).collect();
    let bounds = LowerBounds::of(&graph(&tasks, &edges), &slow(4, 2));
    assert!(bounds.lower() >= Span(59 * S / 8), "{bounds:?}");
}

#[test]
fn work_that_no_slot_can_do_at_once_is_late() {
    // A fork of four tasks between two, one second each: path 3, area 6/2, but all four are in the
    // middle.
    let edges = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (2, 5), (3, 5), (4, 5)];
    let fork = graph(&[(1, 1, 0); 6], &edges);
    let bounds = LowerBounds::of(&fork, &free(1, 2));
    assert_eq!((bounds.critical_path, bounds.area), (Span(3 * S), Span(3 * S)));
    assert_eq!((bounds.density, bounds.binding()), (Span(4 * S), "density"));
}

#[test]
fn wide_tasks_leave_slots_unused() {
    // Three slots of four each: one at a time on each of two nodes.
    let wide = graph(&[(1, 3, 0); 4], &[]);
    let bounds = LowerBounds::of(&wide, &free(2, 4));
    assert_eq!((bounds.area, bounds.packing), (Span(3 * S / 2), Span(2 * S)));
}

#[test]
fn inputs_come_from_the_nodes_own_slots_or_over_its_link() {
    // Eight parents of 4 s with outputs of 3 s each, and two slots per node. By 11.2 s a node has
    // run 5.6 of them and fetched 2.4.
    let mut tasks = vec![(4, 1, 3); 8];
    tasks.push((1, 1, 0));
    let edges: Vec<(u32, u32)> = (0..8).map(|parent| (parent, 8)).collect();
    let join = graph(&tasks, &edges);
    let path = |cluster: &Cluster| LowerBounds::of(&join, cluster).data_path.as_secs_f64();
    assert_eq!(path(&free(9, 2)), 5.0);
    assert_eq!(path(&slow(1, 2)), 5.0, "one node moves nothing");
    assert!((path(&slow(9, 2)) - 12.2).abs() < 1e-6, "{}", path(&slow(9, 2)));
    // Unshared links bring all others by 7 s.
    let flat = Network::Flat { bytes_per_s: UNIT_BYTES as f64, latency: Span::ZERO };
    let found = path(&Cluster::new(9, 2, flat));
    assert!((found - 8.0).abs() < 1e-6, "{found}");
}

#[test]
fn small_objects_share_no_link() {
    // As above with 60 kB each on links of 20 kB/s: in parallel all arrive by 7 s.
    let mut builder = GraphBuilder::new("test");
    let output = wire::Output { size_bytes: 60_000, ..wire::Output::default() };
    let spec = builder.spec(wire::Spec { outputs: vec![output], ..wire::Spec::default() });
    for seconds in [4, 4, 4, 4, 4, 4, 4, 4, 1] {
        builder.task(TaskInit { duration_ns: seconds * S, ..TaskInit::of(spec) });
    }
    (0..8).for_each(|parent| builder.edge(parent, 8, 1));
    let join = builder.finish().unwrap();
    let network = Network::Shared { bytes_per_s: 20_000.0, latency: Span::ZERO };
    let found = LowerBounds::of(&join, &Cluster::new(9, 2, network)).lower().as_secs_f64();
    assert!((found - 8.0).abs() < 1e-6, "{found}");
}

#[test]
fn readers_elsewhere_wait_for_a_copy() {
    // One object of 5 s for four readers of 3 s: two slots here do all in 6 s; others begin at 5 s.
    let tasks = [(1, 1, 5), (3, 1, 0), (3, 1, 0), (3, 1, 0), (3, 1, 0)];
    let fork = graph(&tasks, &[(0, 1), (0, 2), (0, 3), (0, 4)]);
    let bounds = LowerBounds::of(&fork, &slow(9, 2));
    assert_eq!(bounds.critical_path, Span(4 * S));
    let found = bounds.data_path.as_secs_f64();
    assert!((6.9..=7.0).contains(&found), "{found}");
    let copies = bounds.data_copies.as_secs_f64();
    assert!(copies <= 7.0, "{copies}");
}

#[test]
fn an_object_that_one_node_cannot_serve_must_be_copied() {
    // 100 readers of 1 s, one slot per node, 10 nodes: 10 s at best. A copy of the object takes 20
    // s: by 30 s its producer's node runs 30 of them, and the others 9 each.
    let mut tasks = vec![(0, 1, 20)];
    tasks.extend([(1, 1, 0); 100]);
    let edges: Vec<(u32, u32)> = (1..=100).map(|reader| (0, reader)).collect();
    let star = graph(&tasks, &edges);
    let bounds = LowerBounds::of(&star, &slow(10, 1));
    let found = bounds.data_copies.as_secs_f64();
    assert!((27.9..=28.0).contains(&found), "{found}");
}

#[test]
fn the_papers_form_adds_a_mean_wait_to_every_level() {
    // k = 2 tasks per slot of l = 10 s each: every task waits (k - 1) l / 2 = 5 s.
    let bag = graph(&[(10, 1, 0); 4], &[]);
    let bound = PaperBound::of(&bag, &PaperModel::on(2));
    assert_eq!(bound, PaperBound { timespan_s: 15.0, throughput_per_s: 4.0 / 15.0 });
}

#[test]
fn each_form_has_its_wait() {
    // Two chains of two on one slot: k = 4, 2 levels of 2, l = 10 s.
    let chains = graph(&[(10, 1, 0); 4], &[(0, 1), (2, 3)]);
    let span = |form| PaperBound::of(&chains, &PaperModel::on(1).with_form(form)).timespan_s;
    let spans: Vec<f64> = Form::ALL.into_iter().map(span).collect();
    assert_eq!(spans, [50.0, 80.0, 35.0, 50.0, 30.0, 40.0, 30.0, 40.0]);
    for form in Form::ALL {
        assert_eq!(form.name().parse(), Ok(form));
    }
}

#[test]
fn the_papers_form_takes_the_cheaper_of_moving_data_and_moving_the_task() {
    let model = PaperModel {
        slots: 9,
        bandwidth_bytes_per_s: UNIT_BYTES as f64,
        spec_bytes: UNIT_BYTES as f64,
        form: Form::Printed,
    };
    // With one parent the task moves (1 s), not the 100 units.
    let pair = graph(&[(2, 1, 100), (3, 1, 0)], &[(0, 1)]);
    assert_eq!(PaperBound::of(&pair, &model).timespan_s, 6.0);
    assert_eq!(Ends::of(&pair, &model).place, [Place::Root, Place::Parent(0)]);
    // Two parents: on the first one's node the second one's 4 units must arrive; otherwise 7.
    let fork = graph(&[(2, 1, 7), (1, 1, 4), (3, 1, 0)], &[(0, 2), (1, 2)]);
    assert_eq!(PaperBound::of(&fork, &model).timespan_s, 5.0 + 1.0 + 3.0);
}

/// Random graphs: tasks with edges from lower numbers to higher ones.
fn graphs() -> impl Strategy<Value = Graph> {
    let tasks = prop::collection::vec((0_u64..9, 1_u32..3, 0_u64..9), 1..14);
    let edges =
        prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..30);
    (tasks, edges).prop_map(|(tasks, edges)| {
        let edges: Vec<(u32, u32)> = edges
            .iter()
            .map(|(a, b)| (a.index(tasks.len()) as u32, b.index(tasks.len()) as u32))
            .filter(|(a, b)| a < b)
            .collect();
        graph(&tasks, &edges)
    })
}

/// The makespan of one schedule. Each task, in order, starts at its earliest time over all nodes,
/// given the inputs there. Every transfer has the receiver's link for itself until it ends.
fn schedule_s(graph: &Graph, nodes: usize, slots: usize) -> f64 {
    let mut slots_free = vec![vec![0.0_f64; slots]; nodes];
    let mut link_free = vec![0.0_f64; nodes];
    let mut made: Vec<(usize, f64)> = Vec::new();
    // The time when each node has a copy of an object.
    let mut copies = std::collections::BTreeMap::new();
    let mut makespan = 0.0_f64;
    for task in graph.indices() {
        let cpus = graph.cpus(task) as usize;
        let plan = |node: usize| {
            let mut link = link_free[node];
            let mut start = 0.0_f64;
            let mut fetched: Vec<(u32, f64)> = Vec::new();
            for edge in graph.parents(task) {
                let (at, end) = made[edge.task as usize];
                let bytes = graph.edge_bytes(edge.task, edge.output);
                let move_s = bytes as f64 / UNIT_BYTES as f64;
                let coming = fetched.iter().find(|(object, _)| *object == edge.task);
                let coming = coming.map(|(_, there)| *there);
                let there = match copies.get(&(edge.task, node)).copied().or(coming) {
                    _ if at == node => end,
                    Some(there) => there,
                    None => {
                        link = f64::max(link, end) + move_s;
                        fetched.push((edge.task, link));
                        link
                    }
                };
                start = start.max(there);
            }
            let mut free = slots_free[node].clone();
            free.sort_by(f64::total_cmp);
            (start.max(free[cpus - 1]), link, fetched)
        };
        let best = (0..nodes).min_by(|a, b| plan(*a).0.total_cmp(&plan(*b).0)).unwrap();
        let (start, link, fetched) = plan(best);
        link_free[best] = link;
        copies.extend(fetched.into_iter().map(|(object, there)| ((object, best), there)));
        let end = start + graph.task(task).duration_ns as f64 / 1e9;
        slots_free[best].sort_by(f64::total_cmp);
        slots_free[best][..cpus].fill(end);
        made.push((best, end));
        makespan = makespan.max(end);
    }
    makespan
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_linear_form_equals_the_printed_one(graph in graphs(), slots in 1_u32..4) {
        let model = PaperModel {
            slots,
            bandwidth_bytes_per_s: UNIT_BYTES as f64,
            spec_bytes: 3.0 * UNIT_BYTES as f64,
            form: Form::Printed,
        };
        let printed = general(&graph, &model, |_, _| UNIT_BYTES as f64);
        prop_assert_eq!(Ends::of(&graph, &model).end_s, printed.end_s);
    }

    #[test]
    fn no_schedule_is_below_a_lower_bound(
        graph in graphs(),
        nodes in 1_usize..5,
        slots in 2_usize..4,
    ) {
        let made = schedule_s(&graph, nodes, slots);
        let cluster = slow(nodes as u32, slots as u32);
        for (name, bound) in LowerBounds::of(&graph, &cluster).named() {
            let bound = bound.as_secs_f64();
            prop_assert!(bound <= made + 1e-6, "{name}: {bound} above {made}");
        }
    }

    #[test]
    fn more_knowledge_never_weakens_a_bound(graph in graphs(), nodes in 1_u32..5) {
        let bounds = LowerBounds::of(&graph, &slow(nodes, 2));
        let simple = Bounds::of(&graph, nodes * 2);
        prop_assert_eq!(bounds.critical_path, simple.critical_path);
        prop_assert_eq!(bounds.area, simple.area);
        let rounded = Span(bounds.area.0.saturating_sub(1));
        prop_assert!(bounds.density >= bounds.critical_path.max(rounded));
        prop_assert!(bounds.data_path >= bounds.critical_path);
    }

    #[test]
    fn shapes_without_graphs_have_the_bounds_of_their_graphs(
        shape in 0_usize..5,
        tasks in 1_u32..400,
        degree in 1_u32..12,
        slots in 1_u32..9,
    ) {
        let text = [
            format!("bag:tasks={tasks}"),
            format!("pipeline:tasks={tasks},length={degree}"),
            format!("fan-out:tasks={tasks},degree={degree}"),
            format!("fan-in:tasks={tasks},degree={degree}"),
            format!("star-in:tasks={tasks}"),
        ];
        let text = format!("{},duration=uniform(0,100ms),output=uniform(0,10MB)", text[shape]);
        let graph = generate(&text).unwrap();
        let models: Vec<PaperModel> =
            Form::ALL.into_iter().map(|form| PaperModel::on(slots).with_form(form)).collect();
        let stream = StreamBounds::of(&Implicit::parse(&text).unwrap().unwrap(), slots, &models);
        let bounds = Bounds::of(&graph, slots);
        prop_assert_eq!((stream.critical_path, stream.area), (bounds.critical_path, bounds.area));
        for (model, found) in models.iter().zip(&stream.paper) {
            let expected = PaperBound::of(&graph, model);
            let off_s = (found.timespan_s - expected.timespan_s).abs();
            let form = model.form.name();
            prop_assert!(off_s <= 1e-9 * expected.timespan_s, "{form}: {found:?}");
        }
    }
}
