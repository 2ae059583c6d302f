//! The task or the job that an event concerns.

use super::Event;
use crate::{JobId, TaskId};

impl Event {
    /// The task of the event; `None` for an event of a job or of a node.
    #[must_use]
    pub fn task(&self) -> Option<TaskId> {
        match *self {
            Self::NodeStarted { .. }
            | Self::Staged { .. }
            | Self::Visible { .. }
            | Self::Removing { .. }
            | Self::Shifted { .. }
            | Self::PolicyChanged { .. }
            | Self::Retuned { .. }
            | Self::JobEnded { .. } => None,
            Self::Queued { task, .. }
            | Self::Pushed { task, .. }
            | Self::Stolen { task, .. }
            | Self::Fetched { task, .. }
            | Self::Started { task, .. }
            | Self::Widened { task, .. }
            | Self::PartBegan { task, .. }
            | Self::PartEnded { task, .. }
            | Self::Ended { task, .. }
            | Self::Committed { task, .. }
            | Self::Turned { task, .. }
            | Self::Replaced { task, .. }
            | Self::Stale { task, .. }
            | Self::Dismissed { task, .. }
            | Self::TakenOver { task, .. }
            | Self::Moved { task, .. }
            | Self::CrashCounted { task, .. }
            | Self::Spared { task, .. }
            | Self::Stalled { task, .. }
            | Self::MissedWakeupRepaired { task } => Some(task),
        }
    }

    /// The job of the event, or of its task; `None` for an event of a node.
    #[must_use]
    pub fn job(&self) -> Option<JobId> {
        match *self {
            Self::Staged { job, .. }
            | Self::Visible { job }
            | Self::Removing { job }
            | Self::JobEnded { job, .. } => Some(job),
            _ => self.task().map(|task| task.job),
        }
    }
}
