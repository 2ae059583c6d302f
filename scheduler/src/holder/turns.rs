//! Turns at the holder of a task.

use proto::work::{Turn, TurnAnswer};
use proto::{Attempt, TaskId, Time, wire};

use crate::Scheduler;
use crate::output::Out;

impl Scheduler {
    /// An attempt that runs here commits a turn.
    pub fn on_turn(&mut self, _: Time, task: TaskId, attempt: Attempt, _: Turn, out: &mut Out) {
        out.turn_answers.push((task, attempt, TurnAnswer::Fenced));
    }

    pub(crate) fn on_turn_reply(&mut self, _: wire::TurnReply, _: &mut Out) {}
}
