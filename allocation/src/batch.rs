//! Batch jobs as a batch system shows them.

use serde::{Deserialize, Serialize};

/// How a batch job has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Completed,
    Failed,
    TimeLimit,
    Preempted,
    Cancelled,
    NodeFailed,
    OutOfMemory,
    BootFailed,
    Deadline,
    Revoked,
    /// The batch system does not know the batch job any more.
    Unknown,
}

impl How {
    /// Whether this end counts against its queue. `has_worked`: a node of it had started.
    #[must_use]
    pub fn is_failure(self, has_worked: bool) -> bool {
        match self {
            Self::TimeLimit | Self::Preempted | Self::Deadline | Self::Revoked => false,
            Self::Completed | Self::Cancelled | Self::Unknown => !has_worked,
            Self::Failed | Self::NodeFailed | Self::OutOfMemory | Self::BootFailed => true,
        }
    }
    /// For people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimeLimit => "time limit",
            Self::Preempted => "preempted",
            Self::Cancelled => "cancelled",
            Self::NodeFailed => "a machine failed",
            Self::OutOfMemory => "out of memory",
            Self::BootFailed => "a machine did not boot",
            Self::Deadline => "its deadline has passed",
            Self::Revoked => "revoked",
            Self::Unknown => "ended, how is not known",
        }
    }
}

/// The state of a batch job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchState {
    /// It waits, is held, or was put back into the queue.
    Waiting,
    /// It runs, ends, or is suspended.
    Running,
    Ended(How),
}

impl BatchState {
    /// A state of Slurm. A state that is not known counts as running: the next listing decides.
    #[must_use]
    pub fn of_slurm(text: &str) -> Self {
        let word = text.split([' ', '+']).next().unwrap_or_default();
        match word {
            "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT"
            | "RESV_DEL_HOLD" => Self::Waiting,
            "COMPLETED" => Self::Ended(How::Completed),
            "FAILED" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => Self::Ended(How::Failed),
            "TIMEOUT" => Self::Ended(How::TimeLimit),
            "PREEMPTED" => Self::Ended(How::Preempted),
            "CANCELLED" => Self::Ended(How::Cancelled),
            "NODE_FAIL" => Self::Ended(How::NodeFailed),
            "OUT_OF_MEMORY" => Self::Ended(How::OutOfMemory),
            "BOOT_FAIL" => Self::Ended(How::BootFailed),
            "DEADLINE" => Self::Ended(How::Deadline),
            "REVOKED" => Self::Ended(How::Revoked),
            _ => Self::Running,
        }
    }

    /// A state of PBS: its letter, and the exit status of a batch job that has ended. A status of
    /// 256 and more is a signal, below 0 an end by PBS.
    #[must_use]
    pub fn of_pbs(letter: &str, exit_status: Option<i64>) -> Self {
        match letter {
            "Q" | "H" | "W" | "T" | "M" => Self::Waiting,
            "F" | "X" | "C" => Self::Ended(match exit_status {
                Some(0) => How::Completed,
                Some(265 | 271) => How::Cancelled,
                Some(-29 | 143) => How::TimeLimit,
                Some(_) => How::Failed,
                None => How::Unknown,
            }),
            _ => Self::Running,
        }
    }
}

/// A batch job in a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub job: String,
    pub name: String,
    pub state: BatchState,
    /// Why it waits, in the words of the batch system.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_known() {
        let of = BatchState::of_slurm;
        assert_eq!(of("PENDING"), BatchState::Waiting);
        assert_eq!(of("REQUEUED"), BatchState::Waiting);
        assert_eq!(of("CANCELLED by 0"), BatchState::Ended(How::Cancelled));
        assert_eq!(of("NODE_FAIL"), BatchState::Ended(How::NodeFailed));
        for running in ["RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SOMETHING_NEW"] {
            assert_eq!(of(running), BatchState::Running, "{running}");
        }
        assert_eq!(BatchState::of_pbs("Q", None), BatchState::Waiting);
        assert_eq!(BatchState::of_pbs("E", None), BatchState::Running);
        assert_eq!(BatchState::of_pbs("F", Some(-29)), BatchState::Ended(How::TimeLimit));
        assert_eq!(BatchState::of_pbs("F", Some(1)), BatchState::Ended(How::Failed));
    }

    #[test]
    fn preempted_and_limited_batch_jobs_are_no_failures() {
        assert!(!How::Preempted.is_failure(false) && !How::TimeLimit.is_failure(true));
        assert!(How::Completed.is_failure(false) && !How::Completed.is_failure(true));
        assert!(How::BootFailed.is_failure(false) && How::NodeFailed.is_failure(true));
    }
}
