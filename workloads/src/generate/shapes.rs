//! The benchmark shapes of the paper: bags, pipelines, trees.

use proto::wire::spec::Body;

use super::draw::Draw;
use super::heavy_tail;
use super::keys::Keys;
use super::{Data, STREAM_ORDER, body, body_and_duration, output_of, spec_of};
use crate::generate::random::Shuffle;
use crate::graph::Graph;
use crate::graph::builder::{GraphBuilder, TaskInit};
use crate::graph::error::GeneratorError;
use crate::graph::quantity::parse_size_bytes;
use crate::limits::GRAPH_TASKS_MAX;

/// The number of tasks per slot in the paper's table 3.
const TABLE3_TASKS_PER_SLOT: u64 = 1000;
const TABLE3: &[(&str, &str)] = &[
    ("duration", "uniform(0,100ms)"),
    ("output", "uniform(0,10MB)"),
    ("degree", "10"),
    ("length", "10"),
];

/// Pairs of parent and child.
type Edges = Box<dyn Iterator<Item = (u32, u32)>>;

/// The rule by which the edges of a benchmark graph follow from its task numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Chains of this number of tasks, one after the other; of one task: a bag.
    Pipelines { length: u64 },
    /// A complete tree from its root: the children of `i` are `i*degree+1 ..= i*degree+degree`.
    FanOut { degree: u64 },
    /// The same tree with its edges and its numbers reversed: leaves come first.
    FanIn { degree: u64 },
}

/// The generators that are a [`Shape`].
pub(super) const NAMES: &[&str] =
    &["bag", "pipeline", "chain", "fan-out", "fan-in", "star-out", "star-in"];

/// Builds the bags, pipelines and trees.
pub(super) fn build(keys: &mut Keys<'_>) -> Result<Graph, GeneratorError> {
    preset(keys)?;
    let tasks = task_count(keys, "tasks")?;
    let shape = shape_of(keys, u64::from(tasks))?;
    let edges = edge_list(tasks, shape);
    let is_bag = matches!(shape, Shape::Pipelines { length: 1 });
    let (body, duration) = body_and_duration(keys)?;
    let ns = |index, data: &Data| duration.map_or(0, |draw| data.duration_ns(draw, index));
    assemble(keys, tasks, body, ns, (edges, !is_bag))
}

pub(super) fn shape_of(keys: &Keys<'_>, tasks: u64) -> Result<Shape, GeneratorError> {
    let star = tasks.saturating_sub(1).max(1);
    let positive = |key| keys.positive(key).map(u64::from);
    Ok(match keys.generator {
        "pipeline" => Shape::Pipelines { length: positive("length")? },
        "chain" => Shape::Pipelines { length: tasks },
        "fan-out" => Shape::FanOut { degree: positive("degree")? },
        "fan-in" => Shape::FanIn { degree: positive("degree")? },
        "star-out" => Shape::FanOut { degree: star },
        "star-in" => Shape::FanIn { degree: star },
        _ => Shape::Pipelines { length: 1 },
    })
}

/// Builds the bag of [`heavy_tail`].
pub(super) fn heavy(keys: &mut Keys<'_>) -> Result<Graph, GeneratorError> {
    let tasks = task_count(keys, "tasks")?;
    let count = u64::from(tasks);
    let ranks = Shuffle::new(keys.number("seed")?, STREAM_ORDER, count);
    let ns = |index, _: &Data| heavy_tail::duration_ns(ranks.at(index), count);
    assemble(keys, tasks, body(keys, true)?, ns, (Box::new(std::iter::empty()), false))
}

/// Applies a preset; values given explicitly take precedence.
pub(super) fn preset(keys: &mut Keys<'_>) -> Result<(), GeneratorError> {
    match keys.value("preset") {
        None if keys.value("slots").is_some() => {
            Err(keys.bad("slots", "it goes with preset=table3".to_owned()))
        }
        None => Ok(()),
        Some("table3") => {
            let slots = if keys.value("slots").is_some() { keys.positive("slots")? } else { 1 };
            keys.prefer("tasks", (TABLE3_TASKS_PER_SLOT * u64::from(slots)).to_string());
            for (key, value) in TABLE3 {
                keys.prefer(key, (*value).to_owned());
            }
            Ok(())
        }
        Some(_) => Err(keys.bad("preset", "the known preset is table3".to_owned())),
    }
}

/// Parses a valid number of tasks.
pub(super) fn task_count(keys: &Keys<'_>, key: &str) -> Result<u32, GeneratorError> {
    let tasks = keys.number(key)?;
    if tasks == 0 || tasks > GRAPH_TASKS_MAX as u64 {
        let reason = format!("a number of {key} is from 1 to {}", GRAPH_TASKS_MAX);
        return Err(keys.bad(key, reason));
    }
    Ok(tasks as u32)
}

fn assemble(
    keys: &Keys<'_>,
    tasks: u32,
    body: Body,
    duration_ns: impl Fn(u64, &Data) -> u64,
    (edges, has_edges): (Edges, bool),
) -> Result<Graph, GeneratorError> {
    let data = Data { seed: keys.number("seed")? };
    let output: Option<Draw> = keys.draw("output", parse_size_bytes)?;
    let mut builder = GraphBuilder::new(keys.text);
    builder.reserve(tasks as usize, if has_edges { tasks as usize } else { 0 });
    let outputs = output.map(|draw| output_of("out", "t{i}.out", draw));
    let spec = builder.spec(spec_of(keys.generator, "t{i}", body, outputs));
    for index in 0..u64::from(tasks) {
        // A size that all tasks share is in the spec.
        let size = output.filter(|draw| draw.fixed().is_none()).map(|draw| data.size(draw, index));
        builder.task(TaskInit {
            entry: index,
            duration_ns: duration_ns(index, &data),
            output_sizes: size.as_slice(),
            ..TaskInit::of(spec)
        });
    }
    let flows = u32::from(output.is_some());
    for (parent, child) in edges {
        builder.edge(parent, child, flows);
    }
    keys.finish(builder)
}

/// All edges, by child. Lengths and degrees of a generator fit into task numbers.
fn edge_list(tasks: u32, shape: Shape) -> Edges {
    match shape {
        Shape::Pipelines { length } => Box::new(
            (1..tasks)
                .filter(move |child| !u64::from(*child).is_multiple_of(length))
                .map(|child| (child - 1, child)),
        ),
        Shape::FanOut { degree } => {
            let degree = degree as u32;
            Box::new((1..tasks).map(move |child| ((child - 1) / degree, child)))
        }
        Shape::FanIn { degree } => {
            let (last, degree) = (tasks - 1, degree as u32);
            Box::new((0..last).map(move |parent| (parent, last - (last - parent - 1) / degree)))
        }
    }
}
