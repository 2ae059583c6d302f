//! A problem: a tree. Its nodes are made only when the search reaches them.

/// A tree of nodes, made lazily from its root.
///
/// The tree is a function of the problem alone: the children of a node, and their order, never
/// depend on the incumbent, on time or on chance. A saved bag names a node by the index of the
/// child that was taken at each level, so that another process finds the same node again.
///
/// The order of the children is the order of the search. The most promising child comes first.
///
/// A problem that counts defines [`value`](Self::value) only. A problem that optimises defines
/// `value`, [`bound`](Self::bound), [`witness`](Self::witness) and [`GOAL`](Self::GOAL).
pub trait Problem: Send + Sync + 'static {
    /// Everything that is needed to make the children of one node.
    type Node: Send;

    /// A generator of the children of one node. A split clones it, and gives some of the children
    /// that are not made yet to the clone.
    type Children: Clone + Send;

    /// The direction of a better value.
    const GOAL: Goal = Goal::Minimise;

    fn root(&self) -> Self::Node;

    /// The generator of the children of `node`. It should do little work: a child is made when the
    /// search reaches it.
    fn children(&self, node: Self::Node) -> Self::Children;

    /// Makes the next child. It returns a child exactly [`left`](Self::left) times.
    fn next(&self, children: &mut Self::Children) -> Option<Self::Node>;

    /// The exact number of children that are not made yet. A node without children is a leaf.
    fn left(&self, children: &Self::Children) -> u32;

    /// Passes over `count` children without making them.
    fn skip(&self, children: &mut Self::Children, count: u32) {
        for _ in 0..count {
            if self.next(children).is_none() {
                break;
            }
        }
    }

    /// The value of a node that is a solution. A solution may have children as well.
    ///
    /// *Enumerate* adds the values up: a problem that counts its solutions returns 1 for each.
    fn value(&self, _node: &Self::Node) -> Option<i64> {
        None
    }

    /// An optimistic bound: no solution at or below `node` has a better value.
    ///
    /// `best` is the value of the incumbent, or [`Goal::worst`] without one. A bound that is
    /// expensive may stop early with any valid bound that is not better than `best`.
    fn bound(&self, _node: &Self::Node, _best: i64) -> i64 {
        Self::GOAL.ideal()
    }

    /// The solution itself, such that a user can check it. It is called for solutions only.
    fn witness(&self, _node: &Self::Node) -> Vec<i64> {
        Vec::new()
    }

    /// A solution that is known before the search starts, by a heuristic.
    fn start(&self) -> Option<Solution> {
        None
    }
}

/// A value with the solution that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    pub value: i64,
    pub witness: Vec<i64>,
}

/// The direction of a better value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Minimise,
    Maximise,
}

impl Goal {
    /// Whether `value` is strictly better than `than`.
    #[inline]
    pub const fn is_better(self, value: i64, than: i64) -> bool {
        match self {
            Self::Minimise => value < than,
            Self::Maximise => value > than,
        }
    }

    /// The better one of two values.
    pub const fn better(self, one: i64, other: i64) -> i64 {
        if self.is_better(other, one) { other } else { one }
    }

    /// The best of all values that are worse than `value`.
    pub const fn just_worse(self, value: i64) -> i64 {
        match self {
            Self::Minimise => value.saturating_add(1),
            Self::Maximise => value.saturating_sub(1),
        }
    }

    /// The value that every solution improves on.
    pub const fn worst(self) -> i64 {
        match self {
            Self::Minimise => i64::MAX,
            Self::Maximise => i64::MIN,
        }
    }

    /// The bound of a node of which nothing is known.
    pub const fn ideal(self) -> i64 {
        match self {
            Self::Minimise => i64::MIN,
            Self::Maximise => i64::MAX,
        }
    }
}
