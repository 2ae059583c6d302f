//! A plan's chunks put together again are exactly the graph, whatever the graph and the homes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message as _;
use proto::{JobId, LocalId, PartitionId, limits, wire};
use workloads::{Graph, GraphBuilder, Placement, Plan, TaskInit, generate};

fn homes(count: u32, partitions_each: u32) -> Vec<Vec<PartitionId>> {
    // Interleaved, so that a mix-up of home and partition shows.
    let of_home = |home| (0..partitions_each).map(|at| PartitionId(at * count + home)).collect();
    (0..count).map(of_home).collect()
}

/// What the homes would know after all chunks.
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
    for task in graph.tasks() {
        let id = plan.local_id(task.index);
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
            spec: specs[task as usize % 3],
            entry: u64::from(task) * 3,
            duration_ns: u64::from(task),
            output_sizes: if task % 3 == 2 { &[1, 1 << 40] } else { &[] },
            name: &name,
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

/// Tasks and edges inside, per home of the plan.
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
    // One long chain is cut only where a home's share ends.
    let (kept, all) = inside("chain:tasks=10000");
    assert_eq!(all - kept, 3);
}
