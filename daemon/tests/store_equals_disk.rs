//! The real store and the simulator's disk leave the same records after the same faults.
//!
//! A case runs one script on both. On the real side a child process (this test, started again)
//! writes and is then killed with SIGKILL, so its memory is lost. *Crash* is only that. A *power
//! cut* also loses unsynced writes. No test can cut the power, so the log is cut to a random length
//! between its length at the last sync and its last length. That models a file system that lost the
//! tail of a file. A medium that writes later blocks but not earlier ones is not covered.

#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::io::{BufRead, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use daemon::store::RocksStore;
use dice::Dice;
use kvs::{Batch, Page, PageRequest, Record, Write};
use proto::PartitionId;
use sim::disk::Disk;

/// Set for the child process: `seed life heavy directory`.
const CHILD: &str = "STARLING_STORE_CHILD";

#[test]
fn after_a_crash_both_hold_all_that_was_written() {
    if child_ran() {
        return;
    }
    for seed in 0..25 {
        lives(seed, false, "after_a_crash_both_hold_all_that_was_written", crash);
    }
    // Enough bytes to fill write buffers, so that tables and several logs are recovered too.
    for seed in 100..102 {
        lives(seed, true, "after_a_crash_both_hold_all_that_was_written", crash);
    }
}

#[test]
fn after_a_power_cut_both_hold_the_same_prefix() {
    if child_ran() {
        return;
    }
    let mut lost = 0;
    for seed in 200..225 {
        lives(seed, false, "after_a_power_cut_both_hold_the_same_prefix", |dir, run, disk| {
            lost += power_cut(seed, dir, run, disk);
        });
    }
    assert!(lost > 25, "only {lost} writes were lost: the test does not test");
}

#[test]
fn after_a_kill_it_holds_whole_batches_and_all_acknowledged_ones() {
    if child_ran() {
        return;
    }
    for seed in 300..315u64 {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random::new(seed);
        let mut script = script(seed, 0, true);
        // Only numbered writes: the last number is then their count.
        script.retain(|step| matches!(step, Step::Write(_)));
        let told = random.below(script.len() as u64 - 1) + 1;
        let mut child = Running::start(
            "after_a_kill_it_holds_whole_batches_and_all_acknowledged_ones",
            seed,
            0,
            "amid",
            dir.path(),
        );
        for _ in 0..told {
            child.next_line();
        }
        child.kill();
        let (store, last_seq) = RocksStore::open(dir.path()).unwrap();
        assert!(last_seq >= told, "seed {seed}: {last_seq} batches left of {told}");
        let mut disk = Disk::new();
        for step in &script[..last_seq as usize] {
            step.run_on_disk(&mut disk);
        }
        assert_same(seed, &store, last_seq, &disk);
    }
}

/// One to three incarnations of one directory, each ended by the fault.
fn lives(seed: u64, heavy: bool, test: &str, mut fault: impl FnMut(&Path, &Run, &mut Disk)) {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = Disk::new();
    for life in 0..=seed % 3 {
        let script = script(seed, life, heavy);
        let weight = if heavy { "heavy" } else { "light" };
        let mut child = Running::start(test, seed, life, weight, dir.path());
        let mut run = Run::default();
        for step in &script {
            run.note(step, &child.next_line());
            step.run_on_disk(&mut disk);
        }
        child.kill();
        fault(dir.path(), &run, &mut disk);
        let (store, last_seq) = RocksStore::open(dir.path()).unwrap();
        assert_same(seed, &store, last_seq, &disk);
        // Opening writes the recovered records into synced tables.
        disk.sync(0);
        assert_eq!(disk.unsynced(), 0);
    }
}

fn crash(_: &Path, _: &Run, disk: &mut Disk) {
    disk.crash();
}

/// Returns the number of lost writes.
fn power_cut(seed: u64, dir: &Path, run: &Run, disk: &mut Disk) -> usize {
    let log = last_log(dir);
    let length = std::fs::metadata(&log).unwrap().len();
    assert_eq!(run.ends.last().copied().unwrap_or(run.synced_end), length, "seed {seed}");
    let cut = run.synced_end + Random::new(seed ^ length).below(length - run.synced_end + 1);
    std::fs::OpenOptions::new().write(true).open(log).unwrap().set_len(cut).unwrap();
    let kept = run.ends.iter().filter(|&&end| end <= cut).count();
    let inherited = disk.unsynced() - run.ends.len();
    assert_eq!(inherited, 0, "seed {seed}: the sync of the last opening covered them");
    disk.power_cut_keeping(kept);
    run.ends.len() - kept
}

#[track_caller]
fn assert_same(seed: u64, store: &RocksStore, last_seq: u64, disk: &Disk) {
    assert_eq!(last_seq, disk.last_seq(), "seed {seed}");
    let stored: Vec<Record> = store.records().collect::<Result<_, _>>().unwrap();
    let expected: Vec<Record> = disk.records().collect();
    let first = stored.iter().zip(&expected).position(|(a, b)| a != b);
    assert!(stored == expected, "seed {seed}: record {first:?} differs");
    for partition in PARTITIONS.map(PartitionId) {
        let read = pages(partition, |request| store.reader().page(request).unwrap());
        let of_disk = pages(partition, |request| disk.page(request));
        assert!(read == of_disk, "seed {seed}: pages of {partition} differ");
        let all: Vec<Record> = read.into_iter().flat_map(|page| page.records).collect();
        let here = expected.iter().filter(|record| record.partition == partition);
        assert!(all.iter().eq(here), "seed {seed}: the pages of {partition} are not all of it");
    }
}

