//! The division of a graph among homes.

mod pieces;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod spread;
