//! Checkpoints of ended commands: each is committed as a state before the end is reported.

use executor::AttemptOutcome;
use proto::wire::TurnVerdict;
use proto::work::{Turn, TurnAnswer};

use crate::door::attempts::{AttemptTurn, Attempts, Key, Phase};

/// An ended command with a checkpoint that is not committed yet.
#[derive(Debug)]
pub(super) struct EndedCommand {
    outcome: AttemptOutcome,
    /// The checkpoint, while the home has still to answer an earlier turn.
    waiting: Option<Vec<u8>>,
}

/// What follows the answer to a turn of an ended command.
#[derive(Debug)]
pub(super) enum Next {
    Turn(AttemptTurn),
    Report(Box<AttemptOutcome>),
    /// The attempt is over already.
    Nothing,
}

impl Attempts {
    /// Takes an ended command with a checkpoint. Its turn is returned, or follows the answer to the
    /// one under way. Outer `None`: the end is to be reported at once.
    pub(super) fn commit_checkpoint(
        &mut self,
        ended: &mut AttemptOutcome,
    ) -> Option<Option<AttemptTurn>> {
        let state = ended.checkpoint.take()?;
        let key = (ended.task, ended.attempt);
        let phase = self.phase_mut(key)?;
        let waits = match phase {
            Phase::Runs => false,
            Phase::Commits { yields: false, .. } if !ended.outcome.is_done() => true,
            _ => return None,
        };
        let (waiting, turn) = match waits {
            true => (Some(state), None),
            false => (None, Some(of_state(key, state))),
        };
        *phase = Phase::Ended(Box::new(EndedCommand { outcome: ended.clone(), waiting }));
        Some(turn)
    }

    /// The core has answered. `None`: the command of the attempt has not ended.
    pub(super) fn checkpoint_answered(&mut self, key: Key, answer: &TurnAnswer) -> Option<Next> {
        let Phase::Ended(ended) = self.phase_mut(key)? else { return None };
        if *answer == TurnAnswer::Fenced {
            self.remove(key);
            return Some(Next::Nothing);
        }
        if let Some(state) = ended.waiting.take() {
            return Some(Next::Turn(of_state(key, state)));
        }
        let mut outcome = ended.outcome.clone();
        if let TurnAnswer::Refused(text) = answer
            && !outcome.outcome.is_done()
        {
            outcome.outcome.error.push_str("; its checkpoint was refused: ");
            outcome.outcome.error.push_str(text);
        }
        Some(Next::Report(Box::new(outcome)))
    }
}

/// A turn with the state alone: what a failed attempt has spawned must not exist.
fn of_state((task, attempt): Key, state: Vec<u8>) -> AttemptTurn {
    let verdict = TurnVerdict::TurnMore;
    let turn = Box::new(Turn { verdict, state: Some(state), ..Turn::default() });
    AttemptTurn { task, attempt, turn }
}

#[cfg(test)]
#[path = "checkpoints_tests.rs"]
mod tests;
