//! Reads the task table of Alibaba's cluster trace of 2018. Its dependencies are in the names:
//! `R4_1_2` is task 4 of its job, after 1 and 2.
//!
//! There are two forms. One is `batch_task.csv` as published (task, instances, job, type, status,
//! start, end, plan_cpu in hundredths of a core, plan_mem). The other has one JSON object per job
//! and line: `{"job": ..., "tasks": [{"name", "start", "expected_duration", "cpu", ...}]}`. A row
//! becomes one task with the duration of one of its instances. A job's first start is its release
//! time. Dependencies on rows missing from the trace are left out, as is the memory, which has no
//! unit.

use hashbrown::HashMap;
use serde::Deserialize;

use crate::formats::detect::LoadOptions;
use crate::formats::deviations::Deviations;
use crate::formats::error::Problem;
use crate::formats::names::Names;
use crate::formats::recorded::{self, Shape, Shapes};
use crate::formats::text::{Field, Line, Lines, Misread, Source, shown};
use crate::graph::Graph;
use crate::graph::builder::{GraphBuilder, TaskInit};

/// The number of columns of `batch_task.csv`.
pub(crate) const COLUMNS: usize = 9;

#[derive(Deserialize, Debug)]
struct JobLine {
    job: String,
    tasks: Vec<TaskObject>,
}

#[derive(Deserialize, Debug)]
struct TaskObject {
    name: String,
    start: Option<f64>,
    expected_duration: Option<f64>,
    cpu: Option<f64>,
}

/// A row of either form.
#[derive(Clone, Copy, Debug)]
struct Row<'t> {
    job: &'t str,
    name: &'t str,
    /// 0 if it never started.
    start_s: f64,
    duration_s: f64,
    /// Hundredths of a core.
    cpu: f64,
}

struct Reader<'o> {
    deviations: &'o Deviations,
    options: &'o LoadOptions,
    names: Names,
    jobs: Names,
    /// By job: its first start.
    first_start_ns: Vec<u64>,
    tasks: Vec<Task>,
    numbers: HashMap<(u32, u64), u32, foldhash::fast::FixedState>,
    /// A task and the number of the task that it waits for.
    waits: Vec<(u32, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    job: u32,
    duration_ns: u64,
    cpus: u32,
}

pub(crate) fn read(
    source: &mut Source<'_>,
    name: &str,
    options: &LoadOptions,
    deviations: &Deviations,
) -> Result<Graph, Misread> {
    let mut lines = Lines::new(source);
    let mut reader = Reader {
        deviations,
        options,
        names: Names::default(),
        jobs: Names::default(),
        first_start_ns: Vec::new(),
        tasks: Vec::new(),
        numbers: HashMap::default(),
        waits: Vec::new(),
    };
    while let Some(line) = lines.next()? {
        if line.text.trim().is_empty() || line.text.starts_with("task_name,") {
            continue;
        }
        if line.text.trim_start().starts_with('{') {
            reader.object(line)?;
        } else {
            reader.columns(line)?;
        }
    }
    if let (Some(job), true) = (&options.job, reader.tasks.is_empty()) {
        let reason = format!("the trace has no job '{}'", shown(job));
        return Err(Problem::NotAWorkflow { reason }.into());
    }
    reader.finish(options.job.as_deref().unwrap_or(name))
}

