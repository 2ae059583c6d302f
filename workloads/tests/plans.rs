//! The chunks of a plan, put together, are exactly the graph, for any graph and homes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message as _;
use proto::{JobId, LocalId, PartitionId, limits, wire};
use workloads::{Graph, GraphBuilder, Placement, Plan, TaskInit, generate};

fn homes(count: u32, partitions_each: u32) -> Vec<Vec<PartitionId>> {
    // Interleaved, so that a confusion of home and partition is detected.
    let of_home = |home| (0..partitions_each).map(|at| PartitionId(at * count + home)).collect();
    (0..count).map(of_home).collect()
}

/// The state of the homes after all chunks.
#[derive(Default)]
struct Ledger {
    tasks: BTreeMap<LocalId, (wire::Task, wire::Spec)>,
    children: BTreeMap<LocalId, Vec<(u64, u32, u32)>>,
    parents: BTreeMap<LocalId, Vec<u64>>,
    chunks: BTreeMap<u32, u32>,
}

impl Ledger {
    fn of(plan: &Plan<'_>) -> Self {
        let mut ledger = Self::default();
        for chunk in plan.chunks() {
            ledger.add(&chunk);
        }
        ledger
    }

    fn add(&mut self, chunk: &wire::Chunk) {
        let partition = PartitionId(chunk.partition);
        let number = self.chunks.entry(chunk.partition).or_insert(0);
        assert_eq!(chunk.number, *number, "numbers count up from 0 within the partition");
        *number += 1;
        assert!(chunk.tasks.len() <= limits::CHUNK_TASKS_MAX);
        assert!(chunk.encoded_len() <= limits::CHUNK_BYTES_MAX, "{}", chunk.encoded_len());
        let next = self.tasks.range(LocalId::new(partition, 0)..).map(|(id, _)| *id);
        let known = next.take_while(|id| id.partition() == partition).count() as u64;
        assert_eq!(chunk.first, known, "a chunk continues where the last one ended");
        for (at, task) in chunk.tasks.iter().enumerate() {
            let id = LocalId::new(partition, chunk.first + at as u64);
            let spec = chunk.specs[task.spec as usize].clone();
            assert!(self.tasks.insert(id, (task.clone(), spec)).is_none());
        }
        for list in &chunk.children {
            assert!(list.child.len() <= limits::CHUNK_EDGES_MAX);
            assert_eq!(list.child.len(), list.slot.len());
            assert_eq!(list.child.len(), list.output.len());
            let id = LocalId::new(partition, list.index);
            assert!(self.tasks.contains_key(&id), "a list comes with or after its task");
            let edges = list.child.iter().zip(&list.slot).zip(&list.output);
            let edges = edges.map(|((child, slot), output)| (*child, *slot, *output));
            self.children.entry(id).or_default().extend(edges);
        }
        for list in &chunk.parents {
            assert!(list.parent.len() <= limits::CHUNK_EDGES_MAX);
            let id = LocalId::new(partition, list.index);
            assert!(self.tasks.contains_key(&id), "a list comes with or after its task");
            let parents = self.parents.entry(id).or_default();
            assert_eq!(list.first_slot as usize, parents.len(), "pieces follow one another");
            parents.extend(&list.parent);
        }
    }
}

fn check(graph: &Graph, placement: Placement, homes: &[Vec<PartitionId>], job: u64) {
    let plan = Plan::new(graph, JobId(job), placement, homes);
    let ledger = Ledger::of(&plan);
    assert_eq!(ledger.tasks.len(), graph.len());
    let urgencies = graph.urgencies();
    for task in graph.tasks() {
        let id = plan.local_id(task.index);
        let urgency = urgencies.get(task.index as usize).copied().unwrap_or(0);
        assert_eq!(ledger.tasks[&id].0.urgency, urgency);
        assert_eq!(plan.task_of(id), Some(task.index));
        let (sent, spec) = &ledger.tasks[&id];
        assert_eq!(spec, task.spec);
        assert_eq!((sent.entry, sent.duration_ns), (task.entry, task.duration_ns));
        assert_eq!(
            (sent.output_sizes.as_slice(), sent.name.as_str()),
            (task.output_sizes, task.name)
        );
        assert_eq!(sent.slots, graph.slots(task.index));
        let local = |task: u32| plan.local_id(task).0;
        let children: Vec<(u64, u32, u32)> =
            graph.children(task.index).map(|e| (local(e.task), e.slot, e.output)).collect();
        assert_eq!(ledger.children.get(&id).cloned().unwrap_or_default(), children);
        let parents: Vec<u64> = graph.parents(task.index).map(|edge| local(edge.task)).collect();
        assert_eq!(ledger.parents.get(&id).cloned().unwrap_or_default(), parents);
    }
    let commit = plan.commit("name", 5, wire::JobSettings::default());
    assert_eq!(commit.edges, graph.edge_pairs());
    assert_eq!(commit.partitions.len(), ledger.chunks.len());
    for total in &commit.partitions {
        assert_eq!(total.chunks, ledger.chunks[&total.partition]);
        let first = LocalId::new(PartitionId(total.partition), 0);
        let end = LocalId::new(PartitionId(total.partition + 1), 0);
        assert_eq!(total.tasks, ledger.tasks.range(first..end).count() as u64);
        assert!(homes.iter().flatten().any(|partition| partition.0 == total.partition));
    }
    assert_eq!(plan.task_of(LocalId::new(PartitionId(9999), 0)), None);
}

