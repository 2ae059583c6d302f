//! Generates graphs from a line of text: the benchmark shapes of the paper, its applications and a
//! few more.
//!
//! The text is `NAME:key=value,...`; the same text yields the same graph on every machine. Values
//! that vary by task are distributions: `uniform(low,high)`, `gaussian(mean,deviation)`,
//! `gamma(shape,mean)`, `exponential(mean)`, cut at 0.
//!
//! Data present on the nodes before a run are the outputs of *load* tasks. These are no-ops of kind
//! [`KIND_LOAD`], which placement shuffles and distributes evenly over the homes.

mod all_pairs;
mod draw;
mod heavy_tail;
mod implicit;
mod keys;
mod math;
pub(crate) mod random;
mod shapes;
mod stacking;
mod stages;
mod uts;

use proto::wire;
use wire::spec::Body;

use crate::graph::Graph;
use crate::graph::error::GeneratorError;
use crate::graph::quantity::parse_duration_ns;
pub use draw::Draw;
use keys::Keys;

pub use crate::graph::KIND_LOAD;
pub use implicit::Implicit;
pub use shapes::Shape;

/// A generator: its name, its keys, their defaults, and its builder.
#[derive(Debug)]
struct Generator {
    name: &'static str,
    keys: &'static [&'static str],
    defaults: &'static [(&'static str, &'static str)],
    build: fn(&mut Keys<'_>) -> Result<Graph, GeneratorError>,
}

const GENERATORS: &[Generator] = &[
    Generator {
        name: "bag",
        keys: &["tasks", "preset", "slots", "duration", "output", "seed", "body"],
        defaults: &[("tasks", "1000"), ("seed", "1")],
        build: shapes::build,
    },
    Generator {
        name: "pipeline",
        keys: &["tasks", "length", "preset", "slots", "duration", "output", "seed", "body"],
        defaults: &[("tasks", "1000"), ("length", "10"), ("seed", "1")],
        build: shapes::build,
    },
    Generator {
        name: "chain",
        keys: &["tasks", "duration", "output", "seed", "body"],
        defaults: &[("tasks", "1000"), ("seed", "1")],
        build: shapes::build,
    },
    Generator {
        name: "fan-out",
        keys: &["tasks", "degree", "preset", "slots", "duration", "output", "seed", "body"],
        defaults: &[("tasks", "1000"), ("degree", "10"), ("seed", "1")],
        build: shapes::build,
    },
    Generator {
        name: "fan-in",
        keys: &["tasks", "degree", "preset", "slots", "duration", "output", "seed", "body"],
        defaults: &[("tasks", "1000"), ("degree", "10"), ("seed", "1")],
        build: shapes::build,
    },
    Generator {
        name: "star-out",
        keys: &["tasks", "duration", "output", "seed", "body"],
        defaults: &[("tasks", "1000"), ("seed", "1")],
        build: shapes::build,
    },
    Generator {
        name: "star-in",
        keys: &["tasks", "duration", "output", "seed", "body"],
        defaults: &[("tasks", "1000"), ("seed", "1")],
        build: shapes::build,
    },
    Generator {
        name: "heavy-tail",
        keys: &["tasks", "output", "seed", "body"],
        defaults: &[("tasks", "1000"), ("seed", "1")],
        build: shapes::heavy,
    },
    Generator {
        name: "image-stacking",
        keys: &[
            "locality",
            "tasks",
            "files",
            "size",
            "duration",
            "output",
            "data-load",
            "seed",
            "body",
        ],
        defaults: &[
            ("size", "2MB"),
            ("duration", "158ms"),
            ("output", "10kB"),
            ("data-load", "unclocked"),
            ("seed", "1"),
        ],
        build: stacking::build,
    },
    Generator {
        name: "all-pairs",
        keys: &[
            "files",
            "size",
            "duration",
            "output",
            "order",
            "tile",
            "data-load",
            "seed",
            "body",
        ],
        defaults: &[
            ("files", "500"),
            ("size", "12MB"),
            ("duration", "100ms"),
            ("order", "tiles"),
            ("data-load", "unclocked"),
            ("seed", "1"),
        ],
        build: all_pairs::build,
    },
    Generator {
        name: "moldyn",
        keys: &["molecules", "width", "gather", "duration", "output", "seed", "body"],
        defaults: &[
            ("molecules", "12"),
            ("width", "68"),
            ("gather", "11"),
            ("duration", "1s"),
            ("output", "1MB"),
            ("seed", "1"),
        ],
        build: stages::moldyn,
    },
    Generator {
        name: "fmri",
        keys: &["volumes", "length", "duration", "output", "seed", "body"],
        defaults: &[
            ("volumes", "100"),
            ("length", "12"),
            ("duration", "1s"),
            ("output", "200kB"),
            ("seed", "1"),
        ],
        build: stages::fmri,
    },
    Generator {
        name: "uts",
        keys: &["tree", "bundle", "duration", "body"],
        defaults: &[("tree", "tiny"), ("bundle", "1")],
        build: uts::build,
    },
];

