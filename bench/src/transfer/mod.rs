//! Objects from one node to another, beside raw TCP (or TLS) of the same bytes in the same run.

mod raw;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use client::Client;
use executor::{ObjectKind, ObjectStore};
use proto::{Attempt, JobId, LocalId, NodeId, ObjectId, TaskId, limits};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use verb::local::embed;
use verb::local::plan::{ClusterPlan, warn_insecure};
use verb::units::Size;

use self::raw::{Raw, Secrets};
use super::BenchFailure;
use super::report::Spread;

/// A job number that no cluster assigns. A node keeps only kept outputs of an unknown job, so these
/// objects are kept outputs.
const JOB: JobId = JobId(1 << 60);
const SIZES_BYTES: [u64; 6] = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30];
const AT_ONCE: [usize; 3] = [1, 8, 64];
const FROM: NodeId = NodeId(0);
const TO: NodeId = NodeId(1);
/// Small cases are repeated until about this number of bytes was transferred, within the limit of
/// `REPEATS_MAX`.
const BYTES_A_ROUND: u64 = 64 << 20;
const REPEATS_MAX: u64 = 50;
/// The bytes that are requested at once and stored until all have arrived; further ones wait for
/// their turn.
const BATCH_BYTES_MAX: u64 = 2 << 30;
/// The bytes of separate files of one size; further objects are other names of the same files.
const DISTINCT_BYTES_MAX: u64 = 256 << 20;
/// The timeout of a node's answer; after it the node is not measured.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Args, Clone, Debug)]
pub(super) struct TransferArgs {
    /// Number of rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Leave out cases of more bytes than this; the largest take 4 GiB of disk, and cases of more
    /// than 2 GiB one round
    #[arg(long, default_value = "64GiB", value_name = "SIZE")]
    most: Size,
    /// At most a quarter of a gibibyte, and two rounds
    #[arg(long)]
    quick: bool,
    /// Connections are not encrypted, those of the nodes and the raw ones
    #[arg(long)]
    insecure: bool,
}

/// Objects of one size, this many requested together.
#[derive(Clone, Copy, Debug)]
struct Case {
    size_bytes: u64,
    at_once: usize,
}

impl Case {
    fn total_bytes(self) -> u64 {
        self.size_bytes * self.at_once as u64
    }
    fn repeats(self) -> u64 {
        (BYTES_A_ROUND / self.total_bytes()).clamp(1, REPEATS_MAX)
    }
    fn objects(self) -> Vec<ObjectId> {
        (0..self.at_once).map(|number| object(self.size_bytes, number)).collect()
    }
    fn wanted(self) -> Vec<(ObjectId, u64)> {
        self.objects().into_iter().map(|object| (object, self.size_bytes)).collect()
    }
    /// The number of objects in one request.
    fn batch(self) -> usize {
        let most = (BATCH_BYTES_MAX / self.size_bytes).max(1);
        self.at_once.min(usize::try_from(most).unwrap_or(usize::MAX))
    }
    /// Rounds of many gibibytes last long enough by themselves.
    fn rounds(self, wanted: u32) -> u32 {
        if self.total_bytes() > BATCH_BYTES_MAX { 1 } else { wanted }
    }
    /// The number of objects with separate files.
    fn distinct(self) -> usize {
        let most = (DISTINCT_BYTES_MAX / self.size_bytes).max(1);
        self.at_once.min(usize::try_from(most).unwrap_or(usize::MAX))
    }
    /// As many raw connections as a node opens.
    fn connections(self) -> usize {
        self.batch().min(limits::DATA_CONNECTIONS_PER_NODE_MAX)
    }
}

/// The number of an object among those of its size.
const NUMBER_MASK: u64 = 0xff;

fn object(size_bytes: u64, number: usize) -> ObjectId {
    let local = LocalId((u64::from(size_bytes.trailing_zeros()) << 8) + number as u64);
    ObjectId { task: TaskId { job: JOB, local }, attempt: Attempt(1), output: 0 }
}

