//! The calls behind [`crate::raw`], which return the records of nodes as they are on the wire.

mod away;
mod job;
mod job_list;
mod job_watch;
mod node;

pub(crate) use job::Extras;
pub use job::is_ended;
pub use job_list::JobRecordList;
pub use job_watch::JobRecords;
