//! The disk of one of three nodes fails. Its node discards its records and never retries a failed
//! sync. No acknowledged data are lost, and the other nodes continue.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use starling_tests::{Foreground, Sandbox, Shape, skip, wait_until};

use crate::replicas::{Writer, all_found};

const VICTIM: u32 = 1;
const TASKS: u64 = 60;
const BAG: &str = "bag:tasks=60,duration=200ms";

/// A library between a node and libc that makes operations on the store's files fail on request.
struct FailingDisk {
    library: PathBuf,
    trigger: PathBuf,
    notes: PathBuf,
    /// The common beginning of the paths of the store and of moved-aside records.
    below: PathBuf,
}

impl FailingDisk {
    /// `None`, with a printed reason, if it cannot be built.
    fn build(sandbox: &Sandbox) -> Option<Self> {
        let source = sandbox.write("failing_disk.c", include_str!("failing_disk.c"));
        // The path as the kernel reports it, without links.
        let root = sandbox.path("").canonicalize().expect("it was made");
        let library = root.join("failing_disk.so");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
        match command.output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "it does not compile: {said}");
            }
            Err(error) => {
                skip(&format!("no C compiler: cc: {error}"));
                return None;
            }
        }
        let below = root.join(format!("instance/nodes/{VICTIM}/state/db"));
        Some(Self { library, trigger: root.join("trigger"), notes: root.join("notes"), below })
    }

    /// The words before a program that is to use this disk.
    fn place(&self, what: &str) -> Vec<String> {
        let set = |name: &str, value: &PathBuf| format!("{name}={}", value.display());
        vec![
            "env".to_owned(),
            set("LD_PRELOAD", &self.library),
            set("FAIL_BELOW", &self.below),
            set("FAIL_TRIGGER", &self.trigger),
            set("FAIL_NOTES", &self.notes),
            format!("FAIL_WHAT={what}"),
        ]
    }

    /// The records that were moved aside.
    fn aside(&self) -> PathBuf {
        self.below.with_extension("damaged")
    }

    fn fail(&self) {
        fs::write(&self.trigger, "").expect("the sandbox is ours");
    }

    fn work_again(&self) {
        fs::remove_file(&self.trigger).expect("it was made to fail");
    }

    /// After a failed sync of a file the state of its earlier writes is unknown, and a later
    /// successful sync proves nothing. Returns the number of failed files. RocksDB calls
    /// `sync_file_range` without waiting, so the next sync reports its error.
    fn was_never_asked_twice(&self) -> usize {
        let notes = fs::read_to_string(&self.notes).expect("the node synced");
        let mut failed = BTreeSet::new();
        for line in notes.lines().filter(|line| !line.starts_with("sync_file_range ")) {
            let mut words = line.split(' ');
            let (call, outcome) = (words.next(), words.next());
            let file = words.next().expect("four words");
            let is_sync = call.is_some_and(|call| call.ends_with("sync"));
            let is_again = is_sync && failed.contains(file);
            assert!(!is_again, "{line}: this file had failed before\n{notes}");
            if outcome == Some("failed") {
                failed.insert(file);
            }
        }
        failed.len()
    }
}

/// Runs three nodes while one disk starts to fail during a job and key writes. Returns the number
/// of acknowledged keys after the job has ended without that node.
fn runs_on_a_failing_disk(disk: &FailingDisk, sandbox: Sandbox, what: &str) -> (Foreground, u32) {
    let mut shape = Shape::new(3, 1, 2);
    shape.place.insert(VICTIM, disk.place(what));
    let mut cluster = Foreground::up(sandbox, shape);
    let writer = Writer::start_in(cluster.directory());
    let submitted = cluster.json(&["submit", "--file", BAG]);
    let id = submitted["job"].as_str().expect("jobs have ids").to_owned();
    let done = |cluster: &Foreground| {
        cluster.json(&["job", "info", &id])["tasks"]["done"].as_u64().unwrap_or(0)
    };
    wait_until("the job gets on", || done(&cluster) >= 5);
    disk.fail();
    assert!(done(&cluster) < TASKS, "it fails while the job runs");
    let given_up = "gives its copies up";
    wait_until("the node has found its disk failing", || cluster.said(VICTIM).contains(given_up));
    cluster.starling(&["job", "wait", &id, "--timeout", "100s"]).ok();
    let info = cluster.json(&["job", "info", &id]);
    for (which, number) in [("total", TASKS), ("done", TASKS), ("failed", 0)] {
        assert_eq!(info["tasks"][which], number, "{which}: {info}");
    }
    let commits = cluster.commits();
    assert!(commits.values().all(|&times| times == 1), "committed twice: {commits:?}");
    let written = writer.end();
    all_found(written, |arguments| cluster.starling(arguments));
    assert!(cluster.is_running(0) && cluster.is_running(2), "the others go on");
    (cluster, written)
}

/// Its new records are as good as any replica: another node may be lost.
fn is_worth_as_much_as_any(mut cluster: Foreground, written: u32) {
    wait_until("it votes again", || {
        (0..3).all(|node| cluster.seen(node).is_some_and(|seen| seen.is_up && seen.votes))
    });
    cluster.wait_for_copies();
    cluster.kill(0);
    all_found(written, |arguments| cluster.starling(arguments));
}

/// The disk fails permanently: no new store can be created there either.
fn a_disk_that_fails_permanently(what: &str) {
    let sandbox = Sandbox::new();
    let Some(disk) = FailingDisk::build(&sandbox) else { return };
    let (mut cluster, written) = runs_on_a_failing_disk(&disk, sandbox, what);
    let ended = cluster.wait_for_end(VICTIM);
    assert!(ended.code > 0 && ended.code < 128, "it ends by itself: {ended:?}");
    let why = ended.stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    for word in ["Input/output error", "state/db"] {
        assert!(why.contains(word), "the error names what failed: {ended:#?}");
    }
    assert!(disk.was_never_asked_twice() > 0, "nothing failed");
    let aside = disk.aside();
    assert!(aside.join("CURRENT").exists(), "its old store is kept for inspection");
    disk.work_again();
    cluster.start_node(VICTIM);
    is_worth_as_much_as_any(cluster, written);
}

#[test]
fn a_disk_that_does_not_sync_stops_its_node_and_costs_nothing_else() {
    a_disk_that_fails_permanently("sync");
}

#[test]
fn a_disk_that_does_not_write_stops_its_node_and_costs_nothing_else() {
    a_disk_that_fails_permanently("write");
}

/// The kernel reports a failed write-back once. The next sync succeeds although the data are lost.
/// A node that retried would serve without them.
#[test]
fn a_sync_that_fails_once_costs_the_node_its_copies() {
    let sandbox = Sandbox::new();
    let Some(disk) = FailingDisk::build(&sandbox) else { return };
    let (mut cluster, written) = runs_on_a_failing_disk(&disk, sandbox, "sync-once");
    assert_eq!(disk.was_never_asked_twice(), 1);
    assert!(cluster.is_running(VICTIM), "it starts again by itself");
    let said = cluster.said(VICTIM);
    assert!(said.contains("Input/output error") && said.contains("state/db"), "{said}");
    is_worth_as_much_as_any(cluster, written);
}
