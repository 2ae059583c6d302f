//! Waiting for tasks: a turn that waits names tasks of its job. The waiting task is ready again
//! when all of them have ended, whatever their verdicts.
//!
//! A task of the same partition is looked up. The home of another partition is asked, again and
//! again until it has answered: it keeps the question in memory only.

use std::collections::{BTreeMap, BTreeSet};

use proto::limits::TURN_AWAITS_MAX;
use proto::wire::message::Body;
use proto::wire::task_ref::Task as Named;
use proto::{LocalId, PartitionId, TaskId, Time, wire};

use super::state::TaskTurns;
use crate::Scheduler;
use crate::home::Home;
use crate::home::ledger::{End, Ledger, State};
use crate::limits::{AWAIT_AGAIN, REPEAT_MAX};
use crate::output::Out;
use crate::routing::partition_owners::Homes;

impl Ledger {
    /// Refuses a wait for tasks that do not exist.
    pub(super) fn check_awaits(
        &self,
        task: TaskId,
        turn: &wire::Turn,
        before: Option<&TaskTurns>,
        homes: &Homes,
    ) -> Result<(), String> {
        let ordinals = before.map_or(0, TaskTurns::ordinals);
        let fresh = turn.spawned.as_ref().map_or(0, |spawned| spawned.tasks.len() as u64);
        for named in &turn.awaits {
            let local = match named.task {
                Some(Named::Child(ordinal)) if ordinal < ordinals + fresh => continue,
                Some(Named::Child(ordinal)) => return Err(format!("there is no child {ordinal}")),
                Some(Named::Local(local)) => LocalId(local),
                None => return Err("a task to wait for is not named".to_owned()),
            };
            let is_here = local.partition() == task.partition();
            let exists = self.part(task).is_some_and(|part| part.state(local.index()).is_some());
            if local == task.local {
                return Err("a task cannot wait for itself".to_owned());
            }
            if is_here && !exists || local.partition().0 >= homes.partitions() {
                return Err(format!("the job has no task {local}"));
            }
        }
        Ok(())
    }

    /// The end of an awaited task, if it is known to have ended.
    fn end_of(
        &self,
        waiter: TaskId,
        turns: &TaskTurns,
        named: &wire::TaskRef,
    ) -> Option<wire::Awaited> {
        let (local, child) = resolve(waiter, turns, named)?;
        if local.partition() != waiter.partition() {
            return turns.known.get(&local).copied();
        }
        self.ended(TaskId { job: waiter.job, local }).map(|end| wire::Awaited { child, ..end })
    }

    fn ended(&self, task: TaskId) -> Option<wire::Awaited> {
        let State::Ended(end) = self.state(task)? else { return None };
        let index = task.local.index();
        let segment = self.part(task)?.segment(index)?;
        let exit_code = match segment.brief(index) {
            Some(brief) => brief.exit_code,
            None => segment.side(index).map_or(0, |side| side.exit_code),
        };
        let (local, verdict) = (task.local.0, end as i32);
        Some(wire::Awaited { local, verdict, exit_code, ..wire::Awaited::default() })
    }

    /// The ends of all tasks of the last wait that have ended.
    pub(super) fn ends_of(&self, waiter: TaskId, turns: &TaskTurns) -> Vec<wire::Awaited> {
        turns.awaits.iter().filter_map(|named| self.end_of(waiter, turns, named)).collect()
    }

    /// The tasks of the last wait that have not ended, as far as is known here.
    pub(super) fn unended(&self, waiter: TaskId, turns: &TaskTurns) -> BTreeSet<LocalId> {
        let open = turns.awaits.iter().filter(|named| self.end_of(waiter, turns, named).is_none());
        open.filter_map(|named| Some(resolve(waiter, turns, named)?.0)).collect()
    }

