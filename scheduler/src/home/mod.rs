//! The part of the home: the records of tasks and jobs, and the answers to holders, clients and
//! other homes.

mod cancellation;
mod completions;
pub(crate) mod death_evidence;
pub(crate) mod failover;
mod forget;
pub(crate) mod jobs;
pub(crate) mod ledger;
pub(crate) mod open;
mod recall;
pub(crate) mod reconcile;
pub(crate) mod requests;
mod stall_probe;
pub(crate) mod task_inventory;
pub(crate) mod turns;
