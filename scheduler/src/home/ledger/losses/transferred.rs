//! Outputs of ended tasks that move from their maker to another node.

use std::collections::BTreeSet;

use proto::{Attempt, NodeId, TaskId, wire};

use crate::home::ledger::Ledger;
use crate::home::ledger::records::{End, State};
use crate::objects::output_transfer::attempt_key;
use crate::output::Out;

impl Ledger {
    /// Removes the outputs that are not to be kept and that no task may read. Returns false if this
    /// is not known yet.
    pub(crate) fn keep_wanted(
        &self,
        transferred: &mut wire::AttemptOutputs,
        has_gone: impl Fn(NodeId) -> bool,
    ) -> bool {
        let (task, attempt) = attempt_key(transferred);
        let keeps = self.keeps_data(task.job);
        let is_live = self.jobs.get(&task.job).is_some_and(|job| !job.ended || keeps);
        let Some(cell) = self.cell(task).filter(|_| is_live) else {
            transferred.outputs.retain(|output| output.keep);
            return true;
        };
        match cell.state {
            // The task runs again, and this attempt counts if that run does not end well.
            _ if self.may_count_again(task, attempt) => return false,
            _ if cell.attempt > attempt => transferred.outputs.clear(),
            State::Ended(End::Done) if cell.attempt == attempt && has_gone(cell.holder) => {
                let part = self.part(task).expect("its task is there");
                let edges = part.edge_runs(task.local.index()).flatten();
                let read: BTreeSet<u32> = edges.map(|edge| edge.output).collect();
                transferred
                    .outputs
                    .retain(|output| output.keep || read.contains(&(output.output + 1)));
            }
            State::Ended(_) => transferred.outputs.clear(),
            // The report of the attempt's end has not arrived yet.
            State::Waiting | State::Ready => return false,
        }
        true
    }

    /// Records that this node has the attempt's outputs from now on. Returns false if no task will
    /// look for them there.
    pub(crate) fn lies_elsewhere(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        node: NodeId,
        has_gone: impl Fn(NodeId) -> bool,
        out: &mut Out,
    ) -> bool {
        let Some(cell) = self.cell_mut(task) else { return false };
        if cell.state != State::Ended(End::Done) || cell.attempt != attempt {
            return false;
        }
        if cell.holder == node {
            return true;
        }
        if !has_gone(cell.holder) {
            return false;
        }
        cell.holder = node;
        let record = out.facts.holders.entry((task.partition(), task.job)).or_default();
        record.handed_index.push(task.local.index());
        record.handed_attempt.push(attempt.0);
        record.handed_node.push(node.0);
        true
    }

    /// The part of this that recovery repeats.
    pub(in crate::home::ledger) fn load_moved_outputs(
        &mut self,
        record: &wire::HolderRecord,
        place: impl Fn(u64) -> TaskId,
    ) {
        let columns = record.handed_index.iter().zip(&record.handed_attempt);
        for ((&index, &attempt), &node) in columns.zip(&record.handed_node) {
            let Some(cell) = self.cell_mut(place(index)) else { continue };
            if cell.state == State::Ended(End::Done) && cell.attempt == Attempt(attempt) {
                cell.holder = NodeId(node);
            }
        }
    }
}
