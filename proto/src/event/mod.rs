/*!
The records of the event log: every phase of every task, with its time, reason and bytes.

Each block of events is self-contained, because times are deltas within it. So a reader may start at
any block. An event is one tag byte and LEB128 varints, about 12 bytes.
*/

mod spawns_and_deaths;
mod subject;
mod turned;

pub use crate::spared::Spared;
pub use crate::stall::Stall;
use crate::{Attempt, JobId, LocalId, NodeId, PartitionId, Policy, Span, TaskId, Time};
pub use turned::Turned;

/// The reason why a ready task went to a queue or node (Algorithm 1 of the paper and its
/// extensions).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// It needs no input bytes: shared.
    NoInput = 0,
    /// All its inputs together cost at most `t` of its length: shared (line 1).
    SmallInputs = 1,
    /// Its largest input costs at most `t` of its length: shared (line 12).
    SmallLargest = 2,
    /// Most of its bytes are big and here: dedicated local queue (line 14).
    BigHere = 3,
    /// Most of its bytes are big and on another node: pushed there (line 17).
    BigElsewhere = 4,
    /// Its home pushed it to this node.
    Pushed = 5,
    /// This node stole it.
    Stolen = 6,
    /// A steal was not completed and returned it.
    GivenBack = 7,
    /// Too wide for this node's slots: pushed to a node where it fits.
    TooWide = 8,
    /// It waited too long in the dedicated queue: shared (FLDS).
    Shifted = 9,
    /// It is expected to end first here: dedicated local queue (EFT).
    EarliestHere = 10,
    /// It is expected to end first on another node: pushed there (EFT).
    EarliestElsewhere = 11,
    /// Its inputs are here, but it has waited long for a slot: any node may steal it.
    OfferedAgain = 12,
    /// This node does not offer what it asks for: pushed to a node that does.
    NotOffered = 13,
    /// A gang, which another node leads: pushed there.
    GangLed = 14,
}

/// The reason why the home issued a further attempt of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RetryReason {
    /// Its holder restarted as a new incarnation.
    HolderRestarted = 0,
    /// Its holder does not know it.
    NotHeld = 1,
    /// The home restarted while the task waited or ran there.
    HomeRestarted = 2,
    /// It failed and has retries left.
    Retry = 3,
    /// A later attempt replaced one of its inputs.
    InputReplaced = 4,
    /// The process that ran it died, but its node lives.
    Lost = 5,
    /// Its holder is dead.
    HolderGone = 6,
    /// It was done, but its outputs are lost and still needed.
    Rebuilt = 7,
    /// One of its inputs is lost, and its producer runs again.
    InputLost = 8,
    /// It was done, but one of its inputs was made again with other bytes.
    Recalled = 9,
    /// It was not done, and its job is retried.
    Round = 10,
    /// Its node ends or is drained: its command has ended after its signal, or was killed.
    Moved = 11,
    /// The node of another part of its gang is gone.
    MemberGone = 12,
}

/// The result of a task or an attempt; the numbers are those of [`crate::wire::Verdict`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum End {
    Done = 0,
    Failed = 1,
    Cancelled = 2,
    Skipped = 3,
}

