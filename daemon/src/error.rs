//! The reasons why a node did not start, and why it stopped.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// The text of a system error in our style: lower case, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

const FREE_SPACE: &str = "free some space, or give a --dir on another device";

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Why a node did not start. The text is one line; [`Self::hint`] says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error("{what}")]
    Options { what: String },
    #[error("refusing to listen on {address}: with --insecure nothing leaves this machine")]
    NotLoopback { address: SocketAddr },
    #[error("refusing to listen on all addresses: with --insecure nothing leaves this machine")]
    AutoInsecure,
    #[error("cannot ask the kernel for this machine's addresses: {}", reason(.0))]
    Interfaces(io::Error),
    #[error("no interface that is up matches '{only}'; these are up: {up}")]
    NoInterface { only: String, up: String },
    #[error("refusing to join by {address}: with --insecure nothing leaves this machine")]
    JoinNotLoopback { address: String },
    #[error("refusing to listen on {address}: others could not reach the node by that address")]
    NoAddress { address: SocketAddr },
    #[error("{} belongs to a cluster {} --insecure", path.display(),
        if *insecure { "without" } else { "with" })]
    Security { path: PathBuf, insecure: bool },
    #[error(transparent)]
    Keys(#[from] security::KeyError),
    #[error("cannot use the keys of {}: {reason}", path.display())]
    BadKeys { path: PathBuf, reason: String },
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("state directory {} is in use by another node", path.display())]
    InUse { path: PathBuf },
    #[error("{} has format {found}, and this program reads {known}", path.display())]
    NewerFormat { path: PathBuf, found: String, known: String },
    #[error(
        "node {node} runs at {address} and is of another version ({reason}); the state in {} keeps \
         its version",
        path.display()
    )]
    OtherVersion { node: proto::NodeId, address: String, reason: String, path: PathBuf },
    #[error("{} belongs to another user", path.display())]
    OtherOwner { path: PathBuf },
    #[error("{} may be written to by others (mode {mode:04o})", path.display())]
    DirectoryMode { path: PathBuf, mode: u32 },
    #[error("no permission to {doing} {}", path.display())]
    NoPermission { doing: &'static str, path: PathBuf },
    #[error("no space left on the device of {}", path.display())]
    NoSpace { path: PathBuf },
    #[error("cannot {doing} {}: {}", path.display(), reason(error))]
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("cannot lock {} within {waited_s} s: another node has it", path.display())]
    Busy { path: PathBuf, waited_s: u64 },
    #[error("{} belongs to a cluster of {found}, {wanted} asked for", path.display())]
    OtherCluster { path: PathBuf, found: String, wanted: String },
    #[error("{} belongs to a cluster that keeps {found} copies of each partition, {wanted} asked for",
        path.display())]
    OtherReplicas { path: PathBuf, found: u32, wanted: u32 },
    #[error("a node of 0 slots keeps copies, and this cluster was made with --replicas 1")]
    KeeperAlone,
    #[error("node {node} has left the cluster: its number is never used again")]
    Removed { node: proto::NodeId },
    #[error(
        "{} has no records, and the lost ones were the only copy of the cluster map",
        path.display()
    )]
    LostMap { path: PathBuf },
    #[error(
        "{} is missing: it held the jobs and the keys of this node, and no other node can fill it",
        path.display()
    )]
    LostRecords { path: PathBuf },
    #[error(
        "{} has no records, its cluster has begun before, and within {waited_s} s no node came \
         that has its state: {missing}",
        path.display()
    )]
    LostState { path: PathBuf, waited_s: u64, missing: String },
    #[error("{present} of {expected} nodes came within {waited_s} s; missing: {missing}")]
    Missing { present: u32, expected: u32, waited_s: u64, missing: String },
    #[error("no node could be joined within {waited_s} s: {seen}")]
    NoMember { seen: String, waited_s: u64 },
    #[error("cannot join by {address}: {reason}")]
    Join { address: String, reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot start the executor: {0}")]
    Executor(#[from] executor::ExecutorError),
    #[error(transparent)]
    Recover(#[from] node::RecoverError),
    #[error("cannot start a thread of the node: {0}")]
    Thread(io::Error),
    #[error("the node ended before its cluster was complete")]
    Stopped,
    #[error(transparent)]
    Node(Box<NodeError>),
}

impl StartError {
    /// The next step for the user. Empty if the text contains it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::AutoInsecure => {
                "leave out --insecure, or give --listen 127.0.0.1:0: all nodes are on one machine then"
            }
            Self::Interfaces(_) => "give --listen with the address by which others reach this one",
            Self::NoInterface { .. } => "give --interface a name or a network of this machine",
            Self::NotLoopback { .. } => "leave out --insecure, or give an address of 127.0.0.0/8",
            Self::JoinNotLoopback { .. } => "leave out --insecure",
            Self::Listen { .. } => {
                "leave out --listen, or give port 0: the system picks a free one"
            }
            Self::InUse { .. } => "stop that node first (`starling down`), or give another --dir",
            Self::NewerFormat { .. } => {
                "use the newer starling that wrote it; to go back, fetch the results with that one \
                 ('starling job fetch') and begin in another --dir, or put the copy back that was \
                 made before the upgrade (docs/clusters.md, Upgrading)"
            }
            Self::OtherVersion { .. } => {
                "nodes of both versions cannot be in one cluster: 'starling down', then \
                 'starling up' with the newer program everywhere (docs/clusters.md, Upgrading)"
            }
            Self::NoAddress { .. } => {
                "give the address by which other machines reach this one, or --listen auto"
            }
            Self::Security { insecure: true, .. } => "leave out --insecure, or give another --dir",
            Self::Security { .. } => "give --insecure again, or another --dir",
            Self::Keys(security::KeyError::Mode { .. }) => "make it private again: chmod 600",
            Self::Keys(security::KeyError::Io { error, .. }) if is_full(error) => FREE_SPACE,
            Self::Keys(security::KeyError::OtherCluster) => "give another --dir, or another token",
            Self::Keys(_) | Self::BadKeys { .. } => {
                "restore the directory's keys, or give another --dir"
            }
            Self::OtherOwner { .. } => "give a --dir that you own",
            Self::DirectoryMode { .. } => "make it private: chmod 700, or give another --dir",
            Self::NoPermission { .. } => "give a --dir that you own",
            Self::NoSpace { .. } => FREE_SPACE,
            Self::OtherCluster { .. } => "ask for the same number of nodes, or give another --dir",
            Self::LostMap { .. } => {
                "put the node's old state directory back, or begin a new cluster in another \
                 directory; from three nodes on any one may be lost"
            }
            Self::LostRecords { .. } => {
                "put the store back as it was; to begin without these jobs and keys, give \
                 another --dir, or remove the whole directory of this cluster"
            }
            Self::LostState { .. } => {
                "launch the nodes that have their state, or put this one's old state directory \
                 back; a new cluster needs another directory"
            }
            Self::Removed { .. } => {
                "give another --state-dir: with --join, or as a rank of --rendezvous, it becomes a \
                 new node"
            }
            Self::KeeperAlone => "give the node slots, or make a cluster with --replicas 2",
            Self::OtherReplicas { .. } => "leave out --replicas, or give another --dir",
            Self::Busy { .. } => "give a longer --deadline, or start fewer new nodes at a time",
            Self::Missing { .. } | Self::NoMember { .. } => {
                "look at the log of the missing nodes, or give a longer deadline"
            }
            Self::Join { .. } => {
                "check the address; 'starling token make' in the other directory gives a new token"
            }
            Self::Damaged { .. } => "restore the file, or give another --dir",
            Self::Store(StoreError::Damaged { .. }) => {
                "put the node's files back as they were: there are no others to fill it from; from \
                 three nodes with --replicas 2 on there are"
            }
            _ => "",
        }
    }

    /// Sorts an error of the file system into kinds that a user can act on.
    pub(crate) fn io(doing: &'static str, path: &Path, error: io::Error) -> Self {
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NoPermission { doing, path }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { path },
            _ => Self::Io { doing, path, error },
        }
    }
}

/// The reason why a running node stopped by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("node {node} stopped: {error}")]
    Store { node: proto::NodeId, error: StoreError },
    #[error("node {node} stopped: cannot write its event log {}: {error}", path.display())]
    EventLog { node: proto::NodeId, path: PathBuf, error: io::Error },
    #[error("node {node} has left the cluster: its number is never used again")]
    Removed { node: proto::NodeId },
    #[error("node {node} stopped: its state directory {} was removed or replaced", path.display())]
    DirectoryGone { node: proto::NodeId, path: PathBuf },
    #[error("node {node} stopped: another process has taken the directory {}", path.display())]
    DirectoryTaken { node: proto::NodeId, path: PathBuf },
    #[error("node {node} stopped: cannot serve: {reason}")]
    Serve { node: proto::NodeId, reason: String },
    #[error("node {node} stopped by a broken invariant: {what}")]
    Panicked { node: proto::NodeId, what: String },
}

impl NodeError {
    /// The error of the store, if that was the reason.
    pub(crate) fn of_store(&self) -> Option<&StoreError> {
        match self {
            Self::Store { error, .. } | Self::Start(StartError::Store(error)) => Some(error),
            _ => None,
        }
    }
}
