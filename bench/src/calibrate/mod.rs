/*!
Measures on this machine the service times for the simulator.

There are two kinds of figures. *Core*: real nodes in the simulator's loop; the time of each step is
distributed over its parts (least squares). *Shell*: the cost of a real node beyond that. The store
is measured alone. Short real runs give the rest: their CPU time, less that of core and store for
the same work, is attributed to the dominant operation of the run.

Each round measures every figure. The least value counts, because other work of the machine is no
cost of a node.
*/

mod bytes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use client::SubmitOptions;
use kvs::{Batch, Write};
use proto::{JobId, PartitionId};
use sim::{CostModel, Counts, Mark, Part, Prices, SimulationOptions, Submit};
use verb::errors::Failure;
use workloads::{Graph, Placement, Plan};

use super::{Cluster, Report, Resolved, Round, chain, cluster};

#[derive(Args, Clone, Debug)]
pub(super) struct CalibrateArgs {
    /// Write the service times to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Number of rounds; the least figures count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// The numbers of tasks in a round that only counts work, and in the real runs.
const CORE_TASKS: u64 = 20_000;
const NOOPS: u64 = 300_000;
const HOPS: u64 = 2_000;
const SLEEPERS: u64 = 10_000;
const SLEEPER_SLOTS: u32 = 64;
const TIMED_SLEEPERS: usize = 60;
const TIMED_SLEEP_MS: u64 = 5;

const SHELL_EVENT: &str = "shell_event";
const SHELL_PACKET: &str = "shell_packet";
const SHELL_LAUNCH: &str = "shell_launch";
const PERSIST: &str = "shell_persist";
const PERSIST_KIB: &str = "shell_kib_of_batch";
const SYNC: &str = "sync";
const RUN_DELAY: &str = "run_delay";
const CLIENT_TASK: &str = "client_task";

const NOTES: [&str; 8] = [
    "core_ns: real nodes driven in one process, no network, no disk; the time of each step was \
     taken, and these prices explain the steps best (least squares, none below 0)",
    "shell_ns.persist, kib_of_batch: writing a batch of one small record to the store, and what \
     each further KiB adds; not synced",
    "shell_ns.event: CPU time of a real bag of no-ops on one node, less core, store and client, \
     over its events: event log, connections to the client, start of the loop's turns",
    "shell_ns.packet_in, packet_out: CPU time of a chain of no-ops from node to node, less core, \
     store and events, over its packets: encoding, connections, waking of threads; half each way",
    "shell_ns.launch: CPU time of sleeping tasks, less the above, over tasks: timers, threads",
    "shell_ns.fetch, fetch_ended: as a packet; bytes are the network's business, and where they are \
     real that of bytes.* as well",
    "run_delay: how much longer a sleep of 5 ms was, from its start to the node's knowledge of its \
     end; the lower decile of 60, one at a time on an idle node: where threads wait for a CPU that \
     others have, sleeps are longer, and that is no cost of a node",
    "client_task: cutting a bag into chunks and encoding them, a task",
];

pub(super) async fn run(args: &CalibrateArgs) -> anyhow::Result<Report> {
    let setting =
        Resolved { nodes: 1, slots: 1, tasks: NOOPS, rounds: args.rounds, ..Resolved::default() };
    let mut report = Report::new("calibrate", setting);
    let mut least: BTreeMap<&'static str, f64> = BTreeMap::new();
    for _ in 0..args.rounds {
        let round = round().await?;
        for &(name, figure) in &round {
            let known = least.entry(name).or_insert(figure);
            *known = known.min(figure);
        }
        report.add(round);
    }
    report.note("nanoseconds; the least of each counts");
    let service = service(&least);
    match &args.output {
        Some(path) => {
            std::fs::write(path, service.to_json() + "\n")
                .map_err(|error| super::BenchFailure(Failure::file(path, &error)))?;
            report.note(format!("written to {}", path.display()));
        }
        None => report.note("not kept: give -o FILE for 'starling sim --service FILE'"),
    }
    Ok(report)
}

/// One round of all figures, in nanoseconds.
async fn round() -> anyhow::Result<Round> {
    let core = core()?;
    let mut figures: Round = Vec::new();
    for part in Part::ALL {
        figures.extend(core.get(part.name()).map(|price| (part.name(), *price)));
    }
    let store = store()?;
    figures.extend(store);
    let client_ns = client_ns_per_task()?;
    figures.push((CLIENT_TASK, client_ns));
    let mut known = Known { core, shell: Prices::new() };
    known.set(Part::Persist, store[0].1);
    known.set(Part::PersistedKibiByte, store[1].1);
    let event = known.rest_of_noops(client_ns).await?;
    known.set(Part::Event, event);
    let packet = known.rest_of_chain().await?;
    known.set(Part::PacketIn, packet);
    known.set(Part::PacketOut, packet);
    let launch = known.rest_of_sleepers().await?;
    let delay = run_delay_ns().await?;
    figures.extend([
        (SHELL_EVENT, event),
        (SHELL_PACKET, packet),
        (SHELL_LAUNCH, launch),
        (RUN_DELAY, delay),
    ]);
    figures.extend(bytes::round().await?);
    Ok(figures)
}

fn service(least: &BTreeMap<&'static str, f64>) -> CostModel {
    let figure = |name: &str| least.get(name).copied().unwrap_or(0.0).round();
    let core = Part::ALL.iter().filter_map(|part| {
        let price = least.get(part.name())?;
        Some((part.name().to_owned(), price.round()))
    });
    let shell = [
        (Part::Persist, PERSIST),
        (Part::PersistedKibiByte, PERSIST_KIB),
        (Part::Event, SHELL_EVENT),
        (Part::PacketIn, SHELL_PACKET),
        (Part::PacketOut, SHELL_PACKET),
        (Part::Fetch, SHELL_PACKET),
        (Part::Fetched, SHELL_PACKET),
        (Part::Launch, SHELL_LAUNCH),
    ];
    CostModel {
        date: today(),
        machine: machine(),
        core_ns: core.collect(),
        shell_ns: shell.map(|(part, name)| (part.name().to_owned(), figure(name))).into(),
        sync_ns: figure(SYNC),
        run_delay_ns: figure(RUN_DELAY),
        client_task_ns: figure(CLIENT_TASK),
        bytes: bytes::times(least),
        notes: NOTES.into_iter().chain(bytes::NOTES).map(str::to_owned).collect(),
        ..CostModel::unmeasured()
    }
}

/// Measures steps of nodes under different work, and fits their prices.
fn core() -> anyhow::Result<Prices> {
    let tasks = CORE_TASKS;
    let shapes = [
        (format!("bag:tasks={tasks}"), 4, Submit::Best),
        (format!("bag:tasks={tasks},duration=uniform(0,20ms)"), 8, Submit::Best),
        (format!("bag:tasks={tasks},duration=uniform(0,20ms)"), 16, Submit::Worst),
        (format!("pipeline:tasks={tasks},length=10,duration=2ms,output=1MB"), 8, Submit::Best),
        (format!("fan-in:tasks={tasks},degree=10,duration=2ms,output=100KB"), 8, Submit::Best),
        (format!("fan-out:tasks={tasks},degree=10"), 8, Submit::Best),
    ];
    let mut steps: Vec<(Counts, f64)> = Vec::new();
    for (text, nodes, submit) in shapes {
        let graph = cluster::generate(&text)?;
        let options = SimulationOptions { submit, ..SimulationOptions::new(nodes, 2) };
        let (mut since, mut took_ns) = (Instant::now(), 0.0);
        let mut meter = |mark: Mark<'_>| match mark {
            Mark::Work => since = Instant::now(),
            Mark::Rest => took_ns += since.elapsed().as_nanos() as f64,
            Mark::Over(counts) => steps.push((*counts, std::mem::take(&mut took_ns))),
        };
        sim::simulate_metered(&graph, &options, Some(&mut meter))?;
    }
    Ok(sim::fit(&steps))
}

