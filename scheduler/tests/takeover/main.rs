//! Take-over simulation: schedulers with homes that move and nodes that die, over many seeds.

mod cluster;
mod happen;
mod oracle;
mod records;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cluster::{Cluster, Step, Weather};
use dice::Dice;
use proto::event::End;
use proto::{JobId, LocalId, ObjectId, PartitionId, TaskId, wire};
use scheduler::Mutant;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The seeds of the test command; `TAKEOVER_SEEDS=20000` asks for more, `TAKEOVER_FIRST_SEED=7` for
/// others.
fn seeds() -> std::ops::Range<u64> {
    let first = number("TAKEOVER_FIRST_SEED", 1);
    first..first.saturating_add(number("TAKEOVER_SEEDS", 2_000))
}

/// A random graph: each task reads some of the tasks before it, or just follows them.
struct Graph {
    /// By task: (parent, whether an object flows).
    parents: Vec<Vec<(usize, bool)>>,
    output_bytes: u64,
}

impl Graph {
    fn random(dice: &mut Dice, output_bytes: u64) -> Self {
        let tasks = 1 + dice.index(120);
        let degree = dice.below(4);
        let parents = |task: usize, dice: &mut Dice| {
            let mut parents = std::collections::BTreeMap::new();
            for _ in 0..if task == 0 { 0 } else { dice.below(degree + 1) } {
                let flows = output_bytes > 0 && dice.chance(800);
                parents.insert(dice.index(task), flows);
            }
            parents.into_iter().collect()
        };
        let parents = (0..tasks).map(|task| parents(task, dice)).collect();
        Self { parents, output_bytes }
    }
}

/// Submits the graph with its tasks scattered over all partitions.
fn submit(cluster: &mut Cluster, job: u64, graph: &Graph, dice: &mut Dice) -> Vec<TaskId> {
    let all = u64::from(cluster.weather.partitions);
    // A few homes have more than they can run, and other nodes steal it.
    let partitions = 1 + dice.below(all);
    let mut counts = vec![0u64; all as usize];
    let mut ids = Vec::new();
    for _ in &graph.parents {
        let partition = dice.below(partitions);
        let index = counts[partition as usize];
        counts[partition as usize] += 1;
        ids.push(TaskId {
            job: JobId(job),
            local: LocalId::new(PartitionId(partition as u32), index),
        });
    }
    let spec = wire::Spec {
        kind: "test".into(),
        body: Some(wire::spec::Body::Sleep(wire::Sleep {})),
        ..Default::default()
    };
    let mut chunks: Vec<wire::Chunk> = (0..all as u32)
        .map(|partition| wire::Chunk {
            job,
            partition,
            specs: vec![spec.clone()],
            ..Default::default()
        })
        .collect();
    let chunk_of = |task: TaskId| task.partition().0 as usize;
    for (task, parents) in graph.parents.iter().enumerate() {
        let id = ids[task];
        let output_sizes = if graph.output_bytes > 0 { vec![graph.output_bytes] } else { vec![] };
        let slots = parents.len() as u32;
        let at = chunk_of(id);
        chunks[at].tasks.push(wire::Task { slots, output_sizes, ..Default::default() });
        let parent = parents.iter().map(|&(parent, _)| ids[parent].local.0).collect();
        let index = id.local.index();
        let output = Vec::new();
        chunks[at].parents.push(wire::Parents { index, first_slot: 0, parent, output });
        let told = parents.iter().map(|&(parent, flows)| (ids[parent], flows)).collect();
        cluster.oracle.tasks.insert(id, told);
    }
    for (parent, &id) in ids.iter().enumerate() {
        let mut children = wire::Children { index: id.local.index(), ..Default::default() };
        for (child, parents) in graph.parents.iter().enumerate() {
            for (slot, &(other, flows)) in (0u32..).zip(parents) {
                if other == parent {
                    children.child.push(ids[child].local.0);
                    children.slot.push(slot);
                    children.output.push(flows.into());
                }
            }
        }
        chunks[chunk_of(id)].children.push(children);
    }
    chunks.retain(|chunk| !chunk.tasks.is_empty());
    let total = |chunk: &wire::Chunk| wire::PartitionTotal {
        partition: chunk.partition,
        chunks: 1,
        tasks: chunk.tasks.len() as u64,
    };
    let commit = wire::JobCommit {
        job,
        partitions: chunks.iter().map(total).collect(),
        ..Default::default()
    };
    cluster.submit(&chunks, commit);
    ids
}