    /// The task waits for these from now on: it misses as many more slots.
    pub(super) fn begin_wait(&mut self, now: Time, waiter: TaskId, pending: BTreeSet<LocalId>) {
        let is_remote = pending.iter().any(|local| local.partition() != waiter.partition());
        let missing = pending.len() as u32;
        if let Some(cell) = self.cell_mut(waiter) {
            cell.missing += missing;
        }
        let Some(turns) = self.part_mut(waiter).and_then(|part| part.turns.as_mut()) else {
            return;
        };
        let Some(task) = turns.tasks.get_mut(&waiter.local.index()) else { return };
        let seq = task.seq;
        for local in pending.iter().filter(|local| local.partition() == waiter.partition()) {
            turns.waiters.entry(local.index()).or_default().insert(waiter.local, seq);
        }
        task.pending = pending;
        if is_remote {
            task.asks = Some((now, AWAIT_AGAIN));
            self.asks_of_waits.insert((now, waiter));
        }
    }

    /// The task waits no longer, since it has ended.
    pub(super) fn stop_wait(&mut self, waiter: TaskId) {
        self.end_suspension(waiter);
        let Some(turns) = self.part_mut(waiter).and_then(|part| part.turns.as_mut()) else {
            return;
        };
        let Some(task) = turns.tasks.get_mut(&waiter.local.index()) else { return };
        let pending = std::mem::take(&mut task.pending);
        for local in &pending {
            if let Some(waiters) = turns.waiters.get_mut(&local.index())
                && local.partition() == waiter.partition()
            {
                waiters.remove(&waiter.local);
            }
        }
        if let Some(cell) = self.cell_mut(waiter) {
            cell.missing = cell.missing.saturating_sub(pending.len() as u32);
        }
    }

    /// An awaited task has ended.
    fn wake(&mut self, waiter: TaskId, ended: wire::Awaited) {
        let local = LocalId(ended.local);
        let Some(turns) = self.part_mut(waiter).and_then(|part| part.turns.as_mut()) else {
            return;
        };
        let Some(task) = turns.tasks.get_mut(&waiter.local.index()) else { return };
        if !task.pending.remove(&local) {
            return;
        }
        if local.partition() != waiter.partition() {
            task.known.insert(local, ended);
        }
        let Some(cell) = self.cell_mut(waiter) else { return };
        cell.missing = cell.missing.saturating_sub(1);
        if cell.missing == 0 && cell.state == State::Waiting {
            self.ready.push_back(waiter);
        }
    }

    /// A task that others await has ended.
    pub(in crate::home::ledger) fn wake_waiters(&mut self, task: TaskId) {
        let index = task.local.index();
        let Some(turns) = self.part_mut(task).and_then(|part| part.turns.as_mut()) else { return };
        let Some(waiters) = turns.waiters.remove(&index) else { return };
        let Some(ended) = self.ended(task) else { return };
        for (local, seq) in waiters {
            let waiter = TaskId { job: task.job, local };
            if local.partition() == task.partition() {
                self.wake(waiter, ended);
            } else {
                self.ended_awaited.push((waiter, seq, ended));
            }
        }
    }

    /// Sends the ends of awaited tasks to the homes of the tasks that wait.
    fn send_ends(&mut self, homes: &Homes, out: &mut Out) {
        let ended = std::mem::take(&mut self.ended_awaited).into_iter();
        for (waiter, seq, ended) in ended {
            if let Some(home) = homes.owner(waiter.partition()) {
                out.reliable.push((home, reply(waiter, seq, vec![ended])));
            }
        }
    }

    /// The time of the next question, if this one is the last that was planned. Each is twice as
    /// far from the next as from the one before.
    fn plan_question(&mut self, at: Time, waiter: TaskId, now: Time) -> bool {
        let planned = self.turns_of_mut(waiter).and_then(|task| task.asks.as_mut());
        let Some((due, every)) = planned.filter(|(due, _)| *due == at) else { return false };
        *due = now + *every;
        *every = every.doubled().min(REPEAT_MAX);
        let due = *due;
        self.asks_of_waits.insert((due, waiter));
        true
    }

    /// The remote tasks that a task still waits for, by partition, and the turn that waits.
    fn open_waits(&self, waiter: TaskId) -> (u64, BTreeMap<PartitionId, Vec<u64>>) {
        let index = waiter.local.index();
        let turns = self.part(waiter).and_then(|part| part.turns.as_ref());
        let mut open: BTreeMap<PartitionId, Vec<u64>> = BTreeMap::new();
        let Some(task) = turns.and_then(|turns| turns.tasks.get(&index)) else { return (0, open) };
        let remote = task.pending.iter().filter(|local| local.partition() != waiter.partition());
        for local in remote {
            open.entry(local.partition()).or_default().push(local.0);
        }
        (task.seq, open)
    }
}

