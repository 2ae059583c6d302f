//! The receivers of messages, and the conditions that a step must meet before it sends one.

pub(crate) mod route;
pub(crate) mod traits;
