//! The fault world: a small cluster of real nodes, with models of machines, disks, network and
//! clients. Faults strike them, and checkers watch them.

pub(crate) mod check;
pub(crate) mod clients;
mod clock;
mod consensus_log;
pub mod disk;
pub(crate) mod disk_faults;
mod effects;
mod event_queue;
pub(crate) mod expected;
mod fetches;
mod growth;
pub(crate) mod injection;
mod lifecycle;
pub(crate) mod machine;
mod membership_churn;
pub(crate) mod network;
pub(crate) mod node_offers;
pub(crate) mod options;
mod permanent_loss;
mod seed_plan;
pub(crate) mod spawned_extras;
pub(crate) mod spawning;
mod story_lines;
pub(crate) mod world;