/// The id of an awaited task, and 1 + its ordinal if it is a child.
pub(super) fn resolve(
    waiter: TaskId,
    turns: &TaskTurns,
    named: &wire::TaskRef,
) -> Option<(LocalId, u64)> {
    match named.task? {
        Named::Local(local) => Some((LocalId(local), 0)),
        Named::Child(ordinal) => {
            let index = turns.child(ordinal)?;
            Some((LocalId::new(waiter.partition(), index), ordinal + 1))
        }
    }
}

fn reply(waiter: TaskId, seq: u64, ended: Vec<wire::Awaited>) -> Body {
    let (job, waiter) = (waiter.job.0, waiter.local.0);
    Body::AwaitReply(wire::AwaitReply { job, waiter, seq, ended })
}

impl Home {
    /// Tasks that a task homed here waits for have ended.
    pub(crate) fn on_await_reply(&mut self, reply: &wire::AwaitReply) {
        let waiter = TaskId::new(reply.job, reply.waiter);
        if self.ledger.turns_of(waiter).is_none_or(|task| task.seq != reply.seq) {
            return; // The answer to an earlier wait.
        }
        for ended in &reply.ended {
            self.ledger.wake(waiter, *ended);
        }
    }

    /// When homes of awaited tasks are asked again.
    pub(crate) fn next_ask_of_waits(&self) -> Option<Time> {
        self.ledger.asks_of_waits.first().map(|&(at, _)| at)
    }
}

impl Scheduler {
    /// Asks other homes for awaited tasks, where that is due.
    pub(crate) fn ask_for_awaited(&mut self, now: Time, out: &mut Out) {
        self.home.ledger.send_ends(self.routing.homes(), out);
        let asks = &mut self.home.ledger.asks_of_waits;
        let later = asks.split_off(&(Time(now.0 + 1), TaskId::new(0, 0)));
        let due = std::mem::replace(asks, later);
        for (at, waiter) in due {
            let (seq, open) = self.home.ledger.open_waits(waiter);
            if open.is_empty() || !self.home.ledger.plan_question(at, waiter, now) {
                continue;
            }
            for (PartitionId(partition), tasks) in open {
                let home = self.routing.homes().active_owner(PartitionId(partition));
                let Some(home) = home else { continue };
                let (job, waiter) = (waiter.job.0, waiter.local.0);
                let query = wire::AwaitQuery { job, waiter, seq, tasks, partition };
                out.reliable.push((home, Body::AwaitQuery(query)));
            }
        }
    }

    /// A task of another partition waits for tasks that are homed here.
    pub(crate) fn on_await_query(&mut self, query: wire::AwaitQuery, out: &mut Out) {
        let waiter = TaskId::new(query.job, query.waiter);
        let mut ended = Vec::new();
        for &local in query.tasks.iter().take(TURN_AWAITS_MAX) {
            let task = TaskId::new(query.job, local);
            if !self.routing.homes().is_mine(task.partition()) {
                continue;
            }
            // All tasks of the job were stored before the waiting task ran.
            let is_visible = self.home.ledger.part(task).is_none_or(|part| part.visible);
            match (self.home.ledger.ended(task), self.home.ledger.state(task)) {
                (Some(end), _) => ended.push(end),
                // The job has no such task, or its part is not visible here yet.
                (None, None) if is_visible => {
                    let (verdict, unknown) = (End::Skipped as i32, true);
                    let end = wire::Awaited { local, verdict, unknown, ..Default::default() };
                    ended.push(end);
                }
                (None, None) => {}
                (None, Some(_)) => {
                    let Some(part) = self.home.ledger.part_mut(task) else { continue };
                    let waiters = &mut part.turns.get_or_insert_default().waiters;
                    waiters.entry(task.local.index()).or_default().insert(waiter.local, query.seq);
                }
            }
        }
        if let Some(home) =
            self.routing.homes().owner(waiter.partition()).filter(|_| !ended.is_empty())
        {
            out.reliable.push((home, reply(waiter, query.seq, ended)));
        }
    }
}
