//! The owners of partitions, the receivers of messages, and the conditions that a step must meet
//! before it sends one.

pub(crate) mod partition_owners;
mod route;
pub(crate) mod traits;
pub(crate) mod undelivered;
