//! What goes into a node and what comes out: the whole of its contact with the world.

use std::sync::Arc;

use kvs::{Batch, Page, PageRequest};
use proto::work::{Fetch, FetchError, Launch, Outcome, Stored};
use proto::{
    Attempt, ClientId, Event, Incarnation, JobId, NodeId, ObjectId, PartitionId, TaskId, wire,
};

/// Something that happened. The shell (or the simulator) turns the world into these.
#[derive(Clone, Debug)]
pub enum Input {
    /// A peer's packet. Packets may be lost, repeated, late and out of order.
    Packet(Box<wire::Packet>),
    /// A client's request.
    Request { client: ClientId, request: Box<wire::Request> },
    /// The client's stream ended: its watches go.
    ClientGone { client: ClientId },
    /// An attempt this node launched has ended.
    Finished { task: TaskId, attempt: Attempt, outcome: Outcome },
    /// The fetch of that number ended; the error is one line.
    Fetched { object: ObjectId, number: u64, result: Result<(), FetchError> },
    /// What the shell found when it started: objects that an earlier incarnation left here.
    Stored { objects: Vec<Stored> },
    /// Files of submitters for these tasks lie here.
    Files { tasks: Vec<TaskId> },
    /// The answer to [`Effect::Read`].
    Read(Page),
    /// The answer to [`Effect::Measure`]: processor time and the most memory of this process.
    Measured { cpu_ns: u64, peak_rss_bytes: u64 },
    /// The answer to [`Effect::Erase`]: nothing of it is left, on the disk neither.
    Erased { job: JobId, number: u64 },
    /// Every batch up to `seq` is on stable storage.
    Persisted { seq: u64 },
    /// The members or the partition table changed. Also tells a peer's address and slots. Only
    /// where homes do not move: else the nodes agree on the map among themselves.
    MapCommitted { map: Box<wire::ClusterMap> },
    /// What an operator wants changed in the map: a node joins, leaves or is removed. Made again
    /// until a map shows it, or that it can never be.
    Propose(Box<wire::MapCommand>),
    /// A fresh transport to this peer: what is unacknowledged goes out again.
    PeerConnected { peer: NodeId },
    /// The transport to this peer broke, as it does when a process dies.
    PeerLost { peer: NodeId },
    /// The node is about to be stopped in order: nothing more starts here, and the others hear of
    /// it.
    Stop,
    /// [`crate::Node::deadline`] has come.
    Timer,
}

/// Something to do. The order within one flush is a contract: `Persist` comes first, and no later
/// effect may be carried out before that batch is in the log (written; syncing may follow).
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
    /// These objects go from the store of this node; each may not be there. Those who still need
    /// one fetch it anew.
    Evict {
        objects: Vec<ObjectId>,
    },
    /// The job is over: whatever the shell has of it goes, but for outputs that are to be kept.
    Forget {
        job: JobId,
    },
    /// The job is forgotten: what its tasks printed goes; report [`Input::Erased`]. Where it cannot
    /// be removed there is no report: the demand comes again.
    Erase {
        job: JobId,
        /// Goes with the report.
        number: u64,
    },
    /// The map takes this incarnation for dead. Nothing more comes from it: all that it runs is to
    /// end, and the node may start again under this incarnation or a later one. `None`: it has left
    /// the cluster for good.
    Fenced {
        restart: Option<Incarnation>,
    },
    /// A record of a partition that this node was to take over makes no sense. Nothing more comes
    /// from it: its copies cannot be relied on, and others may have better ones.
    Damaged {
        partition: PartitionId,
        what: String,
    },
    /// The nodes have agreed on a newer map: who is there, where, and who is gone.
    MapChanged(Arc<wire::ClusterMap>),
    Trace(Event),
}