fn random_graph(tasks: u32, edges: &[(u32, u32, u32)]) -> Graph {
    let mut builder = GraphBuilder::new("random");
    let specs: Vec<u32> = (0..3)
        .map(|kind: usize| {
            let output =
                |at: usize| wire::Output { key: at.to_string(), ..wire::Output::default() };
            let outputs = (0..kind).map(output).collect();
            builder.spec(wire::Spec { kind: kind.to_string(), outputs, ..wire::Spec::default() })
        })
        .collect();
    for task in 0..tasks {
        let name = if task % 7 == 0 { format!("task {task}") } else { String::new() };
        builder.task(TaskInit {
            entry: u64::from(task) * 3,
            duration_ns: u64::from(task),
            output_sizes: if task % 3 == 2 { &[1, 1 << 40] } else { &[] },
            name: &name,
            ..TaskInit::of(specs[task as usize % 3])
        });
    }
    for &(a, b, output) in edges {
        let (a, b) = (a % tasks, b % tasks);
        if a != b {
            let (parent, child) = (a.min(b), a.max(b));
            builder.edge(parent, child, output % (parent % 3 + 1));
        }
    }
    builder.finish().expect("edges ascend, so there is no cycle")
}

proptest! {
    #[test]
    fn chunks_reassemble_to_the_graph(
        tasks in 1_u32..400,
        edges in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 0..600),
        count in 1_u32..9,
        partitions_each in 1_u32..5,
        job in any::<u64>(),
    ) {
        let graph = random_graph(tasks, &edges);
        let homes = homes(count, partitions_each);
        check(&graph, Placement::Hash, &homes, job);
        check(&graph, Placement::Graph, &homes, job);
    }
}

#[test]
fn generated_graphs_reassemble() {
    let texts = [
        "bag:tasks=20000",
        "pipeline:tasks=5000,length=10,output=uniform(1,9)",
        "fan-out:tasks=5000,degree=10,output=5MB",
        "fan-in:tasks=5000,degree=10,output=5MB",
        "star-out:tasks=100000",
        "star-in:tasks=100000,output=1kB",
        "bag:tasks=1",
    ];
    for text in texts {
        let graph = generate(text).expect(text);
        for placement in [Placement::Hash, Placement::Graph] {
            check(&graph, placement, &homes(4, 16), 77);
            check(&graph, placement, &homes(1, 4096), 78);
        }
    }
}

#[test]
fn a_list_longer_than_a_chunk_spans_chunks() {
    let graph = generate("star-in:tasks=1000000").expect("it generates");
    let plan = Plan::new(&graph, JobId(1), Placement::Hash, &homes(2, 1));
    let mut pieces = 0;
    let mut parents = 0;
    for chunk in plan.chunks() {
        assert!(chunk.encoded_len() <= limits::CHUNK_BYTES_MAX);
        pieces += chunk.parents.len();
        parents += chunk.parents.iter().map(|list| list.parent.len()).sum::<usize>();
    }
    assert_eq!(parents, 999_999);
    assert!(pieces >= 999_999_usize.div_ceil(limits::CHUNK_EDGES_MAX));
}

