//! Unbalanced trees (UTS, Olivier and others, 2006). A hash of each node's path determines its
//! number of children, so the shape is irregular, reproducible, and of published size. A run that
//! loses or repeats a subtree is therefore detected.
//!
//! A task represents up to `bundle` connected nodes, and its children the nodes below them. Its
//! output has one byte per node, so the bytes of a whole run count the tree.

use sha1::{Digest, Sha1};

use super::draw::Draw;
use super::keys::Keys;
use super::{body_and_duration, output_of, spec_of};
use crate::generate::math::ln;
use crate::graph::Graph;
use crate::graph::builder::{GraphBuilder, TaskInit};
use crate::graph::error::GeneratorError;

/// The maximum number of children of a node, except the root of a binomial tree.
const CHILDREN_MAX: u32 = 100;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// A node has `many` children with probability `chance`, otherwise none; the root has `b`.
    Binomial { chance: f64, many: u32 },
    /// The mean number of children is `b` down to the depth.
    Fixed { depth: u32 },
    /// The mean number of children falls from `b` to 0 along the depth.
    Linear { depth: u32 },
}

/// A published tree.
struct Tree {
    name: &'static str,
    kind: Kind,
    /// The branching factor of the root.
    b: f64,
    seed: u32,
}

const TREES: &[Tree] = &[
    Tree { name: "tiny", kind: Kind::Linear { depth: 6 }, b: 4.0, seed: 0 },
    Tree { name: "T1", kind: Kind::Fixed { depth: 10 }, b: 4.0, seed: 19 },
    Tree { name: "T3", kind: Kind::Binomial { chance: 0.124_875, many: 8 }, b: 2000.0, seed: 42 },
    Tree { name: "T5", kind: Kind::Linear { depth: 20 }, b: 4.0, seed: 34 },
    Tree { name: "T1L", kind: Kind::Fixed { depth: 13 }, b: 4.0, seed: 29 },
    Tree { name: "T3L", kind: Kind::Binomial { chance: 0.200_014, many: 5 }, b: 2000.0, seed: 7 },
];

/// One node: the hash of its path.
#[derive(Clone, Copy, Debug)]
struct Node {
    hash: [u8; 20],
    depth: u32,
}

impl Node {
    fn root(seed: u32) -> Self {
        let mut bytes = [0; 20];
        bytes[16..].copy_from_slice(&seed.to_be_bytes());
        Self { hash: Sha1::digest(bytes).into(), depth: 0 }
    }

    fn child(&self, number: u32) -> Self {
        let hash = Sha1::new().chain_update(self.hash).chain_update(number.to_be_bytes());
        Self { hash: hash.finalize().into(), depth: self.depth + 1 }
    }

    /// The node's number in 0..1.
    fn chance(&self) -> f64 {
        let last = self.hash[16..].try_into().expect("a hash has 20 bytes");
        f64::from(u32::from_be_bytes(last) & 0x7fff_ffff) / f64::from(1_u32 << 31)
    }

    fn children(&self, tree: &Tree) -> u32 {
        let mean = match tree.kind {
            Kind::Binomial { .. } if self.depth == 0 => return tree.b as u32,
            Kind::Binomial { chance, many } => {
                return if self.chance() < chance { many } else { 0 };
            }
            _ if self.depth == 0 => tree.b,
            Kind::Fixed { depth } => {
                if self.depth < depth {
                    tree.b
                } else {
                    0.0
                }
            }
            Kind::Linear { depth } => tree.b * (1.0 - f64::from(self.depth) / f64::from(depth)),
        };
        if mean <= 0.0 {
            return 0;
        }
        // The inverse of the geometric distribution with this mean.
        let stop = 1.0 / (1.0 + mean);
        let children = (ln(1.0 - self.chance()) / ln(1.0 - stop)).floor();
        (children as u32).min(CHILDREN_MAX)
    }
}

pub(super) fn build(keys: &mut Keys<'_>) -> Result<Graph, GeneratorError> {
    let wanted = keys.value("tree").unwrap_or_default();
    let Some(tree) = TREES.iter().find(|tree| tree.name == wanted) else {
        let names: Vec<&str> = TREES.iter().map(|tree| tree.name).collect();
        return Err(keys.bad("tree", format!("known trees are {}", names.join(", "))));
    };
    let bundle = keys.number("bundle")?;
    if bundle == 0 {
        return Err(keys.bad("bundle", "a task is for at least one node".to_owned()));
    }
    let (body, duration) = body_and_duration(keys)?;
    let duration_ns = match duration.as_ref().map(Draw::fixed) {
        None => 0,
        Some(Some(fixed)) => fixed,
        Some(None) => return Err(keys.bad("duration", "all tasks take equally long".to_owned())),
    };
    let mut builder = GraphBuilder::new(keys.text);
    let output = output_of("nodes", "nodes-{i}", Draw::Fixed(0));
    let spec = builder.spec(spec_of("uts", "uts-{i}", body, [output]));
    // Nodes that wait to become tasks, with the task above each. Last in, first out: pieces stay
    // together.
    let mut waiting = vec![(Node::root(tree.seed), None)];
    let mut below = Vec::new();
    while let Some((top, parent)) = waiting.pop() {
        let mut nodes = 0;
        below.push(top);
        while nodes < bundle
            && let Some(node) = below.pop()
        {
            nodes += 1;
            below.extend((0..node.children(tree)).map(|number| node.child(number)));
        }
        let entry = builder.tasks() as u64;
        let sizes = [nodes];
        let init = TaskInit { entry, duration_ns, output_sizes: &sizes, ..TaskInit::of(spec) };
        let task = builder.task(init);
        if let Some(parent) = parent {
            builder.edge(parent, task, 0);
        }
        waiting.extend(below.drain(..).map(|node| (node, Some(task))));
    }
    keys.finish(builder)
}

#[cfg(test)]
mod tests {
    use super::super::generate;
    use crate::graph::Graph;

    fn nodes(graph: &Graph) -> u64 {
        graph.tasks().enumerate().map(|(at, _)| graph.output_bytes(at as u32, 0)).sum()
    }

    #[test]
    fn published_trees_have_their_published_sizes() {
        let tiny = generate("uts:tree=tiny").unwrap();
        assert_eq!((tiny.len(), nodes(&tiny), tiny.edges()), (1732, 1732, 1731));
        assert_eq!(tiny.sinks().count(), 1050);
        let bundled = generate("uts:tree=tiny,bundle=20").unwrap();
        assert!(bundled.len() < 1000, "{}", bundled.len());
        assert_eq!(nodes(&bundled), 1732);
        for (text, size) in [("T1", 4_130_071), ("T3", 4_112_897)] {
            let graph = generate(&format!("uts:tree={text},bundle=10000")).unwrap();
            assert_eq!(nodes(&graph), size, "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in ["uts:tree=T2", "uts:bundle=0", "uts:duration=uniform(0,1ms)"] {
            assert!(generate(text).is_err(), "{text}");
        }
    }
}
