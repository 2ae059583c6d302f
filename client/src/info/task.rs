//! The state of a task.

use std::fmt;

use proto::{Attempt, LocalId, NodeId, wire};

/// The state of a task, as its home knew it when it answered.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Its id in the job.
    pub id: LocalId,
    /// Its name; several tasks may share one.
    pub name: String,
    /// Whether it runs.
    pub phase: TaskPhase,
    /// The present attempt, or the last one.
    pub attempt: Attempt,
    /// The node that holds the task, or that ran it. `None`: it was not placed.
    pub node: Option<NodeId>,
    /// Of an ended task; 0 if its end has no exit code.
    pub exit_code: i32,
    /// Bytes by output. Empty if the task has not ended, or has many outputs.
    pub output_sizes: Vec<u64>,
    /// The number of a task of an array.
    pub entry: Option<u64>,
    /// Bytes of captured output of the last attempt.
    pub stdout_bytes: u64,
    /// The same of standard error.
    pub stderr_bytes: u64,
    /// CPU time of the command of the last attempt, in microseconds, once it has ended. `None`: not
    /// known, or no command ran.
    pub cpu_us: Option<u64>,
    /// The peak of its resident memory in bytes.
    pub max_rss_bytes: Option<u64>,
    /// Nanoseconds since the Unix epoch, by the clock of the node that ran it. `None`: it did not
    /// run, has not ended, or this is not known.
    pub started_ns: Option<u64>,
    /// The end, by the same clock.
    pub ended_ns: Option<u64>,
}

/// The phase of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskPhase {
    /// Some parent has not ended.
    Waiting,
    /// All parents are done. It waits for a slot or for its inputs.
    Ready,
    /// It runs on a node.
    Running,
    /// It ended well.
    Done,
    /// Its last attempt failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It never starts, because a parent was not done.
    Skipped,
}

impl TaskPhase {
    /// True if the task has ended.
    #[must_use]
    pub fn is_end(self) -> bool {
        !matches!(self, Self::Waiting | Self::Ready | Self::Running)
    }
}

impl fmt::Display for TaskPhase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
        })
    }
}

/// How a task ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// It ended well.
    Done = 0,
    /// Its last attempt failed.
    Failed = 1,
    /// It was cancelled.
    Cancelled = 2,
    /// It never started, because a parent was not done.
    Skipped = 3,
}

/// The reason for a task's present state.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// `None` if only events of the task are left.
    pub task: Option<TaskInfo>,
    /// Sentences for people.
    pub lines: Vec<String>,
    /// Of a waiting task: the parents that have not ended.
    pub missing_parents: Vec<LocalId>,
    /// Of a skipped or cancelled task: the parents that were not done.
    pub unmet_parents: Vec<LocalId>,
    /// Of a command: its arguments, shortened if they are long.
    pub argv: Vec<String>,
    /// The file of each output, while the task's record is kept.
    pub output_files: Vec<String>,
    /// Of a done task: the live nodes with its first output, as far as its home knows.
    pub holders: Vec<NodeId>,
}

impl TaskInfo {
    pub(crate) fn of_record(state: wire::TaskState) -> Self {
        let known = |time_ns: u64| (time_ns > 0).then_some(time_ns);
        Self {
            id: LocalId(state.local),
            phase: TaskPhase::of_record(state.phase()),
            attempt: Attempt(state.attempt),
            node: state.placed.then_some(NodeId(state.node)),
            exit_code: state.exit_code,
            entry: state.entry,
            stdout_bytes: state.stdout_bytes,
            stderr_bytes: state.stderr_bytes,
            cpu_us: (state.max_rss_kib > 0).then_some(state.cpu_us),
            max_rss_bytes: (state.max_rss_kib > 0).then_some(state.max_rss_kib << 10),
            started_ns: known(state.started_ns),
            ended_ns: known(state.ended_ns),
            name: state.name,
            output_sizes: state.output_sizes,
        }
    }
}

impl TaskPhase {
    pub(crate) fn of_record(phase: wire::TaskPhase) -> Self {
        match phase {
            wire::TaskPhase::Waiting => Self::Waiting,
            wire::TaskPhase::Ready => Self::Ready,
            wire::TaskPhase::RunningTask => Self::Running,
            wire::TaskPhase::TaskDone => Self::Done,
            wire::TaskPhase::TaskFailed => Self::Failed,
            wire::TaskPhase::TaskCancelled => Self::Cancelled,
            wire::TaskPhase::TaskSkipped => Self::Skipped,
        }
    }
}

impl Verdict {
    pub(crate) fn of_record(verdict: wire::Verdict) -> Self {
        match verdict {
            wire::Verdict::Done => Self::Done,
            wire::Verdict::Failed => Self::Failed,
            wire::Verdict::Cancelled => Self::Cancelled,
            wire::Verdict::Skipped => Self::Skipped,
        }
    }
}

impl Explanation {
    pub(crate) fn of_record(explanation: wire::Explanation) -> Self {
        let ids = |ids: Vec<u64>| ids.into_iter().map(LocalId).collect();
        Self {
            task: explanation.task.map(TaskInfo::of_record),
            lines: explanation.lines,
            missing_parents: ids(explanation.missing_parents),
            unmet_parents: ids(explanation.unmet_parents),
            argv: explanation.argv,
            output_files: explanation.output_files,
            holders: explanation.holders.into_iter().map(NodeId).collect(),
        }
    }
}
