//! The three skeletons: what the search does with a node that it reaches.

use crate::{Problem, Solution, Tally, Vars};

/// The treatment of one node.
pub trait Skeleton: Copy + Send + Sync + 'static {
    /// Whether a bag keeps the bounds of its open nodes.
    const BOUNDS: bool;

    /// Treats one node and decides whether the search goes below it.
    fn visit<P: Problem, V: Vars>(
        self,
        problem: &P,
        node: &P::Node,
        vars: &V,
        tally: &mut Tally,
    ) -> Visit;

    /// Whether nothing below a node with this bound is worth a visit any more.
    #[inline]
    fn is_useless<P: Problem>(self, _bound: i64, _best: i64) -> bool {
        false
    }
}

/// The decision about one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// The children are searched. The number is the node's bound.
    Expand(i64),
    /// Nothing below the node is worth a visit.
    Prune,
    /// The search as a whole is decided.
    Decided,
}

/// Visits all nodes, and adds up the values of the solutions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enumerate;

/// Seeks the best solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimise {
    /// Whether a node is cut off when its bound is not better than the incumbent.
    pub prune: bool,
}

/// Seeks a solution with the value `target` or a better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decide {
    pub target: i64,
}

impl Skeleton for Enumerate {
    const BOUNDS: bool = false;

    #[inline]
    fn visit<P: Problem, V: Vars>(
        self,
        problem: &P,
        node: &P::Node,
        _vars: &V,
        tally: &mut Tally,
    ) -> Visit {
        if let Some(value) = problem.value(node) {
            tally.sum = tally.sum.saturating_add(value);
        }
        Visit::Expand(0)
    }
}

impl Skeleton for Optimise {
    const BOUNDS: bool = true;

    #[inline]
    fn visit<P: Problem, V: Vars>(
        self,
        problem: &P,
        node: &P::Node,
        vars: &V,
        _tally: &mut Tally,
    ) -> Visit {
        let value = problem.value(node);
        if let Some(value) = value.filter(|value| P::GOAL.is_better(*value, vars.best())) {
            vars.improve(Solution { value, witness: problem.witness(node) });
        }
        if !self.prune {
            return Visit::Expand(P::GOAL.ideal());
        }
        let best = vars.best();
        let bound = problem.bound(node, best);
        if self.is_useless::<P>(bound, best) {
            return Visit::Prune;
        }
        Visit::Expand(bound)
    }

    #[inline]
    fn is_useless<P: Problem>(self, bound: i64, best: i64) -> bool {
        self.prune && !P::GOAL.is_better(bound, best)
    }
}

impl Skeleton for Decide {
    const BOUNDS: bool = true;

    #[inline]
    fn visit<P: Problem, V: Vars>(
        self,
        problem: &P,
        node: &P::Node,
        vars: &V,
        _tally: &mut Tally,
    ) -> Visit {
        let value = problem.value(node);
        if let Some(value) = value.filter(|value| !P::GOAL.is_better(self.target, *value)) {
            vars.improve(Solution { value, witness: problem.witness(node) });
            return Visit::Decided;
        }
        // Anything that is worse than the target is useless, but the target itself is not.
        let bound = problem.bound(node, P::GOAL.just_worse(self.target));
        if P::GOAL.is_better(self.target, bound) {
            return Visit::Prune;
        }
        Visit::Expand(bound)
    }
}
