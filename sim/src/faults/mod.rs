//! The fault world: a small cluster of real nodes, with models of machines, disks, network and
//! clients. Faults strike them, and checkers watch them.

pub(crate) mod check;
pub(crate) mod clients;
mod consensus_log;
mod effects;
mod event_queue;
mod fetches;
pub(crate) mod kinds;
mod lifecycle;
pub(crate) mod network;
pub(crate) mod options;
mod replica_records;
mod seed_plan;
mod story_lines;
pub(crate) mod strikes;
mod trace;
pub(crate) mod world;
