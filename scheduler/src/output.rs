//! What a step of the scheduler wants done. The node turns it into writes, packets and effects.

use std::collections::BTreeMap;

use proto::limits::{BUNDLE_TASKS_MAX, COMPLETIONS_MAX, OBJECTS_PER_MESSAGE_MAX};
use proto::wire::message::Body;
use proto::work::{Fetch, Launch};
use proto::{Attempt, Event, JobId, NodeId, ObjectId, PartitionId, TaskId, wire};

/// Facts of one job in one partition.
pub type Place = (PartitionId, JobId);

/// What became true in this step and must be durable, by kind of record.
#[derive(Debug, Default)]
pub struct Facts {
    pub chunks: Vec<wire::Chunk>,
    pub visible: BTreeMap<Place, wire::VisibleRecord>,
    pub ends: BTreeMap<Place, wire::EndRecord>,
    pub credits: BTreeMap<Place, wire::CreditRecord>,
    pub holders: BTreeMap<Place, wire::HolderRecord>,
    /// Of commands; most nodes never run any.
    pub starts: Option<Box<BTreeMap<Place, wire::StartRecord>>>,
    /// Records of jobs homed here.
    pub jobs: BTreeMap<JobId, wire::JobState>,
    /// Staged chunks that go, by number.
    pub dropped_chunks: Vec<(Place, u32)>,
    /// All records of these go, after what else is written.
    pub forgotten: Vec<Place>,
    /// Records of jobs homed here that go.
    pub dropped_jobs: Vec<JobId>,
}

impl Facts {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
            && self.visible.is_empty()
            && self.ends.is_empty()
            && self.credits.is_empty()
            && self.holders.is_empty()
            && self.starts.is_none()
            && self.jobs.is_empty()
            && self.dropped_chunks.is_empty()
            && self.forgotten.is_empty()
            && self.dropped_jobs.is_empty()
    }
}

/// To a client, for one of its requests.
#[derive(Debug)]
pub struct Answer {
    pub client: proto::ClientId,
    pub response: wire::Response,
}

#[derive(Debug, Default)]
pub struct Out {
    pub facts: Facts,
    /// Delivered at least once, in order, whatever happens to the receiver.
    pub reliable: Vec<(NodeId, Body)>,
    /// May be lost.
    pub best_effort: Vec<(NodeId, Body)>,
    pub launches: Vec<Box<Launch>>,
    pub fetches: Vec<Fetch>,
    pub kills: Vec<(TaskId, Attempt)>,
    pub discards: Vec<(TaskId, Attempt)>,
    pub events: Vec<Event>,
    /// The shell is to measure what this node has used.
    pub measure: bool,
    pub answers: Vec<Answer>,
    /// Completions for other homes, gathered into one message a home and step.
    pub completions: BTreeMap<NodeId, Vec<wire::Completion>>,
    pub stale: BTreeMap<NodeId, Vec<wire::TaskAttempt>>,
    /// Objects on this node that go.
    pub evicted: Vec<ObjectId>,
    /// Jobs of which nothing is needed any more.
    pub forgotten: Vec<JobId>,
    /// Jobs of which what they printed goes as well.
    pub erased: Vec<(JobId, u64)>,
    /// Copies that came or went, by the home that keeps track of them.
    pub copies: BTreeMap<NodeId, wire::Copies>,
    /// Objects to ask for, and answers to those who asked.
    pub locate: BTreeMap<NodeId, wire::Locate>,
    pub located: BTreeMap<NodeId, Vec<wire::ObjectAt>>,
    /// Edges whose readers have ended, by object.
    pub(crate) readers_finished: BTreeMap<ObjectId, u32>,
}

impl Out {
    /// Sends what was gathered per destination as messages of bounded size.
    pub fn gather(&mut self) {
        for (home, mut all) in std::mem::take(&mut self.completions) {
            while !all.is_empty() {
                let rest = all.split_off(all.len().min(COMPLETIONS_MAX));
                let completions = std::mem::replace(&mut all, rest);
                self.reliable.push((home, Body::Finished(wire::Finished { completions })));
            }
        }
        for (holder, tasks) in std::mem::take(&mut self.stale) {
            for piece in tasks.chunks(BUNDLE_TASKS_MAX) {
                self.reliable.push((
                    holder,
                    Body::RevokeAttempts(wire::RevokeAttempts { tasks: piece.to_vec() }),
                ));
            }
        }
        for (home, copies) in std::mem::take(&mut self.copies) {
            let pieces = copies
                .removed
                .chunks(OBJECTS_PER_MESSAGE_MAX)
                .map(|piece| wire::Copies { removed: piece.to_vec(), added: Vec::new() });
            let added = copies
                .added
                .chunks(OBJECTS_PER_MESSAGE_MAX)
                .map(|piece| wire::Copies { removed: Vec::new(), added: piece.to_vec() });
            let small = copies.removed.len() + copies.added.len() <= OBJECTS_PER_MESSAGE_MAX;
            if small {
                self.best_effort.push((home, Body::Copies(copies)));
            } else {
                let pieces = pieces.chain(added).map(|piece| (home, Body::Copies(piece)));
                self.best_effort.extend(pieces);
            }
        }
        for (home, locate) in std::mem::take(&mut self.locate) {
            let pieces = locate
                .objects
                .chunks(OBJECTS_PER_MESSAGE_MAX)
                .map(|piece| wire::Locate { objects: piece.to_vec(), copies_only: Vec::new() });
            let again = locate
                .copies_only
                .chunks(OBJECTS_PER_MESSAGE_MAX)
                .map(|piece| wire::Locate { objects: Vec::new(), copies_only: piece.to_vec() });
            let pieces = pieces.chain(again).map(|piece| (home, Body::Locate(piece)));
            self.best_effort.extend(pieces);
        }
        for (asker, objects) in std::mem::take(&mut self.located) {
            for piece in objects.chunks(OBJECTS_PER_MESSAGE_MAX) {
                let located = wire::Located { objects: piece.to_vec() };
                self.best_effort.push((asker, Body::Located(located)));
            }
        }
    }
}

/// Tells homes of attempts that are not on this node, in messages of bounded size.
pub(crate) fn send_tasks_not_held(
    of_homes: BTreeMap<NodeId, Vec<wire::TaskAttempt>>,
    out: &mut Out,
) {
    for (home, tasks) in of_homes {
        for piece in tasks.chunks(OBJECTS_PER_MESSAGE_MAX) {
            let body = Body::TasksNotHeld(wire::TasksNotHeld { tasks: piece.to_vec() });
            out.reliable.push((home, body));
        }
    }
}

/// The same task and attempt as they travel.
#[must_use]
pub(crate) fn task_attempt(task: TaskId, attempt: Attempt) -> wire::TaskAttempt {
    wire::TaskAttempt { job: task.job.0, local: task.local.0, attempt: attempt.0 }
}
