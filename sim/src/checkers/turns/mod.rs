//! *Turns*: the turns of a task have rising numbers, and each number belongs to one attempt. Every
//! turn takes effect once: its children exist once, and the next attempt starts with its state.
//!
//! The file has the simulator's own record of turns, which `born.rs` and `yields.rs` use too.

pub(crate) mod born;
pub(crate) mod mail;
pub(crate) mod yields;

use std::collections::BTreeMap;

use proto::event::Turned;
use proto::work::TurnCommit;
use proto::{Attempt, LocalId, Span, TaskId};

use super::{Jobs, Verdict, Violation};
use crate::state::expected::{ExpectedTask, KIND_SPAWNING, Slot};

const NAME: &str = "turns";

/// A turn as an attempt requested it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// The children, each by its own number.
    pub children: Vec<u64>,
    pub durations: Vec<Span>,
    pub state: Option<Vec<u8>>,
    /// The names of some children, by their places.
    pub keys: Vec<(u64, String)>,
    /// The output of the child before it that each child reads: 0 orders it only, 1 is the output.
    /// Empty if no child has an edge.
    pub edges: Vec<Option<u32>>,
    /// The child of an earlier turn that each child names, by its ordinal, with the output as
    /// above. Empty if no child names one.
    pub late: Vec<Option<(u64, u32)>>,
    /// Whether each child has a kept output. Empty if none has.
    pub kept: Vec<bool>,
    /// The best value of the job that the node knew.
    pub used: Option<i64>,
    pub sums: Vec<proto::wire::VarSum>,
    /// The events that it sends, each by its own number, and those that it consumes.
    pub events: Vec<(proto::wire::MailName, u64)>,
    pub consumed: Vec<u64>,
}

/// A turn as its home committed it.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    pub attempt: Attempt,
    pub first: u64,
    pub request: Request,
}

/// The record of all turns.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    requested: BTreeMap<(TaskId, Attempt, u64), Request>,
    pub committed: BTreeMap<TaskId, BTreeMap<u64, Committed>>,
    /// The last turn of each task that some attempt knows to be durable.
    pub durable: BTreeMap<TaskId, u64>,
    /// The turn that spawned each child, and the place among its children.
    pub parents: BTreeMap<u64, (TaskId, Attempt, u64, usize)>,
    /// The task as which a child has run.
    pub ran: BTreeMap<u64, TaskId>,
    /// The number of children that attempts of each job have requested.
    pub wanted: BTreeMap<proto::JobId, usize>,
    mail: mail::Mail,
}

impl Turns {
    /// An attempt requests a turn, or repeats that as part of its end.
    pub(crate) fn on_request(&mut self, by: (TaskId, Attempt, u64), request: Request) {
        for (at, &child) in request.children.iter().enumerate() {
            self.parents.insert(child, (by.0, by.1, by.2, at));
        }
        *self.wanted.entry(by.0.job).or_default() += request.children.len();
        self.mail.on_request(by, &request.events);
        self.requested.insert(by, request);
    }

    /// A home commits a turn.
    pub(crate) fn on_turned(
        &mut self,
        jobs: &mut Jobs,
        (task, attempt, seq): (TaskId, Attempt, u64),
        (_, first, spawned): (Turned, u64, u64),
    ) -> Verdict {
        let wrong = |text: String| Err(Violation::new(NAME, text));
        let Some(request) = self.requested.get(&(task, attempt, seq)).cloned() else {
            return wrong(format!("{task}: attempt {attempt} has not made turn {seq}"));
        };
        if request.children.len() as u64 != spawned {
            return wrong(format!("{task}: turn {seq} has another number of children: {spawned}"));
        }
        let earlier = self.children_until(task, seq.saturating_sub(1));
        let before = self.committed.entry(task).or_default();
        let last = before.last_key_value().map(|(&last, _)| last).unwrap_or_default();
        if seq != last + 1 {
            return wrong(format!("{task}: attempt {attempt} committed turn {seq} after {last}"));
        }
        let Some(job) = jobs.get_mut(&task.job) else {
            return wrong(format!("{task}: no client submitted its job"));
        };
        for (at, &duration) in (0..).zip(&request.durations) {
            let local = LocalId::new(task.partition(), first + at);
            let edge = request.edges.get(at as usize).copied().flatten();
            let slot = |output| {
                let parent = LocalId::new(task.partition(), first + at - 1);
                Some(Slot { parent, output })
            };
            let late = request.late.get(at as usize).copied().flatten();
            let late_slot = |(ordinal, output): (u64, u32)| {
                let parent = *earlier.get(ordinal as usize).expect("it was drawn from these");
                Some(Slot { parent, output })
            };
            let kept = request.kept.get(at as usize).copied().unwrap_or(false);
            let child = ExpectedTask {
                slots: edge.map(slot).into_iter().chain(late.map(late_slot)).collect(),
                kept: kept.then_some(0).into_iter().collect(),
                kind: KIND_SPAWNING.to_owned(),
                cpus: 1,
                duration,
                spawned: true,
                ..ExpectedTask::default()
            };
            if job.tasks.insert(local, child).is_some() {
                return wrong(format!("{task}: its child {local} exists already"));
            }
        }
        let consumed = request.consumed.clone();
        before.insert(seq, Committed { attempt, first, request });
        self.on_consumed(task, seq, &consumed)
    }

