//! The errors that a home answers.

use proto::wire::{self, ErrorCode};
use proto::{Span, TaskId};

/// A client retries after this if its request needs a job that is not committed yet.
const STAGED_RETRY_AFTER: Span = Span::from_millis(10);

pub(super) fn error(code: ErrorCode, text: String) -> wire::Error {
    wire::Error { code: code as i32, text, ..Default::default() }
}
pub(crate) fn refused(text: String) -> wire::Error {
    error(ErrorCode::Refused, text)
}
pub(crate) fn not_yet(job: u64) -> wire::Error {
    busy(format!("job {job} is not committed here yet"))
}
pub(crate) fn busy(text: String) -> wire::Error {
    wire::Error { retry_after_ns: STAGED_RETRY_AFTER.0, ..error(ErrorCode::Busy, text) }
}
pub(crate) fn unknown_job(job: u64) -> wire::Error {
    error(ErrorCode::Unknown, format!("there is no job {job} here"))
}
pub(super) fn unknown_task(task: TaskId) -> wire::Error {
    error(ErrorCode::Unknown, format!("there is no task {} of job {} here", task.local, task.job.0))
}
pub(crate) fn wrong_home(partition: u32) -> wire::Error {
    error(ErrorCode::WrongEpoch, format!("partition {partition} has another home"))
}
