//! Reads graphs of the Estee study as JSON (S. Böhm, J. Beránek: Runtime vs scheduler: analyzing
//! Dask's overheads, 2020, and the study before it). The text is a list of tasks, numbered by their
//! position. A task has `d` (seconds), `e_d` (expected seconds), `cpus` (cores), `outputs` (each
//! with `s` and `e_s`, its size and expected size in MiB) and `inputs` (pairs of task and output).
//! Expected values become the graph's estimates.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};

use crate::formats::detect::LoadOptions;
use crate::formats::error::Problem;
use crate::formats::json_guard::{Element, guarded};
use crate::formats::recorded::{self, Shape, Shapes};
use crate::formats::text::{Misread, Source};
use crate::graph::Graph;
use crate::graph::builder::{GraphBuilder, TaskInit};

const MIB: f64 = 1024.0 * 1024.0;

#[derive(Deserialize, Debug)]
struct Task {
    d: f64,
    e_d: Option<f64>,
    #[serde(default = "one")]
    cpus: u32,
    outputs: Vec<Output>,
    inputs: Vec<(u32, u32)>,
}

#[derive(Deserialize, Debug)]
struct Output {
    s: f64,
    e_s: Option<f64>,
}

fn one() -> u32 {
    1
}

/// Adds the tasks in the order of the text.
struct Reader<'o> {
    builder: GraphBuilder,
    shapes: Shapes,
    options: &'o LoadOptions,
    element: &'o Element,
    /// An error in a task that is not a JSON error.
    problem: Option<Problem>,
}

pub(crate) fn read(
    source: &mut Source<'_>,
    name: &str,
    options: &LoadOptions,
) -> Result<Graph, Misread> {
    let element = Element::default();
    let source = guarded(source, &element);
    let mut reader = Reader {
        element: &element,
        builder: GraphBuilder::new(name),
        shapes: Shapes::new("estee", "t{i}"),
        options,
        problem: None,
    };
    let mut json = serde_json::Deserializer::from_reader(source);
    let done = reader.deserialize(&mut json).and_then(|()| json.end());
    if let Err(error) = done {
        let at = Some((error.line(), error.column()));
        return Err(match reader.problem {
            Some(problem) => Misread { at, problem },
            None => crate::formats::wfformat::json_error(&error),
        });
    }
    if let Some((task, problem)) = reader.builder.first_bad_edge() {
        let task = format!("t{task}");
        return Err(Problem::BadTask { task, reason: problem, hint: None }.into());
    }
    Ok(reader.builder.finish()?)
}

impl<'de> DeserializeSeed<'de> for &mut Reader<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Reader<'_> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of tasks")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut tasks: A) -> Result<(), A::Error> {
        while let Some(task) = tasks.next_element::<Task>()? {
            self.element.begin();
            let number = self.builder.tasks();
            if let Err(reason) = self.task(&task) {
                let task = format!("t{number}");
                self.problem = Some(Problem::BadTask { task, reason, hint: None });
                return Err(A::Error::custom("a task cannot be"));
            }
        }
        Ok(())
    }
}

impl Reader<'_> {
    fn task(&mut self, task: &Task) -> Result<(), String> {
        let number = self.builder.tasks() as u32;
        let sizes = sizes(task.outputs.iter().map(|output| output.s))?;
        let estimates = sizes_expected(&task.outputs)?;
        let shape = Shape {
            cpus: if self.options.recorded_cores {
                recorded::slots(f64::from(task.cpus))
            } else {
                1
            },
            outputs: sizes.len(),
            ..Shape::default()
        };
        let spec = self.shapes.spec(&mut self.builder, shape);
        self.builder.task(TaskInit {
            entry: u64::from(number),
            duration_ns: recorded::duration_ns(task.d)?,
            output_sizes: &sizes,
            estimate_ns: task.e_d.map(recorded::duration_ns).transpose()?,
            size_estimates: &estimates,
            ..TaskInit::of(spec)
        });
        for &(parent, output) in &task.inputs {
            if parent == number {
                return Err("it reads its own output".to_owned());
            }
            // The last number means "order only" after adding one.
            let output = output.checked_add(1).ok_or("it reads an output that cannot be")?;
            self.builder.edge(parent, number, output);
        }
        Ok(())
    }
}

fn sizes(mib: impl Iterator<Item = f64>) -> Result<Vec<u64>, String> {
    mib.map(|mib| recorded::size_bytes(mib * MIB)).collect()
}

/// Estimates for all outputs, or for none.
fn sizes_expected(outputs: &[Output]) -> Result<Vec<u64>, String> {
    let expected: Option<Vec<f64>> = outputs.iter().map(|output| output.e_s).collect();
    sizes(expected.unwrap_or_default().into_iter())
}
