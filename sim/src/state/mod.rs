//! The state of the fault world that checkers look at: machines with their disks and clocks, and the
//! outcomes that the submitted jobs must have.

pub(crate) mod clock;
pub mod disk;
pub(crate) mod expected;
pub(crate) mod machine;
pub(crate) mod script;