/// Tasks per home of the plan, and edges inside homes.
fn spread(graph: &Graph, placement: Placement, homes: &[Vec<PartitionId>]) -> (Vec<u64>, u64) {
    let plan = Plan::new(graph, JobId(3), placement, homes);
    let mut load = vec![0; homes.len()];
    let mut home_of = BTreeMap::new();
    for used in plan.layout().used() {
        load[used.home as usize] += u64::from(used.tasks);
        home_of.insert(used.partition, used.home);
        assert!(homes[used.home as usize].contains(&used.partition));
    }
    let home = |task: u32| home_of[&plan.local_id(task).partition()];
    let inside = graph
        .indices()
        .flat_map(|child| graph.parents(child).map(move |edge| (edge.task, child)))
        .filter(|(parent, child)| home(*parent) == home(*child))
        .count() as u64;
    (load, inside)
}

#[test]
fn homes_get_even_shares() {
    for text in ["bag:tasks=100000", "fan-out:tasks=100000", "pipeline:tasks=100000,length=100"] {
        let graph = generate(text).expect(text);
        for placement in [Placement::Hash, Placement::Graph] {
            let (load, _) = spread(&graph, placement, &homes(4, 64));
            let (least, most) = (load.iter().min(), load.iter().max());
            let (least, most) = (*least.expect("4 homes"), *most.expect("4 homes"));
            assert!(most - least <= 100_000 / 16, "{text} {placement:?}: {load:?}");
        }
    }
}

#[test]
fn graph_placement_keeps_chains_and_subtrees_together() {
    let inside = |text: &str| {
        let graph = generate(text).expect(text);
        let (_, inside) = spread(&graph, Placement::Graph, &homes(4, 16));
        (inside, graph.edge_pairs())
    };
    let (kept, all) = inside("pipeline:tasks=10000,length=10");
    assert_eq!(kept, all, "no pipeline is cut");
    for text in ["fan-out:tasks=10000,degree=10", "fan-in:tasks=10000,degree=10,output=1MB"] {
        let (kept, all) = inside(text);
        assert!(kept * 100 >= all * 95, "{text}: {kept} of {all} edges stay inside");
    }
    // One long chain is cut only at the end of a home's share.
    let (kept, all) = inside("chain:tasks=10000");
    assert_eq!(all - kept, 3);
}

#[test]
fn table_3_is_spread_evenly_and_kept_together() {
    // The maximum percentage of cut edges, for 200,000 tasks on 100 homes.
    let shapes = [("bag", 0.0), ("pipeline", 0.0), ("fan-out", 1.5), ("fan-in", 1.5)];
    for (shape, cut_most_percent) in shapes {
        let graph = generate(&format!("{shape}:preset=table3,slots=200")).expect("a preset");
        let spread = graph.spread(Placement::Graph, 100);
        let excess = spread.tasks_most as f64 / spread.tasks_mean;
        assert!(excess <= 1.05, "{shape}: {spread:?}");
        assert!(spread.work_most_over_mean <= 1.05, "{shape}: {spread:?}");
        let cut = spread.edges_cut as f64 * 100.0;
        assert!(cut <= cut_most_percent * spread.edges as f64, "{shape}: {spread:?}");
        let by_number = graph.spread(Placement::Hash, 100);
        assert!(by_number.work_most_over_mean <= 1.25, "{shape}: {by_number:?}");
        assert!(by_number.bytes_cut >= spread.bytes_cut, "{shape}: {by_number:?}");
    }
}

#[test]
fn parents_of_one_child_share_its_home() {
    let graph = generate("fan-in:preset=table3,slots=200").expect("a preset");
    let homes = homes(100, 16);
    let plan = Plan::new(&graph, JobId(3), Placement::Graph, &homes);
    let home_of: BTreeMap<PartitionId, u32> =
        plan.layout().used().iter().map(|used| (used.partition, used.home)).collect();
    let home = |task: u32| home_of[&plan.local_id(task).partition()];
    // The children with only leaves as parents.
    let lowest = graph.indices().filter(|&child| {
        graph.slots(child) > 0 && graph.parents(child).all(|edge| graph.slots(edge.task) == 0)
    });
    let (mut together, mut all) = (0, 0);
    for child in lowest {
        all += 1;
        together += u32::from(graph.parents(child).all(|edge| home(edge.task) == home(child)));
    }
    assert!(together * 100 >= all * 99, "{together} of {all}");
}

