//! The inputs and effects of a node: its whole contact with the world.

use std::sync::Arc;

use kvs::{Batch, Page, PageRequest};
use proto::work::{Fetch, FetchError, Launch, Outcome, PartChange, Stored, Turn, TurnAnswer};
use proto::{
    Attempt, ClientId, Event, Incarnation, JobId, NodeId, ObjectId, PartitionId, TaskId, wire,
};

/// Something that happened. The shell (or the simulator) turns events of the world into inputs.
#[derive(Clone, Debug)]
pub enum Input {
    /// A peer's packet. Packets may be lost, repeated, late and out of order.
    Packet(Box<wire::Packet>),
    /// A client's request.
    Request { client: ClientId, request: Box<wire::Request> },
    /// The client's stream has ended: its watches are removed.
    ClientGone { client: ClientId },
    /// An attempt that this node launched has ended.
    Finished { task: TaskId, attempt: Attempt, outcome: Box<Outcome> },
    /// An attempt that this node launched commits a turn. Its last turn comes with
    /// [`Input::Finished`]. One turn of an attempt at a time: the next one follows the answer.
    Turn { task: TaskId, attempt: Attempt, turn: Box<Turn> },
    /// An attempt that this node launched waits for other tasks and gives its slot back, or wants
    /// to go on: [`Effect::GoesOn`] follows once it has a slot again.
    Rests { task: TaskId, attempt: Attempt, rests: bool },
    /// An attempt that this node launched sets a variable of its job. The answer repeats `ticket`.
    SetVariable {
        task: TaskId,
        attempt: Attempt,
        index: u32,
        value: Box<wire::VarValue>,
        ticket: u64,
    },
    /// An attempt that this node launched asks whether the mailbox of a task takes an event of this
    /// size. The answer repeats `ticket`.
    AskMailbox { task: TaskId, attempt: Attempt, to: wire::MailName, bytes: u32, ticket: u64 },
    /// The fetch with this number has ended; the error is one line.
    Fetched { object: ObjectId, number: u64, result: Result<(), FetchError> },
    /// Objects of an earlier incarnation that the shell found when it started.
    Stored { objects: Vec<Stored> },
    /// Uploaded files for these tasks are here.
    Files { tasks: Vec<TaskId> },
    /// The answer to [`Effect::Read`].
    Read(Page),
    /// The answer to [`Effect::Measure`]: processor time and peak memory of this process.
    Measured { cpu_ns: u64, peak_rss_bytes: u64 },
    /// The answer to [`Effect::Erase`]: nothing of the job is left, not even on the disk.
    Erased { job: JobId, number: u64 },
    /// Every batch up to `seq` is on stable storage.
    Persisted { seq: u64 },
    /// The members or the partition table changed, or the address or slots of a member. Used only
    /// where homes do not move; otherwise the nodes agree on the map among themselves.
    MapCommitted { map: Box<wire::ClusterMap> },
    /// A change of the map by an operator: a node joins, leaves or is removed. It is proposed again
    /// until a map shows it, or shows that it is impossible.
    Propose(Box<wire::MapCommand>),
    /// A fresh transport to this peer: unacknowledged messages are sent again.
    PeerConnected { peer: NodeId },
    /// The transport to this peer broke, as it does when a process dies.
    PeerLost { peer: NodeId },
    /// The node is about to stop in order: no more tasks start here, and the other nodes are
    /// informed.
    Stop,
    /// [`crate::Node::deadline`] has come.
    Timer,
}

/// An action for the shell. The order within one flush is a contract: `Persist` comes first, and no
/// later effect may be carried out before that batch is in the log (written; syncing may follow).
#[derive(Clone, Debug)]
pub enum Effect {
    /// Write this batch atomically to the log; report `Input::Persisted` once it is synced.
    Persist(Batch),
    Send {
        to: NodeId,
        packet: Box<wire::Packet>,
    },
    Reply {
        client: ClientId,
        response: Box<wire::Response>,
    },
    Launch(Box<Launch>),
    /// Stop this attempt if it still runs, process group and all. No `Finished` is expected.
    Kill {
        task: TaskId,
        attempt: Attempt,
    },
    /// The command of this attempt gets its signal, unless it has got it already.
    Notice {
        task: TaskId,
        attempt: Attempt,
    },
    /// A part of a gang begins or ends here. All commands of the part end with it.
    Part(PartChange),
    /// The answer to [`Input::Turn`].
    TurnAnswer {
        task: TaskId,
        attempt: Attempt,
        answer: TurnAnswer,
    },
    /// An attempt that rested has its slot again.
    GoesOn {
        task: TaskId,
        attempt: Attempt,
    },
    /// A variable of a job with tasks here: its value has changed, or has become known.
    Variable {
        job: JobId,
        variable: Box<wire::Variable>,
    },
    /// The values of this job are known here no longer.
    VariablesForgotten {
        job: JobId,
    },
    /// The answer to [`Input::SetVariable`]; false: the attempt does not run.
    VariableSet {
        ticket: u64,
        done: bool,
    },
    /// The answer to [`Input::AskMailbox`]: one line with the reason if the mailbox takes no event.
    Mailbox {
        ticket: u64,
        refused: String,
    },
    Fetch(Fetch),
    /// Report `Input::Measured`.
    Measure,
    /// Read records of a partition; report `Input::Read`.
    Read(PageRequest),
    /// The outputs of this attempt will never be wanted.
    Discard {
        task: TaskId,
        attempt: Attempt,
    },
    /// Delete these objects from this node's store; some may not be there. A task that still needs
    /// one fetches it again.
    Evict {
        objects: Vec<ObjectId>,
    },
    /// The job is over: the shell removes all files of the job, except for kept outputs.
    Forget {
        job: JobId,
    },
    /// The job is forgotten: the shell removes the output that its tasks printed, and reports
    /// [`Input::Erased`]. If that fails there is no report, and the node emits the effect again.
    Erase {
        job: JobId,
        /// Returned in the report.
        number: u64,
    },
    /// The map declares this incarnation failed. The node emits nothing more: all that it runs must
    /// end, and the node may start again under this incarnation or a later one. `None`: the node
    /// has left the cluster permanently.
    Fenced {
        restart: Option<Incarnation>,
    },
    /// A record of a partition that this node was to take over is invalid. The node emits nothing
    /// more: its replicas are not reliable, and other nodes may have better ones.
    Damaged {
        partition: PartitionId,
        what: String,
    },
    /// The nodes have agreed on a newer map: the members, their addresses, and which have failed.
    MapChanged(Arc<wire::ClusterMap>),
    Trace(Event),
}
