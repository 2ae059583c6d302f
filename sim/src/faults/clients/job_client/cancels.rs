//! Clients that cancel their jobs, or tasks of them.

use std::collections::BTreeMap;

use proto::LocalId;

use super::{Ask, Stage};
use crate::faults::world::World;
use crate::state::expected::SubmissionStage;

impl World {
    /// Cancels the whole job, one task, or a tenth of the tasks.
    pub(super) fn cancel(&mut self, index: usize) {
        let share_permille = self.dice.pick(&[0, 1, 100]);
        let tasks: Vec<LocalId> = {
            let submitted = self.truth(index).tasks.iter().filter(|(_, task)| !task.spawned);
            submitted.map(|(&local, _)| local).collect()
        };
        if share_permille == 0 && self.clients.jobs[index].stage != Stage::Watching {
            // A home that does not know the job yet would report that, perhaps after the commit.
            return self.forbid(index);
        }
        if share_permille == 0 {
            self.truth(index).cancelled = true;
            return self.ask(index, Ask::Cancel);
        }
        let mut named = vec![self.dice.pick(&tasks)];
        if share_permille > 1 {
            named.extend(tasks.iter().filter(|_| self.dice.chance(share_permille)));
        }
        self.cancel_tasks(index, named);
    }

    /// Cancels these tasks of the client's job now.
    pub fn cancel_tasks(&mut self, index: usize, named: Vec<LocalId>) {
        self.truth(index).named.extend(&named);
        let mut by_home: BTreeMap<usize, Vec<LocalId>> = BTreeMap::new();
        for local in named {
            let same = by_home.entry(self.home(local.partition().0)).or_default();
            if !same.contains(&local) {
                same.push(local);
            }
        }
        for named in by_home.into_values() {
            self.ask(index, Ask::CancelTasks(named));
        }
    }

    /// The client cancels the job that it is about to submit.
    pub(super) fn forbid(&mut self, index: usize) {
        let truth = self.truth(index);
        (truth.cancelled, truth.forbidden) = (true, true);
        self.ask(index, Ask::Forbid);
    }

    /// The home confirmed it: a job that is not committed by now never will be.
    pub(super) fn forbidden(&mut self, index: usize) {
        if self.truth(index).promise == SubmissionStage::Staged {
            self.tell(|| format!("client {index} hears that its job may not be committed"));
        }
    }
}
