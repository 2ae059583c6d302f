//! The state of a job.

use std::fmt;

use proto::event::Stall;
use proto::{Attempt, JobId, LocalId, NodeId, wire};

/// The state of a job, as its home knew it when it answered.
///
/// Counts of a running job lag behind by a moment: the homes of its tasks report them from time to
/// time. Those of an ended job are final.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct JobInfo {
    /// Its number in the cluster.
    pub id: JobId,
    /// The name in lists; it need not be unique.
    pub name: String,
    /// Whether it runs.
    pub phase: JobPhase,
    /// Whether tasks can be added.
    pub openness: Openness,
    /// The number of tasks that were submitted, with those that tasks have spawned.
    pub total: u64,
    /// The number of pairs of a parent and a child.
    pub edges: u64,
    /// Counts of its tasks and bytes.
    pub counts: Counts,
    /// The number of times that unfinished tasks were run again by [`crate::Client::retry`].
    pub round: u32,
    /// The start of the submission by the client's clock: nanoseconds since the Unix epoch.
    pub submitted_ns: u64,
    /// The end by the clock of the job's home: nanoseconds since the Unix epoch. `None`: it has not
    /// ended.
    pub ended_ns: Option<u64>,
    /// The user that cancelled the whole job.
    pub cancelled_by: Option<String>,
    /// The reason if the job is lost: what its submission lacks.
    pub lost_why: Option<String>,
    /// The first failed tasks of the round, a few from each home.
    pub failures: Vec<TaskFailure>,
    /// The reason if the job makes no progress at present.
    pub stalled: Option<String>,
    /// The jobs that must end before its tasks start.
    pub waits_for: Vec<JobId>,
    /// Of an open job: since when its client is silent, by the clock of the job's home:
    /// nanoseconds since the Unix epoch. `None`: it is not silent, or sends no life signs.
    pub silent_since_ns: Option<u64>,
    /// The reason if all its tasks are skipped because a job has not ended without failures.
    pub skipped_because: Option<String>,
}

impl JobInfo {
    /// True if the state is the last one of this round.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.phase.is_end()
    }

    /// True if the job has ended and each of its tasks is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.phase == JobPhase::Finished && self.counts.done == self.total
    }
}

/// The phase of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobPhase {
    /// It is being submitted and has no commit yet.
    Staged,
    /// Some task has not ended.
    Running,
    /// Each task has ended, well or not; see [`JobInfo::counts`].
    Finished,
    /// The whole job was cancelled.
    Cancelled,
    /// Parts of its submission are missing, so it can never finish.
    Lost,
}

impl JobPhase {
    /// True for the phases that a job does not leave, unless it is retried.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Finished | Self::Cancelled | Self::Lost)
    }
}

impl fmt::Display for JobPhase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Staged => "staged",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        })
    }
}

/// Whether tasks can be added to a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Openness {
    /// It was submitted as a whole graph.
    Graph,
    /// Clients may add tasks.
    Open,
    /// It was open, and no more tasks are added.
    Closed,
}

/// Numbers of tasks and bytes of a job's present round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Tasks that ended well.
    pub done: u64,
    /// Tasks with a failed last attempt.
    pub failed: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Tasks that never start, because a parent was not done.
    pub skipped: u64,
    /// Tasks that tasks have spawned.
    pub spawned: u64,
    /// Attempts that ended. One task may have several.
    pub executions: u64,
    /// The sum of the times that attempts took, in nanoseconds.
    pub work_ns: u64,
    /// Bytes of outputs.
    pub produced_bytes: u64,
    /// Bytes of inputs that came from other nodes.
    pub moved_bytes: u64,
    /// Bytes of inputs that were on the node already.
    pub local_bytes: u64,
    /// Bytes of outputs of an open job that stay until they are released.
    pub held_bytes: u64,
    /// Events that came to mailboxes of tasks.
    pub events: u64,
    /// Events to tasks that were done.
    pub events_dropped: u64,
}

impl Counts {
    /// Tasks that have ended in any way.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.done + self.failed + self.cancelled + self.skipped
    }
}