fn weather(dice: &mut Dice, mutant: Option<Mutant>) -> Weather {
    Weather {
        nodes: 2 + dice.index(4),
        slots: 1 + dice.below(3) as u32,
        partitions: dice.pick(&[2, 4, 8]),
        deaths: dice.below(6) as u32,
        handovers: dice.below(10) as u32,
        mutant,
        best_effort_permille: 900,
        returns: true,
        objects_survive: true,
    }
}

fn moving_homes(seed: u64, mutant: Option<Mutant>, trace: bool) -> (Step, Vec<String>) {
    let mut dice = Dice::new(seed ^ 0x7a6e);
    let mut weather = weather(&mut dice, mutant);
    weather.objects_survive = dice.chance(300);
    let mut cluster = Cluster::new(seed, weather);
    cluster.trace = trace.then(Vec::new);
    let bytes = dice.pick(&[0, 1_000, 1_000_000]);
    for job in 1..=1 + dice.below(3) {
        let graph = Graph::random(&mut dice, bytes);
        submit(&mut cluster, job, &graph, &mut dice);
    }
    let lived = cluster.live().and_then(|()| {
        let failed = (1..4)
            .find(|&job| cluster.oracle.job_end(JobId(job)).is_some_and(|end| end != End::Done));
        failed.map_or(Ok(()), |job| Err(format!("job {job} did not end well")))
    });
    (lived, cluster.trace.take().unwrap_or_default())
}

/// Some tasks fail in the first rounds, and their jobs are retried until all is done.
fn rounds(seed: u64, mutant: Option<Mutant>, trace: bool) -> (Step, Vec<String>) {
    let mut dice = Dice::new(seed ^ 0x40d5);
    let mut weather = weather(&mut dice, mutant);
    weather.objects_survive = dice.chance(300);
    let mut cluster = Cluster::new(seed, weather);
    cluster.trace = trace.then(Vec::new);
    let bytes = dice.pick(&[0, 1_000, 1_000_000]);
    let failing = dice.pick(&[20, 100, 400]);
    let (mut jobs, mut tasks) = (0, Vec::new());
    for job in 1..=1 + dice.below(2) {
        let graph = Graph::random(&mut dice, bytes);
        tasks.push(submit(&mut cluster, job, &graph, &mut dice));
        jobs = job;
    }
    for &task in tasks.iter().flatten() {
        if dice.chance(failing) {
            cluster.oracle.fails.insert(task, 1 + dice.below(3) as u32);
        }
    }
    let lived = cluster.live().and_then(|()| {
        let all_done = |job: u64| cluster.oracle.done(JobId(job)) == tasks[job as usize - 1].len();
        let left = (1..=jobs).find(|&job| !all_done(job));
        left.map_or(Ok(()), |job| Err(format!("some tasks of job {job} are not done")))
    });
    (lived, cluster.trace.take().unwrap_or_default())
}