    /// The number of children that the task has after this turn, and their names.
    pub(crate) fn children_at(&self, task: TaskId, seq: u64) -> (u64, BTreeMap<String, u64>) {
        let (mut count, mut names) = (0, BTreeMap::new());
        let turns = self.committed.get(&task).into_iter().flat_map(|turns| turns.range(..=seq));
        for (_, turn) in turns {
            let own = turn.request.keys.iter().map(|(at, key)| (key.clone(), count + at));
            names.extend(own);
            count += turn.request.children.len() as u64;
        }
        (count, names)
    }

    /// The children of a task up to this turn, in the order of their ordinals.
    fn children_until(&self, task: TaskId, seq: u64) -> Vec<LocalId> {
        let turns = self.committed.get(&task).into_iter().flat_map(|turns| turns.range(..=seq));
        let of_turn =
            |turn: &Committed| turn.first..turn.first + turn.request.children.len() as u64;
        let indices = turns.flat_map(|(_, turn)| of_turn(turn));
        indices.map(|index| LocalId::new(task.partition(), index)).collect()
    }

    /// Whether each child up to this turn has a kept output.
    pub(crate) fn kept_until(&self, task: TaskId, seq: u64) -> Vec<bool> {
        let turns = self.committed.get(&task).into_iter().flat_map(|turns| turns.range(..=seq));
        let kept = |request: &Request, at| request.kept.get(at).copied().unwrap_or(false);
        turns
            .flat_map(|(_, Committed { request, .. })| {
                (0..request.children.len()).map(move |at| kept(request, at))
            })
            .collect()
    }

    /// A power cut or a failover undoes a turn.
    pub(crate) fn on_undone(
        &mut self,
        jobs: &mut Jobs,
        (task, attempt, seq): (TaskId, Attempt, u64),
    ) -> Verdict {
        let Some(turns) = self.committed.get_mut(&task) else { return Ok(()) };
        if turns.get(&seq).is_none_or(|turn| turn.attempt != attempt) {
            return Ok(());
        }
        for (seq, turn) in turns.split_off(&seq) {
            if self.durable.get(&task).is_some_and(|&durable| durable >= seq) {
                let text = format!("{task}: turn {seq} was reported as committed, and is undone");
                return Err(Violation::new(NAME, text));
            }
            self.mail.on_undone(task, seq, &turn.request)?;
            let Some(job) = jobs.get_mut(&task.job) else { continue };
            for at in 0..turn.request.children.len() as u64 {
                let local = LocalId::new(task.partition(), turn.first + at);
                let child = job.tasks.remove(&local);
                if child.is_some_and(|child| !child.launched.is_empty()) {
                    let text = format!("{task}: its turn {seq} is undone, but {local} has run");
                    return Err(Violation::new("born", text));
                }
            }
        }
        Ok(())
    }

    /// An attempt that goes on receives the answer to its turn.
    pub(crate) fn on_answered(&mut self, task: TaskId, commit: &TurnCommit) -> Verdict {
        let turn = self.committed.get(&task).and_then(|turns| turns.get(&commit.seq));
        let Some(turn) = turn else {
            let text = format!("{task}: turn {} is answered, but no home has it", commit.seq);
            return Err(Violation::new(NAME, text));
        };
        let first = LocalId::new(task.partition(), turn.first);
        let spawned = turn.request.children.len();
        if commit.count as usize != spawned || spawned > 0 && commit.first != first {
            let text = format!(
                "{task}: turn {} made {spawned} children from {first} on, and the answer is \
                 {commit:?}",
                commit.seq
            );
            return Err(Violation::new(NAME, text));
        }
        let durable = self.durable.entry(task).or_default();
        *durable = (*durable).max(commit.seq);
        self.on_letters(task, commit.seq, &commit.letters)
    }
}
