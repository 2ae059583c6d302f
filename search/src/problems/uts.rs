//! The unbalanced trees of the UTS benchmark: each node is a SHA-1 value, and the value decides
//! how many children the node has.

use crate::Problem;
use crate::problems::ProblemError;

/// The most children of a node, except the root of a binomial tree.
const CHILDREN_MAX: u32 = 100;

/// The shape of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// The root has `root` children. Each other node has `children` children with probability
    /// `q`, else none.
    Binomial { root: u32, children: u32, q: f64 },
    /// The number of children is geometric. Its mean is `mean` at each level above `depth`.
    Fixed { mean: f64, depth: u32 },
    /// The number of children is geometric. Its mean falls from `mean` to 0 at level `depth`.
    Linear { mean: f64, depth: u32 },
}

/// One tree.
#[derive(Clone, Debug)]
pub struct Uts {
    shape: Shape,
    seed: u32,
    /// For each level of a geometric tree: entry k is the smallest random value that gives more
    /// than k children.
    levels: Vec<Vec<u32>>,
}

/// A node: its hash and its level.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    hash: [u32; 5],
    level: u32,
}

/// The children of a node.
#[derive(Clone, Copy, Debug)]
pub struct Children {
    parent: Node,
    next: u32,
    end: u32,
}

impl Uts {
    pub fn new(shape: Shape, seed: u32) -> Self {
        let levels = match shape {
            Shape::Binomial { .. } => Vec::new(),
            Shape::Fixed { mean, depth } => (0..=depth)
                .map(|level| thresholds(if level < depth { mean } else { 0.0 }))
                .collect(),
            Shape::Linear { mean, depth } => (0..=depth)
                .map(|level| thresholds(mean * (1.0 - f64::from(level) / f64::from(depth))))
                .collect(),
        };
        Self { shape, seed, levels }
    }

    /// One of the published trees.
    pub fn named(name: &str) -> Result<Self, ProblemError> {
        let (shape, seed) = match name {
            "tiny" => (Shape::Linear { mean: 4.0, depth: 6 }, 0),
            "T1" => (Shape::Fixed { mean: 4.0, depth: 10 }, 19),
            "T3" => (Shape::Binomial { root: 2000, children: 8, q: 0.124_875 }, 42),
            "T5" => (Shape::Linear { mean: 4.0, depth: 20 }, 34),
            "T1L" => (Shape::Fixed { mean: 4.0, depth: 13 }, 29),
            "T3L" => (Shape::Binomial { root: 2000, children: 5, q: 0.200_014 }, 7),
            _ => {
                return Err(ProblemError::name(
                    format!("there is no UTS tree '{name}'"),
                    "the trees are T1, T3, T5, T1L, T3L and tiny: uts:T1",
                ));
            }
        };
        Ok(Self::new(shape, seed))
    }

    /// The number of children of a node.
    #[inline]
    pub fn count(&self, node: &Node) -> u32 {
        let random = node.hash[4] & 0x7fff_ffff;
        match self.shape {
            Shape::Binomial { root, .. } if node.level == 0 => root,
            Shape::Binomial { children, q, .. } => {
                if unit(random) < q {
                    children
                } else {
                    0
                }
            }
            Shape::Fixed { .. } | Shape::Linear { .. } => {
                let Some(level) = self.levels.get(node.level as usize) else { return 0 };
                let mut count = 0;
                for threshold in level {
                    if random < *threshold {
                        break;
                    }
                    count += 1;
                }
                count
            }
        }
    }

    /// Child number `index` of a node: the hash of the parent's hash and the index.
    #[inline]
    pub fn child(parent: &Node, index: u32) -> Node {
        let mut block = [0; 64];
        for (bytes, word) in block.chunks_exact_mut(4).zip(parent.hash) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        block[20..24].copy_from_slice(&index.to_be_bytes());
        Node { hash: sha1_of(block, 24), level: parent.level + 1 }
    }
}

impl Problem for Uts {
    type Node = Node;
    type Children = Children;

    /// The hash of 16 zeros and the seed.
    fn root(&self) -> Node {
        let mut block = [0; 64];
        block[16..20].copy_from_slice(&self.seed.to_be_bytes());
        Node { hash: sha1_of(block, 20), level: 0 }
    }

    #[inline]
    fn children(&self, node: Node) -> Children {
        Children { parent: node, next: 0, end: self.count(&node) }
    }

    #[inline]
    fn next(&self, children: &mut Children) -> Option<Node> {
        let index = children.next;
        if index >= children.end {
            return None;
        }
        children.next += 1;
        Some(Self::child(&children.parent, index))
    }

    #[inline]
    fn left(&self, children: &Children) -> u32 {
        children.end - children.next
    }

    fn skip(&self, children: &mut Children, count: u32) {
        children.next = children.next.saturating_add(count).min(children.end);
    }
}

/// A random value as a number in 0..1.
fn unit(random: u32) -> f64 {
    f64::from(random) / 2_147_483_648.0
}

/// The smallest random values that give more than 0, 1, 2, ... children, for a mean. The number of
/// children of a random value is the inverse of the geometric distribution.
fn thresholds(mean: f64) -> Vec<u32> {
    let scale = (1.0 - 1.0 / (1.0 + mean)).ln();
    let count = |random: u32| ((1.0 - unit(random)).ln() / scale).floor();
    let mut thresholds = Vec::new();
    for more_than in 0..CHILDREN_MAX {
        let (mut low, mut high) = (0_u32, 1_u32 << 31);
        while low < high {
            let middle = u32::midpoint(low, high);
            if count(middle) > f64::from(more_than) { high = middle } else { low = middle + 1 }
        }
        if low == 1 << 31 {
            break;
        }
        thresholds.push(low);
    }
    thresholds
}

/// The SHA-1 value of the first `length` bytes of a block; the others are 0.
#[inline]
fn sha1_of(mut block: [u8; 64], length: u8) -> [u32; 5] {
    block[usize::from(length)] = 0x80;
    // The length in bits is below 512.
    let bits = u16::from(length) * 8;
    block[62..].copy_from_slice(&bits.to_be_bytes());
    let mut hash = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    sha1::compress(&mut hash, &[block.into()]);
    hash
}
