//! Applications in stages: molecular dynamics and brain images.

use super::draw::Draw;
use super::keys::Keys;
use super::shapes::task_count;
use super::{Data, body_and_duration, output_of, spec_of};
use crate::graph::Graph;
use crate::graph::builder::{GraphBuilder, TaskInit};
use crate::graph::error::GeneratorError;
use crate::graph::quantity::parse_size_bytes;
use crate::limits::GRAPH_TASKS_MAX;

/// The common parts of all tasks of such a graph.
struct Stages<'k, 'a> {
    keys: &'k Keys<'a>,
    builder: GraphBuilder,
    data: Data,
    duration: Option<Draw>,
    output: Draw,
    /// By stage.
    specs: Vec<u32>,
}

impl<'k, 'a> Stages<'k, 'a> {
    fn new(keys: &'k Keys<'a>, tasks: usize, stages: u32) -> Result<Self, GeneratorError> {
        let (body, duration) = body_and_duration(keys)?;
        let output = keys.draw("output", parse_size_bytes)?.expect("it has a default");
        let mut builder = GraphBuilder::new(keys.text);
        builder.reserve(tasks, tasks);
        let specs = (1..=stages).map(|stage| {
            let name = format!("stage{stage}-{{i}}");
            let result = output_of("out", &format!("{name}.out"), output);
            builder.spec(spec_of(&format!("stage{stage}"), &name, body.clone(), [result]))
        });
        let specs = specs.collect();
        let data = Data { seed: keys.number("seed")? };
        Ok(Self { keys, builder, data, duration, output, specs })
    }

    /// Adds a task of a stage (from 0) that reads its parents' outputs.
    fn task(&mut self, stage: usize, entry: u64, parents: impl Iterator<Item = u32>) -> u32 {
        let index = self.builder.tasks() as u64;
        let bytes = self.output.fixed().is_none().then(|| self.data.size(self.output, index));
        let task = self.builder.task(TaskInit {
            entry,
            duration_ns: self.duration.map_or(0, |draw| self.data.duration_ns(draw, index)),
            output_sizes: bytes.as_slice(),
            ..TaskInit::of(self.specs[stage])
        });
        parents.for_each(|parent| self.builder.edge(parent, task, 1));
        task
    }

    fn finish(self) -> Result<Graph, GeneratorError> {
        self.keys.finish(self.builder)
    }
}

/// Eight stages. One task begins; then each molecule has seven stages of 1, 1, 1, `width`,
/// `gather`, 1 and 1 tasks. With the defaults a molecule has 84 tasks, so 244 molecules make the
/// published 20,497 tasks. Their division among the stages is assumed.
pub(super) fn moldyn(keys: &mut Keys<'_>) -> Result<Graph, GeneratorError> {
    let molecules = task_count(keys, "molecules")?;
    let (width, gather) = (task_count(keys, "width")?, task_count(keys, "gather")?);
    if gather > width {
        return Err(keys.bad("gather", format!("it gathers from {width} tasks only")));
    }
    let per_molecule = 5 + u64::from(width) + u64::from(gather);
    let tasks = per_molecule.saturating_mul(molecules.into()).saturating_add(1);
    if tasks > GRAPH_TASKS_MAX as u64 {
        let reason = format!("that makes more than {} tasks", GRAPH_TASKS_MAX);
        return Err(keys.bad("molecules", reason));
    }
    let mut stages = Stages::new(keys, tasks as usize, 8)?;
    stages.builder.note("how the tasks of a molecule divide among the stages is assumed");
    let begin = stages.task(0, 0, std::iter::empty());
    for molecule in 0..u64::from(molecules) {
        let mut last = begin;
        for stage in 1..=3 {
            last = stages.task(stage, molecule, [last].into_iter());
        }
        let number = |at: u32, of: u32| molecule * u64::from(of) + u64::from(at);
        let wide: Vec<u32> =
            (0..width).map(|at| stages.task(4, number(at, width), [last].into_iter())).collect();
        let gathered: Vec<u32> = (0..gather)
            .map(|at| {
                let share = wide.iter().copied().skip(at as usize).step_by(gather as usize);
                stages.task(5, number(at, gather), share)
            })
            .collect();
        let sum = stages.task(6, molecule, gathered.into_iter());
        stages.task(7, molecule, [sum].into_iter());
    }
    stages.finish()
}

/// A pipeline for each volume, of 12 stages by default.
pub(super) fn fmri(keys: &mut Keys<'_>) -> Result<Graph, GeneratorError> {
    let (volumes, length) = (task_count(keys, "volumes")?, keys.positive("length")?);
    let tasks = u64::from(volumes).saturating_mul(u64::from(length));
    if tasks > GRAPH_TASKS_MAX as u64 {
        let reason = format!("that makes more than {} tasks", GRAPH_TASKS_MAX);
        return Err(keys.bad("volumes", reason));
    }
    let mut stages = Stages::new(keys, tasks as usize, length)?;
    for volume in 0..u64::from(volumes) {
        let mut last = None;
        for stage in 0..length as usize {
            last = Some(stages.task(stage, volume, last.into_iter()));
        }
    }
    stages.finish()
}
