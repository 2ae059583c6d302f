//! The bag of a search tree: a stack of generators, one for each level.

use std::fmt;
use std::sync::Arc;

use crate::{Bag, LoadError, Problem, Skeleton, Status, Tally, Vars, Visit};

/// A split takes one level only if it has at least this part, 1/64, of the children that are left.
const SHARE_MIN: u64 = 64;

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

    /// Gives half of the children of one level away.
    fn halve_level(&mut self, level: usize, piece: &mut Self) {
        let frame = &mut self.frames[level];
        // The owner goes on below this level if it has work there.
        let is_rest_below = self.open > u64::from(frame.left);
        let given = if is_rest_below { frame.left.div_ceil(2) } else { frame.left / 2 };
        frame.left -= given;
        let mut children = frame.children.clone();
        let (kept, next) = (frame.left, frame.taken + frame.left);
        self.problem.skip(&mut children, kept);
        piece.open(children, given, next, self.bounds.get(level).copied().unwrap_or_default());
    }

    /// Gives all children of every other level away, from `level` down, until half are given.
    fn give_levels(&mut self, level: usize, piece: &mut Self) {
        let mut is_given = true;
        for (at, frame) in self.frames.iter_mut().enumerate().skip(level) {
            let mut given = 0;
            if frame.left > 0 {
                given = if is_given { std::mem::take(&mut frame.left) } else { 0 };
                is_given = !is_given;
            }
            let bound = self.bounds.get(at).copied().unwrap_or_default();
            piece.open(frame.children.clone(), given, frame.taken, bound);
            if piece.open >= self.open / 2 {
                break;
            }
        }
    }

    /// Visits the root of the whole tree.
    fn visit_root<V: Vars>(&mut self, root: P::Node, vars: &V, tally: &mut Tally) -> Status {
        tally.nodes += 1;
        match enter(&*self.problem, self.skeleton, root, vars, tally) {
            Entered::Open(children, left, bound) => self.open(children, left, 0, bound),
            Entered::Closed => {}
            Entered::Decided => return Status::Decided,
        }
        Status::Ran
    }

    /// Visits children of the last frame: at most `budget`, and only until one of them has
    /// children itself. Returns how many were visited.
    #[inline]
    fn visit_children<V: Vars>(
        &mut self,
        budget: u64,
        vars: &V,
        tally: &mut Tally,
    ) -> (u32, Status) {
        let depth = self.prefix.len() + self.frames.len();
        let Some(frame) = self.frames.last_mut() else { return (0, Status::Empty) };
        let most = budget.min(if S::BOUNDS { 1 } else { u64::MAX }).min(frame.left.into()) as u32;
        let (mut made, mut entered) = (0, Entered::Closed);
        while made < most {
            made += 1;
            let Some(node) = self.problem.next(&mut frame.children) else {
                debug_assert!(false, "a generator made fewer children than it promised");
                continue;
            };
            entered = enter(&*self.problem, self.skeleton, node, vars, tally);
            if !matches!(entered, Entered::Closed) {
                break;
            }
        }
        frame.left -= made;
        frame.taken += made;
        self.open -= u64::from(made);
        tally.nodes += u64::from(made);
        if made > 0 {
            tally.depth = tally.depth.max(u32::try_from(depth).unwrap_or(u32::MAX));
        }
        let is_exhausted = frame.left == 0;
        match entered {
            Entered::Open(children, left, bound) => self.open(children, left, 0, bound),
            Entered::Closed if is_exhausted => self.close(),
            Entered::Closed => {}
            Entered::Decided => return (made, Status::Decided),
        }
        (made, Status::Ran)
    }

    /// Drops the children of the last frame if no solution below can be better than the incumbent
    /// that was found since their parent was visited.
    #[inline]
    fn prune_late<V: Vars>(&mut self, vars: &V, tally: &mut Tally) {
        let (Some(frame), Some(bound)) = (self.frames.last_mut(), self.bounds.last()) else {
            return;
        };
        if self.skeleton.is_useless::<P>(*bound, vars.best()) {
            tally.pruned += u64::from(frame.left);
            self.open -= u64::from(frame.left);
            frame.left = 0;
        }
    }
}

/// The result of a visit.
enum Entered<C> {
    /// The node has children: their generator, their number, and the node's bound.
    Open(C, u32, i64),
    /// Nothing is below the node.
    Closed,
    Decided,
}

/// Visits one node.
#[inline]
fn enter<P: Problem, S: Skeleton, V: Vars>(
    problem: &P,
    skeleton: S,
    node: P::Node,
    vars: &V,
    tally: &mut Tally,
) -> Entered<P::Children> {
    match skeleton.visit(problem, &node, vars, tally) {
        Visit::Expand(bound) => {
            let children = problem.children(node);
            let left = problem.left(&children);
            if left > 0 {
                return Entered::Open(children, left, bound);
            }
            tally.leaves += 1;
            Entered::Closed
        }
        Visit::Prune => {
            tally.pruned += 1;
            Entered::Closed
        }
        Visit::Decided => Entered::Decided,
    }
}

impl<P: Problem, S: Skeleton> Bag for TreeBag<P, S> {
    type Source = (Arc<P>, S);

    fn step<V: Vars>(&mut self, budget: u64, vars: &V, tally: &mut Tally) -> Status {
        let mut visited = 0;
        if visited < budget
            && let Some(root) = self.root.take()
        {
            visited += 1;
            if self.visit_root(root, vars, tally) == Status::Decided {
                return Status::Decided;
            }
        }
        while visited < budget {
            if S::BOUNDS {
                self.prune_late(vars, tally);
            }
            let (made, status) = self.visit_children(budget - visited, vars, tally);
            visited += u64::from(made);
            match status {
                Status::Ran => {}
                Status::Empty => break,
                Status::Decided => return Status::Decided,
            }
        }
        if self.root.is_none() && self.open == 0 { Status::Empty } else { Status::Ran }
    }

    /// The piece takes half of the children that are left at the shallowest level that has some. In
    /// a deep tree these are few: then it takes the children of every other level as well.
    fn split(&mut self) -> Option<Self> {
        if self.open < 2 {
            return None;
        }
        while self.frames.get(self.shallowest)?.left == 0 {
            self.shallowest += 1;
        }
        let level = self.shallowest;
        let mut piece = Self::empty(Arc::clone(&self.problem), self.skeleton);
        piece.prefix.reserve_exact(self.prefix.len() + level);
        piece.prefix.extend_from_slice(&self.prefix);
        piece.prefix.extend(self.frames[..level].iter().map(|frame| frame.taken - 1));
        let here = u64::from(self.frames[level].left);
        if here.saturating_mul(SHARE_MIN) >= self.open {
            self.halve_level(level, &mut piece);
        } else {
            self.give_levels(level, &mut piece);
        }
        self.open -= piece.open;
        Some(piece)
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        self.write(bytes);
    }

    fn load((problem, skeleton): &Self::Source, bytes: &[u8]) -> Result<Self, LoadError> {
        Self::read(Arc::clone(problem), *skeleton, bytes)
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
