//! The 0-1 knapsack: the most profit within a capacity.
//!
//! The items are sorted by profit per weight. The search starts from the *break* solution, the
//! longest row of best items that fits, and goes away from it on both sides (Pisinger's expanding
//! core). The bound is Dantzig's: the rest may be a part of an item.
//! Witness: the numbers of the items that are taken, in the order of the file, from 0.

mod parse;
mod problem;
#[cfg(test)]
mod tests;

pub use parse::{AMOUNT_MAX, ITEMS_MAX, parse};
pub use problem::{Knapsack, KnapsackChildren, KnapsackNode};

/// An item of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    pub profit: i64,
    pub weight: i64,
}

/// Items and a capacity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    pub(crate) items: Vec<Item>,
    pub(crate) capacity: i64,
}