const PARTITIONS: [u32; 4] = [0, 1, 300, (1 << 23) - 1];

/// A partition page by page, including the last page.
fn pages(partition: PartitionId, read: impl Fn(&PageRequest) -> Page) -> Vec<Page> {
    let mut request = PageRequest { partition, after: None, bytes: 300, number: 7 };
    let mut pages = Vec::new();
    loop {
        let page = read(&request);
        let end = page.end;
        request.after = page.records.last().map(|record| record.key.clone());
        pages.push(page);
        if end {
            return pages;
        }
    }
}

/// The end of the log, as the child reported it.
#[derive(Default)]
struct Run {
    synced_end: u64,
    /// After each write since the last sync.
    ends: Vec<u64>,
}

impl Run {
    fn note(&mut self, step: &Step, line: &str) {
        let end = line.parse().unwrap();
        if let Step::Sync(_) = step {
            self.synced_end = end;
            self.ends.clear();
        } else {
            self.ends.push(end);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(Batch),
    RemovePrefix(PartitionId, Vec<u8>),
    /// Up to the batch of this number.
    Sync(u64),
}

impl Step {
    fn run_on_disk(&self, disk: &mut Disk) {
        match self {
            Self::Write(batch) => disk.write(batch),
            Self::RemovePrefix(partition, prefix) => disk.remove_prefix(*partition, prefix),
            Self::Sync(seq) => disk.sync(*seq),
        }
    }

    fn run_on_store(&self, store: &mut RocksStore) {
        match self {
            Self::Write(batch) => store.write(batch).unwrap(),
            Self::RemovePrefix(partition, prefix) => {
                store.remove_prefix(*partition, prefix).unwrap();
            }
            Self::Sync(seq) => assert_eq!(store.syncer().sync(), Ok(*seq)),
        }
    }
}

/// The steps of one incarnation.
fn script(seed: u64, life: u64, heavy: bool) -> Vec<Step> {
    let mut random = Random::new(seed << 8 | life);
    let mut steps = Vec::new();
    for seq in 1..=random.below(40) + 10 {
        let writes = (0..random.below(6)).map(|_| random.write(heavy)).collect();
        let cleared = (0..random.below(3) / 2).map(|_| random.partition()).collect();
        steps.push(Step::Write(Batch { seq, cleared, writes }));
        match random.below(12) {
            0 | 1 => steps.push(Step::Sync(seq)),
            2 => steps.push(Step::RemovePrefix(random.partition(), random.key(2))),
            _ => {}
        }
    }
    steps
}

/// Writes from a seed; the child draws the same ones.
struct Random(Dice);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Dice::new(seed))
    }
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }
    fn partition(&mut self) -> PartitionId {
        PartitionId(PARTITIONS[self.below(4) as usize])
    }
    fn key(&mut self, bytes_max: u64) -> Vec<u8> {
        (0..self.below(bytes_max) + 1)
            .map(|_| [b'u', b't', 0, 0xff][self.below(4) as usize])
            .collect()
    }
    fn write(&mut self, heavy: bool) -> Write {
        let bytes = self.below(if heavy { 400_000 } else { 300 });
        let value = (0..bytes).map(|at| ((at * bytes) >> 5) as u8).collect();
        let value = (self.below(4) > 0).then_some(value);
        Write { partition: self.partition(), key: self.key(4), value }
    }
}

/// In the child: runs its script, reports the end of the log after each step, until it is killed.
fn child_ran() -> bool {
    let Ok(order) = std::env::var(CHILD) else { return false };
    let [seed, life, weight, dir] = order.splitn(4, ' ').collect::<Vec<_>>()[..] else {
        panic!("not an order: {order}");
    };
    let dir = Path::new(dir);
    let (mut store, _) = RocksStore::open(dir).unwrap();
    let mut script = script(seed.parse().unwrap(), life.parse().unwrap(), weight != "light");
    if weight == "amid" {
        script.retain(|step| matches!(step, Step::Write(_)));
    }
    let mut told = std::io::stdout();
    for step in script {
        step.run_on_store(&mut store);
        let end = std::fs::metadata(last_log(dir)).unwrap().len();
        writeln!(told, "@{end}").unwrap();
    }
    // The parent kills this process. If the parent is gone, its end of the pipe is closed.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    std::process::exit(1);
}

fn last_log(dir: &Path) -> PathBuf {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "log")).max().unwrap()
}

struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(test: &str, seed: u64, life: u64, weight: &str, dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{seed} {life} {weight} {}", dir.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next of the child's own lines; the test harness prints some too.
    fn next_line(&mut self) -> String {
        let mut own = self.lines.by_ref().map_while(Result::ok);
        own.find_map(|line| Some(line.split_once('@')?.1.to_owned())).expect("the child has died")
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