/// Bytes per second of each contender, and the ratio of Starling's rate to the raw ones.
#[derive(Debug, Serialize)]
struct Row {
    size_bytes: u64,
    at_once: usize,
    ours_bytes_per_s: Spread,
    raw_memory_bytes_per_s: Spread,
    raw_file_bytes_per_s: Spread,
    over_raw_memory: Spread,
    over_raw_file: Spread,
    /// CPU time of Starling over that of raw connections, from memory and from files.
    cpu_over_raw_memory: Spread,
    cpu_over_raw_file: Spread,
}

#[derive(Debug, Serialize)]
pub(super) struct Table {
    schema: u32,
    bench: &'static str,
    rounds: u32,
    encrypted: bool,
    cases: Vec<Row>,
    notes: Vec<String>,
}

pub(super) async fn run(args: &TransferArgs) -> anyhow::Result<Table> {
    let (most, rounds) = match args.quick {
        true => (args.most.0.min(256 << 20), 2),
        false => (args.most.0, args.rounds),
    };
    let cases: Vec<Case> = SIZES_BYTES
        .into_iter()
        .flat_map(|size_bytes| AT_ONCE.map(move |at_once| Case { size_bytes, at_once }))
        .filter(|case| case.total_bytes() <= most)
        .collect();
    let plan = ClusterPlan::new(2, 1, scheduler::Tuning::default());
    let plan = ClusterPlan { insecure: args.insecure, ..plan };
    if plan.insecure {
        warn_insecure();
    }
    let prepare = |dir: &Path| fill(&objects_dir(dir), &cases);
    let cluster =
        embed::Cluster::start_prepared(&plan, true, prepare).await.map_err(BenchFailure)?;
    let client = Client::connect(cluster.dir()).await?;
    let secrets = match args.insecure {
        true => None,
        false => Some(Secrets::of_cluster(cluster.dir())?),
    };
    let mut seen: Vec<Vec<TransferRound>> = vec![Vec::new(); cases.len()];
    for round in 0..rounds {
        let due = cases.iter().zip(&mut seen).filter(|(case, _)| round < case.rounds(rounds));
        for (case, seen) in due {
            seen.push(measure(&client, cluster.dir(), *case, secrets.as_ref()).await?);
        }
    }
    cluster.stop().await;
    Ok(Table {
        schema: 1,
        bench: "transfer",
        rounds,
        encrypted: secrets.is_some(),
        cases: cases.iter().zip(&seen).map(|(case, seen)| row(*case, seen)).collect(),
        notes: vec![
            "ours: two node processes, file to file, checksums made and checked, published"
                .to_owned(),
            format!(
                "raw memory: one buffer sent and dropped; raw file: {}, read and written to new \
                 files; both over as many warm connections as ours (at most {}), an empty message \
                 there and the bytes back",
                if secrets.is_some() { "read and encrypted" } else { "sendfile" },
                limits::DATA_CONNECTIONS_PER_NODE_MAX
            ),
            "objects of one size are 256 MiB of files at most (one file where it is larger), under as \
             many names as needed, so what is read is in memory; cases of more than 2 GiB come in \
             batches of 2 GiB, which is how many are at once in truth, and are measured once"
                .to_owned(),
        ],
    })
}

/// The objects that [`loopback`] transfers at once.
pub(super) const LOOPBACK_OBJECTS: usize = 8;
pub(super) const LOOPBACK_BYTES: u64 = 1 << 20;
const LOOPBACK_TURNS: usize = 12;

/// The times of one object of a mebibyte from node process to node process, and of eight together,
/// in nanoseconds: the least of several turns.
pub(super) async fn loopback() -> anyhow::Result<(f64, f64)> {
    let cases = [1, LOOPBACK_OBJECTS].map(|at_once| Case { size_bytes: LOOPBACK_BYTES, at_once });
    let plan = ClusterPlan::new(2, 1, scheduler::Tuning::default());
    let prepare = |dir: &Path| fill(&objects_dir(dir), &cases);
    let cluster =
        embed::Cluster::start_prepared(&plan, true, prepare).await.map_err(BenchFailure)?;
    let client = Client::connect(cluster.dir()).await?;
    let mut least_ns = [f64::INFINITY; 2];
    for _ in 0..LOOPBACK_TURNS {
        for (case, least_ns) in cases.iter().zip(&mut least_ns) {
            let took = client.bring(TO, FROM, &case.wanted()).await?;
            *least_ns = least_ns.min(took.as_nanos() as f64);
        }
    }
    cluster.stop().await;
    Ok((least_ns[0], least_ns[1]))
}