/// A failed task.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TaskFailure {
    /// Its id in the job.
    pub task: LocalId,
    /// Its name.
    pub name: String,
    /// Its last attempt.
    pub attempt: Attempt,
    /// The node that ran that attempt.
    pub node: NodeId,
    /// 0 if the failure has no exit code.
    pub exit_code: i32,
    /// One line with the reason.
    pub error: String,
    /// The last bytes of its standard error.
    pub stderr_tail: Vec<u8>,
}

/// The result of a cancellation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Cancelled {
    /// Tasks that the call cancelled.
    pub cancelled: u64,
    /// Named tasks that had ended before.
    pub ended: u64,
    /// Named tasks that do not exist.
    pub unknown: Vec<LocalId>,
}

/// The jobs of a cluster.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Jobs {
    /// By id.
    pub jobs: Vec<JobInfo>,
    /// Homes that have not listed their jobs, which are missing in `jobs`.
    pub missing: Vec<NodeId>,
    /// Nodes that did not answer at all, where jobs are missing.
    pub away: Vec<NodeId>,
}

impl JobInfo {
    pub(crate) fn of_record(state: wire::JobState) -> Self {
        let (phase, openness, round) = (
            JobPhase::of_record(state.phase()),
            Openness::of_record(state.openness()),
            state.round(),
        );
        let waits_for = state.waits_for().map(JobId).collect();
        let (skipped_because, silent_since_ns) = (state.skipped_text(), state.silent_since_ns());
        let sum = state.sum.unwrap_or_default();
        let stalled = state.stall.as_ref().map(|stall| {
            let why = Stall::of_number(u64::from(stall.why)).unwrap_or(Stall::NotCounted);
            format!("task {}: {}", LocalId(stall.local), why.text())
        });
        Self {
            id: JobId(state.job),
            name: state.name,
            phase,
            openness,
            total: state.total,
            edges: state.edges,
            counts: Counts::of_record(&sum),
            round,
            submitted_ns: state.submitted_ns,
            ended_ns: (state.ended_ns > 0).then_some(state.ended_ns),
            cancelled_by: Some(state.cancelled_by).filter(|by| !by.is_empty()),
            lost_why: Some(sum.lost).filter(|why| !why.is_empty()),
            failures: sum.failures.into_iter().map(TaskFailure::of_record).collect(),
            stalled,
            silent_since_ns,
            waits_for,
            skipped_because,
        }
    }
}

impl Counts {
    pub(crate) fn of_record(sum: &wire::PartitionCount) -> Self {
        Self {
            done: sum.done,
            failed: sum.failed,
            cancelled: sum.cancelled,
            skipped: sum.skipped,
            spawned: sum.spawned,
            executions: sum.executions,
            work_ns: sum.work_ns,
            produced_bytes: sum.produced_bytes,
            moved_bytes: sum.moved_bytes,
            local_bytes: sum.local_bytes,
            held_bytes: sum.held_bytes,
            events: sum.events,
            events_dropped: sum.events_dropped,
        }
    }
}

impl TaskFailure {
    pub(crate) fn of_record(failure: wire::Failure) -> Self {
        Self {
            task: LocalId(failure.local),
            name: failure.name,
            attempt: Attempt(failure.attempt),
            node: NodeId(failure.node),
            exit_code: failure.exit_code,
            error: failure.error,
            stderr_tail: failure.stderr_tail,
        }
    }
}

impl JobPhase {
    pub(crate) fn of_record(phase: wire::JobPhase) -> Self {
        match phase {
            wire::JobPhase::Staged => Self::Staged,
            wire::JobPhase::Running => Self::Running,
            wire::JobPhase::Finished => Self::Finished,
            wire::JobPhase::JobCancelled => Self::Cancelled,
            wire::JobPhase::Lost => Self::Lost,
        }
    }
}

impl Openness {
    pub(crate) fn of_record(openness: wire::Openness) -> Self {
        match openness {
            wire::Openness::ClosedGraph => Self::Graph,
            wire::Openness::Open => Self::Open,
            wire::Openness::Closing => Self::Closed,
        }
    }
}

impl Cancelled {
    pub(crate) fn of_record(answer: wire::Cancelled) -> Self {
        let unknown = answer.unknown.into_iter().map(LocalId).collect();
        Self { cancelled: answer.cancelled, ended: answer.ended, unknown }
    }
}
