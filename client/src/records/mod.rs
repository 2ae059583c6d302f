//! The calls behind [`crate::raw`], which return the records of nodes as they are on the wire.

mod job;
mod job_list;
mod node;

pub use job::{JobRecords, is_ended};
pub use job_list::JobRecordList;
