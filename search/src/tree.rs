//! The bag of a search tree: a stack of generators, one for each level.

use std::fmt;
use std::sync::Arc;

use crate::{Bag, Problem, Skeleton, Status, Tally, Vars, Visit};

/// A bag that searches a part of a [`Problem`]'s tree depth first.
pub struct TreeBag<P: Problem, S: Skeleton> {
    pub(crate) problem: Arc<P>,
    pub(crate) skeleton: S,
    /// The root of the whole tree, before it is visited.
    pub(crate) root: Option<P::Node>,
    /// The path from the root to the node of the first frame: the index of the child at each level.
    pub(crate) prefix: Vec<u32>,
    /// One frame for each level from there to the node that was visited last.
    pub(crate) frames: Vec<Frame<P::Children>>,
    /// The bound of the node of each frame; empty if the skeleton uses no bounds.
    pub(crate) bounds: Vec<i64>,
    /// No frame before this index has children left.
    pub(crate) shallowest: usize,
    /// The children that are left in all frames.
    pub(crate) open: u64,
}

/// The children of one node.
pub(crate) struct Frame<C> {
    pub(crate) children: C,
    /// The children that are not made yet and belong to this bag. The generator may have more:
    /// they were split off.
    pub(crate) left: u32,
    /// The index of the next child.
    pub(crate) taken: u32,
}

impl<P: Problem, S: Skeleton> TreeBag<P, S> {
    /// The whole tree.
    pub fn new(problem: Arc<P>, skeleton: S) -> Self {
        let root = Some(problem.root());
        Self { root, ..Self::empty(problem, skeleton) }
    }

    pub(crate) fn empty(problem: Arc<P>, skeleton: S) -> Self {
        Self {
            problem,
            skeleton,
            root: None,
            prefix: Vec::new(),
            frames: Vec::new(),
            bounds: Vec::new(),
            shallowest: 0,
            open: 0,
        }
    }

    /// Visits one node, and opens a frame for its children.
    #[inline]
    fn enter<V: Vars>(&mut self, node: P::Node, vars: &V, tally: &mut Tally) -> Status {
        tally.nodes += 1;
        match self.skeleton.visit(&*self.problem, &node, vars, tally) {
            Visit::Expand(bound) => {
                let children = self.problem.children(node);
                let left = self.problem.left(&children);
                if left == 0 {
                    tally.leaves += 1;
                } else {
                    self.open(children, left, 0, bound);
                }
                Status::Ran
            }
            Visit::Prune => {
                tally.pruned += 1;
                Status::Ran
            }
            Visit::Decided => Status::Decided,
        }
    }

    #[inline]
    pub(crate) fn open(&mut self, children: P::Children, left: u32, taken: u32, bound: i64) {
        self.frames.push(Frame { children, left, taken });
        self.open += u64::from(left);
        if S::BOUNDS {
            self.bounds.push(bound);
        }
    }

    #[inline]
    fn close(&mut self) {
        self.frames.pop();
        self.bounds.pop();
        self.shallowest = self.shallowest.min(self.frames.len());
    }

    /// Drops the children of the last frame if no solution below can be better than the incumbent
    /// that was found since their parent was visited.
    #[inline]
    fn prune_late<V: Vars>(&mut self, vars: &V, tally: &mut Tally) -> bool {
        let (Some(frame), Some(bound)) = (self.frames.last(), self.bounds.last()) else {
            return false;
        };
        let is_useless = self.skeleton.is_useless::<P>(*bound, vars.best());
        if is_useless {
            tally.pruned += u64::from(frame.left);
            self.open -= u64::from(frame.left);
            self.close();
        }
        is_useless
    }
}

impl<P: Problem, S: Skeleton> Bag for TreeBag<P, S> {
    fn step<V: Vars>(&mut self, budget: u64, vars: &V, tally: &mut Tally) -> Status {
        let mut visited = 0;
        if visited < budget
            && let Some(root) = self.root.take()
        {
            visited += 1;
            if self.enter(root, vars, tally) == Status::Decided {
                return Status::Decided;
            }
        }
        // The frames hold depths that count from the root of the tree.
        let above = self.prefix.len();
        while visited < budget {
            let depth = above + self.frames.len();
            let Some(frame) = self.frames.last_mut() else { break };
            if frame.left == 0 {
                self.close();
                continue;
            }
            if S::BOUNDS && self.prune_late(vars, tally) {
                continue;
            }
            let Some(frame) = self.frames.last_mut() else { break };
            frame.left -= 1;
            frame.taken += 1;
            self.open -= 1;
            visited += 1;
            let Some(node) = self.problem.next(&mut frame.children) else {
                debug_assert!(false, "a generator made fewer children than it promised");
                continue;
            };
            tally.depth = tally.depth.max(u32::try_from(depth).unwrap_or(u32::MAX));
            if self.enter(node, vars, tally) == Status::Decided {
                return Status::Decided;
            }
        }
        if self.root.is_none() && self.open == 0 { Status::Empty } else { Status::Ran }
    }

    /// The piece takes half of the children that are left at the shallowest level that has some.
    fn split(&mut self) -> Option<Self> {
        if self.open < 2 {
            return None;
        }
        while self.frames.get(self.shallowest)?.left == 0 {
            self.shallowest += 1;
        }
        let level = self.shallowest;
        let frame = self.frames.get_mut(level)?;
        // The owner goes on below this level if it has work there.
        let is_rest_below = self.open > u64::from(frame.left);
        let given = if is_rest_below { frame.left.div_ceil(2) } else { frame.left / 2 };
        frame.left -= given;
        self.open -= u64::from(given);
        let mut children = frame.children.clone();
        let (kept, next) = (frame.left, frame.taken + frame.left);
        self.problem.skip(&mut children, kept);

        let mut piece = Self::empty(Arc::clone(&self.problem), self.skeleton);
        piece.prefix.reserve_exact(self.prefix.len() + level);
        piece.prefix.extend_from_slice(&self.prefix);
        piece.prefix.extend(self.frames[..level].iter().map(|frame| frame.taken - 1));
        let bound = self.bounds.get(level).copied().unwrap_or_default();
        piece.open(children, given, next, bound);
        Some(piece)
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        self.write(bytes);
    }

    fn weight(&self) -> u64 {
        self.open + u64::from(self.root.is_some())
    }

    fn bound(&self) -> Option<i64> {
        if self.root.is_some() && S::BOUNDS {
            return Some(P::GOAL.ideal());
        }
        let frames = self.frames.iter().zip(&self.bounds);
        let open = frames.filter(|(frame, _)| frame.left > 0).map(|(_, bound)| *bound);
        open.reduce(|one, other| P::GOAL.better(one, other))
    }
}

impl<P: Problem, S: Skeleton> fmt::Debug for TreeBag<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeBag")
            .field("prefix", &self.prefix.len())
            .field("frames", &self.frames.len())
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}
