//! The results of a step of the scheduler. The node turns them into writes, packets and effects.

use std::collections::BTreeMap;

use crate::limits::{BUNDLE_TASKS_MAX, COMPLETIONS_MAX, OBJECTS_PER_MESSAGE_MAX};
use proto::event::RetryReason;
use proto::wire::message::Body;
use proto::work::{Fetch, Launch, PartChange, TurnAnswer};
use proto::{Attempt, Event, JobId, NodeId, ObjectId, PartitionId, TaskId, wire};

/// The job and the partition to which facts belong.
pub type Place = (PartitionId, JobId);

/// The changed turns of a step, by the index of the task.
pub type Turns = BTreeMap<(Place, u64), wire::TurnRecord>;

/// The changed letters of a step, by number; `None`: the record is removed.
pub type Mail = BTreeMap<(Place, u64), Option<wire::MailRecord>>;

/// All changes of this step that must become durable, by kind of record.
#[derive(Debug, Default)]
pub struct Facts {
    pub chunks: Vec<wire::Chunk>,
    pub visible: BTreeMap<Place, wire::VisibleRecord>,
    pub ends: BTreeMap<Place, wire::EndRecord>,
    pub credits: BTreeMap<Place, wire::CreditRecord>,
    pub holders: BTreeMap<Place, wire::HolderRecord>,
    /// Starts of commands. Boxed, because most nodes never run any.
    pub starts: Option<Box<BTreeMap<Place, wire::StartRecord>>>,
    /// The last turns of tasks. Boxed as well.
    pub turns: Option<Box<Turns>>,
    /// Letters between tasks. Boxed as well.
    pub mail: Option<Box<Mail>>,
    /// Variables of jobs homed here, by index. Boxed as well.
    pub variables: Option<Box<VariableFacts>>,
    /// Records of jobs homed here.
    pub jobs: BTreeMap<JobId, wire::JobState>,
    /// Staged chunks to be removed, by number.
    pub dropped_chunks: Vec<(Place, u32)>,
    /// All records of these are removed, after all other writes.
    pub forgotten: Vec<Place>,
    /// Jobs homed here with records to be removed.
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
            && self.turns.is_none()
            && self.mail.is_none()
            && self.variables.is_none()
            && self.jobs.is_empty()
            && self.dropped_chunks.is_empty()
            && self.forgotten.is_empty()
            && self.dropped_jobs.is_empty()
    }
}

/// The changed variables of the jobs homed here, by job and index.
#[derive(Debug, Default)]
pub struct VariableFacts {
    pub changed: BTreeMap<(JobId, u32), wire::Variable>,
    /// Records to be removed.
    pub dropped: Vec<(JobId, u32)>,
}

/// Variables for the attempts that run on this node.
#[derive(Debug, Default)]
pub struct VariableNews {
    /// In order. `None`: this node drops the values of the job.
    pub changed: Vec<(JobId, Option<wire::Variable>)>,
    /// Answers to attempts that set variables, by ticket.
    pub set: Vec<(u64, bool)>,
}

/// The answer to one request of a client.
#[derive(Debug)]
pub struct Answer {
    pub client: proto::ClientId,
    pub response: wire::Response,
}

#[derive(Debug, Default)]
pub struct Out {
    pub facts: Facts,
    /// Messages that are delivered at least once, in order, whatever happens to the receiver.
    pub reliable: Vec<(NodeId, Body)>,
    /// Messages that may be lost.
    pub best_effort: Vec<(NodeId, Body)>,
    pub launches: Vec<Box<Launch>>,
    pub fetches: Vec<Fetch>,
    pub kills: Vec<(TaskId, Attempt)>,
    /// Parts of gangs that begin or end on this node.
    pub parts: Vec<PartChange>,
    pub discards: Vec<(TaskId, Attempt)>,
    /// Answers to the turns of attempts that run here.
    pub turn_answers: Vec<(TaskId, Attempt, TurnAnswer)>,
    /// Attempts that rested, and have their seats again. Boxed, because most nodes never have any.
    pub goes_on: Option<Box<Vec<(TaskId, Attempt)>>>,
    /// Attempts with commands that get their signal. Boxed as well.
    pub notices: Option<Box<Vec<(TaskId, Attempt)>>>,
    /// Answers to attempts that ask whether a mailbox takes an event, by ticket; empty: it does.
    pub mailboxes: Option<Box<Vec<(u64, String)>>>,
    /// For attempts that run here. Boxed, because most nodes never have any.
    pub variables: Option<Box<VariableNews>>,
    pub events: Vec<Event>,
    /// The shell is asked to measure the resources that this node has used.
    pub measure: bool,
    pub answers: Vec<Answer>,
    /// Completions for other homes, combined into one message per home and step.
    pub completions: BTreeMap<NodeId, Vec<wire::Completion>>,
    pub stale: BTreeMap<NodeId, Vec<wire::TaskAttempt>>,
    /// Objects on this node to be deleted.
    pub evicted: Vec<ObjectId>,
    /// Jobs of which nothing is needed any more.
    pub forgotten: Vec<JobId>,
    /// Jobs to be erased with their printed output, each with the number of the removal.
    pub erased: Vec<(JobId, u64)>,
    /// Copies that were gained or lost, by the home that keeps track of them.
    pub copies: BTreeMap<NodeId, wire::Copies>,
    /// Objects to be located, and answers to askers.
    pub locate: BTreeMap<NodeId, wire::Locate>,
    pub located: BTreeMap<NodeId, Vec<wire::ObjectAt>>,
    /// The number of edges with readers that have ended, by object.
    pub(crate) readers_finished: BTreeMap<ObjectId, u32>,
}

impl Out {
    fn has_collected_nothing(&self) -> bool {
        self.completions.is_empty()
            && self.stale.is_empty()
            && self.copies.is_empty()
            && self.locate.is_empty()
            && self.located.is_empty()
    }

    /// Turns the entries that are collected per destination into messages of bounded size.
    pub fn gather(&mut self) {
        if self.has_collected_nothing() {
            return; // As in most rounds of most steps.
        }
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
                .map(|piece| wire::Locate { objects: piece.to_vec(), ..Default::default() });
            let again = locate
                .copies_only
                .chunks(OBJECTS_PER_MESSAGE_MAX)
                .map(|piece| wire::Locate { copies_only: piece.to_vec(), ..Default::default() });
            let held = locate
                .held
                .chunks(OBJECTS_PER_MESSAGE_MAX)
                .map(|piece| wire::Locate { held: piece.to_vec(), ..Default::default() });
            let pieces = pieces.chain(again).chain(held).map(|piece| (home, Body::Locate(piece)));
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

/// Reports attempts that are not on this node to their homes, in messages of bounded size.
pub(crate) fn send_tasks_not_held(
    of_homes: BTreeMap<NodeId, Vec<wire::TaskAttempt>>,
    why: RetryReason,
    out: &mut Out,
) {
    let moved = why == RetryReason::Moved;
    let member_gone = why == RetryReason::MemberGone;
    for (home, tasks) in of_homes {
        for piece in tasks.chunks(OBJECTS_PER_MESSAGE_MAX) {
            let not_held = wire::TasksNotHeld { tasks: piece.to_vec(), moved, member_gone };
            out.reliable.push((home, Body::TasksNotHeld(not_held)));
        }
    }
}

/// A task and an attempt in wire form.
#[must_use]
pub(crate) fn task_attempt(task: TaskId, attempt: Attempt) -> wire::TaskAttempt {
    wire::TaskAttempt { job: task.job.0, local: task.local.0, attempt: attempt.0 }
}