#[test]
fn loads_are_dealt_evenly_and_their_readers_follow_where_they_can() {
    let texts = ["image-stacking:locality=30", "all-pairs:files=100", "all-pairs:files=40,tile=7"];
    for text in texts {
        let graph = generate(text).expect(text);
        for placement in [Placement::Hash, Placement::Graph] {
            let spread = graph.spread(placement, 20);
            assert!(spread.work_most_over_mean <= 1.06, "{text} {placement:?}: {spread:?}");
            let homes = homes(20, 16);
            let plan = Plan::new(&graph, JobId(3), placement, &homes);
            let mut loads: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            for used in plan.layout().used() {
                for index in 0..used.tasks {
                    let id = LocalId::new(used.partition, u64::from(index));
                    let task = plan.task_of(id).expect("it is placed");
                    if graph.is_load(task) {
                        *loads.entry((graph.task(task).spec_index, used.home)).or_default() += 1;
                    }
                }
            }
            let specs = 1 + u32::from(text.starts_with("all-pairs"));
            for spec in 0..specs {
                let at = |home| loads.get(&(spec, home)).copied().unwrap_or(0);
                let (least, most) = ((0..20).map(at).min(), (0..20).map(at).max());
                assert!(most <= least.map(|least| least + 1), "{text} {placement:?}: {loads:?}");
            }
        }
    }
    let stacking = generate(texts[0]).expect("known").spread(Placement::Graph, 20);
    assert!(stacking.bytes_cut * 50 < stacking.bytes, "files are read at home: {stacking:?}");
    let other_seed = |seed| generate(&format!("all-pairs:files=20,seed={seed}")).expect("known");
    let homes = homes(5, 16);
    let load_at = |graph: &Graph| {
        let plan = Plan::new(graph, JobId(3), Placement::Hash, &homes);
        graph.indices().take(40).map(|task| plan.local_id(task).partition()).collect::<Vec<_>>()
    };
    assert_ne!(load_at(&other_seed(1)), load_at(&other_seed(2)), "the seed decides");
}

#[test]
fn tiles_stay_whole_by_number() {
    let graph = generate("all-pairs:files=100").expect("known");
    let homes = homes(100, 16);
    let plan = Plan::new(&graph, JobId(3), Placement::Hash, &homes);
    let mut read: BTreeMap<u32, std::collections::BTreeSet<u32>> = BTreeMap::new();
    let home_of: BTreeMap<PartitionId, u32> =
        plan.layout().used().iter().map(|used| (used.partition, used.home)).collect();
    for task in graph.indices().filter(|&task| !graph.is_load(task)) {
        let home = home_of[&plan.local_id(task).partition()];
        read.entry(home).or_default().extend(graph.parents(task).map(|edge| edge.task));
    }
    assert!(read.values().all(|files| files.len() == 20), "10 x 10 pairs read 20 files: {read:?}");
}

#[test]
fn the_longest_tasks_of_a_bag_come_first() {
    let graph = generate("bag:tasks=5000,duration=uniform(0,100ms),seed=3").unwrap();
    let plan = Plan::new(&graph, JobId(3), Placement::Graph, &homes(3, 64));
    let duration_ns = |task: u32| graph.task(task).duration_ns;
    let mut work_ns = [0; 3];
    for used in plan.layout().used() {
        let tasks: Vec<u32> = (0..u64::from(used.tasks))
            .map(|index| plan.task_of(LocalId::new(used.partition, index)).unwrap())
            .collect();
        assert!(tasks.windows(2).all(|pair| duration_ns(pair[0]) >= duration_ns(pair[1])));
        work_ns[used.home as usize] += tasks.into_iter().map(duration_ns).sum::<u64>();
    }
    let (least, most) = (work_ns.iter().min().unwrap(), work_ns.iter().max().unwrap());
    assert!(most - least <= 2 * 100_000_000, "homes have equal work: {work_ns:?}");
}

/// All its tasks share one description.
#[test]
fn what_no_task_reads_is_kept_and_nothing_else() {
    let options = workloads::LoadOptions::default();
    let mut graph = workloads::load("fan-in:tasks=111,degree=10,output=10kB", None, &options)
        .expect("a generator");
    let mut is_read = vec![false; graph.len()];
    for child in graph.indices() {
        for edge in graph.parents(child).filter(|edge| edge.output > 0) {
            is_read[edge.task as usize] = true;
        }
    }
    let kept = graph.keep_results();
    assert_eq!(kept, is_read.iter().filter(|is_read| !**is_read).count() as u64);
    assert!(kept > 0 && kept < graph.len() as u64);
    for task in graph.indices() {
        let keeps = graph.task(task).spec.outputs.iter().any(|output| output.keep);
        assert_eq!(keeps, !is_read[task as usize], "task {task}");
    }
}
