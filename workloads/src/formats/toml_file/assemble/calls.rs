//! Calls of functions: their results as inputs of other tasks, and their arguments.

use proto::{entry, wire};

use super::super::Fault;
use super::super::function::{FunctionCall, Passed, RESULT};
use super::super::index::Found;
use super::super::table::{Body, InputFile, TaskTable};
use super::{Assembly, Source, path_text};
use crate::formats::error::Problem;
use crate::graph::expand;

impl Assembly<'_> {
    /// True if this task calls a function.
    pub(super) fn calls(&self, found: Found) -> bool {
        matches!(self.tables[found.owner.group as usize].body, Body::Function(_))
    }

    /// Checks the results among the inputs that all elements share.
    pub(super) fn check_results(&self, table: &TaskTable, sources: &[Source]) -> Result<(), Fault> {
        for (input, source) in table.inputs.iter().zip(sources) {
            match source {
                Source::Task(found) => self.check_result(table, input, Some(*found), "")?,
                Source::External => self.check_result(table, input, None, &input.file.value)?,
                Source::Upload(_) | Source::Varies => {}
            }
        }
        Ok(())
    }

    /// The task that makes an input of one element.
    pub(super) fn maker(
        &self,
        table: &TaskTable,
        input: &InputFile,
        (group, position): (usize, u32),
    ) -> Result<Option<Found>, Fault> {
        let text = expand(&input.file.value, self.element(group, position));
        let found = match input.is_result {
            true => self.names.find(&text),
            false => {
                let found = self.files.find(&text);
                found.filter(|found| !self.replaces(*found, (group, position), &text))
            }
        };
        self.check_result(table, input, found, &text)?;
        Ok(found)
    }

    /// A result must be that of a function.
    fn check_result(
        &self,
        table: &TaskTable,
        input: &InputFile,
        found: Option<Found>,
        name: &str,
    ) -> Result<(), Fault> {
        if !input.is_result {
            return Ok(());
        }
        let Some(found) = found else {
            let (task, parent) = (table.name.value.clone(), name.to_owned());
            let problem = Problem::UnknownTask { task, parent, list: RESULT };
            return Err(table.name.fault(problem));
        };
        if self.calls(found) {
            return Ok(());
        }
        let reason = format!("task '{}' calls no function and has no result", self.told(found));
        let fault = Fault::task(table.name.at, &table.name.value, reason);
        Err(fault.with_hint("name its output file in inputs, and pass \"{in:KEY}\""))
    }

    /// The place of each input in a call.
    fn passed(&self, table: &TaskTable, sources: &[Source], element: u64) -> Vec<Passed> {
        let mut slots = 0..;
        let mut place = |(input, source): (&InputFile, &Source)| match source {
            Source::Task(_) | Source::Upload(_) => Passed::Slot(slots.next().unwrap_or(0)),
            Source::External | Source::Varies => {
                let file = expand(&input.file.value, element);
                Passed::Path(path_text(&self.directory.join(file)))
            }
        };
        table.inputs.iter().zip(sources).map(&mut place).collect()
    }

    pub(super) fn call(
        &self,
        table: &TaskTable,
        call: &FunctionCall,
        sources: &[Source],
    ) -> wire::Call {
        let directory = match &table.cwd {
            Some(cwd) => self.directory.join(cwd),
            None => self.directory.to_owned(),
        };
        let mut spec = call.spec(&self.passed(table, sources, 0), &path_text(&directory));
        let env = table.env.iter().map(|(name, value)| {
            let (name, value) = (name.clone(), value.clone());
            wire::Env { name, value }
        });
        spec.runtime.get_or_insert_default().env.extend(env);
        spec
    }

    /// The arguments of one element, if they differ from those of the spec.
    pub(super) fn own_arguments(
        &self,
        table: &TaskTable,
        sources: &[Source],
        element: u64,
    ) -> Vec<u8> {
        let (Body::Function(call), Some(_)) = (&table.body, &table.array) else {
            return Vec::new();
        };
        let has_own_paths = table.inputs.iter().zip(sources).any(|(input, source)| {
            *source == Source::External && entry::is_template(&input.file.value)
        });
        match call.is_template() || has_own_paths {
            true => call.element(&self.passed(table, sources, element), element),
            false => Vec::new(),
        }
    }
}
