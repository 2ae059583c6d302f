//! Turns at the home of a task: they are checked, applied and recorded here.

use std::sync::Arc;

use proto::{NodeId, TaskId, Time, wire};

use crate::Scheduler;
use crate::home::ledger::Ledger;
use crate::output::Out;

impl Ledger {
    /// The turns that the task has committed, for its next attempt.
    pub(crate) fn resume_of(&self, _task: TaskId) -> Option<Arc<wire::Resume>> {
        None
    }
}

impl Scheduler {
    pub(crate) fn on_turn_of(&mut self, _: Time, _: NodeId, _: wire::Turn, _: &mut Out) {}
    pub(crate) fn on_await_query(&mut self, _: wire::AwaitQuery, _: &mut Out) {}
    pub(crate) fn on_await_reply(&mut self, _: &wire::AwaitReply, _: &mut Out) {}
    pub(crate) fn on_chunks_born(&mut self, _: NodeId, _: &wire::ChunksBorn) {}
}
