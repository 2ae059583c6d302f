//! Readable sequences of the messages of one situation each, in `sim/tests/transcripts/*.txt`.
//!
//! They show a newcomer the protocol, and a reviewer what a change does to it. After a change that
//! is meant, write them again:
//! `STARLING_BLESS=1 cargo test -p starling-sim --test transcripts`.

mod brief;

use std::path::Path;
use std::sync::{Arc, Mutex};

use node::Effect;
use prost::Message as _;
use proto::{Attempt, JobId, NodeId, PartitionId, Span, Time, wire};
use sim::{Action, ClientPlan, Draft, SimRng, World, WorldOptions};

const JOB: u64 = 0x5eed_0000_0000;
const TASK: Span = Span::from_millis(5);

/// A cluster with an attached recorder.
struct Recorded {
    world: World,
    lines: Arc<Mutex<Vec<String>>>,
    since: Time,
}

impl Recorded {
    /// Only what happens after the nodes have found each other is recorded.
    fn start(nodes: u32, copies: u32, change: impl FnOnce(&mut WorldOptions)) -> Self {
        let mut options = WorldOptions::healthy(1, nodes, 1);
        options.copies = copies;
        options.faultless = false;
        options.partitions = 4;
        change(&mut options);
        let mut world = World::new(options);
        world.must_be_whole().expect("the nodes form a cluster");
        let (lines, since) = (Arc::<Mutex<Vec<String>>>::default(), world.now());
        let recorder = Arc::clone(&lines);
        world.on_effect(Box::new(move |now, node, effect| {
            let mut lines = recorder.lock().expect("one thread");
            for text in lines_of(node, effect) {
                lines.push(format!("{:>9.3} {text}", now.since(since).as_secs_f64() * 1e3));
            }
            Action::Carry
        }));
        Self { world, lines, since }
    }

    fn note(&self, text: &str) {
        let at = self.world.now().since(self.since).as_secs_f64() * 1e3;
        self.lines.lock().expect("one thread").push(format!("{at:>9.3} -- {text}"));
    }

    /// Submits a job with its tasks in one partition of each of these nodes.
    fn submit(&mut self, draft: &Draft, homes: &[usize]) -> usize {
        let of = |&node: &usize| self.world.partitions_of(node).into_iter().take(1);
        let held: Vec<PartitionId> = homes.iter().flat_map(of).collect();
        let submission = draft.submission(&mut SimRng::new(7), JobId(JOB), &held);
        self.note("the client submits the job");
        self.world.add_job(submission, ClientPlan::simple())
    }

    fn end(&mut self) {
        self.world.must_end().unwrap_or_else(|violation| panic!("{violation}"));
        self.note("the client knows the end");
    }

    /// Compares the transcript with the blessed one.
    fn compare(self, name: &str, about: &str) {
        let lines = self.lines.lock().expect("one thread").join("\n");
        let text =
            format!("{about}\nTime in ms; nK: a node; >: reliable, ~: may be lost.\n\n{lines}\n");
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/transcripts")
            .join(name)
            .with_extension("txt");
        if std::env::var_os("STARLING_BLESS").is_some() {
            std::fs::write(&path, text).expect("the source tree can be written");
            return;
        }
        let blessed = std::fs::read_to_string(&path).unwrap_or_default();
        let differs = blessed.lines().zip(text.lines()).position(|(old, new)| old != new);
        let at = differs.unwrap_or_else(|| blessed.lines().count().min(text.lines().count()));
        assert_eq!(
            blessed.lines().nth(at),
            text.lines().nth(at),
            "{}:{}: the messages differ; if that is meant, bless them",
            path.display(),
            at + 1
        );
    }
}

fn lines_of(node: NodeId, effect: &Effect) -> Vec<String> {
    match effect {
        Effect::Send { to, packet } => {
            let decode = |bytes: &bytes::Bytes| wire::Message::decode(bytes.clone());
            let reliable = packet.reliable.iter().map(|bytes| decode(bytes).expect("nodes encode"));
            let reliable = reliable.map(|message| (message, '>'));
            let best_effort = packet.best_effort.iter().cloned().map(|message| (message, '~'));
            reliable
                .chain(best_effort)
                .filter_map(|(message, kind)| Some((message.body?, kind)))
                .filter(|(body, _)| !is_background(body))
                .map(|(body, kind)| format!("{node} {kind} {to} {}", brief::text(&body)))
                .collect()
        }
        Effect::Reply { response, .. } => {
            let body = response.body.as_ref().map(brief::text).unwrap_or_default();
            vec![format!("{node} > client {body}")]
        }
        Effect::Launch(launch) => {
            vec![format!("{node} starts {} attempt {}", launch.task.local, attempt(launch.attempt))]
        }
        Effect::Kill { task, attempt } => {
            vec![format!("{node} stops {} attempt {}", task.local, self::attempt(*attempt))]
        }
        Effect::Fetch(fetch) => vec![format!("{node} fetches an object of {}", fetch.from)],
        Effect::Fenced { .. } => vec![format!("{node} is declared failed, and stops")],
        _ => Vec::new(),
    }
}

