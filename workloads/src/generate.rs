//! Graphs from a line of text: the benchmark shapes of the paper and a few more.
//!
//! `NAME:key=value,...`; the same text gives the same graph on every machine.

use proto::wire;

use crate::builder::{GraphBuilder, TaskInit};
use crate::error::GeneratorError;
use crate::graph::Graph;
use crate::quantity::{parse_duration_ns, parse_size_bytes};
use crate::random::{random, uniform};

/// Generator names and the keys each takes beside [`COMMON_KEYS`].
const GENERATORS: &[(&str, &[&str])] = &[
    ("bag", &["tasks"]),
    ("pipeline", &["tasks", "length"]),
    ("chain", &["tasks"]),
    ("fan-out", &["tasks", "degree"]),
    ("fan-in", &["tasks", "degree"]),
    ("star-out", &["tasks"]),
    ("star-in", &["tasks"]),
];
const COMMON_KEYS: &[&str] = &["duration", "output", "seed", "body"];
const TASKS_DEFAULT: u64 = 1000;
const DEGREE_DEFAULT: u64 = 10;
const LENGTH_DEFAULT: u64 = 10;
const STREAM_DURATION: u64 = 1;
const STREAM_OUTPUT: u64 = 2;

/// Whether the text begins like a generator: a known name, alone or before a colon.
#[must_use]
pub fn is_generator(text: &str) -> bool {
    let name = text.split_once(':').map_or(text, |(name, _)| name);
    GENERATORS.iter().any(|(known, _)| *known == name)
}

/// Builds the graph a generator's text describes.
///
/// # Errors
/// Unknown names and keys (the error lists the known ones), and values that make no sense.
pub fn generate(text: &str) -> Result<Graph, GeneratorError> {
    let keys = Keys::parse(text)?;
    let tasks = keys.number("tasks", TASKS_DEFAULT)?;
    if tasks == 0 || tasks > proto::limits::GRAPH_TASKS_MAX as u64 {
        let reason = format!("a number of tasks is from 1 to {}", proto::limits::GRAPH_TASKS_MAX);
        return Err(keys.bad("tasks", reason));
    }
    let tasks = tasks as u32;
    let star = u64::from(tasks).saturating_sub(1).max(1);
    let shape = match keys.generator {
        "bag" => Shape::Pipelines { length: 1 },
        "pipeline" => Shape::Pipelines { length: keys.positive("length", LENGTH_DEFAULT)? },
        "chain" => Shape::Pipelines { length: tasks },
        "fan-out" => Shape::FanOut { degree: keys.positive("degree", DEGREE_DEFAULT)? },
        "fan-in" => Shape::FanIn { degree: keys.positive("degree", DEGREE_DEFAULT)? },
        "star-out" => Shape::FanOut { degree: star as u32 },
        "star-in" => Shape::FanIn { degree: star as u32 },
        other => unreachable!("'{other}' is in the table and has a shape"),
    };
    build(&keys, tasks, shape)
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Chains of this many tasks, one after the other.
    Pipelines { length: u32 },
    /// A complete tree from its root: the children of `i` are `i*degree+1 ..= i*degree+degree`.
    FanOut { degree: u32 },
    /// The same tree with its edges and its numbers reversed: leaves come first.
    FanIn { degree: u32 },
}

fn build(keys: &Keys<'_>, tasks: u32, shape: Shape) -> Result<Graph, GeneratorError> {
    let seed = keys.number("seed", 1)?;
    let duration = keys.range("duration", parse_duration_ns)?;
    let output = keys.range("output", parse_size_bytes)?;
    let mut builder = GraphBuilder::new(keys.text);
    let edges = if matches!(shape, Shape::Pipelines { length: 1 }) { 0 } else { tasks as usize };
    builder.reserve(tasks as usize, edges);
    let spec = builder.spec(spec(keys, duration, output)?);
    for index in 0..u64::from(tasks) {
        let draw = |range: Option<(u64, u64)>, stream| {
            range.map_or(0, |(low, high)| uniform(low, high, random(seed, stream, index)))
        };
        // One size for all lives in the spec.
        let varies = output.is_some_and(|(low, high)| low != high);
        let size = [draw(output, STREAM_OUTPUT)];
        builder.task(TaskInit {
            entry: index,
            duration_ns: draw(duration, STREAM_DURATION),
            output_sizes: if varies { &size } else { &[] },
            ..TaskInit::of(spec)
        });
    }
    let flows = u32::from(output.is_some());
    for (parent, child) in edge_list(tasks, shape) {
        builder.edge(parent, child, flows);
    }
    let generator = keys.generator.to_owned();
    builder.finish().map_err(|source| GeneratorError::Graph { generator, source })
}

