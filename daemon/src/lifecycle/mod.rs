//! The life of a node: its directory, its start, its place among the others, its incarnations.

pub(crate) mod assembly;
mod end_of_life;
mod first_map;
pub(crate) mod incarnations;
pub mod instance;
pub(crate) mod join;
pub mod launcher;
mod members;
pub(crate) mod membership_log;
pub(crate) mod rendezvous;
mod store_recovery;
mod store_replacement;

pub(crate) use members::Members;
pub(crate) use store_recovery::StoreRecovery;
