//! The nodes that have the result of a task, for clients.

use proto::{ObjectId, TaskId};

use crate::Scheduler;
use crate::home::ledger::{Cell, End, State};

/// The maximum number of nodes that are named to a client.
const HOLDERS_NAMED_MAX: usize = 16;

impl Scheduler {
    /// The live nodes that have the first output of a done task, as far as this home knows.
    pub(crate) fn holders_of_result(&self, task: TaskId) -> Vec<u32> {
        let done = |cell: &&Cell| cell.state() == State::Ended(End::Done);
        let Some(cell) = self.home.ledger.cell(task).filter(done) else { return Vec::new() };
        let object = ObjectId { task, attempt: cell.attempt(), output: 0 };
        let copies = self.objects.directory.nodes(&object);
        let others = copies.filter(|&node| node != cell.holder());
        let all = std::iter::once(cell.holder()).chain(others);
        let live = all.filter(|&node| !self.is_dead(node));
        live.take(HOLDERS_NAMED_MAX).map(|node| node.0).collect()
    }
}
