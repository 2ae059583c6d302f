//! The answers of a cluster in the library's own types.

mod job;
mod node;
mod task;

pub use job::{Cancelled, Counts, JobInfo, JobPhase, Jobs, Openness, TaskFailure};
pub use node::{Member, MemberPhase, NodeInfo};
pub use task::{Explanation, TaskInfo, TaskPhase, Verdict};
