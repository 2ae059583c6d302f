//! Graphs with bytes on edges instead of files. Each edge with bytes becomes an object that its
//! parent writes and only that child reads. The readers of DOT and STG use it.

use crate::formats::names::Names;
use crate::formats::recorded::{Shape, Shapes};
use crate::graph::Graph;
use crate::graph::builder::{GraphBuilder, TaskInit};
use crate::graph::error::GraphError;

/// An edge and its bytes; with 0 bytes it only orders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    pub(crate) parent: u32,
    pub(crate) child: u32,
    pub(crate) bytes: u64,
}

/// Tasks by number, and their edges in the order of the text.
#[derive(Debug, Default)]
pub(crate) struct Weighted {
    pub(crate) names: Names,
    pub(crate) durations_ns: Vec<u64>,
    pub(crate) edges: Vec<Weight>,
}

impl Weighted {
    pub(crate) fn finish(self, name: &str, kind: &'static str) -> Result<Graph, GraphError> {
        let Self { names, durations_ns, edges } = self;
        let mut builder = GraphBuilder::new(name);
        builder.reserve(durations_ns.len(), edges.len());
        let (starts, sizes) = outputs_by_parent(durations_ns.len(), &edges);
        let mut shapes = Shapes::new(kind, "");
        for (task, duration_ns) in durations_ns.iter().enumerate() {
            let own = &sizes[starts[task] as usize..starts[task + 1] as usize];
            let shape = Shape { cpus: 1, outputs: own.len(), ..Shape::default() };
            let spec = shapes.spec(&mut builder, shape);
            builder.task(TaskInit {
                entry: task as u64,
                duration_ns: *duration_ns,
                output_sizes: own,
                name: names.name(task as u32),
                ..TaskInit::of(spec)
            });
        }
        drop((names, durations_ns, sizes));
        let mut next = vec![0_u32; builder.tasks()];
        for edge in &edges {
            let mut output = 0;
            if edge.bytes > 0 {
                next[edge.parent as usize] += 1;
                output = next[edge.parent as usize];
            }
            builder.edge(edge.parent, edge.child, output);
        }
        drop(edges);
        builder.finish()
    }
}

/// The start of each parent's outputs, and the sizes of all outputs.
fn outputs_by_parent(tasks: usize, edges: &[Weight]) -> (Vec<u32>, Vec<u64>) {
    let mut starts = vec![0_u32; tasks + 1];
    for edge in edges.iter().filter(|edge| edge.bytes > 0) {
        starts[edge.parent as usize + 1] += 1;
    }
    for task in 0..tasks {
        starts[task + 1] += starts[task];
    }
    let mut next = starts.clone();
    let mut sizes = vec![0; starts[tasks] as usize];
    for edge in edges.iter().filter(|edge| edge.bytes > 0) {
        let at = &mut next[edge.parent as usize];
        sizes[*at as usize] = edge.bytes;
        *at += 1;
    }
    (starts, sizes)
}
