//! Verbs that start nodes on this machine.

mod differing;
pub(crate) mod doctor;
pub(crate) mod example;
mod growth;
mod hardware;
mod instance;
mod launch_context;
mod lists;
mod member_slots;
pub(crate) mod node;
mod remote_nodes;
pub(crate) mod run;
mod saved_settings;
pub(crate) mod up;