#[test]
fn what_failed_is_run_again_and_nothing_else() {
    for seed in seeds() {
        if let Err(wrong) = judged(|| rounds(seed, None, false).0) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

#[test]
fn every_mutant_of_rounds_is_found() {
    for mutant in Mutant::OF_ROUNDS {
        let found = seeds().find_map(|seed| {
            let wrong = judged(|| rounds(seed, Some(mutant), false).0).err()?;
            Some(format!("at seed {seed}: {}", wrong.lines().next().unwrap_or_default()))
        });
        let found = found.unwrap_or_else(|| panic!("{} is not found", mutant.name()));
        println!("{:24} found {found}", mutant.name());
    }
}

/// A panic of the scheduler is a finding like any other.
fn judged(run: impl FnOnce() -> Step) -> Step {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

#[test]
fn work_goes_on_wherever_homes_move() {
    for seed in seeds() {
        if let Err(wrong) = judged(|| moving_homes(seed, None, false).0) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

/// All is done except for one endless task, which the rest follows. Then a node dies that is home
/// of nothing, with its objects: exactly the missing outputs are made again.
fn lineage(seed: u64, mutant: Option<Mutant>, trace: bool) -> (Step, Vec<String>) {
    let mut dice = Dice::new(seed ^ 0x11ea);
    let weather = Weather {
        nodes: 3 + dice.index(3),
        slots: 2 + dice.below(2) as u32,
        deaths: 0,
        handovers: 0,
        best_effort_permille: 1_000,
        returns: false,
        objects_survive: false,
        ..weather(&mut dice, mutant)
    };
    let mut cluster = Cluster::new(seed, weather);
    cluster.trace = trace.then(Vec::new);
    let victim = dice.index(cluster.machines.len());
    cluster.spare(victim);
    let mut graph = Graph::random(&mut dice, 1_000_000);
    // The second half follows a task that does not end before the death.
    let tasks = graph.parents.len();
    let gate = tasks / 2;
    graph.parents[gate].clear();
    for parents in &mut graph.parents[gate + 1..] {
        parents.retain(|&(parent, _)| parent != gate);
        parents.push((gate, false));
    }
    let ids = submit(&mut cluster, 1, &graph, &mut dice);
    cluster.oracle.endless.insert(ids[gate]);
    cluster.drain();
    if cluster.runs_on(victim) {
        return (Ok(()), Vec::new()); // It would take the endless task with it.
    }
    cluster.kill(victim);
    let wanted = missing(&cluster, &graph, &ids);
    cluster.oracle.endless.clear();
    let lived = cluster.live().and_then(|()| {
        let rebuilt: BTreeSet<TaskId> = cluster.oracle.rebuilt.keys().copied().collect();
        let twice = cluster.oracle.rebuilt.values().any(|&times| times > 1);
        // An output that its last reader has freed since the death may be needed once more.
        let since = |task: &TaskId| cluster.oracle.freed.iter().any(|gone| gone.task == *task);
        let more = rebuilt.difference(&wanted).all(since);
        match rebuilt.is_superset(&wanted) && more && !twice {
            true => Ok(()),
            false => Err(format!("made again: {rebuilt:?}, missing: {wanted:?}")),
        }
    });
    (lived, cluster.trace.take().unwrap_or_default())
}

/// Tasks that have ended and must run again, found backwards from those that have not ended.
fn missing(cluster: &Cluster, graph: &Graph, ids: &[TaskId]) -> BTreeSet<TaskId> {
    let mut missing = BTreeSet::new();
    let mut open: Vec<usize> =
        (0..ids.len()).filter(|&task| !cluster.oracle.has_ended(ids[task])).collect();
    while let Some(task) = open.pop() {
        for &(parent, _) in graph.parents[task].iter().filter(|(_, flows)| *flows) {
            let id = ids[parent];
            let Some(attempt) = cluster.oracle.attempt_of(id) else { continue };
            let object = ObjectId { task: id, attempt, output: 0 };
            if !cluster.has(object) && missing.insert(id) {
                open.push(parent);
            }
        }
    }
    missing
}

#[test]
fn what_is_lost_and_wanted_is_made_again_and_nothing_else() {
    for seed in seeds() {
        if let Err(wrong) = judged(|| lineage(seed, None, false).0) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

fn any_seed(seed: u64, mutant: Option<Mutant>) -> Step {
    moving_homes(seed, mutant, false).0?;
    lineage(seed, mutant, false).0
}

#[test]
fn every_mutant_of_take_over_is_found() {
    for mutant in Mutant::OF_TAKE_OVER {
        let found = seeds().find_map(|seed| {
            let wrong = judged(|| any_seed(seed, Some(mutant))).err()?;
            Some(format!("at seed {seed}: {}", wrong.lines().next().unwrap_or_default()))
        });
        let found = found.unwrap_or_else(|| panic!("{} is not found", mutant.name()));
        println!("{:24} found {found}", mutant.name());
    }
}

/// This prints a run:
/// `TAKEOVER_SEED=7 cargo test -p starling-scheduler --test takeover one -- --nocapture`
#[test]
fn one_seed_in_words() {
    let Some(seed) = std::env::var("TAKEOVER_SEED").ok().and_then(|text| text.parse().ok()) else {
        return;
    };
    let (lived, story) = match std::env::var("TAKEOVER_OF").as_deref() {
        Ok("lineage") => lineage(seed, None, true),
        Ok("rounds") => rounds(seed, None, true),
        _ => moving_homes(seed, None, true),
    };
    println!("{}", story.join("\n"));
    lived.unwrap();
}
