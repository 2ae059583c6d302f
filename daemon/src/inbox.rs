//! What reaches the loop of a node from its streams and its threads.

use executor::AttemptOutcome;
use node::Input;
use proto::{ClientId, Incarnation, NodeId, TaskId, wire};
use tokio::sync::{mpsc, oneshot};

use crate::data::Wanted;
use crate::replies::ReplySender;
use crate::scrub::Pass;
use crate::store::StoreError;

/// From peers and clients, through a bounded queue: what the loop cannot take is not read.
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
    /// [`node::Node::has_replica`] if this node is to have a copy.
    File {
        task: TaskId,
        copy: bool,
        awaited: oneshot::Sender<Option<bool>>,
    },
    /// The file of a task is here, and about to be whole.
    Kept {
        task: TaskId,
    },
    /// Answered when all events so far are in the files.
    FlushEvents(oneshot::Sender<()>),
}

/// From the node's own threads; never more than it launched, fetched, synced or read.
#[derive(Debug)]
pub(crate) enum Local {
    Input(Input),
    /// Several that came together.
    Inputs(Vec<Input>),
    /// It may turn out that the node is to stop, too.
    Doubted(AttemptOutcome),
    /// Records that were to be read.
    Read(Result<kvs::Page, StoreError>),
    /// Up to which batch everything is durable now.
    Synced(Result<u64, StoreError>),
    /// All records were read again.
    Scrubbed(Result<Pass, StoreError>),
}