/// An event on one node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// A node started with this incarnation.
    NodeStarted { node: NodeId, incarnation: u32, slots: u32 },
    /// The home stored a chunk of tasks.
    Staged { job: JobId, partition: PartitionId, first: u64, tasks: u64 },
    /// The tasks of a committed job became visible at a home.
    Visible { job: JobId },
    /// A task entered a ready queue of this node.
    Queued { task: TaskId, attempt: Attempt, local_queue: bool, reason: Reason, input_bytes: u64 },
    /// The home pushed a task to another node.
    Pushed { task: TaskId, attempt: Attempt, to: NodeId, reason: Reason, input_bytes: u64 },
    /// This node stole a task.
    Stolen { task: TaskId, attempt: Attempt, from: NodeId },
    /// An input was fetched from another node.
    Fetched { task: TaskId, attempt: Attempt, from: NodeId, bytes: u64, took: Span },
    /// An attempt started in a slot of this node.
    Started { task: TaskId, attempt: Attempt, slot: u32 },
    /// An attempt that has just started takes this slot as well.
    Widened { task: TaskId, attempt: Attempt, slot: u32 },
    /// A gang that another node leads starts, and its part here has this slot. A part with several
    /// slots has one such event for each.
    PartBegan { task: TaskId, attempt: Attempt, slot: u32 },
    /// The gang has ended: its part here frees its slots.
    PartEnded { task: TaskId, attempt: Attempt },
    /// An attempt ended on this node.
    Ended {
        task: TaskId,
        attempt: Attempt,
        end: End,
        started: Time,
        moved_bytes: u64,
        local_bytes: u64,
    },
    /// The home committed the end of a task; this happens once.
    Committed { task: TaskId, attempt: Attempt, end: End, node: NodeId, output_bytes: u64 },
    /// The home committed a turn of the task. `first`: the index of the first spawned task in the
    /// task's partition.
    Turned { task: TaskId, attempt: Attempt, seq: u64, turn: Turned, first: u64, spawned: u64 },
    /// The home issued a further attempt of the task.
    Replaced { task: TaskId, attempt: Attempt, why: RetryReason },
    /// A completion that did not count.
    Stale { task: TaskId, attempt: Attempt },
    /// The reconciler found a missed wake-up.
    MissedWakeupRepaired { task: TaskId },
    /// The monitor of FLDS moved tasks from LReadyQ to SReadyQ, with its maximum wait from then on.
    Shifted { tasks: u64, wait_max: Span },
    /// ADAPTIVE changed the policy; both are given by number.
    PolicyChanged { from: u8, to: u8 },
    /// A user changed the node's scheduling: the policy before and after, `t`, the initial maximum
    /// wait, and the bounds of the steal interval.
    Retuned { from: u8, to: u8, threshold: f64, wait_max: Span, steal: [Span; 2] },
    /// The job's home declared it ended.
    JobEnded { job: JobId, end: End },
    /// The home revoked this attempt at its holder: it will not start here any more.
    Dismissed { task: TaskId, attempt: Attempt },
    /// The home learned that the whole job is cancelled: no task of it ends as done here any more.
    Removing { job: JobId },
    /// The holder of this attempt of a command has died while it ran, or may have run: a counted
    /// crash.
    CrashCounted { task: TaskId, attempt: Attempt, node: NodeId, incarnation: u32, count: u8 },
    /// The holder of this attempt of a command has died, counted apart.
    Spared { task: TaskId, attempt: Attempt, node: NodeId, incarnation: u32, why: Spared },
    /// A leaving node handed the outputs of a task to this node.
    TakenOver { task: TaskId, attempt: Attempt, from: NodeId },
    /// A node that is drained or ends gave the task away.
    Moved { task: TaskId, attempt: Attempt, from: NodeId },
    /// A job makes no progress, and this task blocks it.
    Stalled { task: TaskId, stall: Stall, home: NodeId, holder: NodeId, quiet: Span },
}

/// Appends events to a block.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    last: u64,
}

/// The reason why a block could not be read further.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the event block ends inside an event, at byte {0}")]
    Truncated(usize),
    #[error("unknown event tag {tag} at byte {at}")]
    UnknownTag { tag: u8, at: usize },
    #[error("a number out of range at byte {0}")]
    OutOfRange(usize),
}

impl Encoder {
    pub fn push(&mut self, time: Time, event: &Event) {
        let at = self.bytes.len();
        self.bytes.push(0);
        // Zig-zag: blocks contain the events of one loop, and its clock rarely goes back.
        let delta = time.0.wrapping_sub(self.last) as i64;
        self.last = time.0;
        self.number(((delta << 1) ^ (delta >> 63)) as u64);
        let tag = self.body(event);
        self.bytes[at] = tag;
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// Returns the block so far. The next event starts a new one.
    pub fn take(&mut self) -> Vec<u8> {
        self.last = 0;
        std::mem::take(&mut self.bytes)
    }

    fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.bytes.push(n as u8);
    }
    /// Encodes the term and the number of an attempt separately, so that small ones take two bytes.
    fn task(&mut self, task: TaskId, attempt: Attempt) {
        self.number(task.job.0);
        self.number(u64::from(task.local.partition().0));
        self.number(task.local.index());
        self.number(u64::from(attempt.term()));
        self.number(u64::from(attempt.number()));
    }