const STREAM_DURATION: u64 = 1;
const STREAM_OUTPUT: u64 = 2;
const STREAM_ORDER: u64 = 3;
const STREAM_FILES: u64 = 4;
const STREAM_SIZE: u64 = 5;

/// True if the text begins like a generator, with a known name alone or before a colon.
#[must_use]
pub fn is_generator(text: &str) -> bool {
    let name = text.split_once(':').map_or(text, |(name, _)| name);
    GENERATORS.iter().any(|known| known.name == name)
}

/// Builds the graph of a generator's text.
///
/// # Errors
/// Unknown names and keys (the error lists the known ones), and invalid values.
pub fn generate(text: &str) -> Result<Graph, GeneratorError> {
    let (mut keys, generator) = Keys::parse(text)?;
    (generator.build)(&mut keys)
}

/// The source of a graph's random numbers.
#[derive(Clone, Copy, Debug)]
struct Data {
    seed: u64,
}

impl Data {
    fn duration_ns(self, draw: Draw, index: u64) -> u64 {
        draw.at(self.seed, STREAM_DURATION, index)
    }

    /// The size of a task's output.
    fn size(self, draw: Draw, index: u64) -> u64 {
        draw.at(self.seed, STREAM_OUTPUT, index)
    }
}

/// The body of tasks: as the keys specify, or a sleep if they take time.
fn body(keys: &Keys<'_>, takes_time: bool) -> Result<Body, GeneratorError> {
    let default = if takes_time { "sleep" } else { "noop" };
    let body = match keys.value("body").unwrap_or(default) {
        "noop" => Body::Noop(wire::Noop {}),
        "sleep" => Body::Sleep(wire::Sleep {}),
        "spin" => Body::Spin(wire::Spin {}),
        _ => return Err(keys.bad("body", "known bodies are noop, sleep and spin".to_owned())),
    };
    if matches!(body, Body::Noop(_)) && takes_time {
        return Err(keys.bad("body", "a no-op takes no duration".to_owned()));
    }
    Ok(body)
}

/// The body and duration of tasks. A no-op ignores a default duration.
fn body_and_duration(keys: &Keys<'_>) -> Result<(Body, Option<Draw>), GeneratorError> {
    let mut duration = keys.draw("duration", parse_duration_ns)?;
    if keys.value("body") == Some("noop") && !keys.is_given("duration") {
        duration = None;
    }
    Ok((body(keys, duration.is_some())?, duration))
}

/// An output. Its size is in the spec if it is the same for all tasks.
fn output_of(key: &str, file: &str, draw: Draw) -> wire::Output {
    wire::Output {
        key: key.to_owned(),
        file: file.to_owned(),
        size_bytes: draw.fixed().unwrap_or(0),
        ..wire::Output::default()
    }
}

fn spec_of(
    kind: &str,
    name: &str,
    body: Body,
    outputs: impl IntoIterator<Item = wire::Output>,
) -> wire::Spec {
    wire::Spec {
        kind: kind.to_owned(),
        name: name.to_owned(),
        body: Some(body),
        outputs: outputs.into_iter().collect(),
        ..wire::Spec::default()
    }
}

#[cfg(test)]
mod tests;
