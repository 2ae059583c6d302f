//! The shell's part of turns: answers for commands, and commands that wait without a slot.

use std::sync::Arc;

use proto::work::{Launch, TurnAnswer};
use proto::{Attempt, JobId, TaskId};

use crate::door::Order;
use crate::event_loop::run_loop::Loop;

impl Loop {
    /// Passes the answer on to the command that waits for it.
    pub(super) fn answer_turn(&self, task: TaskId, attempt: Attempt, answer: TurnAnswer) {
        let executor = &self.shared.executor;
        match self.shared.door.answered(task, attempt, answer) {
            Order::Nothing => {}
            Order::Park => executor.set_waiting(task, attempt, true),
            Order::Kill => executor.kill(task, attempt),
        }
    }

    /// Ends the command of an attempt. A command that waits outlives its attempt.
    pub(super) fn kill(&self, task: TaskId, attempt: Attempt) {
        if !self.shared.door.is_parked(task, attempt) {
            self.shared.executor.kill(task, attempt);
            self.shared.door.killed(task, attempt);
        }
    }

    /// Continues a command that waits here, if it is of the task that starts. Returns the launch if
    /// there is no such command.
    pub(super) fn go_on(&self, launch: Box<Launch>) -> Option<Box<Launch>> {
        let Some(resume) = &launch.resume else { return Some(launch) };
        let (door, executor) = (&self.shared.door, &self.shared.executor);
        let (task, next) = (launch.task, launch.attempt);
        let Some((parked, fits)) = door.parked(task, resume) else { return Some(launch) };
        if !fits || !door.adopt(task, parked, next, resume) {
            executor.kill(task, parked);
            door.killed(task, parked);
            return Some(launch);
        }
        let released = Arc::clone(door);
        let goes_on = executor.go_on(parked, &launch, move || released.release(task, next));
        if !door.has(task, next) {
            // The attempt is over already, and its end was reported. If its 'starling await' has
            // gone, the door may have killed it before the command had the key of this attempt.
            executor.kill(task, next);
            return None;
        }
        if goes_on {
            return None;
        }
        door.killed(task, next); // The command has just ended.
        Some(launch)
    }

    /// Ends the commands of a job that wait here: the job has ended.
    pub(super) fn kill_parked(&self, job: JobId) {
        for (task, attempt) in self.shared.door.parked_of(job) {
            self.shared.executor.kill(task, attempt);
            self.shared.door.killed(task, attempt);
        }
    }
}
