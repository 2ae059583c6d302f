//! The variables of the jobs that are homed here.
//!
//! The home of a job is the home of its variables. A node that runs tasks of the job sends each
//! improvement here. The home writes it, announces it at once to all such nodes, and announces it
//! again when it is synced on all replicas.

use std::collections::BTreeSet;

use proto::variable::improves;
use proto::wire::message::Body;
use proto::wire::{VarDeclared, VarRule, response};
use proto::{JobId, NodeId, variable, wire};

use super::{Job, Jobs};
use crate::home::requests::{refused, unknown_job, wrong_home};
use crate::output::Out;
use crate::routing::partition_owners::Homes;
use crate::{Mutant, Scheduler};

/// The variables of one job.
#[derive(Debug, Default)]
pub(super) struct JobVariables {
    /// By index.
    cells: Vec<wire::Variable>,
    /// The nodes that run tasks of the job, or have run some.
    readers: BTreeSet<NodeId>,
    /// The variables with a better value since the last step, by index.
    changed: BTreeSet<u32>,
}

impl JobVariables {
    pub(super) fn declare(declared: Vec<VarDeclared>) -> Self {
        let cells = (0..).zip(declared).map(|(index, declared)| {
            let value = declared.initial.clone();
            wire::Variable { index, declared: Some(declared), value, sum: None }
        });
        Self { cells: cells.collect(), ..Self::default() }
    }

    pub(super) fn is_none(&self) -> bool {
        self.cells.is_empty()
    }

    /// As clients see them. `all`: the sum of all reports.
    pub(super) fn seen(&self, all: Option<&wire::PartitionCount>) -> Vec<wire::Variable> {
        let sums = all.map_or(&[][..], |all| &all.sums);
        let with_sum = |cell: &wire::Variable| {
            let is_sum = cell.declared.as_ref().is_some_and(|it| it.rule() == VarRule::VarSum);
            let known = sums.iter().find(|sum| sum.variable == cell.index).copied();
            let sum = known.unwrap_or_else(|| wire::VarSum::new(cell.index, 0));
            wire::Variable { sum: is_sum.then_some(sum), ..cell.clone() }
        };
        self.cells.iter().map(with_sum).collect()
    }

    /// The value that a client sets.
    fn value_of(&self, write: &wire::VarWrite, writer: u64) -> Result<wire::Variable, String> {
        let named =
            |cell: &&wire::Variable| cell.declared.as_ref().is_some_and(|it| it.name == write.name);
        let cell = self.cells.iter().find(named).ok_or_else(|| {
            format!("job {} has no variable '{}'", write.job, write.name.escape_debug())
        })?;
        let declared = cell.declared.clone().unwrap_or_default();
        let mut value = variable::parse_value(&declared, &write.value)?;
        value.witness.clone_from(&write.witness);
        variable::check_value(&value)?;
        if declared.rule() == VarRule::VarLast {
            value.seq = cell.value.as_ref().map_or(0, |known| known.seq) + 1;
            value.writer = writer;
        }
        Ok(wire::Variable { index: cell.index, value: Some(value), ..wire::Variable::default() })
    }

    /// Takes a value if it is better. Returns whether it is.
    fn take(&mut self, new: &wire::Variable, mutant: Option<Mutant>) -> bool {
        let Some(cell) = self.cells.get_mut(new.index as usize) else { return false };
        let rule = cell.declared.as_ref().map_or(VarRule::VarSum, VarDeclared::rule);
        let Some(value) = &new.value else { return false };
        let is_better =
            improves(rule, cell.value.as_ref(), value) || mutant == Some(Mutant::StaleBoundWins);
        if rule == VarRule::VarSum || !is_better || variable::check_value(value).is_err() {
            return false;
        }
        let mut value = value.clone();
        if mutant == Some(Mutant::BoundWithoutWitness) {
            value.witness.clear();
        }
        cell.value = Some(value);
        true
    }
}

impl Jobs {
    /// Loads a record of a variable. That of its job is loaded before.
    pub(crate) fn load_variable(&mut self, job: JobId, mut variable: wire::Variable) {
        if self.mutant == Some(Mutant::VarForgottenOnTakeover) {
            variable.value = None;
        }
        if let Some(job) = self.jobs.get_mut(&job) {
            job.variables.cells.push(variable);
        }
    }

    /// A node has values, or wants them.
    pub(crate) fn on_var_set(&mut self, from: NodeId, set: &wire::VarSet, out: &mut Out) {
        let job_id = JobId(set.job);
        let mutant = self.mutant;
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        if job.state.ended_ns != 0 {
            return out.reliable.push((from, Body::JobEnd(job.end())));
        }
        if job.variables.is_none() {
            return;
        }
        let is_new = job.variables.readers.insert(from);
        if is_new || set.values.is_empty() {
            // At once: a node that knows only some of the variables waits for the others.
            let all = job.variables.cells.clone();
            out.reliable.push((from, job.push(all, false, false)));
        }
        let taken = set.values.iter().filter(|it| job.variables.take(it, mutant));
        let changed: Vec<u32> = taken.map(|it| it.index).collect();
        if changed.is_empty() {
            // The values here are at least as good. The answer waits until they are synced.
            let all = job.variables.cells.clone();
            return out.reliable.push((from, job.push(all, true, false)));
        }
        job.note_changed(&changed, out);
        self.changed_variables.push(job_id);
    }

