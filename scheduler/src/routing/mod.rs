//! To which node a message goes, and what a step has to wait for before it is sent.

pub(crate) mod route;
pub(crate) mod traits;