/// The term of the home, and the number within it.
fn attempt(attempt: Attempt) -> String {
    format!("{}.{}", attempt.0 >> 32, attempt.0 & u64::from(u32::MAX))
}

/// Periodic messages that belong to no situation. An idle node probes continuously; a hint or a
/// request shows where probing leads.
fn is_background(body: &wire::message::Body) -> bool {
    use wire::message::Body as B;
    matches!(
        body,
        B::LeaseRequest(_)
            | B::LeaseGrant(_)
            | B::SlowProbe(_)
            | B::SlowProbeReply(_)
            | B::StealProbe(_)
            | B::StealLoad(_)
    )
}

#[test]
fn submit() {
    let mut recorded = Recorded::start(2, 1, |_| {});
    recorded.submit(&Draft::chain(3, TASK, 100), &[0, 1]);
    recorded.end();
    recorded.compare(
        "submit",
        "A chain of three tasks in two partitions, from the submission to the end.",
    );
}

#[test]
fn steal() {
    let mut recorded = Recorded::start(2, 1, |_| {});
    recorded.submit(&Draft::bag(4, TASK), &[0]);
    recorded.end();
    recorded.compare(
        "steal",
        "Four tasks of one home. The other node steals half of the waiting ones.",
    );
}

#[test]
fn fetch() {
    let mut recorded = Recorded::start(2, 1, |_| {});
    recorded.submit(&Draft::fan_in(3, TASK, 1 << 20), &[0, 1]);
    recorded.end();
    recorded
        .compare("fetch", "Two outputs of 1 MiB; the reader fetches the one of the other node.");
}

#[test]
fn end() {
    let mut recorded = Recorded::start(3, 1, |_| {});
    recorded.submit(&Draft::bag(3, TASK), &[0, 1, 2]);
    recorded.end();
    recorded.compare("end", "Three homes report their counts; the job's home announces the end.");
}

#[test]
fn failover() {
    let mut recorded = Recorded::start(3, 2, |_| {});
    recorded.submit(&Draft::bag(4, Span::from_millis(400)), &[0, 1]);
    recorded.world.run_for(Span::from_millis(60));
    recorded.note("the machine of n1 is lost");
    recorded.world.lose(1);
    recorded.end();
    recorded
        .compare("failover", "A node with tasks and partitions is lost; another home takes over.");
}

#[test]
fn drain() {
    let mut recorded = Recorded::start(3, 2, |_| {});
    recorded.submit(&Draft::bag(4, Span::from_millis(40)), &[0, 1]);
    recorded.world.run_for(Span::from_millis(10));
    recorded.note("n1 is asked to leave");
    recorded.world.leave(1);
    recorded.end();
    assert!(recorded.world.run_until_gone(1), "n1 leaves");
    recorded.note("n1 has left");
    recorded
        .compare("drain", "A node leaves: its waiting tasks and partitions move to other nodes.");
}

#[test]
fn cancel() {
    let mut recorded = Recorded::start(2, 1, |_| {});
    let client = recorded.submit(&Draft::bag(4, Span::from_millis(500)), &[0, 1]);
    recorded.world.run_for(Span::from_millis(30));
    recorded.note("the client cancels the job");
    recorded.world.cancel_job(client);
    recorded.end();
    recorded.compare("cancel", "A job with running tasks is cancelled.");
}

#[test]
fn join() {
    let mut recorded = Recorded::start(3, 2, |options| options.partitions = 16);
    recorded.submit(&Draft::bag(24, Span::from_millis(400)), &[0]);
    recorded.world.run_for(Span::from_millis(20));
    recorded.note("n3 joins");
    recorded.world.join(1).expect("there is room");
    recorded.end();
    assert!(recorded.world.launches()[3] > 0, "n3 runs tasks");
    recorded.compare("join", "A node joins while a job runs, and takes a part of the work.");
}
