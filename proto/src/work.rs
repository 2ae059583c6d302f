//! What a node asks of its executor, and what it hears back. Never on a wire.

use std::sync::Arc;

use crate::wire;
use crate::{Attempt, NodeId, ObjectId, Span, TaskId};

/// Start one attempt. All its inputs are on this node.
#[derive(Clone, Debug)]
pub struct Launch {
    pub task: TaskId,
    pub attempt: Attempt,
    /// First of the slots it takes (`spec.cpus` of them are busy until it ends).
    pub slot: u32,
    pub spec: Arc<wire::Spec>,
    pub settings: Arc<wire::JobSettings>,
    pub entry: u64,
    pub duration: Span,
    /// Overrides `spec.outputs[k].size_bytes` of synthetic tasks where present.
    pub output_sizes: Vec<u64>,
    /// Overrides `spec.name` unless empty.
    pub name: String,
    /// By dependency slot; slots that only order are absent.
    pub inputs: Vec<LaunchInput>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchInput {
    pub slot: u32,
    pub object: ObjectId,
    pub size_bytes: u64,
}

/// An object to bring to this node, once however many tasks want it.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub object: ObjectId,
    /// Goes with its end: the end of an earlier fetch of the object may still be on its way.
    pub number: u64,
    pub from: NodeId,
    pub size_bytes: u64,
    pub settings: Arc<wire::JobSettings>,
    /// It is to lie here as if it had been made here; and what becomes of it.
    pub taken: Option<Stay>,
}

/// Why an object did not come.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FetchError {
    /// The node that was asked is well and has no such object.
    #[error("it is not there")]
    NotThere,
    /// That node could not be asked, or its answer did not come whole.
    #[error("{0}")]
    Unreachable(String),
    /// It has the object, which could not be read there or not be kept here.
    #[error("{0}")]
    Disk(String),
}

/// An object that an earlier incarnation left on this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    pub object: ObjectId,
    pub size_bytes: u64,
    pub stay: Stay,
    /// Made elsewhere: it may go.
    pub copy: bool,
}

/// What becomes of an object that lies where it was made, or as if it had been made there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stay {
    /// It outlives its job.
    pub keep: bool,
    /// On how many nodes it is to lie, if that is said; 0: on as many as partitions have copies.
    pub share: Option<u32>,
}

impl Stay {
    #[must_use]
    pub fn of_output(output: &wire::Output, is_upload: bool) -> Self {
        let share = match output.replicas {
            // Nobody can make again what a client had put here.
            0 => (is_upload && !output.keep).then_some(0),
            replicas => Some(replicas),
        };
        Self { keep: output.keep, share }
    }

    /// On how many nodes it is to lie, where partitions have so many copies.
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

/// Nothing is said of other nodes.
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

/// How an attempt ended, as the executor saw it. Times are the core's business.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Empty when it succeeded; else one line that says what went wrong.
    pub error: String,
    /// Of a command; 128 + signal when a signal ended it.
    pub exit_code: i32,
    pub stderr_tail: Vec<u8>,
    /// What ran the attempt died: it is tried again without being held against the task.
    pub lost: bool,
    /// It was lost as what ran it did not answer for long.
    pub hung: bool,
    /// Bytes of each declared output, in order. Empty for a failed attempt.
    pub output_sizes: Vec<u64>,
    /// xxh3 of the bytes of each output. Empty where the outputs have no bytes of their own.
    pub output_sums: Vec<u64>,
    pub captured: Captured,
}

/// How much of what an attempt printed its node has captured.
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

impl Outcome {
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.error.is_empty()
    }
}
