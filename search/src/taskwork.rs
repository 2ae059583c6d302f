//! The branch-and-bound interface of TASKWORK, as an adapter.
//!
//! A program that is written for TASKWORK has callbacks that work on states. Five of them are the
//! methods of [`States`]. The other two belong to the framework, and here they are:
//!
//! * `openStates` is the bag: [`Bag::weight`](crate::Bag::weight) is the number of open states.
//! * `getUpperBound` and `setUpperBound` are [`Vars::best`](crate::Vars::best) and
//!   [`Vars::improve`](crate::Vars::improve).
//! * `potentialSplit` is the driver's: it calls [`Bag::split`](crate::Bag::split) when a slot is
//!   idle.

use std::vec::IntoIter;

use crate::Problem;

/// The callbacks of a minimisation problem.
pub trait States: Send + Sync + 'static {
    type State: Clone + Send;

    fn initial_state(&self) -> Self::State;

    /// The states that follow `state`, the most promising one first.
    fn branch(&self, state: &Self::State) -> Vec<Self::State>;

    /// Whether `state` is a solution.
    fn is_leaf_state(&self, state: &Self::State) -> bool;

    /// The cost of a leaf state.
    fn get_cost(&self, state: &Self::State) -> i64;

    /// No leaf state at or below `state` costs less.
    fn get_lower_bound(&self, state: &Self::State) -> i64;

    /// The path that leads to `state`, such as a tour.
    fn get_path(&self, state: &Self::State) -> Vec<i64>;
}

/// The callbacks as a [`Problem`].
#[derive(Clone, Copy, Debug)]
pub struct Taskwork<T>(pub T);

impl<T: States> Problem for Taskwork<T> {
    type Node = T::State;
    type Children = IntoIter<T::State>;

    fn root(&self) -> Self::Node {
        self.0.initial_state()
    }

    fn children(&self, node: Self::Node) -> Self::Children {
        let is_leaf = self.0.is_leaf_state(&node);
        if is_leaf { Vec::new().into_iter() } else { self.0.branch(&node).into_iter() }
    }

    fn next(&self, children: &mut Self::Children) -> Option<Self::Node> {
        children.next()
    }

    fn left(&self, children: &Self::Children) -> u32 {
        u32::try_from(children.len()).unwrap_or(u32::MAX)
    }

    fn value(&self, node: &Self::Node) -> Option<i64> {
        self.0.is_leaf_state(node).then(|| self.0.get_cost(node))
    }

    fn bound(&self, node: &Self::Node, _best: i64) -> i64 {
        if self.0.is_leaf_state(node) {
            self.0.get_cost(node)
        } else {
            self.0.get_lower_bound(node)
        }
    }

    fn witness(&self, node: &Self::Node) -> Vec<i64> {
        self.0.get_path(node)
    }
}
