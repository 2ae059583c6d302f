//! The keys of allocations in the key-value store.

use crate::System;

/// The names of all queues, in the order in which they get demand.
pub const QUEUES: &str = "alloc/queues";

/// The configuration of a queue.
#[must_use]
pub fn queue(name: &str) -> String {
    format!("alloc/{name}")
}
/// What the owner knows of a queue.
#[must_use]
pub fn state(name: &str) -> String {
    format!("alloc/{name}/state")
}
/// One intent of a queue.
#[must_use]
pub fn intent(name: &str, number: u64) -> String {
    format!("alloc/{name}/a/{number}")
}
/// The lease of the owner of a site.
#[must_use]
pub fn owner(site: System) -> String {
    format!("alloc/owner/{site}")
}
