//! The objects of this node and the places of others: fetches, copies, deletion, and their transfer
//! when a node leaves.

pub(crate) mod data;
mod directory;
pub(crate) mod drain;
pub(crate) mod fetch;
mod holders;
mod last_copy;
mod limits;
mod lost_inputs;
mod object_table;
pub(crate) mod output_copies;
pub(crate) mod output_transfer;
pub(crate) mod reader_counts;
pub(crate) mod shared_files;
mod task_use;
mod unknown_copies;

pub(crate) use data::Objects;