/// All edges, by child.
fn edge_list(tasks: u32, shape: Shape) -> Box<dyn Iterator<Item = (u32, u32)>> {
    match shape {
        Shape::Pipelines { length } => Box::new(
            (1..tasks).filter(move |child| child % length != 0).map(|child| (child - 1, child)),
        ),
        Shape::FanOut { degree } => {
            Box::new((1..tasks).map(move |child| ((child - 1) / degree, child)))
        }
        Shape::FanIn { degree } => {
            let last = tasks - 1;
            Box::new((0..last).map(move |parent| (parent, last - (last - parent - 1) / degree)))
        }
    }
}

fn spec(
    keys: &Keys<'_>,
    duration: Option<(u64, u64)>,
    output: Option<(u64, u64)>,
) -> Result<wire::Spec, GeneratorError> {
    use wire::spec::Body;
    let default = if duration.is_some() { "sleep" } else { "noop" };
    let body = match keys.value("body").unwrap_or(default) {
        "noop" => Body::Noop(wire::Noop {}),
        "sleep" => Body::Sleep(wire::Sleep {}),
        "spin" => Body::Spin(wire::Spin {}),
        _ => return Err(keys.bad("body", "known bodies are noop, sleep and spin".to_owned())),
    };
    if matches!(body, Body::Noop(_)) && duration.is_some() {
        return Err(keys.bad("body", "a no-op takes no duration".to_owned()));
    }
    let outputs = output.map(|(low, high)| wire::Output {
        key: "out".to_owned(),
        file: "t{i}.out".to_owned(),
        size_bytes: if low == high { low } else { 0 },
        keep: false,
    });
    Ok(wire::Spec {
        kind: keys.generator.to_owned(),
        name: "t{i}".to_owned(),
        body: Some(body),
        outputs: outputs.into_iter().collect(),
        ..wire::Spec::default()
    })
}

/// The text taken apart.
#[derive(Debug)]
struct Keys<'a> {
    text: &'a str,
    generator: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Keys<'a> {
    fn parse(text: &'a str) -> Result<Self, GeneratorError> {
        let (generator, rest) = text.split_once(':').unwrap_or((text, ""));
        let Some((_, own)) = GENERATORS.iter().find(|(name, _)| *name == generator) else {
            let names: Vec<&str> = GENERATORS.iter().map(|(name, _)| *name).collect();
            let name = generator.to_owned();
            return Err(GeneratorError::UnknownGenerator { name, known: names.join(", ") });
        };
        let mut keys = Self { text, generator, pairs: Vec::new() };
        for part in split_outside_brackets(rest) {
            let Some((key, value)) = part.split_once('=') else {
                let (generator, part) = (generator.to_owned(), part.to_owned());
                return Err(GeneratorError::NotKeyValue { generator, part });
            };
            let (key, value) = (key.trim(), value.trim());
            let (generator, owned) = (generator.to_owned(), key.to_owned());
            if !own.contains(&key) && !COMMON_KEYS.contains(&key) {
                let known: Vec<&str> = own.iter().chain(COMMON_KEYS).copied().collect();
                let known = known.join(", ");
                return Err(GeneratorError::UnknownKey { generator, key: owned, known });
            }
            if keys.value(key).is_some() {
                return Err(GeneratorError::KeyTwice { generator, key: owned });
            }
            keys.pairs.push((key, value));
        }
        Ok(keys)
    }

    fn value(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    fn bad(&self, key: &str, reason: String) -> GeneratorError {
        GeneratorError::BadValue {
            generator: self.generator.to_owned(),
            key: key.to_owned(),
            value: self.value(key).unwrap_or_default().to_owned(),
            reason,
        }
    }

    fn number(&self, key: &str, default: u64) -> Result<u64, GeneratorError> {
        let Some(value) = self.value(key) else { return Ok(default) };
        let digits: String = value.chars().filter(|c| *c != '_').collect();
        digits.parse().map_err(|_| self.bad(key, "expected a whole number".to_owned()))
    }

    fn positive(&self, key: &str, default: u64) -> Result<u32, GeneratorError> {
        match u32::try_from(self.number(key, default)?) {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(self.bad(key, format!("expected a number from 1 to {}", u32::MAX))),
        }
    }

    /// `value` or `uniform(low,high)`, both ends included.
    fn range(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<Option<(u64, u64)>, GeneratorError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let parse = |text: &str| parse(text).map_err(|reason| self.bad(key, reason));
        let inner = value.strip_prefix("uniform(").and_then(|rest| rest.strip_suffix(')'));
        let Some(inner) = inner else {
            let fixed = parse(value)?;
            return Ok(Some((fixed, fixed)));
        };
        let Some((low, high)) = inner.split_once(',') else {
            return Err(self.bad(key, "expected uniform(low,high)".to_owned()));
        };
        let (low, high) = (parse(low)?, parse(high)?);
        if low > high {
            return Err(self.bad(key, "the lower end is above the upper end".to_owned()));
        }
        Ok(Some((low, high)))
    }
}

/// Splits at commas that are not inside brackets; empty text has no parts.
fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .filter(|part| !part.trim().is_empty())
    .collect()
}

#[cfg(test)]
mod tests;
