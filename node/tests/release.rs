//! A task with a release time waits for it, reports that, and still waits after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{chunk, commit};
use kvs::Record;
use node::{Config, Effect, Input, Node};
use proto::wire::{request, response};
use proto::{ClientId, Incarnation, JobId, LocalId, NodeId, PartitionId, Span, Time, wire};

const SUBMITTED: Time = Time(1_000_000_000_000);
const RELEASE: Span = Span::from_secs(10);
const PARTITION: PartitionId = PartitionId(3);
const JOB: JobId = JobId(7);

/// The messages of a client, without a graph.
mod client {
    use super::*;

    pub(super) fn chunk() -> wire::Chunk {
        let body = Some(wire::spec::Body::Sleep(wire::Sleep::default()));
        let spec = wire::Spec { cpus: 1, body, ..Default::default() };
        let task = |release_ns| wire::Task { duration_ns: 1, release_ns, ..Default::default() };
        wire::Chunk {
            job: JOB.0,
            partition: PARTITION.0,
            specs: vec![spec],
            tasks: vec![task(0), task(RELEASE.0)],
            ..Default::default()
        }
    }
    pub(super) fn commit() -> wire::JobCommit {
        let total = wire::PartitionTotal { partition: PARTITION.0, chunks: 1, tasks: 2 };
        wire::JobCommit {
            job: JOB.0,
            submitted_ns: SUBMITTED.0,
            partitions: vec![total],
            ..Default::default()
        }
    }
}

/// A node, its disk, its launches and its answers.
struct Machine {
    node: Node,
    disk: BTreeMap<(PartitionId, Vec<u8>), Vec<u8>>,
    launched: Vec<u64>,
    answers: Vec<wire::Response>,
}

fn start(incarnation: u32, disk: &BTreeMap<(PartitionId, Vec<u8>), Vec<u8>>, now: Time) -> Node {
    let config = Config {
        incarnation: Incarnation(incarnation),
        slots: 2,
        seed: 1,
        ..Config::new(NodeId(0), Arc::new(kvs::make_map(7, 1, 8)))
    };
    let record = |((partition, key), value): (&(PartitionId, Vec<u8>), &Vec<u8>)| Record {
        partition: *partition,
        key: key.clone(),
        value: value.clone(),
    };
    Node::recover(config, disk.iter().map(record), now).expect("nothing is damaged")
}

impl Machine {
    fn step(&mut self, now: Time, input: Input) {
        self.node.handle(now, input);
        loop {
            let mut effects = Vec::new();
            self.node.flush(now, &mut effects);
            let mut synced = None;
            for effect in effects {
                match effect {
                    Effect::Persist(batch) => {
                        synced = Some(batch.seq);
                        for write in batch.writes {
                            let key = (write.partition, write.key);
                            match write.value {
                                Some(value) => self.disk.insert(key, value),
                                None => self.disk.remove(&key),
                            };
                        }
                    }
                    Effect::Launch(launch) => self.launched.push(launch.task.local.index()),
                    Effect::Reply { response, .. } => self.answers.push(*response),
                    _ => {}
                }
            }
            match synced {
                Some(seq) => self.node.handle(now, Input::Persisted { seq }),
                None => return,
            }
        }
    }

    fn ask(&mut self, now: Time, body: request::Body) -> Option<response::Body> {
        let request = Box::new(wire::Request { id: 1, body: Some(body) });
        self.step(now, Input::Request { client: ClientId(1), request });
        self.answers.pop().and_then(|response| response.body)
    }

    fn explain(&mut self, now: Time, index: u64) -> String {
        let local = LocalId::new(PARTITION, index).0;
        let query = wire::TaskQuery { job: JOB.0, local, sums_after: 0 };
        match self.ask(now, request::Body::Explain(query)) {
            Some(response::Body::Explanation(explanation)) => explanation.lines.join("; "),
            other => panic!("no explanation: {other:?}"),
        }
    }
}

#[test]
fn a_release_is_waited_for_also_after_a_restart() {
    let disk = BTreeMap::new();
    let node = start(1, &disk, SUBMITTED);
    let mut machine = Machine { node, disk, launched: Vec::new(), answers: Vec::new() };
    machine.ask(SUBMITTED, request::Body::Submit(chunk()));
    machine.ask(SUBMITTED, request::Body::Commit(commit()));
    let released = SUBMITTED + RELEASE;
    assert_eq!(machine.launched, [0], "the other one waits");
    let said = machine.explain(SUBMITTED, 1);
    assert!(said.contains("waits for its release at 10.000 s"), "{said}");

    // The process dies and returns in between.
    let later = SUBMITTED + Span::from_secs(4);
    machine.node = start(2, &machine.disk, later);
    machine.launched.clear();
    machine.step(later, Input::Timer);
    assert_eq!(machine.launched, [0], "its earlier attempt died with the process");
    let said = machine.explain(later, 1);
    assert!(said.contains("waits for its release at 10.000 s"), "{said}");

    let before = Time(released.0 - 1);
    machine.step(before, Input::Timer);
    assert_eq!(machine.launched, [0]);
    assert!(machine.node.deadline().is_some_and(|at| at <= released), "it wants to be woken");
    machine.step(released, Input::Timer);
    assert_eq!(machine.launched, [0, 1]);
}
