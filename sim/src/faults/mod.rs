//! The fault world: a small cluster of real nodes, with models of machines, disks, network and
//! clients. Faults strike them, and checkers watch them.

pub(crate) mod check;
pub(crate) mod clients;
mod consensus_log;
pub(crate) mod disk_faults;
mod effects;
mod event_queue;
mod fetches;
mod gangs;
mod growth;
pub(crate) mod injection;
mod lifecycle;
mod membership_churn;
pub(crate) mod network;
pub(crate) mod node_offers;
pub(crate) mod options;
mod permanent_loss;
mod replica_records;
mod seed_plan;
pub(crate) mod spawning;
mod story_lines;
mod throttles;
mod variables;
pub(crate) mod world;
