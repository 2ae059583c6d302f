//! The records in memory: jobs, their parts, chunks and tasks.

mod job;
mod packed;
mod part;
mod parts;
mod reads;
mod segment;
mod times;

pub(crate) use job::Job;
pub(in crate::home::ledger) use packed::Brief;
pub(crate) use part::Part;
pub(crate) use parts::Parts;
pub(crate) use segment::{Cell, End, Segment, State};
pub(in crate::home::ledger) use segment::{EdgeOut, Side, edges_of};
pub(crate) use times::Times;
