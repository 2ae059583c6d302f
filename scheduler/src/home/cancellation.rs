//! Cancellation: the requests of clients, and the reactions of homes and holders.
//!
//! The answer to a client waits until the cancellation is durable; from then on it is final. The
//! home refuses a completion that arrives later. The holder refuses a launch; it is informed on the
//! link on which it got the task.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::RetryReason;
use proto::limits::{CANCEL_TASKS_MAX, NAME_BYTES_MAX};
use proto::wire::response;
use proto::{Attempt, Event, JobId, LocalId, NodeId, TaskId, Time, wire};

use crate::home::Home;
use crate::home::ledger::{End, State};
use crate::home::requests::{not_yet, refused, unknown_job, wrong_home};
use crate::output::{Out, send_tasks_not_held};
use crate::{Mutant, Scheduler};

impl Home {
    /// Whether the client knows a later round of the job than this home.
    fn is_behind(&self, cancel: &wire::Cancel) -> bool {
        let mut named = cancel.locals.iter().map(|&local| TaskId::new(cancel.job, local));
        named.any(|task| self.ledger.round(task) < cancel.round)
    }
}

impl Scheduler {
    /// A client cancels a job that is homed here, or tasks that are.
    pub(crate) fn cancel(
        &mut self,
        now: Time,
        cancel: &wire::Cancel,
        out: &mut Out,
    ) -> Result<response::Body, wire::Error> {
        if cancel.by.len() > NAME_BYTES_MAX || cancel.locals.len() > CANCEL_TASKS_MAX {
            let most = format!("at most {CANCEL_TASKS_MAX} tasks may be cancelled at once");
            return Err(refused(format!("{most}, by a name of at most {NAME_BYTES_MAX} bytes")));
        }
        let job_id = JobId(cancel.job);
        if cancel.locals.is_empty() {
            if self.routing.homes().job_home(job_id) != self.options.me {
                return Err(wrong_home(u32::MAX));
            }
            let answer = self.home.jobs.cancel(now, cancel, self.routing.homes(), out);
            return answer.map(response::Body::Cancelled).ok_or_else(|| unknown_job(cancel.job));
        }
        let partitions = cancel.locals.iter().map(|&local| LocalId(local).partition());
        if let Some(other) = partitions.into_iter().find(|&p| !self.routing.homes().is_mine(p)) {
            return Err(wrong_home(other.0));
        }
        match self.home.ledger.job(job_id) {
            None => Err(unknown_job(cancel.job)),
            // The ends of a job that is never committed here would outlive its chunks.
            Some(job) if !job.is_visible() => Err(not_yet(cancel.job)),
            // A task that has ended here may be about to run again.
            Some(_) if self.home.is_behind(cancel) => Err(not_yet(cancel.job)),
            Some(_) => Ok(response::Body::Cancelled(self.on_cancel(now, cancel, out))),
        }
    }

    /// Ends the named tasks of a job, or all of them, wherever they are.
    pub(crate) fn on_cancel(
        &mut self,
        now: Time,
        cancel: &wire::Cancel,
        out: &mut Out,
    ) -> wire::Cancelled {
        let mut answer = wire::Cancelled::default();
        if cancel.locals.is_empty() {
            self.remove_job(now, JobId(cancel.job), cancel.round, out);
            return answer;
        }
        let named: BTreeSet<u64> = cancel.locals.iter().copied().collect();
        for local in named {
            let task = TaskId::new(cancel.job, local);
            match self.home.ledger.state(task) {
                None => answer.unknown.push(local),
                Some(State::Ended(_)) => answer.ended += 1,
                Some(State::Waiting | State::Ready) => {
                    // A done task that runs again stays done; the tasks that wait for it end.
                    let stays_done = self.home.ledger.has_earlier_end(task);
                    self.home.ledger.give_up(now, task, End::Cancelled, &cancel.by, out);
                    answer.ended += u64::from(stays_done);
                    answer.cancelled += u64::from(!stays_done);
                }
            }
        }
        answer
    }

    fn remove_job(&mut self, now: Time, job: JobId, round: u32, out: &mut Out) {
        if !self.home.ledger.begin_removal(now, job, round, out) {
            return;
        }
        // Tasks that run or are staged here end at once.
        let all = TaskId { job, local: LocalId(0) }..=TaskId { job, local: LocalId(u64::MAX) };
        let running = self.holder.running().range(all.clone()).map(|(&task, _)| task);
        let here = running.chain(self.holder.staging().range(all).map(|(&task, _)| task));
        let here: Vec<TaskId> =
            here.filter(|task| self.routing.homes().is_mine(task.partition())).collect();
        for task in here {
            self.home.ledger.give_up(now, task, End::Cancelled, "", out);
        }
    }

    /// A home revokes these attempts. An earlier home may do so late, because of a decision that no
    /// other node knows. If this node is the home by now, its own records decide. Another present
    /// home is informed that the attempt is not here any more.
    pub(crate) fn on_revoke_attempts(
        &mut self,
        from: NodeId,
        tasks: &[wire::TaskAttempt],
        out: &mut Out,
    ) {
        let me = self.options.me;
        let mut not_held: BTreeMap<NodeId, Vec<wire::TaskAttempt>> = BTreeMap::new();
        for stale in tasks {
            let (task, attempt) = (TaskId::new(stale.job, stale.local), Attempt(stale.attempt));
            if !self.routing.homes().is_home_of(task) {
                let is_owner = self.routing.homes().owner(task.partition()) == Some(from);
                if !is_owner && self.stealing.is_in_transit(task, attempt) {
                    continue; // A thief may run it, and reports to the present home.
                }
                out.events.push(Event::Dismissed { task, attempt });
                let home =
                    self.routing.homes().owner(task.partition()).filter(|&home| home != from);
                home.into_iter().for_each(|home| not_held.entry(home).or_default().push(*stale));
            } else if from != me && self.home.ledger.is_held_by(task, attempt, me) {
                continue;
            }
            self.holder.forget_completion(task, attempt);
            self.drop_task(task, attempt, out);
        }
        send_tasks_not_held(not_held, RetryReason::NotHeld, out);
    }

    /// Stops and forgets one attempt, in whatever state it is here. The outputs of a finished
    /// attempt stay: its home may have lost the end in a power cut after children learned of it.
    pub(crate) fn drop_task(&mut self, task: TaskId, attempt: Attempt, out: &mut Out) {
        self.holder.forget_turns(task, attempt);
        let (mut found, remote) = (false, self.holder.remote_tasks().get(&task));
        if remote.is_some_and(|remote| remote.attempt == attempt) {
            self.holder.forget_remote(&task);
            found = true;
        }
        if self.holder.staging().get(&task).is_some_and(|staged| staged.attempt() == attempt) {
            self.forget_staged(task, out);
            found = true;
        }
        if self.holder.running().get(&task).is_some_and(|running| running.attempt() == attempt) {
            self.forget_running(task, out);
            found = true;
            let made = (task, attempt);
            if self.objects.holds_end_back(&made) {
                self.objects.forget_unreported(&made);
                return; // It has ended: there is nothing to stop.
            }
            let launches = out.launches.len();
            out.launches.retain(|launch| (launch.task, launch.attempt) != (task, attempt));
            if out.launches.len() == launches {
                out.kills.push((task, attempt));
                if !self.objects.has_outputs_of(task, attempt) {
                    out.discards.push((task, attempt));
                }
            }
        }
        // The task may be granted to a thief, and the thief may fail before it runs the task.
        if !found && self.options.mutant != Some(Mutant::CancelForgetsUnackedGrants) {
            self.stealing.forget_granted(task, attempt);
        }
    }
}