fn objects_dir(dir: &Path) -> PathBuf {
    dir.join("nodes").join(FROM.0.to_string()).join("state/objects")
}

/// Puts the objects into the store of the sending node.
fn fill(dir: &Path, cases: &[Case]) -> anyhow::Result<()> {
    let store = ObjectStore::open(dir, limits::OBJECT_BYTES_MAX_DEFAULT)?;
    let mut piece = vec![0; limits::PIECE_BYTES];
    for object in cases.iter().flat_map(|case| case.objects().into_iter().map(move |it| (it, case)))
    {
        let (object, case) = object;
        if store.contains(object) {
            continue;
        }
        let number = (object.task.local.index() & NUMBER_MASK) as usize;
        if number >= case.distinct() {
            let first = self::object(case.size_bytes, number % case.distinct());
            link(&raw::source_of(dir, first), &raw::source_of(dir, object))?;
            continue;
        }
        let mut incoming = store.create_incoming(object, ObjectKind::Kept)?;
        let mut offset = 0;
        while offset < case.size_bytes {
            let count = (case.size_bytes - offset).min(piece.len() as u64) as usize;
            executor::pattern(object, offset, &mut piece[..count]);
            incoming.write(&piece[..count])?;
            offset += count as u64;
        }
        incoming.commit()?;
    }
    Ok(())
}

/// Gives the bytes of one object the name of another as well.
fn link(from: &Path, to: &Path) -> anyhow::Result<()> {
    match std::fs::hard_link(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot link {}", from.display()))
        }
        _ => Ok(()),
    }
}

/// One round of one case: Starling, raw memory, raw file.
#[derive(Clone, Copy, Debug)]
struct TransferRound {
    bytes_per_s: [f64; 3],
    cpu_ns: [f64; 3],
}

/// CPU time of both nodes so far.
async fn nodes_cpu_ns(client: &Client) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for (_, state) in client.raw().node_states(PATIENCE).await {
        sum += state?.cpu_ns as f64;
    }
    Ok(sum)
}

/// CPU time of this process so far.
fn own_cpu_ns() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 * 1e9 + used.tv_nsec as f64
}

async fn measure(
    client: &Client,
    dir: &Path,
    case: Case,
    secrets: Option<&Secrets>,
) -> anyhow::Result<TransferRound> {
    let wanted = case.wanted();
    let memory = Raw::open(case, None, secrets)?;
    let file = Raw::open(case, Some(dir), secrets)?;
    let mut times = [Duration::ZERO; 3];
    let mut cpu_ns = [0.0; 3];
    let before_ns = nodes_cpu_ns(client).await?;
    for _ in 0..case.repeats() {
        for batch in wanted.chunks(case.batch()) {
            times[0] += client.bring(TO, FROM, batch).await?;
        }
        tokio::task::block_in_place(|| -> anyhow::Result<()> {
            let start_ns = own_cpu_ns();
            times[1] += memory.turn()?;
            let middle_ns = own_cpu_ns();
            times[2] += file.turn()?;
            cpu_ns[1] += middle_ns - start_ns;
            cpu_ns[2] += own_cpu_ns() - middle_ns;
            Ok(())
        })?;
    }
    cpu_ns[0] = nodes_cpu_ns(client).await? - before_ns;
    let bytes = (case.total_bytes() * case.repeats()) as f64;
    Ok(TransferRound { bytes_per_s: times.map(|time| bytes / time.as_secs_f64()), cpu_ns })
}