/// The price of a batch of one record, of each further KiB, and of a sync.
fn store() -> anyhow::Result<[(&'static str, f64); 3]> {
    const SMALL: u64 = 2_000;
    const LARGE: u64 = 200;
    const LARGE_WRITES: u64 = 256;
    const VALUE_BYTES: usize = 128;
    const SYNCS: u64 = 15;
    let dir = tempfile::tempdir().context("no directory for a store")?;
    let (mut store, _) = daemon::store::RocksStore::open(dir.path())?;
    let mut seq = 0;
    let mut batch = |writes: u64| {
        seq += 1;
        let write = |number: u64| Write {
            partition: PartitionId((seq % 64) as u32),
            key: (seq << 16 | number).to_be_bytes().to_vec(),
            value: Some(vec![7; VALUE_BYTES]),
        };
        Batch { seq, cleared: Vec::new(), writes: (0..writes).map(write).collect() }
    };
    let mut timed = |batches: u64, writes: u64| {
        let made: Vec<Batch> = (0..batches).map(|_| batch(writes)).collect();
        write_ns(&mut store, &made)
    };
    timed(100, 1)?;
    let (small_ns, large_ns) = (timed(SMALL, 1)?, timed(LARGE, LARGE_WRITES)?);
    let kib = (LARGE_WRITES - 1) as f64 * (VALUE_BYTES + 8) as f64 / 1024.0;
    let mut syncs_ns = Vec::new();
    for _ in 0..SYNCS {
        write_ns(&mut store, &[batch(1)])?;
        let start = Instant::now();
        store.sync()?;
        syncs_ns.push(start.elapsed().as_nanos() as f64);
    }
    syncs_ns.sort_by(f64::total_cmp);
    let per_kib = ((large_ns - small_ns) / kib).max(0.0);
    Ok([(PERSIST, small_ns), (PERSIST_KIB, per_kib), (SYNC, syncs_ns[syncs_ns.len() / 2])])
}

/// Mean time of writing one of these batches.
fn write_ns(store: &mut daemon::store::RocksStore, batches: &[Batch]) -> anyhow::Result<f64> {
    let start = Instant::now();
    for batch in batches {
        store.write(batch)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / batches.len() as f64)
}

fn client_ns_per_task() -> anyhow::Result<f64> {
    use prost::Message as _;
    let graph = cluster::generate(&format!("bag:tasks={NOOPS}"))?;
    let homes: Vec<Vec<PartitionId>> = (0..4).map(|home| vec![PartitionId(home)]).collect();
    let start = Instant::now();
    let plan = Plan::new(&graph, JobId(1), Placement::Hash, &homes);
    let bytes: usize = plan.chunks().map(|chunk| chunk.encode_to_vec().len()).sum();
    let took_ns = start.elapsed().as_nanos() as f64;
    anyhow::ensure!(bytes > 0, "a bag has chunks");
    Ok(took_ns / NOOPS as f64)
}

/// The prices found so far.
#[derive(Debug)]
struct Known {
    core: Prices,
    shell: Prices,
}

impl Known {
    fn set(&mut self, part: Part, price_ns: f64) {
        self.shell.insert(part.name().to_owned(), price_ns);
    }

    /// The time of a graph's work by the known prices, and the counts of its parts.
    fn work(&self, graph: &Graph, nodes: u32, slots: u32) -> anyhow::Result<(f64, Counts)> {
        let mut sum = Counts::default();
        let mut meter = |mark: Mark<'_>| {
            if let Mark::Over(counts) = mark {
                Part::ALL.iter().for_each(|part| sum.add(*part, counts.of(*part)));
            }
        };
        let options = SimulationOptions::new(nodes, slots);
        sim::simulate_metered(graph, &options, Some(&mut meter))?;
        let price = |part: &Part| {
            let of = |prices: &Prices| prices.get(part.name()).copied().unwrap_or(0.0);
            (of(&self.core) + of(&self.shell)) * f64::from(sum.of(*part))
        };
        Ok((Part::ALL.iter().map(price).sum(), sum))
    }

    async fn rest_of_noops(&self, client_ns: f64) -> anyhow::Result<f64> {
        let graph = cluster::generate(&format!("bag:tasks={NOOPS}"))?;
        let cluster = start(1, 1).await?;
        cluster.run(&cluster::generate("bag:tasks=10000")?, SubmitOptions::default()).await?;
        let took_ns = cpu_ns(&cluster, &graph, SubmitOptions::default()).await?;
        let (known_ns, counts) = self.work(&graph, 1, 1)?;
        let rest_ns = took_ns - known_ns - client_ns * NOOPS as f64;
        Ok((rest_ns / f64::from(counts.of(Part::Event))).max(0.0))
    }

    async fn rest_of_chain(&self) -> anyhow::Result<f64> {
        let cluster = start(2, 1).await?;
        chain::cross(&cluster, 100).await?;
        let job = cluster.client().next_job().await?;
        let (graph, _) = chain::alternating(cluster.client(), job, HOPS)?;
        let options = SubmitOptions { job: Some(job), ..SubmitOptions::default() };
        let took_ns = cpu_ns(&cluster, &graph, options).await?;
        let (known_ns, counts) = self.work(&simulated_chain()?, 2, 1)?;
        let packets = counts.of(Part::PacketIn) + counts.of(Part::PacketOut);
        Ok(((took_ns - known_ns) / f64::from(packets)).max(0.0))
    }

    async fn rest_of_sleepers(&self) -> anyhow::Result<f64> {
        let graph = cluster::generate(&format!("bag:tasks={SLEEPERS},duration=10ms"))?;
        let cluster = start(1, SLEEPER_SLOTS).await?;
        cluster.run(&cluster::generate("bag:tasks=100,duration=1ms")?, Default::default()).await?;
        let took_ns = cpu_ns(&cluster, &graph, SubmitOptions::default()).await?;
        let (known_ns, _) = self.work(&graph, 1, SLEEPER_SLOTS)?;
        Ok(((took_ns - known_ns) / SLEEPERS as f64).max(0.0))
    }
}

