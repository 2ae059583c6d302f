//! The requests of a node's core to its executor, and the executor's answers. They are never sent
//! over the wire.

use std::sync::Arc;

use crate::wire;
use crate::{Attempt, NodeId, ObjectId, Span, TaskId};

/// Starts one attempt. All its inputs are on this node.
#[derive(Clone, Debug)]
pub struct Launch {
    pub task: TaskId,
    pub attempt: Attempt,
    /// The first of its slots; `spec.cpus` slots are busy until it ends.
    pub slot: u32,
    pub spec: Arc<wire::Spec>,
    pub settings: Arc<wire::JobSettings>,
    pub entry: u64,
    pub duration: Span,
    /// Overrides `spec.outputs[k].size_bytes` of synthetic tasks if present.
    pub output_sizes: Vec<u64>,
    /// Overrides `spec.name` unless empty.
    pub name: String,
    /// The arguments of a call; overrides those of the spec unless empty.
    pub payload: bytes::Bytes,
    /// By input slot; slots of order-only edges are absent.
    pub inputs: Vec<LaunchInput>,
    /// The result of the turns that earlier attempts have committed.
    pub resume: Option<Arc<wire::Resume>>,
    /// The resources that the attempt has; absent on a node that offers cpus alone.
    pub granted: Option<Box<Granted>>,
    /// The nodes of a gang, the node of the attempt first; empty for other tasks.
    pub gang: Vec<GangNode>,
}

/// A node of a gang.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GangNode {
    pub node: NodeId,
    pub host: String,
    /// In the form of the map.
    pub address: String,
    /// The cpus that the gang has there.
    pub cpus: u32,
}

/// The part of a gang that this node has, from the start of the gang to its end. Further commands
/// of the task may run in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub task: TaskId,
    pub attempt: Attempt,
    pub cpus: u32,
    /// Absent on a node that offers cpus alone.
    pub granted: Option<Box<Granted>>,
}

/// A part of a gang begins or ends on this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PartChange {
    Begins(Box<Part>),
    Ends(TaskId, Attempt),
}

/// The resources of one attempt.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Granted {
    /// The position of the chosen variant in the request.
    pub variant: u8,
    pub pools: Vec<GrantedPool>,
}

/// The part of one pool that an attempt has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantedPool {
    pub name: String,
    /// The last part of a variable's name.
    pub variable: String,
    /// The amount, in units of 1/10,000.
    pub units: u64,
    /// The names of the indices; none for a sum.
    pub indices: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchInput {
    pub slot: u32,
    pub object: ObjectId,
    pub size_bytes: u64,
}

/// Fetches an object to this node, once for all tasks that need it.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub object: ObjectId,
    /// Returned with the result, because the result of an earlier fetch of the object may still
    /// arrive.
    pub number: u64,
    pub from: NodeId,
    pub size_bytes: u64,
    pub settings: Arc<wire::JobSettings>,
    /// If set, the object is stored here as if this node had made it.
    pub taken: Option<Stay>,
}

/// The reason why a fetch failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FetchError {
    /// The source is reachable and has no such object.
    #[error("it is not there")]
    NotThere,
    /// The source could not be asked, or its answer was incomplete.
    #[error("{0}")]
    Unreachable(String),
    /// The source could not read the object, or this node could not store it.
    #[error("{0}")]
    Disk(String),
}

/// An object that an earlier incarnation left on this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    pub object: ObjectId,
    pub size_bytes: u64,
    pub stay: Stay,
    /// Made elsewhere, so it may be evicted.
    pub copy: bool,
}

/// The retention of an object on the node that made it, or that stores it in place of that node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stay {
    /// It outlives its job.
    pub keep: bool,
    /// The wanted number of nodes with the object, if specified; 0: as many as partition replicas.
    pub share: Option<u32>,
}

impl Stay {
    #[must_use]
    pub fn of_output(output: &wire::Output, is_upload: bool) -> Self {
        let share = match output.replicas {
            // An uploaded file cannot be made again.
            0 => (is_upload && !output.keep).then_some(0),
            replicas => Some(replicas),
        };
        Self { keep: output.keep, share }
    }