    /// A step is over: its best values are announced.
    pub(crate) fn announce_changed_variables(&mut self, homes: &Homes, out: &mut Out) {
        for job in std::mem::take(&mut self.changed_variables) {
            if let Some(job) = self.jobs.get_mut(&job) {
                job.announce_changed(homes, out);
            }
        }
    }

    /// A client sets a variable. `None`: there is no such job.
    pub(crate) fn write_variable(
        &mut self,
        write: &wire::VarWrite,
        writer: u64,
        out: &mut Out,
    ) -> Option<Result<(), String>> {
        let mutant = self.mutant;
        let job = self.jobs.get_mut(&JobId(write.job))?;
        if job.state.ended_ns != 0 {
            return Some(Err(format!("job {} has ended, and its variables stay", write.job)));
        }
        let new = match job.variables.value_of(write, writer) {
            Ok(new) => new,
            Err(error) => return Some(Err(error)),
        };
        if job.variables.take(&new, mutant) {
            job.note_changed(&[new.index], out);
            self.changed_variables.push(JobId(write.job));
        }
        Some(Ok(()))
    }

    /// The values of the variables of a job, by index.
    pub(crate) fn variables_of(&self, job: JobId) -> Option<&[wire::Variable]> {
        Some(&self.jobs.get(&job)?.variables.cells)
    }
}

impl Job {
    /// The state as clients see it.
    pub(super) fn client_state(&self) -> wire::JobState {
        let variables = self.variables.seen(self.state.sum.as_ref());
        wire::JobState { variables, ..self.state_in_list() }
    }

    /// As in a list of jobs: the values of variables may be large.
    pub(super) fn state_in_list(&self) -> wire::JobState {
        let stall = self.stall_detector.stall().filter(|_| self.state.ended_ns == 0).cloned();
        // Fields that only the home needs, and that may be large, are left out.
        let (rounds, retried, members) = (Vec::new(), Vec::new(), Vec::new());
        let total = self.total();
        wire::JobState { total, stall, rounds, retried, members, ..self.state.clone() }
    }

    /// As a client that watches sees it: it gets each change, and asks for a witness that it needs.
    pub(super) fn watched_state(&self) -> wire::JobState {
        let mut state = self.client_state();
        let values = state.variables.iter_mut().filter_map(|it| it.value.as_mut());
        if state.ended_ns == 0 {
            values.for_each(|value| value.witness = Vec::new());
        }
        state
    }

    fn push(&self, variables: Vec<wire::Variable>, synced: bool, asks: bool) -> Body {
        Body::VarPush(wire::VarPush { job: self.state.job, variables, synced, asks })
    }

    /// Writes changed variables. They are announced at the end of the step.
    fn note_changed(&mut self, changed: &[u32], out: &mut Out) {
        self.record_variables(changed, out);
        self.variables.changed.extend(changed);
    }

    /// Announces changed variables: at once, and when they are synced.
    fn announce_changed(&mut self, homes: &Homes, out: &mut Out) {
        let changed = std::mem::take(&mut self.variables.changed);
        if changed.is_empty() {
            return; // It changed several times in this step.
        }
        // A node that has gone asks again when it is back and runs tasks of the job.
        let living: BTreeSet<NodeId> = homes.living_or_back().collect();
        self.variables.readers.retain(|reader| living.contains(reader));
        let cells = &self.variables.cells;
        let cells: Vec<_> =
            changed.iter().filter_map(|&at| cells.get(at as usize)).cloned().collect();
        for synced in [false, true] {
            for &reader in &self.variables.readers {
                out.reliable.push((reader, self.push(cells.clone(), synced, false)));
            }
        }
        self.notify(out);
    }

    fn record_variables(&self, changed: &[u32], out: &mut Out) {
        let records = &mut out.facts.variables.get_or_insert_default().changed;
        for &index in changed {
            let cell = self.variables.cells[index as usize].clone();
            records.insert((JobId(self.state.job), index), cell);
        }
    }

    /// The job is new.
    pub(super) fn record_all_variables(&self, out: &mut Out) {
        if !self.variables.is_none() {
            let all: Vec<u32> = (0..self.variables.cells.len() as u32).collect();
            self.record_variables(&all, out);
        }
    }

    /// The records of the variables are removed with that of the job.
    pub(super) fn drop_variables(&mut self, out: &mut Out) {
        let job = JobId(self.state.job);
        let cells = std::mem::take(&mut self.variables.cells);
        if !cells.is_empty() {
            let dropped = &mut out.facts.variables.get_or_insert_default().dropped;
            dropped.extend(cells.iter().map(|cell| (job, cell.index)));
        }
    }

    /// This home is new, and does not know which nodes run tasks of the job.
    pub(super) fn announce_variables(&self, homes: &Homes, out: &mut Out) {
        if self.variables.is_none() || !self.has_begun() {
            return;
        }
        for member in homes.living_or_back() {
            let all = self.variables.cells.clone();
            out.reliable.push((member, self.push(all, true, true)));
        }
    }
}

impl Scheduler {
    /// A client sets a variable.
    pub(crate) fn write_variable(
        &mut self,
        write: &wire::VarWrite,
        out: &mut Out,
    ) -> Result<response::Body, wire::Error> {
        if self.routing.homes().job_home(JobId(write.job)) != self.options.me {
            return Err(wrong_home(u32::MAX));
        }
        match self.home.jobs.write_variable(write, self.options.client_writer(), out) {
            Some(Ok(())) => Ok(response::Body::Accepted(wire::Accepted {})),
            Some(Err(text)) => Err(refused(text)),
            None => Err(unknown_job(write.job)),
        }
    }
}
