//! Work stealing: the thief, the victim, and the hints that wake thieves.

pub(crate) mod hints;
pub(crate) mod share;
pub(crate) mod thief;
pub(crate) mod victim;
