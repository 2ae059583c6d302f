//! Turns of stored records.

use std::collections::BTreeSet;

use proto::variable::add_sums;
use proto::wire::{self, TurnVerdict};
use proto::{Attempt, TaskId, Time};

use super::state::TaskTurns;
use crate::Mutant;
use crate::home::ledger::{End, Ledger, RecordError, State};

impl Ledger {
    /// Loads the last turn of a task. Its chunks, ends and holders are loaded before.
    pub(crate) fn load_turn(
        &mut self,
        now: Time,
        task: TaskId,
        record: wire::TurnRecord,
    ) -> Result<(), RecordError> {
        let index = task.local.index();
        let Some(state) = self.cell(task).map(|cell| cell.state) else {
            return Err(RecordError(format!("task {task} has a turn but is not stored")));
        };
        let (attempt, verdict) = (Attempt(record.attempt), record.verdict());
        let Some(part) = self.part_mut(task) else { return Ok(()) };
        part.count.turns += record.seq;
        add_sums(&mut part.count.sums, &record.sums, 1);
        let turns = part.turns.get_or_insert_default();
        if state == State::Ended(End::Done) {
            turns.sealed.insert(index);
            return Ok(());
        }
        turns.tasks.insert(index, TaskTurns::of_record(record));
        if matches!(state, State::Ended(_)) {
            return Ok(());
        }
        let is_over = matches!(verdict, TurnVerdict::TurnWait | TurnVerdict::TurnYield)
            && self.mutant != Some(Mutant::YieldKeepsAttempt);
        let current = self.cell(task).map_or(Attempt(0), |cell| cell.attempt);
        // The holder of an earlier attempt holds nothing. So does the holder of this attempt, if
        // the turn has ended it.
        if attempt < current || attempt == current && !is_over {
            return Ok(());
        }
        if state == State::Ready {
            self.release_holder(task);
            self.waiting += 1;
        }
        let cell = self.cell_mut(task).expect("looked at above");
        cell.state = State::Waiting;
        (cell.attempt, cell.started, cell.died_here) = (attempt, false, false);
        let waits = verdict == TurnVerdict::TurnWait;
        let index = task.local.index();
        let own = self.part(task).and_then(|part| part.turns.as_ref()?.tasks.get(&index));
        let pending = match own.filter(|_| waits) {
            Some(own) => self.unended(task, own),
            None => BTreeSet::new(),
        };
        if !pending.is_empty() {
            self.begin_wait(now, task, pending);
        }
        if waits && self.awaits_mail(task) {
            self.suspend(now, task);
        }
        Ok(())
    }
}