    /// The number of nodes that must have the object; `of_partitions` is the number of partition
    /// replicas.
    #[must_use]
    pub fn copies(self, of_partitions: u32) -> u32 {
        match self.share {
            Some(0) => of_partitions,
            Some(copies) => copies,
            None if self.keep => of_partitions,
            None => 1,
        }
    }
}

/// Leaves the number of nodes unspecified.
impl From<bool> for Stay {
    fn from(keep: bool) -> Self {
        Self { keep, share: None }
    }
}

impl From<&wire::TransferredOutput> for Stay {
    fn from(output: &wire::TransferredOutput) -> Self {
        Self { keep: output.keep, share: output.share }
    }
}

/// The result of an attempt as the executor saw it. The core adds the times.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Empty on success, otherwise one line with the reason.
    pub error: String,
    /// Of a command; 128 + signal when a signal ended it.
    pub exit_code: i32,
    pub stderr_tail: Vec<u8>,
    /// The process that ran the attempt died. The retry is not counted against the task.
    pub lost: bool,
    /// It was lost because the spawner did not answer for long.
    pub hung: bool,
    /// The size of each declared output, in order. Empty for a failed attempt.
    pub output_sizes: Vec<u64>,
    /// xxh3 of the bytes of each output. Empty for outputs without bytes.
    pub output_sums: Vec<u64>,
    pub captured: Captured,
    /// Of a command.
    pub used: Used,
    /// Of a call: its value if it is small, or the exception that it raised.
    pub inline: Vec<u8>,
    /// What the attempt spawned since its last turn, and its last state. Only of a successful
    /// attempt; it is committed together with the end.
    pub turn: Option<Box<Turn>>,
}

/// A turn as an attempt requests it; the core numbers it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Turn {
    pub verdict: wire::TurnVerdict,
    pub spawned: wire::Spawned,
    /// Of [`wire::TurnVerdict::TurnWait`].
    pub awaits: Vec<wire::TaskRef>,
    /// `None`: the state of the former turn stays.
    pub state: Option<Vec<u8>>,
    /// Added to sums of the job.
    pub sums: Vec<wire::VarSum>,
    /// Sent when the turn is committed.
    pub events: Vec<wire::TurnEvent>,
    /// The numbers of letters that the attempt has taken out of its mailbox.
    pub consumed: Vec<u64>,
    /// Of [`wire::TurnVerdict::TurnWait`] for an event.
    pub mail_wait: Option<wire::MailWait>,
}

/// The answer to a turn. It comes once the turn is synced on its replicas.
#[derive(Clone, PartialEq, Debug)]
pub enum TurnAnswer {
    /// The turn took effect. After a wait or a yield the attempt is over: the shell ends it, and
    /// reports no end.
    Committed(TurnCommit),
    /// Another attempt runs, or the task has ended: the shell ends this attempt.
    Fenced,
    /// The turn exceeds a limit or is malformed, and had no effect: the reason, in one line.
    Refused(String),
}

/// The effect of a committed turn.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TurnCommit {
    pub seq: u64,
    /// The ordinal of the first spawned task, its id, and the number of spawned tasks. Their ids
    /// are consecutive.
    pub ordinal: u64,
    pub first: crate::LocalId,
    pub count: u32,
    /// Of a wait for tasks that have all ended: their ends. The attempt goes on.
    pub awaited: Option<Vec<wire::Awaited>>,
    /// With `awaited`, of a wait for an event: the first that count; none: its time is over.
    pub letters: Vec<wire::Letter>,
}

/// The captured bytes of an attempt's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Captured {
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
}

impl Captured {
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub fn add(&mut self, stderr: bool, bytes: u64) {
        let sum = if stderr { &mut self.stderr_bytes } else { &mut self.stdout_bytes };
        *sum = sum.saturating_add(bytes);
    }

    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.stdout_bytes.saturating_add(self.stderr_bytes)
    }
}

/// The CPU time and the memory that the processes of a command have used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// In user and system mode, of all processes that were waited for.
    pub cpu_us: u64,
    /// The peak of resident memory: that of its largest process, or a larger measured sum.
    pub max_rss_kib: u64,
}

impl Used {
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Outcome {
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.error.is_empty()
    }
}
