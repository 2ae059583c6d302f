//! The bag: the part of a search tree that one slot searches.

use crate::{LoadError, Solution};

/// Work that runs in steps, can be split, and can be saved between two steps.
///
/// A bag has no effect but its tally and the variables. What is left of a bag after a step, the
/// pieces that were split off, and the tallies together are always the whole tree, each node once.
pub trait Bag: Sized + Send {
    /// Everything that all bags of one search share, and that a saved bag does not contain.
    type Source;

    /// Searches at most `budget` nodes. The counts are added to `tally`.
    fn step<V: Vars>(&mut self, budget: u64, vars: &V, tally: &mut Tally) -> Status;

    /// Gives a part of the work away. None: there is too little to share.
    fn split(&mut self) -> Option<Self>;

    /// Appends the state of the bag to `bytes`: a few bytes for each level of the tree.
    fn save(&self, bytes: &mut Vec<u8>);

    /// The bag that [`save`](Self::save) wrote, in a search with the same source.
    fn load(source: &Self::Source, bytes: &[u8]) -> Result<Self, LoadError>;

    /// An estimate of the work that is left: the children that are not made yet. The heaviest bag
    /// is split first. 0: the bag is empty.
    fn weight(&self) -> u64;

    /// An optimistic bound of all solutions that the bag may still find. None: the bag is empty or
    /// it does not use bounds.
    fn bound(&self) -> Option<i64> {
        None
    }
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The budget is spent.
    Ran,
    /// Nothing is left to search.
    Empty,
    /// The search as a whole is decided: nothing else needs to run.
    Decided,
}

/// The variables that all bags of one search share.
pub trait Vars {
    /// The value of the incumbent, or [`Goal::worst`](crate::Goal::worst). It is read for each
    /// node, and it may be late.
    fn best(&self) -> i64;

    /// Offers a solution. It becomes the incumbent if it is better than the one before.
    fn improve(&self, solution: Solution);
}

/// Counts of the nodes that were searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All nodes that were visited, with leaves and pruned ones.
    pub nodes: u64,
    /// Nodes that have no children.
    pub leaves: u64,
    /// Nodes that were cut off because of their bound.
    pub pruned: u64,
    /// The sum of the values of all solutions (*enumerate* only).
    pub sum: i64,
    /// The deepest level that was visited. The root is at level 0.
    pub depth: u32,
}

impl Tally {
    /// Adds the counts of another part of the same tree.
    pub fn add(&mut self, other: &Self) {
        self.nodes += other.nodes;
        self.leaves += other.leaves;
        self.pruned += other.pruned;
        self.sum = self.sum.saturating_add(other.sum);
        self.depth = self.depth.max(other.depth);
    }
}
