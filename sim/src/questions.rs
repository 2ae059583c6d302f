//! Somebody who asks nodes about anything at any time. The answers promise nothing that a checker
//! could hold against them, but no question may upset a node.

use bytes::Bytes;
use proto::wire::request::Body;
use proto::{Span, Time, wire};

use crate::queue::{Happening, Who};
use crate::world::World;

impl World {
    /// Questions come at random until then.
    pub(crate) fn be_curious(&mut self, until: Time, pace: Span) {
        self.curious_until = until;
        self.curious_pace = pace;
        self.schedule(self.now, Happening::Wake { who: Who::Observer });
    }

    pub(crate) fn ask_anything(&mut self) {
        if self.now >= self.curious_until {
            return;
        }
        let node = self.dice.index(self.machines.len());
        let body = self.random_question();
        self.request(Who::Observer, node, body);
        let pause = self.dice.around(self.curious_pace);
        self.schedule(self.now + pause, Happening::Wake { who: Who::Observer });
    }

    fn random_question(&mut self) -> Body {
        let jobs: Vec<u64> = self.jobs.keys().map(|job| job.0).chain([7]).collect();
        let job = self.dice.pick(&jobs);
        let tasks = self.jobs.get(&proto::JobId(job)).map(|job| &job.tasks);
        let locals = tasks.into_iter().flat_map(|tasks| tasks.keys().map(|local| local.0));
        let locals: Vec<u64> = locals.chain([0]).collect();
        let local = self.dice.pick(&locals);
        match self.dice.below(8) {
            0 => Body::Jobs(wire::JobsQuery {}),
            1 => Body::Job(wire::JobQuery { job }),
            2 => Body::WatchJob(wire::JobQuery { job }),
            3 => Body::Map(wire::MapQuery {}),
            4 => Body::Node(wire::NodeQuery {}),
            5 => Body::Tasks(wire::TasksQuery {
                job,
                after: local,
                limit: self.dice.below(20) as u32,
                from_start: self.dice.chance(300),
            }),
            6 => {
                let key = Bytes::from_static(b"key-0");
                let partition = kvs::key_partition(&key, self.map.partitions.len() as u32).0;
                Body::WatchKey(wire::KvWatch { partition, key, after_version: 0 })
            }
            _ => Body::Explain(wire::TaskQuery { job, local }),
        }
    }
}
