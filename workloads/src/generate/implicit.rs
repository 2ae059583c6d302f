//! The benchmark shapes without their graphs: all properties of a task follow from its number. The
//! bounds use them.
//!
//! A bag, pipelines or a tree of 10^9 tasks takes a few words here; [`super::generate`] would store
//! each task. Both draw the same durations and sizes for the same text.

use std::ops::Range;

use super::draw::Draw;
use super::keys::Keys;
use super::shapes::{self, Shape};
use super::{Data, body_and_duration};
use crate::graph::error::GeneratorError;
use crate::graph::quantity::parse_size_bytes;

/// A generated workflow that is only computed; its tasks are never stored.
const IMPLICIT_TASKS_MAX: u64 = 1 << 36;

/// A bag, pipelines or a tree, described by its text.
#[derive(Clone, PartialEq, Debug)]
pub struct Implicit {
    tasks: u64,
    shape: Shape,
    seed: u64,
    duration: Option<Draw>,
    output: Option<Draw>,
}

impl Implicit {
    /// Parses a generator's text; `None` if it is another kind of graph.
    ///
    /// # Errors
    /// As [`super::generate`], but for a larger number of tasks.
    pub fn parse(text: &str) -> Result<Option<Self>, GeneratorError> {
        let (mut keys, _) = Keys::parse(text)?;
        if !shapes::NAMES.contains(&keys.generator) {
            return Ok(None);
        }
        shapes::preset(&mut keys)?;
        let tasks = keys.number("tasks")?;
        if tasks == 0 || tasks > IMPLICIT_TASKS_MAX {
            let most = IMPLICIT_TASKS_MAX;
            let reason = format!("a number of tasks without a graph is from 1 to {most}");
            return Err(keys.bad("tasks", reason));
        }
        let shape = shapes::shape_of(&keys, tasks)?;
        let (_, duration) = body_and_duration(&keys)?;
        let output = keys.draw("output", parse_size_bytes)?;
        Ok(Some(Self { tasks, shape, seed: keys.number("seed")?, duration, output }))
    }

    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    #[must_use]
    pub fn edges(&self) -> u64 {
        match self.shape {
            Shape::Pipelines { length } => self.tasks - self.tasks.div_ceil(length),
            Shape::FanOut { .. } | Shape::FanIn { .. } => self.tasks - 1,
        }
    }

    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// True if edges carry bytes.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.output.is_some()
    }

    /// Replaces `durations_ns` with the durations of consecutive tasks.
    pub fn durations_ns(&self, tasks: Range<u64>, durations_ns: &mut Vec<u64>) {
        let data = Data { seed: self.seed };
        durations_ns.clear();
        match self.duration {
            None => durations_ns.extend(tasks.map(|_| 0)),
            Some(draw) => durations_ns.extend(tasks.map(|index| data.duration_ns(draw, index))),
        }
    }

    /// Replaces `sizes` with the output sizes of consecutive tasks.
    pub fn output_bytes(&self, tasks: Range<u64>, sizes: &mut Vec<u64>) {
        let data = Data { seed: self.seed };
        sizes.clear();
        match self.output {
            None => sizes.extend(tasks.map(|_| 0)),
            Some(draw) => sizes.extend(tasks.map(|index| data.size(draw, index))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn it_is_the_graph_of_the_same_text() {
        let texts = [
            "bag:tasks=50,duration=uniform(0,100ms)",
            "pipeline:tasks=57,length=10,duration=gamma(2,1s),output=uniform(0,10MB),seed=4",
            "chain:tasks=9,duration=1s,output=5B",
            "fan-out:tasks=77,degree=3,duration=exponential(1s)",
            "fan-in:preset=table3,slots=2",
            "star-in:tasks=30,body=noop",
        ];
        for text in texts {
            let graph = generate(text).unwrap();
            let implicit = Implicit::parse(text).unwrap().unwrap();
            assert_eq!(implicit.tasks(), graph.len() as u64, "{text}");
            assert_eq!(implicit.edges(), graph.edge_pairs(), "{text}");
            let mut values = Vec::new();
            implicit.durations_ns(0..implicit.tasks(), &mut values);
            assert!(
                graph.tasks().map(|task| task.duration_ns).eq(values.iter().copied()),
                "{text}"
            );
            implicit.output_bytes(0..implicit.tasks(), &mut values);
            let sizes = graph.indices().map(|task| graph.output_bytes(task, 0));
            assert!(sizes.eq(values.iter().copied()), "{text}");
            assert_eq!(implicit.has_data(), graph.specs()[0].outputs.len() == 1, "{text}");
        }
    }

    #[test]
    fn it_is_larger_than_any_graph_and_not_boundless() {
        let tasks = |tasks: u64| Implicit::parse(&format!("bag:tasks={tasks}"));
        assert_eq!(tasks(10_000_000_000).unwrap().unwrap().tasks(), 10_000_000_000);
        assert!(tasks(IMPLICIT_TASKS_MAX + 1).is_err());
        assert!(tasks(0).is_err());
        assert_eq!(Implicit::parse("all-pairs:files=3").unwrap(), None);
    }
}
