//! Three nodes with a small bound on history run a low and steady load. It consists of jobs of
//! commands, kept results that are fetched and forgotten, failing attempts, retries, uploads,
//! cancelled jobs and keys.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use proto::limits::FILE_THREADS_MAX;
use starling_tests::Instance;

use super::span;
use super::takes::Measured;
use crate::cluster::{job, submit};

const NODES: u32 = 3;
/// Small enough to be reached within minutes.
const HISTORY: &str = "4MiB";
/// The interval between rounds, and between samples.
const ROUND: Duration = Duration::from_secs(3);
const SAMPLE: Duration = Duration::from_secs(60);
/// The number of jobs with kept results. The next one replaces the oldest.
const KEPT_JOBS: usize = 20;

/// The largest rise of a quantity in the second half of the time. RocksDB fills two buffers of 8
/// MiB, with a log for each. Then it writes four files and merges them into one.
fn allowed(quantity: &str) -> f64 {
    let mebibytes = f64::from(1 << 20);
    match quantity {
        "memory" => 16.0 * mebibytes,
        "open" => 16.0,
        "threads" => FILE_THREADS_MAX as f64,
        "store bytes" => 48.0 * mebibytes,
        "store files" => 16.0,
        "rest bytes" => 8.0 * mebibytes,
        "rest files" => 300.0,
        _ => f64::INFINITY,
    }
}

#[test]
fn nodes_with_bounded_history_do_not_grow() {
    let span = span();
    let instance = Instance::up_with_copies(NODES, 2, 2);
    instance.starling(&["node", "set", "--history", HISTORY]).ok();
    let mut user = User { instance: &instance, kept: Vec::new() };
    let mut measured: Vec<Measured> = (0..NODES).map(|_| Measured::default()).collect();
    let pids: Vec<u32> = (0..NODES).map(|node| instance.pid(node)).collect();
    let (pause, sample) = (ROUND.min(span / 20), SAMPLE.min(span / 10));
    let since = Instant::now();
    let (mut rounds, mut samples) = (0, 0);
    while since.elapsed() < span {
        user.round(rounds);
        rounds += 1;
        if since.elapsed() >= sample * samples {
            samples += 1;
            for (node, measured) in measured.iter_mut().enumerate() {
                let state = instance.directory().join(format!("nodes/{node}/state"));
                let words = measured.add(since.elapsed(), pids[node], &state);
                println!("{}s round {rounds} n{node} {words}", since.elapsed().as_secs());
            }
        }
        std::thread::sleep((pause * rounds).saturating_sub(since.elapsed()));
    }
    let now: Vec<u32> = (0..NODES).map(|node| instance.pid(node)).collect();
    assert_eq!(now, pids, "they have stayed");
    let mut grows = String::new();
    for (node, measured) in measured.iter().enumerate() {
        for (quantity, growth) in measured.growth() {
            println!("n{node} {quantity}: {growth:+.0} in the second half of {span:?}");
            if growth > allowed(&quantity) {
                let _ = writeln!(grows, "n{node} {quantity}: {growth:+.0}");
            }
        }
    }
    assert!(grows.is_empty(), "{rounds} rounds in {span:?}:\n{grows}");
    user.end();
    instance.down();
}

struct User<'a> {
    instance: &'a Instance,
    /// Jobs with kept results, oldest first.
    kept: Vec<String>,
}

impl User<'_> {
    fn round(&mut self, round: u32) {
        self.keep();
        self.put(round);
        submit(self.instance, &["--wait", "--file", "bag:tasks=300,body=noop"]);
        match round % 5 {
            0 => self.retry(),
            1 => self.upload(round),
            2 => self.cancel(),
            3 => drop(submit(self.instance, &["--wait", "--file", "fan-in:tasks=111,output=20kB"])),
            _ => self.look(),
        }
    }

    /// Results that one task reads and prints, and that are fetched; some stay for several rounds.
    /// The third part comes from a second attempt.
    fn keep(&mut self) {
        let failed = self.instance.sandbox().path("failed").display().to_string();
        let make = format!(
            "echo makes {{i}}; head -c 20000 /dev/urandom > part-{{i}}; \
             [ {{i}} != 3 ] || rm {failed} || {{ touch {failed}; exit 1; }}"
        );
        let text = format!(
            "[[task]]\nname='make-{{i}}'\narray='1-5'\nretries=2\n\
             command=['sh','-c','''{make}''']\n\
             outputs={{part={{file='part-{{i}}',keep=true}}}}\n\
             [[task]]\nname='sum'\ncommand=['sh','-c','sha256sum part-* > sums; cat sums']\n\
             inputs={{parts=['part-1..5']}}\noutputs={{sums={{file='sums',keep=true}}}}\n"
        );
        self.instance.sandbox().write("keeps.toml", text);
        let id = submit(self.instance, &["--wait", "--file", "keeps.toml"]);
        let fetched = self.instance.sandbox().path("fetched");
        let to = fetched.to_str().expect("a plain name");
        self.instance.starling(&["job", "fetch", &id, "--output", to]).ok();
        let mut check = Command::new("sha256sum");
        check.args(["--check", "--strict", "sums"]).current_dir(&fetched);
        let checked = self.instance.sandbox().start_command(check).end().ok();
        assert_eq!(checked.stdout.matches(": OK").count(), 5, "{checked:?}");
        fs::remove_dir_all(fetched).expect("it is ours");
        self.kept.push(id);
        if self.kept.len() > KEPT_JOBS {
            let oldest = self.kept.remove(0);
            self.instance.starling(&["job", "forget", &oldest, "--results"]).ok();
        }
    }

    fn put(&self, round: u32) {
        let key = format!("key-{}", round % 50);
        let value = format!("{round} {}", "v".repeat(500));
        self.instance.starling(&["kv", "insert", &key, &value]).ok();
        assert_eq!(self.instance.starling(&["kv", "lookup", &key]).ok().stdout, value);
        if round.is_multiple_of(2) {
            self.instance.starling(&["kv", "remove", &key]).ok();
        }
    }

    /// A job that fails, is repaired and retried.
    fn retry(&self) {
        let mended = self.instance.sandbox().path("mended");
        let _ = fs::remove_file(&mended);
        let script = format!("test -e {}", mended.display());
        let id = submit(self.instance, &["--retries", "1", "--", "sh", "-c", &script]);
        self.instance.starling(&["job", "wait", &id]).expect_code(1);
        fs::write(&mended, "").expect("it is ours");
        self.instance.starling(&["job", "retry", &id, "--wait"]).ok();
    }

    fn upload(&self, round: u32) {
        let text = format!("{round} {}", "u".repeat(5000));
        self.instance.sandbox().write("mine", &text);
        let id = submit(self.instance, &["--wait", "--upload", "mine", "--", "cat", "mine"]);
        assert_eq!(self.instance.starling(&["job", "output", &id]).ok().stdout.trim_end(), text);
    }

    fn cancel(&self) {
        let id = submit(self.instance, &["--array", "1-10", "--", "sleep", "60"]);
        self.instance.starling(&["job", "cancel", &id]).ok();
    }

    fn look(&self) {
        let id = submit(self.instance, &["--wait", "--array", "1-10", "--", "echo", "said {i}"]);
        self.instance.starling(&["job", "output", &id]).ok();
        self.instance.json(&["task", "list", &id]);
        assert_eq!(job(self.instance, &id)["tasks"]["done"], 10);
    }

    fn end(self) {
        for id in &self.kept {
            self.instance.starling(&["job", "forget", id, "--results"]).ok();
        }
    }
}
