//! What shows that the checkers see: marks on rare paths, and seeded bugs.

pub mod marks;
pub mod mutants;
