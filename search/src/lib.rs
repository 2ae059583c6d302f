/*!
Search trees that are made while they are searched.

A [`Problem`] is a tree with nodes that are made lazily: a root, a generator of the children of a
node, and for optimisation a value, a bound and a witness. A [`Bag`] is the part of a tree that one
slot searches. It is private to its slot, and it runs at the speed of a plain loop. When another
slot is idle, the bag is split: the piece takes children that are not made yet, at the shallowest
level that has some.

Three skeletons search the tree: [`Enumerate`] visits all nodes, [`Optimise`] seeks the best
solution, and [`Decide`] seeks one that is good enough.

The crate never starts a thread, reads a clock or a file. Its callers do: `starling search`
runs one bag for each slot of this machine.
*/

mod bag;
mod problem;
pub mod problems;
mod saved;
mod skeleton;
pub mod taskwork;
mod tree;

pub use bag::{Bag, Status, Tally, Vars};
pub use problem::{Goal, Problem, Solution};
pub use saved::LoadError;
pub use skeleton::{Decide, Enumerate, Optimise, Skeleton, Visit};
pub use tree::TreeBag;