/// The chain through the homes of a simulated cluster of two.
fn simulated_chain() -> anyhow::Result<Graph> {
    let map = kvs::make_map(SimulationOptions::new(2, 1).seed | 1, 2, kvs::default_partitions(2));
    let home = |partition: PartitionId| map.partitions[partition.0 as usize].replicas[0];
    let mut homes = vec![Vec::new(); 2];
    for partition in (0..map.partitions.len() as u32).map(PartitionId) {
        homes[home(partition) as usize].push(partition);
    }
    // The simulator's own job has this number.
    let (graph, _) = chain::through(&homes, |at| home(at) as usize, JobId(1), HOPS)?;
    Ok(graph)
}

async fn start(nodes: u32, slots: u32) -> anyhow::Result<Cluster> {
    Cluster::start(Resolved { nodes, slots, rounds: 1, ..Resolved::default() }).await
}

async fn cpu_ns(cluster: &Cluster, graph: &Graph, options: SubmitOptions) -> anyhow::Result<f64> {
    let before = cluster.cpu().await?;
    cluster.run(graph, options).await?;
    Ok(cluster.cpu().await?.since_us(&before) * 1e3)
}

/// The delay of a sleep on an otherwise idle CPU.
async fn run_delay_ns() -> anyhow::Result<f64> {
    let cluster = start(1, 1).await?;
    let graph = cluster::generate(&format!("bag:tasks=1,duration={TIMED_SLEEP_MS}ms"))?;
    let mut delays_ns = Vec::with_capacity(TIMED_SLEEPERS);
    for _ in 0..TIMED_SLEEPERS {
        let handle = cluster.client().submit(&graph, SubmitOptions::default()).await?;
        let end = cluster.client().raw().wait_job(handle.job, |_| {}).await?;
        let work_ns = end.sum.as_ref().map_or(0, |sum| sum.work_ns);
        delays_ns.push(work_ns.saturating_sub(TIMED_SLEEP_MS * 1_000_000) as f64);
    }
    delays_ns.sort_by(f64::total_cmp);
    Ok(delays_ns[TIMED_SLEEPERS / 10])
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split(": ").nth(1)).unwrap_or("an unnamed CPU");
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{cpus} CPUs, {model}")
}

/// The UTC date, as 2026-11-20.
fn today() -> String {
    proto::Time(client::now_ns()).utc()[..10].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_a_service_file() {
        let least = [(Part::Step.name(), 500.4), (PERSIST, 3_000.0), (SYNC, 1e6)];
        let service = service(&least.into());
        assert_eq!((service.core_ns["step"], service.shell_ns["persist"]), (500.0, 3_000.0));
        assert_eq!(CostModel::parse(&service.to_json()).unwrap(), service);
    }
}
