//! *Moves*: a command gets its signal once in each attempt, and the end of that attempt is a move.
//! It neither ends the task nor counts as one of its failures. It starts on no drained node.
//!
//! A task may still fail by such an attempt if the deaths of its nodes reach their limit.

use std::collections::BTreeSet;

use proto::event::End;
use proto::{Attempt, NodeId, TaskId};

use super::{Verdict, Violation};
use crate::state::expected::ExpectedTask;

const NAME: &str = "moves";

/// The attempts with a command that got its signal.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    told: BTreeSet<(TaskId, Attempt)>,
}

impl Moves {
    /// A command gets its signal while it runs.
    pub(crate) fn on_told(&mut self, task: TaskId, attempt: Attempt) -> Verdict {
        if self.told.insert((task, attempt)) {
            return Ok(());
        }
        let text = format!("{task} got its signal twice in attempt {attempt}");
        Err(Violation::new(NAME, text))
    }

    /// A home commits the end of a task, but not because of the deaths of its nodes.
    pub(crate) fn on_committed(
        &self,
        truth: &ExpectedTask,
        (task, attempt): (TaskId, Attempt),
        end: End,
    ) -> Verdict {
        let counts = matches!(end, End::Done | End::Failed);
        if counts && self.told.contains(&(task, attempt)) {
            let text = format!("{task} was told in attempt {attempt}, and is {end:?} by it");
            return Err(Violation::new(NAME, text));
        }
        if end != End::Failed || !truth.has_notice {
            return Ok(());
        }
        let counts = |attempt: Attempt| !self.told.contains(&(task, attempt));
        let failed = truth.finished.iter().filter(|&(&by, &is_done)| !is_done && counts(by));
        let (failures, retries) = (failed.count(), truth.retries);
        if failures > retries as usize {
            return Ok(());
        }
        let text = format!("{task} failed after {failures} failures, and has {retries} retries");
        Err(Violation::new(NAME, text))
    }
}

/// A task starts on a node that knows that it is drained.
pub(crate) fn on_started(truth: &ExpectedTask, task: TaskId, node: NodeId) -> Verdict {
    if !truth.has_notice {
        return Ok(());
    }
    Err(Violation::new(NAME, format!("{task} starts on {node}, which is drained")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> TaskId {
        TaskId::new(1, 2)
    }

    #[test]
    fn a_told_attempt_ends_no_task() {
        let (truth, mut moves) = (ExpectedTask::default(), Moves::default());
        let by = (task(), Attempt(3));
        assert_eq!(moves.on_committed(&truth, by, End::Failed), Ok(()));
        assert_eq!(moves.on_told(by.0, by.1), Ok(()));
        assert!(moves.on_told(by.0, by.1).is_err());
        assert!(moves.on_committed(&truth, by, End::Failed).is_err());
        assert!(moves.on_committed(&truth, by, End::Done).is_err());
        assert_eq!(moves.on_committed(&truth, by, End::Cancelled), Ok(()));
        assert_eq!(moves.on_committed(&truth, (task(), Attempt(4)), End::Done), Ok(()));
    }

    #[test]
    fn a_move_uses_no_retry() {
        let mut truth = ExpectedTask { has_notice: true, retries: 1, ..Default::default() };
        let mut moves = Moves::default();
        moves.on_told(task(), Attempt(1)).expect("it is the first signal");
        truth.finished = [(Attempt(1), false), (Attempt(2), false)].into();
        assert!(moves.on_committed(&truth, (task(), Attempt(2)), End::Failed).is_err());
        truth.finished.insert(Attempt(3), false);
        assert_eq!(moves.on_committed(&truth, (task(), Attempt(3)), End::Failed), Ok(()));
    }
}
