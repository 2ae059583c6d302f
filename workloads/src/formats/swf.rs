//! Reads the Standard Workload Format of the Parallel Workloads Archive (D. Feitelson, D. Tsafrir,
//! D. Krakov: Experience with using the Parallel Workloads Archive, 2014): one job per line with 18
//! numbers, -1 for unknown values, `;` before comments.
//!
//! Each job becomes a task under its number. Its values are the run time, the allocated (or
//! requested) processors, the memory, the arrival as release time, and the requested time as the
//! user's estimate. The preceding job of a job becomes its parent; think times are ignored.

use hashbrown::HashMap;

use crate::formats::detect::LoadOptions;
use crate::formats::deviations::Deviations;
use crate::formats::error::Problem;
use crate::formats::recorded::{self, Shape, Shapes};
use crate::formats::text::{Field, Line, Lines, Misread, Source};
use crate::graph::Graph;
use crate::graph::builder::{GraphBuilder, TaskInit};

/// The number of fields in a line.
pub(crate) const FIELDS: usize = 18;

/// The fields that are used, in the order of the format.
#[derive(Clone, Copy)]
struct Job {
    number: u64,
    submit_s: f64,
    run_s: f64,
    processors: f64,
    memory_kib: f64,
    requested_s: f64,
    preceding: f64,
}

pub(crate) fn read(
    source: &mut Source<'_>,
    name: &str,
    options: &LoadOptions,
    deviations: &Deviations,
) -> Result<Graph, Misread> {
    let mut lines = Lines::with_comments(source, b';');
    let mut builder = GraphBuilder::new(name);
    let mut shapes = Shapes::new("job", "{i}");
    let mut tasks: HashMap<u64, u32, foldhash::fast::FixedState> = HashMap::default();
    let mut waits: Vec<(u64, u32)> = Vec::new();
    let mut first_ns = u64::MAX;
    let mut without_time = 0_u64;
    while let Some(line) = lines.next()? {
        if line.text.trim().is_empty() {
            continue;
        }
        if builder.tasks() == 0 && is_header(line) {
            deviations.pass((line.number, 1), "a header line without ';' is passed over")?;
            continue;
        }
        let (job, first) = Job::read(line, deviations)?;
        let task = builder.tasks() as u32;
        if tasks.insert(job.number, task).is_some() {
            return Err(first.fault(Problem::DuplicateTask { task: job.number.to_string() }));
        }
        let bad = |reason| Problem::BadTask { task: job.number.to_string(), reason, hint: None };
        let nanoseconds = |s: f64| recorded::duration_ns(s).map_err(|r| first.fault(bad(r)));
        let release_ns = nanoseconds(job.submit_s.max(0.0))?;
        first_ns = first_ns.min(release_ns);
        without_time += u64::from(job.run_s < 0.0);
        let mut shape = Shape { cpus: 1, ..Shape::default() };
        if options.recorded_cores {
            shape.cpus = recorded::slots(job.processors);
            // The archive counts kilobytes per processor.
            let memory = job.memory_kib.max(0.0) * 1024.0 * f64::from(shape.cpus);
            shape.memory_bytes = recorded::size_bytes(memory).map_err(|r| first.fault(bad(r)))?;
        }
        let spec = shapes.spec(&mut builder, shape);
        builder.task(TaskInit {
            entry: job.number,
            duration_ns: nanoseconds(job.run_s.max(0.0))?,
            release_ns,
            estimate_ns: match job.requested_s {
                requested_s if requested_s >= 0.0 => Some(nanoseconds(requested_s)?),
                _ => None,
            },
            ..TaskInit::of(spec)
        });
        if job.preceding >= 1.0 {
            if job.preceding as u64 == job.number {
                let at = (first.line, first.column);
                deviations
                    .pass(at, "a job that names itself as the preceding one waits for none")?;
            } else {
                waits.push((job.preceding as u64, task));
            }
        }
    }
    builder.begin_releases_at(first_ns);
    let mut absent = 0_u64;
    for (preceding, task) in waits {
        match tasks.get(&preceding) {
            Some(parent) => builder.edge(*parent, task, 0),
            None => absent += 1,
        }
    }
    if without_time > 0 {
        builder.note(&format!("{without_time} jobs without a run time take none"));
    }
    if absent > 0 {
        builder.note(&format!("{absent} jobs waited for jobs that are not in the file"));
    }
    Ok(builder.finish()?)
}

/// A line without any number.
fn is_header(line: Line<'_>) -> bool {
    line.words().all(|word| word.text.parse::<f64>().is_err())
}

impl Job {
    /// Parses a job, and returns its first field for errors.
    fn read<'l>(line: Line<'l>, deviations: &Deviations) -> Result<(Self, Field<'l>), Misread> {
        let fields: Vec<Field<'_>> = line.words().take(FIELDS + 1).collect();
        if let Some(further) = fields.get(FIELDS) {
            let at = (further.line, further.column);
            deviations.pass(at, "columns after the 18th are passed over")?;
        }
        if fields.len() < FIELDS {
            let reason = format!("a job has {FIELDS} numbers, not {}", fields.len());
            return Err(line.syntax(line.text.len() + 1, reason));
        }
        let at = |position: usize, what: &str| fields[position - 1].number(what);
        let either = |first: f64, second: f64| if first >= 0.0 { first } else { second };
        let job = Self {
            number: fields[0].whole("a job's number")?,
            submit_s: at(2, "a submit time")?,
            run_s: at(4, "a run time")?,
            processors: either(at(5, "processors")?, at(8, "requested processors")?),
            memory_kib: either(at(7, "used memory")?, at(10, "requested memory")?),
            requested_s: at(9, "a requested time")?,
            preceding: at(17, "a preceding job")?,
        };
        Ok((job, fields[0]))
    }
}
