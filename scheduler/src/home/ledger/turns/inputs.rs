//! Edges from children of earlier turns to tasks of a later one.
//!
//! The later tasks are in a chunk of their own, and its record has these edges. They count once the
//! chunk is synced: a task that an ended child credits at once must not start before.

use std::collections::BTreeMap;

use proto::entry::expand;
use proto::wire::OutputForm;
use proto::{JobId, LocalId, PartitionId, TaskId, wire};

use super::state::TaskTurns;
use crate::Mutant;
use crate::home::ledger::records::{EdgeOut, edges_of};
use crate::home::ledger::{Ledger, State};

/// An error names at most this number of outputs.
const OUTPUTS_NAMED_MAX: usize = 16;

impl Ledger {
    /// Finds the outputs that tasks of a turn read of earlier children of `task`.
    pub(super) fn find_inputs(
        &self,
        task: TaskId,
        inputs: &mut [wire::SpawnInput],
    ) -> Result<(), String> {
        for input in inputs {
            let index = self.turns_of(task).and_then(|turns| turns.child(input.parent));
            let child = input.parent;
            let index =
                index.ok_or_else(|| format!("earlier turns have spawned no child {child}"))?;
            let local = LocalId::new(task.partition(), index);
            input.output = self.find_output(TaskId { job: task.job, local }, input)?;
        }
        Ok(())
    }

    /// 0: the edge is an order only; k+1: output k travels along it.
    fn find_output(&self, parent: TaskId, input: &wire::SpawnInput) -> Result<u32, String> {
        let (child, file) = (input.parent, &input.file);
        let Some(cell) = self.cell(parent) else {
            return Err(format!(
                "the record of child {child} has left memory; hint: read outputs of later children"
            ));
        };
        if file.is_empty() {
            return Ok(0);
        }
        let outputs = self.spec(parent).map(|spec| spec.outputs.as_slice()).unwrap_or_default();
        let names = || outputs.iter().map(|output| expand(&output.file, cell.entry));
        let Some(at) = names().position(|name| name == *file) else {
            let known: Vec<String> = names().take(OUTPUTS_NAMED_MAX).collect();
            let known = match known.is_empty() {
                true => "it has no outputs".to_owned(),
                false => format!("its outputs are: {}", known.join(", ")),
            };
            return Err(format!("child {child} has no output '{file}'; hint: {known}"));
        };
        let declared = &outputs[at];
        if !declared.keep {
            return Err(format!("child {child} does not keep its output '{file}'"));
        }
        if declared.form != input.form {
            return Err(other_form(child, file, declared.form()));
        }
        Ok(at as u32 + 1)
    }

    /// The chunks are synced: their edges from earlier children count. Ended children credit them.
    pub(in crate::home::ledger) fn credit_born(
        &mut self,
        job: JobId,
        partition: PartitionId,
        chunks: &[u32],
    ) {
        let part = self.jobs.get_mut(&job).and_then(|job| job.parts.get_mut(partition));
        let Some(turns) = part.and_then(|part| part.turns.as_mut()) else { return };
        let late: Vec<_> = chunks.iter().filter_map(|chunk| turns.unborn.remove(chunk)).collect();
        let mut fresh: BTreeMap<u64, Vec<EdgeOut>> = BTreeMap::new();
        for pieces in late {
            turns.add_late(&pieces);
            for piece in &pieces {
                fresh.entry(piece.index).or_default().extend(edges_of(piece));
            }
        }
        if self.mutant == Some(Mutant::LateInputUncredited) {
            return;
        }
        for (index, edges) in fresh {
            let parent = TaskId { job, local: LocalId::new(partition, index) };
            if matches!(self.state(parent), Some(State::Ended(_))) {
                self.deliver_last(parent, edges.len());
            }
        }
    }

    /// Whether a chunk that is not synced names a task of this one: it is credited after the sync.
    pub(in crate::home::ledger) fn is_named(
        &self,
        job: JobId,
        partition: PartitionId,
        number: u32,
    ) -> bool {
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(partition));
        let Some((part, chunk)) = part.and_then(|part| Some((part, part.chunk(number)?))) else {
            return false;
        };
        let unborn = part.turns.iter().flat_map(|turns| turns.unborn.values().flatten());
        chunk.len() > 0 && unborn.into_iter().any(|piece| chunk.contains(piece.index))
    }

    /// Whether a task that has not ended may still spawn readers of outputs of this chunk.
    pub(in crate::home::ledger) fn may_be_read(
        &self,
        job: JobId,
        partition: PartitionId,
        number: u32,
    ) -> bool {
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(partition));
        let Some((part, chunk)) = part.and_then(|part| Some((part, part.chunk(number)?))) else {
            return false;
        };
        let mut spawners = chunk.spawners_of_outputs();
        spawners.any(|index| !matches!(part.state(index), Some(State::Ended(_)) | None))
    }
}

/// The error for an output that is named in another form than its task declares.
fn other_form(child: u64, file: &str, declared: OutputForm) -> String {
    let (what, written) = match declared {
        OutputForm::File => ("a file", file.to_owned()),
        OutputForm::Directory => ("a directory", format!("{file}/")),
        OutputForm::Files => ("a pattern", format!("glob:{file}")),
    };
    format!("output '{file}' of child {child} is {what}; hint: write {child}:{written}")
}

/// The edges of a turn from earlier children, by these. `local`: the id of a task of the turn.
pub(super) fn late_edges(
    turns: Option<&TaskTurns>,
    inputs: &[wire::SpawnInput],
    local: impl Fn(u32) -> u64,
) -> Vec<wire::Children> {
    let mut late: BTreeMap<u64, wire::Children> = BTreeMap::new();
    for input in inputs {
        let Some(index) = turns.and_then(|turns| turns.child(input.parent)) else { continue };
        let piece = late.entry(index).or_default();
        piece.index = index;
        for (&child, &slot) in input.child.iter().zip(&input.slot) {
            piece.child.push(local(child));
            piece.slot.push(slot);
            piece.output.push(input.output);
        }
    }
    late.into_values().collect()
}
