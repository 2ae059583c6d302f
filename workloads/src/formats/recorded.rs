//! Common parts of all formats with recorded tasks, which become sleeps of their recorded runtime.

use hashbrown::HashMap;
use proto::{limits, wire};

use crate::graph::builder::GraphBuilder;

/// Longer runtimes count as errors. A century leaves space for sums.
const RUNTIME_S_MAX: f64 = 3.2e9;
/// Larger sizes count as errors. An exabyte leaves space for sums.
const SIZE_BYTES_MAX: f64 = 1e18;

/// # Errors
/// A sentence about the invalid runtime.
pub(crate) fn duration_ns(runtime_s: f64) -> Result<u64, String> {
    if (0.0..=RUNTIME_S_MAX).contains(&runtime_s) {
        return Ok((runtime_s * 1e9).round() as u64);
    }
    Err(format!("a runtime of {runtime_s} s cannot be"))
}

/// # Errors
/// A sentence about the invalid size.
pub(crate) fn size_bytes(bytes: f64) -> Result<u64, String> {
    if (0.0..=SIZE_BYTES_MAX).contains(&bytes) {
        return Ok(bytes.round() as u64);
    }
    Err(format!("a size of {bytes} bytes cannot be"))
}

/// Recorded cores as slots: at least one, at most the maximum of a node.
pub(crate) fn slots(cores: f64) -> u32 {
    cores.ceil().clamp(1.0, f64::from(limits::SLOTS_MAX)) as u32
}

/// The common properties of tasks that share a spec.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Shape {
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) outputs: usize,
}

/// The specs of tasks with unnamed objects, one for each shape.
#[derive(Debug)]
pub(crate) struct Shapes {
    kind: &'static str,
    /// The name of unnamed tasks; `{i}` is replaced by the task's entry.
    name: &'static str,
    known: HashMap<Shape, u32, foldhash::fast::FixedState>,
}

impl Shapes {
    pub(crate) fn new(kind: &'static str, name: &'static str) -> Self {
        Self { kind, name, known: HashMap::default() }
    }

    /// The spec of a shape, made at its first use.
    pub(crate) fn spec(&mut self, builder: &mut GraphBuilder, shape: Shape) -> u32 {
        *self.known.entry(shape).or_insert_with(|| {
            let output = |output: usize| wire::Output {
                key: format!("out{output}"),
                file: format!("t{{i}}.{output}"),
                ..wire::Output::default()
            };
            builder.spec(wire::Spec {
                kind: self.kind.to_owned(),
                name: self.name.to_owned(),
                cpus: shape.cpus,
                memory_bytes: shape.memory_bytes,
                body: Some(wire::spec::Body::Sleep(wire::Sleep {})),
                outputs: (0..shape.outputs).map(output).collect(),
                ..wire::Spec::default()
            })
        })
    }
}