    fn body(&mut self, event: &Event) -> u8 {
        match *event {
            Event::Queued { task, attempt, local_queue, reason, input_bytes } => {
                self.task(task, attempt);
                self.numbers(&[local_queue.into(), reason as u64, input_bytes]);
                4
            }
            Event::Pushed { task, attempt, to, reason, input_bytes } => {
                self.task(task, attempt);
                self.numbers(&[to.0.into(), reason as u64, input_bytes]);
                5
            }
            Event::Stolen { task, attempt, from } => self.sender_body(6, (task, attempt), from),
            Event::Fetched { task, attempt, from, bytes, took } => {
                self.task(task, attempt);
                self.numbers(&[from.0.into(), bytes, took.0]);
                7
            }
            Event::Started { task, attempt, slot } => self.slot_body(8, (task, attempt), slot),
            Event::Widened { task, attempt, slot } => self.slot_body(33, (task, attempt), slot),
            Event::PartBegan { task, attempt, slot } => self.slot_body(35, (task, attempt), slot),
            Event::PartEnded { task, attempt } => self.task_body(36, (task, attempt)),
            Event::Ended { task, attempt, end, started, moved_bytes, local_bytes } => {
                let ran = self.last.saturating_sub(started.0);
                self.task(task, attempt);
                self.numbers(&[end as u64, ran, moved_bytes, local_bytes]);
                9
            }
            Event::Committed { task, attempt, end, node, output_bytes } => {
                self.task(task, attempt);
                self.numbers(&[end as u64, node.0.into(), output_bytes]);
                10
            }
            Event::Replaced { task, attempt, why } => {
                self.task(task, attempt);
                self.number(why as u64);
                11
            }
            Event::Stale { task, attempt } => self.task_body(12, (task, attempt)),
            Event::MissedWakeupRepaired { task } => {
                self.task(task, Attempt::default());
                13
            }
            Event::JobEnded { .. }
            | Event::Removing { .. }
            | Event::NodeStarted { .. }
            | Event::Staged { .. }
            | Event::Visible { .. }
            | Event::Shifted { .. }
            | Event::PolicyChanged { .. }
            | Event::Retuned { .. } => self.node_body(event),
            Event::Dismissed { task, attempt } => self.task_body(25, (task, attempt)),
            Event::Turned { .. } => self.turned(event),
            Event::TakenOver { task, attempt, from } => self.sender_body(29, (task, attempt), from),
            Event::Moved { task, attempt, from } => self.sender_body(37, (task, attempt), from),
            _ => self.trouble_body(event),
        }
    }

    fn task_body(&mut self, tag: u8, (task, attempt): (TaskId, Attempt)) -> u8 {
        self.task(task, attempt);
        tag
    }
    fn sender_body(&mut self, tag: u8, (task, attempt): (TaskId, Attempt), from: NodeId) -> u8 {
        self.task(task, attempt);
        self.number(from.0.into());
        tag
    }
    fn slot_body(&mut self, tag: u8, (task, attempt): (TaskId, Attempt), slot: u32) -> u8 {
        self.task(task, attempt);
        self.number(slot.into());
        tag
    }

    /// Encodes the events that concern no single task.
    fn node_body(&mut self, event: &Event) -> u8 {
        match *event {
            Event::NodeStarted { node, incarnation, slots } => {
                self.numbers(&[node.0.into(), incarnation.into(), slots.into()]);
                1
            }
            Event::JobEnded { job, end } => {
                self.numbers(&[job.0, end as u64]);
                14
            }
            Event::Removing { job } => {
                self.number(job.0);
                26
            }
            Event::Staged { job, partition, first, tasks } => {
                self.numbers(&[job.0, partition.0.into(), first, tasks]);
                2
            }
            Event::Visible { job } => {
                self.number(job.0);
                3
            }
            Event::Shifted { tasks, wait_max } => {
                self.numbers(&[tasks, wait_max.0]);
                15
            }
            Event::PolicyChanged { from, to } => {
                self.numbers(&[from.into(), to.into()]);
                16
            }
            Event::Retuned { from, to, threshold, wait_max, steal: [start, bound] } => {
                self.numbers(&[from.into(), to.into(), threshold.to_bits()]);
                self.numbers(&[wait_max.0, start.0, bound.0]);
                30
            }
            _ => unreachable!("called for these only"),
        }
    }