impl Reader<'_> {
    fn object(&mut self, line: Line<'_>) -> Result<(), Misread> {
        let job: JobLine = serde_json::from_str(line.text).map_err(|error| {
            let mut misread = crate::formats::wfformat::json_error(&error);
            misread.at = Some((line.number, error.column().max(1)));
            misread
        })?;
        for task in &job.tasks {
            let row = Row {
                job: &job.job,
                name: &task.name,
                start_s: task.start.unwrap_or(0.0),
                duration_s: task.expected_duration.unwrap_or(0.0),
                cpu: task.cpu.unwrap_or(0.0),
            };
            let fault = |problem| Misread::at(line.number, 1, problem);
            self.row(row).map_err(fault)?;
        }
        Ok(())
    }

    fn columns(&mut self, line: Line<'_>) -> Result<(), Misread> {
        let fields: Vec<Field<'_>> = line.between_commas().take(COLUMNS + 1).collect();
        if let Some(further) = fields.get(COLUMNS) {
            let at = (further.line, further.column);
            self.deviations.pass(at, "columns after the 9th are passed over")?;
        }
        let &[name, _, job, _, _, start, end, cpu, ..] = fields.as_slice() else {
            let count = line.between_commas().count();
            let reason = format!("a task has {COLUMNS} columns, not {count}");
            return Err(line.syntax(line.text.len() + 1, reason));
        };
        // Unknown values are empty.
        let number = |field: Field<'_>, what: &str| match field.text.trim() {
            "" => Ok(0.0),
            _ => field.number(what),
        };
        let start_s = number(start, "a start time")?;
        let end_s = number(end, "an end time")?;
        let row = Row {
            job: job.text.trim(),
            name: name.text.trim(),
            start_s,
            // A task that never ended has an end of 0.
            duration_s: if end_s > 0.0 { end_s - start_s } else { 0.0 },
            cpu: number(cpu, "plan_cpu")?,
        };
        self.row(row).map_err(|problem| name.fault(problem))
    }

    fn row(&mut self, row: Row<'_>) -> Result<(), Problem> {
        if self.options.job.as_ref().is_some_and(|job| job != row.job) {
            return Ok(());
        }
        let name = format!("{}/{}", row.job, row.name);
        let bad = |reason| Problem::BadTask { task: name.clone(), reason, hint: None };
        let duration_ns = recorded::duration_ns(row.duration_s).map_err(bad)?;
        let start_ns = recorded::duration_ns(row.start_s).map_err(bad)?;
        let (job, is_new) = self.jobs.number(row.job);
        if is_new {
            self.first_start_ns.push(u64::MAX);
        }
        if start_ns > 0 {
            let first = &mut self.first_start_ns[job as usize];
            *first = (*first).min(start_ns);
        }
        let (task, is_new) = self.names.number(&name);
        if !is_new {
            return Err(Problem::DuplicateTask { task: name });
        }
        self.tasks.push(Task { job, duration_ns, cpus: recorded::slots(row.cpu / 100.0) });
        if let Some((number, parents)) = dependencies(row.name) {
            self.numbers.insert((job, number), task);
            self.waits.extend(parents.filter(|parent| *parent != number).map(|p| (task, p)));
        }
        Ok(())
    }

    fn finish(self, name: &str) -> Result<Graph, Misread> {
        let Self { options, names, first_start_ns, tasks, numbers, waits, .. } = self;
        let mut builder = GraphBuilder::new(name);
        builder.reserve(tasks.len(), waits.len());
        let mut shapes = Shapes::new("task", "");
        let first_ns = first_start_ns.iter().copied().min().unwrap_or(0);
        for (number, task) in tasks.iter().enumerate() {
            let cpus = if options.recorded_cores { task.cpus } else { 1 };
            let spec = shapes.spec(&mut builder, Shape { cpus, ..Shape::default() });
            let start_ns = first_start_ns[task.job as usize];
            builder.task(TaskInit {
                entry: number as u64,
                duration_ns: task.duration_ns,
                name: names.name(number as u32),
                // A job without any start is released at the beginning.
                release_ns: if start_ns == u64::MAX { 0 } else { start_ns - first_ns },
                ..TaskInit::of(spec)
            });
        }
        let mut absent = 0_u64;
        for (task, number) in waits {
            match numbers.get(&(tasks[task as usize].job, number)) {
                Some(parent) => builder.edge(*parent, task, 0),
                None => absent += 1,
            }
        }
        if absent > 0 {
            builder.note(&format!("{absent} dependencies on tasks that are not in the trace"));
        }
        Ok(builder.finish()?)
    }
}

/// A task's number and those it waits for; `None` for other names. The form is letters, a number,
/// further numbers after underscores, and an optional stage (`_Stg3`).
fn dependencies(name: &str) -> Option<(u64, impl Iterator<Item = u64>)> {
    let letters = name.find(|c: char| !c.is_ascii_alphabetic())?;
    let mut rest = &name[letters..];
    if letters == 0 {
        return None;
    }
    if let Some((before, stage)) = rest.rsplit_once("_Stg") {
        stage.parse::<u64>().ok()?;
        rest = before;
    }
    let is_plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !rest.split('_').all(|part| is_plain(part) && part.parse::<u64>().is_ok()) {
        return None;
    }
    let mut numbers = rest.split('_').filter_map(|part| part.parse().ok());
    Some((numbers.next()?, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_task_waits_for() {
        let read = |name: &str| dependencies(name).map(|(number, of)| (number, of.collect()));
        let expect = |number: u64, of: &[u64]| Some((number, of.to_vec()));
        assert_eq!(read("M1"), expect(1, &[]));
        assert_eq!(read("R4_1_2_3"), expect(4, &[1, 2, 3]));
        assert_eq!(read("J12_3_Stg7"), expect(12, &[3]));
        for name in ["task_Nzg3ODAwNDgzMTAwNTc2NTQ2Mw==", "", "M", "4_1", "M1_", "M1_x", "M1_Stg"] {
            assert_eq!(read(name), None, "{name}");
        }
    }
}