fn row(case: Case, seen: &[TransferRound]) -> Row {
    let of = |of: &dyn Fn(&TransferRound) -> f64| Spread::of(seen.iter().map(of).collect());
    let spread = |value: &dyn Fn(&[f64; 3]) -> f64| of(&|seen| value(&seen.bytes_per_s));
    let cpu = |value: &dyn Fn(&[f64; 3]) -> f64| of(&|seen| value(&seen.cpu_ns));
    Row {
        size_bytes: case.size_bytes,
        at_once: case.at_once,
        ours_bytes_per_s: spread(&|it| it[0]),
        raw_memory_bytes_per_s: spread(&|it| it[1]),
        raw_file_bytes_per_s: spread(&|it| it[2]),
        over_raw_memory: spread(&|it| it[0] / it[1]),
        over_raw_file: spread(&|it| it[0] / it[2]),
        cpu_over_raw_memory: cpu(&|it| it[0] / it[1]),
        cpu_over_raw_file: cpu(&|it| it[0] / it[2]),
    }
}

impl Table {
    pub(super) fn to_json(&self) -> anyhow::Result<String> {
        serde_json::to_string(self).context("the table as JSON")
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!(
            "transfer: {} rounds, MB/s (median), and ours over raw {}: median (least - most)\n\
             {:>8} {:>7} {:>9} {:>10} {:>9} {:>20} {:>20} {:>13} {:>8}\n",
            self.rounds,
            if self.encrypted { "TLS" } else { "TCP" },
            "size",
            "at once",
            "ours",
            "raw memory",
            "raw file",
            "over memory",
            "over file",
            "CPU o. memory",
            "o. file"
        );
        for row in &self.cases {
            let rate = |spread: &Spread| spread.median / 1e6;
            let ratio = |it: &Spread| format!("{:.2} ({:.2} - {:.2})", it.median, it.min, it.max);
            text.push_str(&format!(
                "{:>8} {:>7} {:>9.0} {:>10.0} {:>9.0} {:>20} {:>20} {:>13.2} {:>8.2}\n",
                size_text(row.size_bytes),
                row.at_once,
                rate(&row.ours_bytes_per_s),
                rate(&row.raw_memory_bytes_per_s),
                rate(&row.raw_file_bytes_per_s),
                ratio(&row.over_raw_memory),
                ratio(&row.over_raw_file),
                row.cpu_over_raw_memory.median,
                row.cpu_over_raw_file.median
            ));
        }
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        text
    }
}

fn size_text(bytes: u64) -> String {
    match bytes.trailing_zeros() {
        10..20 => format!("{} KiB", bytes >> 10),
        20..30 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_large_objects_are_names_of_few_files() {
        let dir = tempfile::tempdir().expect("a directory");
        // This size has one file, and the other objects are names of it.
        let case = Case { size_bytes: 256 << 20, at_once: 3 };
        assert_eq!((case.distinct(), case.batch(), case.rounds(5)), (1, 3, 5));
        let small = Case { size_bytes: 4 << 10, at_once: 8 };
        assert_eq!((small.distinct(), small.batch()), (8, 8));
        let largest = Case { size_bytes: 1 << 30, at_once: 64 };
        assert_eq!((largest.batch(), largest.connections(), largest.rounds(5)), (2, 2, 1));
        let stored: u64 = SIZES_BYTES
            .map(|size_bytes| Case { size_bytes, at_once: 64 })
            .map(|case| case.distinct() as u64 * case.size_bytes)
            .iter()
            .sum();
        assert!(stored + BATCH_BYTES_MAX <= 4 << 30, "{stored} bytes are stored");

        fill(dir.path(), &[small]).expect("it can be filled");
        let first = raw::source_of(dir.path(), object(small.size_bytes, 0));
        let other = raw::source_of(dir.path(), object(small.size_bytes, 99));
        link(&first, &other).expect("both lie there");
        link(&first, &other).expect("once more changes nothing");
        let store = ObjectStore::open(dir.path(), limits::OBJECT_BYTES_MAX_DEFAULT);
        let store = store.expect("it opens again");
        assert!(store.contains(object(small.size_bytes, 99)), "a name is as good as a file");
    }
}