    /// Encodes the events of crashes and stalls.
    fn trouble_body(&mut self, event: &Event) -> u8 {
        match *event {
            Event::CrashCounted { task, attempt, node, incarnation, count } => {
                self.task(task, attempt);
                self.numbers(&[node.0.into(), incarnation.into(), count.into()]);
                27
            }
            Event::Spared { task, attempt, node, incarnation, why } => {
                self.task(task, attempt);
                self.numbers(&[node.0.into(), incarnation.into(), why as u64]);
                32
            }
            Event::Stalled { task, stall, home, holder, quiet } => {
                self.task(task, Attempt::default());
                self.numbers(&[stall as u64, home.0.into(), holder.0.into(), quiet.0]);
                28
            }
            _ => unreachable!("called for these only"),
        }
    }

    fn numbers(&mut self, numbers: &[u64]) {
        for &n in numbers {
            self.number(n);
        }
    }
}

/// Reads the events of one block.
#[derive(Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    last: u64,
}

impl<'a> Decoder<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, last: 0 }
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated(self.at))?;
            self.at += 1;
            n |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(DecodeError::OutOfRange(self.at))
    }
    fn small(&mut self) -> Result<u32, DecodeError> {
        let n = self.number()?;
        u32::try_from(n).map_err(|_| DecodeError::OutOfRange(self.at))
    }
    fn partition(&mut self) -> Result<PartitionId, DecodeError> {
        match self.small()? {
            n if n < 1 << 24 => Ok(PartitionId(n)),
            _ => Err(DecodeError::OutOfRange(self.at)),
        }
    }
    fn task(&mut self) -> Result<(TaskId, Attempt), DecodeError> {
        let job = JobId(self.number()?);
        let partition = self.partition()?;
        let index = self.number()?;
        if index >> crate::id::INDEX_BITS != 0 {
            return Err(DecodeError::OutOfRange(self.at));
        }
        let (home, number) = (self.small()?, self.small()?);
        let local = LocalId::new(partition, index);
        Ok((TaskId { job, local }, Attempt::new(home, number)))
    }
    fn end(&mut self) -> Result<End, DecodeError> {
        Ok(match self.number()? {
            0 => End::Done,
            1 => End::Failed,
            2 => End::Cancelled,
            3 => End::Skipped,
            _ => return Err(DecodeError::OutOfRange(self.at)),
        })
    }
    fn reason(&mut self) -> Result<Reason, DecodeError> {
        const ALL: [Reason; 15] = [
            Reason::NoInput,
            Reason::SmallInputs,
            Reason::SmallLargest,
            Reason::BigHere,
            Reason::BigElsewhere,
            Reason::Pushed,
            Reason::Stolen,
            Reason::GivenBack,
            Reason::TooWide,
            Reason::Shifted,
            Reason::EarliestHere,
            Reason::EarliestElsewhere,
            Reason::OfferedAgain,
            Reason::NotOffered,
            Reason::GangLed,
        ];
        let n = self.number()? as usize;
        ALL.get(n).copied().ok_or(DecodeError::OutOfRange(self.at))
    }
    fn policy(&mut self) -> Result<u8, DecodeError> {
        match self.number()? {
            n if n < Policy::COUNT as u64 => Ok(n as u8),
            _ => Err(DecodeError::OutOfRange(self.at)),
        }
    }
    fn retry_reason(&mut self) -> Result<RetryReason, DecodeError> {
        const ALL: [RetryReason; 13] = [
            RetryReason::HolderRestarted,
            RetryReason::NotHeld,
            RetryReason::HomeRestarted,
            RetryReason::Retry,
            RetryReason::InputReplaced,
            RetryReason::Lost,
            RetryReason::HolderGone,
            RetryReason::Rebuilt,
            RetryReason::InputLost,
            RetryReason::Recalled,
            RetryReason::Round,
            RetryReason::Moved,
            RetryReason::MemberGone,
        ];
        let n = self.number()? as usize;
        ALL.get(n).copied().ok_or(DecodeError::OutOfRange(self.at))
    }

    fn event(&mut self) -> Result<(Time, Event), DecodeError> {
        let at = self.at;
        let tag = *self.bytes.get(at).ok_or(DecodeError::Truncated(at))?;
        self.at += 1;
        let zigzag = self.number()?;
        let delta = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        self.last = self.last.wrapping_add(delta as u64);
        Ok((Time(self.last), self.body(tag, at)?))
    }

    fn body(&mut self, tag: u8, at: usize) -> Result<Event, DecodeError> {
        match tag {
            1 => Ok(Event::NodeStarted {
                node: NodeId(self.small()?),
                incarnation: self.small()?,
                slots: self.small()?,
            }),
            2 => Ok(Event::Staged {
                job: JobId(self.number()?),
                partition: self.partition()?,
                first: self.number()?,
                tasks: self.number()?,
            }),
            3 => Ok(Event::Visible { job: JobId(self.number()?) }),
            14 => Ok(Event::JobEnded { job: JobId(self.number()?), end: self.end()? }),
            15 => Ok(Event::Shifted { tasks: self.number()?, wait_max: Span(self.number()?) }),
            16 => Ok(Event::PolicyChanged { from: self.policy()?, to: self.policy()? }),
            26 => Ok(Event::Removing { job: JobId(self.number()?) }),
            30 => Ok(Event::Retuned {
                from: self.policy()?,
                to: self.policy()?,
                threshold: f64::from_bits(self.number()?),
                wait_max: Span(self.number()?),
                steal: [Span(self.number()?), Span(self.number()?)],
            }),
            4..=13 | 25 | 27..=29 | 32..=37 => self.task_event(tag),
            _ => Err(DecodeError::UnknownTag { tag, at }),
        }
    }

    fn task_event(&mut self, tag: u8) -> Result<Event, DecodeError> {
        let (task, attempt) = self.task()?;
        Ok(match tag {
            4 => Event::Queued {
                task,
                attempt,
                local_queue: self.number()? != 0,
                reason: self.reason()?,
                input_bytes: self.number()?,
            },
            5 => Event::Pushed {
                task,
                attempt,
                to: NodeId(self.small()?),
                reason: self.reason()?,
                input_bytes: self.number()?,
            },
            6 => Event::Stolen { task, attempt, from: NodeId(self.small()?) },
            7 => Event::Fetched {
                task,
                attempt,
                from: NodeId(self.small()?),
                bytes: self.number()?,
                took: Span(self.number()?),
            },
            8 => Event::Started { task, attempt, slot: self.small()? },
            33 => Event::Widened { task, attempt, slot: self.small()? },
            35 => Event::PartBegan { task, attempt, slot: self.small()? },
            36 => Event::PartEnded { task, attempt },
            9 => Event::Ended {
                task,
                attempt,
                end: self.end()?,
                started: Time(self.last.saturating_sub(self.number()?)),
                moved_bytes: self.number()?,
                local_bytes: self.number()?,
            },
            10 => Event::Committed {
                task,
                attempt,
                end: self.end()?,
                node: NodeId(self.small()?),
                output_bytes: self.number()?,
            },
            11 => Event::Replaced { task, attempt, why: self.retry_reason()? },
            12 => Event::Stale { task, attempt },
            25 => Event::Dismissed { task, attempt },
            27 | 28 | 32 | 34 => return self.counted_event(tag, task, attempt),
            29 => Event::TakenOver { task, attempt, from: NodeId(self.small()?) },
            37 => Event::Moved { task, attempt, from: NodeId(self.small()?) },
            _ => Event::MissedWakeupRepaired { task },
        })
    }
}

impl Iterator for Decoder<'_> {
    type Item = Result<(Time, Event), DecodeError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let item = self.event();
        if item.is_err() {
            self.at = self.bytes.len(); // The rest of the block cannot be trusted.
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests;
