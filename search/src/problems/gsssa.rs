//! The generic state space search application: a binary tree of work with a chosen imbalance.
//!
//! The unit of work is one SHA-1 hash. Two trees start at the root. Nodes of the regular one
//! are halved, and nodes of the irregular one are divided by `b`. A node that cannot be divided
//! into two parts of `g` hashes or more is a leaf, and computes its hashes.

use crate::Problem;
use crate::problems::ProblemError;

/// A tree of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gsssa {
    /// The hashes of the regular and of the irregular tree.
    pub regular: u64,
    pub irregular: u64,
    /// The part of an irregular node's work that its first child gets, 0 to 1.
    pub balance: f64,
    /// The least work of a node.
    pub grain: u64,
}

/// Some work, in hashes.
#[derive(Clone, Copy, Debug)]
pub enum Node {
    Root,
    Regular(u64),
    Irregular(u64),
}

/// The children of a node that are not made yet: two at most.
#[derive(Clone, Copy, Debug)]
pub struct Children([Option<Node>; 2]);

impl Gsssa {
    /// One of the published trees, or parameters such as `w_r=1000,w_i=2000,b=0.1,g=10`.
    pub fn named(argument: &str) -> Result<Self, ProblemError> {
        let million = 1_000_000;
        let published = |regular: u64, irregular: u64, balance| Self {
            regular: regular * 1000 * million,
            irregular: irregular * 1000 * million,
            balance,
            grain: million,
        };
        match argument {
            "IW" => Ok(published(5, 15, 0.001)),
            "IS" => Ok(published(1, 19, 0.0002)),
            "C" => Ok(published(0, 20, 0.0)),
            _ => Self::parse(argument),
        }
    }

    fn parse(argument: &str) -> Result<Self, ProblemError> {
        let mut tree = Self { regular: 0, irregular: 0, balance: 0.5, grain: 0 };
        for pair in argument.split(',') {
            let wrong = || {
                ProblemError::name(
                    format!("'{pair}' is no parameter of gsssa"),
                    "give C, IW, IS or all of w_r, w_i, b and g, such as \
                     gsssa:w_r=1000000,w_i=3000000,b=0.01,g=10000",
                )
            };
            let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
            let hashes = value.parse().map_err(|_| wrong());
            match key {
                "w_r" => tree.regular = hashes?,
                "w_i" => tree.irregular = hashes?,
                "b" => tree.balance = value.parse().map_err(|_| wrong())?,
                "g" => tree.grain = hashes?,
                _ => return Err(wrong()),
            }
        }
        let is_sum_known = tree.regular.checked_add(tree.irregular).is_some_and(|sum| sum > 0);
        if !is_sum_known || tree.grain == 0 || !(0.0..=1.0).contains(&tree.balance) {
            return Err(ProblemError::name(
                format!("the parameters '{argument}' describe no tree"),
                "w_r + w_i and g are at least 1, and b is between 0 and 1",
            ));
        }
        Ok(tree)
    }

    /// The work of the two children of a node. None: the node is a leaf.
    fn divide(&self, work: u64, balance: f64) -> Option<(u64, u64)> {
        if work / 2 < self.grain {
            return None;
        }
        let wanted = (work as f64 * balance) as u64;
        let first = wanted.clamp(self.grain, work - self.grain);
        Some((first, work - first))
    }

    fn parts(&self, node: Node) -> Option<[Node; 2]> {
        match node {
            Node::Root => Some([Node::Regular(self.regular), Node::Irregular(self.irregular)]),
            Node::Regular(work) => self
                .divide(work, 0.5)
                .map(|(one, other)| [Node::Regular(one), Node::Regular(other)]),
            Node::Irregular(work) => self
                .divide(work, self.balance)
                .map(|(one, other)| [Node::Irregular(one), Node::Irregular(other)]),
        }
    }
}

impl Problem for Gsssa {
    type Node = Node;
    type Children = Children;

    fn root(&self) -> Node {
        Node::Root
    }

    fn children(&self, node: Node) -> Children {
        let has_work = |node: &Node| !matches!(node, Node::Regular(0) | Node::Irregular(0));
        let [one, other] = self.parts(node).map_or([None, None], |parts| parts.map(Some));
        Children([one.filter(has_work), other.filter(has_work)])
    }

    fn next(&self, children: &mut Children) -> Option<Node> {
        let [one, other] = &mut children.0;
        one.take().or_else(|| other.take())
    }

    fn left(&self, children: &Children) -> u32 {
        children.0.iter().flatten().count() as u32
    }

    /// A leaf computes its hashes here; its value is their number.
    fn value(&self, node: &Node) -> Option<i64> {
        let (Node::Regular(work) | Node::Irregular(work)) = *node else { return None };
        if self.parts(*node).is_some() {
            return None;
        }
        let mut hash = [0; 5];
        let mut block = [0; 64];
        for _ in 0..work {
            block[..4].copy_from_slice(&u32::to_be_bytes(hash[0]));
            sha1::compress(&mut hash, &[block.into()]);
        }
        std::hint::black_box(hash);
        i64::try_from(work).ok()
    }
}
