//! The parts of a task's record that its holder needs.

use proto::{Attempt, Span, TaskId, wire};

use super::records::Part;
use super::records::{Cell, Segment, State};
use super::{Job, Ledger, suspicion};
use crate::Mutant;
use crate::holder::task::Work;

/// The record of a task, with all that it belongs to.
struct Found<'a> {
    job: &'a Job,
    part: &'a Part,
    segment: &'a Segment,
    cell: &'a Cell,
}

impl Ledger {
    /// Whether this attempt is ready and held by this node. An entry of a queue may be outdated.
    pub(crate) fn is_held_here(&self, task: TaskId, attempt: Attempt) -> bool {
        let held = self.cell(task).is_some_and(|cell| self.is_cell_held_here(cell, attempt));
        held && !self.is_removed(task.job)
    }
    fn is_cell_held_here(&self, cell: &Cell, attempt: Attempt) -> bool {
        cell.state == State::Ready && cell.attempt == attempt && cell.holder == self.me
    }

    /// All that a holder needs to run the task.
    pub(crate) fn work(&self, task: TaskId) -> Option<Work> {
        self.find(task).map(|found| self.work_of(task, &found))
    }
    /// The work of the task, if this attempt is ready and held by this node.
    pub(crate) fn work_held_here(&self, task: TaskId, attempt: Attempt) -> Option<Work> {
        let found = self.find(task)?;
        let is_held = self.is_cell_held_here(found.cell, attempt) && !found.job.cancelled;
        is_held.then(|| self.work_of(task, &found))
    }
    fn find(&self, task: TaskId) -> Option<Found<'_>> {
        let index = task.local.index();
        let job = self.jobs.get(&task.job)?;
        let part = job.parts.get(task.partition())?;
        let segment = part.segment(index)?;
        Some(Found { job, part, segment, cell: segment.cell(index)? })
    }
    fn work_of(&self, task: TaskId, found: &Found<'_>) -> Work {
        let &Found { job, part, segment, cell } = found;
        let index = task.local.index();
        let side = segment.side(index);
        let (deaths, alone) = suspicion(side);
        Work {
            spec: job.specs[cell.spec as usize].clone(),
            settings: job.settings.clone(),
            entry: cell.entry,
            duration: Span(cell.duration_ns),
            urgency: cell.urgency,
            output_sizes: segment.declared_sizes(index).to_vec(),
            name: segment.name(index).unwrap_or_default().into(),
            payload: match self.mutant {
                Some(Mutant::ArgumentsOnce) if cell.tries > 0 || deaths > 0 => None,
                _ => segment.payload(index).map(Box::new),
            },
            inputs: side.map_or_else(Vec::new, |it| it.inputs.values().cloned().collect()),
            deaths,
            alone: alone && self.mutant != Some(Mutant::SuspectsTogether),
            again: cell.again,
            depth: segment.depth(index),
            resume: (part.turns.is_some() || part.mail.is_some())
                .then(|| self.resume_of(task))
                .flatten(),
        }
    }
    /// The inputs that the task has so far, with their places, by slot.
    pub(crate) fn inputs(&self, task: TaskId) -> impl Iterator<Item = &wire::InputAt> {
        let index = task.local.index();
        let segment = self.part(task).and_then(|part| part.segment(index));
        let side = segment.and_then(|segment| segment.side(index));
        side.into_iter().flat_map(|side| side.inputs.values())
    }
}
