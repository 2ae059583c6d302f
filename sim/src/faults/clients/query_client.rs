//! A client that sends random queries and tuning changes to nodes. No checker judges the answers,
//! but no request may harm a node.

use bytes::Bytes;
use proto::wire::request::Body;
use proto::{Span, Time, wire};
use scheduler::Policy;

use crate::faults::event_queue::{ExternalClient, SimEvent};
use crate::faults::world::World;

impl World {
    /// Requests the state of every running node. The answers arrive while the world runs.
    pub(crate) fn observe(&mut self) {
        self.clients.node_states.clear();
        for node in 0..self.machines.len() {
            self.request(ExternalClient::Observer, node, Body::Node(wire::NodeQuery::default()));
        }
    }

    /// Sends random requests until then.
    pub(crate) fn start_queries(&mut self, until: Time, pace: Span) {
        self.clients.curious_until = until;
        self.clients.curious_pace = pace;
        self.schedule(self.now, SimEvent::Wake { who: ExternalClient::Observer });
    }

    pub(crate) fn send_random_query(&mut self) {
        if self.now >= self.clients.curious_until {
            return;
        }
        let node = self.dice.index(self.machines.len());
        let body = self.random_query();
        self.request(ExternalClient::Observer, node, body);
        let pause = self.dice.around(self.clients.curious_pace);
        self.schedule(self.now + pause, SimEvent::Wake { who: ExternalClient::Observer });
    }

    fn random_query(&mut self) -> Body {
        let jobs: Vec<u64> = self.jobs.keys().map(|job| job.0).chain([7]).collect();
        let job = self.dice.pick(&jobs);
        let tasks = self.jobs.get(&proto::JobId(job)).map(|job| &job.tasks);
        let locals = tasks.into_iter().flat_map(|tasks| tasks.keys().map(|local| local.0));
        let locals: Vec<u64> = locals.chain([0]).collect();
        let local = self.dice.pick(&locals);
        match self.dice.below(9) {
            0 => Body::Jobs(wire::JobsQuery {}),
            1 => Body::Job(wire::JobQuery { job, ..Default::default() }),
            2 => Body::WatchJob(wire::JobQuery { job, ..Default::default() }),
            3 => Body::Map(wire::MapQuery {}),
            4 => Body::Node(wire::NodeQuery::default()),
            5 => Body::Tasks(wire::TasksQuery {
                job,
                after: local,
                limit: self.dice.below(20) as u32,
                from_start: self.dice.chance(300),
                kept: job.is_multiple_of(2),
                parents: false,
            }),
            6 => {
                let key = Bytes::from_static(b"key-0");
                let partition = kvs::key_partition(&key, self.map.partitions.len() as u32).0;
                Body::WatchKey(wire::KvWatch { partition, key, after_version: 0 })
            }
            7 => Body::Tune(self.random_tuning()),
            _ => Body::Explain(wire::TaskQuery { job, local, sums_after: 0 }),
        }
    }

    /// A random change of some tuning options. Without faults the policy stays, because the strict
    /// checkers depend on it.
    fn random_tuning(&mut self) -> wire::Tuning {
        let mut tuning = wire::Tuning::default();
        if self.dice.chance(300) && !self.options.faultless {
            tuning.policy = Some(self.dice.pick(&Policy::ALL).name().to_owned());
        }
        if self.dice.chance(300) {
            tuning.threshold = Some(self.dice.pick(&[0.01, 0.5, 2.0]));
            tuning.wait_max_ns = Some(self.dice.pick(&[1_000_000, 1_000_000_000]));
        }
        if self.dice.chance(300) {
            tuning.steal_share = Some(self.dice.pick(&[0.1, 0.5, 1.0]));
            tuning.steal_neighbours = Some(self.dice.pick(&[0, 1, 3]));
        }
        if self.dice.chance(300) {
            tuning.order = Some(self.dice.pick(&["bytes", "urgency"]).to_owned());
        }
        if self.dice.chance(300) {
            tuning.cache_bytes = Some(self.dice.pick(&[0, 1_000, u64::MAX]));
            tuning.store_soft_bytes = Some(self.dice.pick(&[2_000, u64::MAX]));
        }
        tuning
    }
}
