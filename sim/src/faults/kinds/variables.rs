//! A model of attempts that set variables of their job, as a search by branch and bound does.
//!
//! The numbers are drawn by hashes with a number of their own, so the rest of a run stays as it is.

use node::Input;
use proto::wire::{self, VarSum};
use proto::{Attempt, JobId, TaskId};

use crate::checkers::variables::{self, BEST, NOTE, SUM};
use crate::faults::world::World;
use crate::state::script::mix;

/// One in this many turns sets the best value, sets the note, or adds to the sum.
const SETS_OF: u64 = 2;
/// The range of values that do not depend on what is known.
const BLIND_RANGE: u64 = 1_000;

impl World {
    /// A number for the variables of this attempt's next turn, where the world has variables.
    fn variable_dice(&self, (task, attempt): (TaskId, Attempt), seq: u64) -> Option<u64> {
        let seed = self.options.variables?;
        Some(mix(mix(mix(seed, task.job.0 ^ task.local.0), attempt.0), seq))
    }

    /// An attempt begins to work for its next turn, and sets variables now.
    pub(crate) fn set_variables(&mut self, index: usize, by: (TaskId, Attempt), seq: u64) {
        let Some(dice) = self.variable_dice(by, seq) else { return };
        let (task, attempt) = by;
        for place in [BEST, NOTE] {
            let dice = mix(dice, place.into());
            if !dice.is_multiple_of(SETS_OF) {
                continue;
            }
            let number = self.number_to_set((index, self.machines[index].life), task.job, dice);
            self.variables.on_set(task.job, number);
            self.tell(|| format!("n{index}: {task} attempt {attempt} sets {place} to {number}"));
            let value = Box::new(variables::value(place, number));
            let input = Input::SetVariable { task, attempt, index: place, value, ticket: dice };
            self.deliver(index, input);
        }
    }

    /// Mostly a little better than the known value.
    fn number_to_set(&self, life: variables::Life, job: JobId, dice: u64) -> i64 {
        let blind = (dice >> 8) % BLIND_RANGE;
        let sign = if self.options.variables.unwrap_or(0) & 1 == 0 { -1 } else { 1 };
        match self.variables.best(life, job) {
            Some(best) if dice >> 4 & 3 != 0 => best + sign * (1 + (dice >> 6 & 3) as i64),
            _ => blind as i64,
        }
    }

    /// What a turn adds to the sum of its job.
    pub(crate) fn sums_of_turn(&self, by: (TaskId, Attempt), seq: u64) -> Vec<VarSum> {
        let dice = self.variable_dice(by, seq).map(|dice| mix(dice, SUM.into()));
        let added = dice.filter(|dice| dice.is_multiple_of(SETS_OF));
        added.map(|dice| VarSum::new(SUM, (1 + dice % 9).into())).into_iter().collect()
    }

    /// The best value that an attempt on this node may have used.
    pub(crate) fn used_value(&self, index: usize, job: JobId) -> Option<i64> {
        self.variables.best((index, self.machines[index].life), job)
    }

    /// A node has made a step: looks at the variables of the jobs that are homed there.
    pub(crate) fn check_variables_at_home(&mut self, index: usize) {
        let machine = &self.machines[index];
        let Some(node) = machine.node.as_ref().filter(|_| self.options.variables.is_some()) else {
            return;
        };
        let life = (index, machine.life);
        let checked = self.jobs.values().try_for_each(|it| {
            self.variables.on_home_step(life, it.job, node.variables_of(it.job))
        });
        self.judge(checked);
    }

    /// A node hears of a value.
    pub(crate) fn variable_heard(&mut self, index: usize, job: JobId, heard: &wire::Variable) {
        self.tell(|| format!("n{index} hears of {job}: {heard:?}"));
        let life = (index, self.machines[index].life);
        let verdict = self.variables.on_heard(life, job, heard);
        self.judge(verdict);
    }
}
