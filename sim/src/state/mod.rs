//! What the fault world and the scaling world have in common, and what checkers look at: machines
//! with their disks and clocks, the scripts of spawning tasks, and the outcomes that the submitted
//! jobs must have.

pub(crate) mod clock;
pub mod disk;
pub(crate) mod expected;
pub(crate) mod machine;
pub(crate) mod script;
