//! The inputs of a node's run loop from its streams and threads.

use executor::AttemptOutcome;
use node::Input;
use proto::{ClientId, Incarnation, NodeId, TaskId, wire};
use tokio::sync::{mpsc, oneshot};

use crate::objects::data::Wanted;
use crate::rpc::replies::ReplySender;
use crate::store::StoreError;
use crate::store::scrubber::ScrubPass;

/// Inputs from peers and clients, through a bounded queue. While it is full, the connections are
/// not read.
#[derive(Debug)]
pub(crate) enum Incoming {
    ClientUp {
        client: ClientId,
        replies: ReplySender,
    },
    Requests {
        client: ClientId,
        requests: Vec<wire::Request>,
    },
    ClientDown {
        client: ClientId,
    },
    LinkUp {
        peer: NodeId,
        incarnation: Incarnation,
        link: u64,
        queue: mpsc::Sender<wire::LinkFrame>,
    },
    Packet(Box<wire::Packet>),
    LinkDown {
        peer: NodeId,
        link: u64,
    },
    /// Objects that a client wants here.
    Wants {
        from: NodeId,
        wanted: Vec<Wanted>,
    },
    /// A submitter has a file for a task. The answer is that of [`node::Node::awaits_file`], or of
    /// [`node::Node::has_replica`] if `copy` is set.
    File {
        task: TaskId,
        copy: bool,
        awaited: oneshot::Sender<Option<bool>>,
    },
    /// The file of a task has arrived and will be committed next.
    Kept {
        task: TaskId,
    },
    /// Answered when all events so far are in the files.
    FlushEvents(oneshot::Sender<()>),
}

/// Inputs from the node's own threads, at most one for each launch, turn, fetch, sync or read.
#[derive(Debug)]
pub(crate) enum Local {
    Input(Input),
    /// Several inputs that arrived together.
    Inputs(Vec<Input>),
    /// An end of a task that may belong to a stop of the whole node.
    Doubted(AttemptOutcome),
    /// The records of a page request.
    Read(Result<kvs::Page, StoreError>),
    /// The last batch that is durable now.
    Synced(Result<u64, StoreError>),
    /// All records were read again.
    Scrubbed(Result<ScrubPass, StoreError>),
}
