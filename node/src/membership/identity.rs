//! What a node is to the others, and what it says when it comes.

use kvs::membership;
use proto::wire::map_command::Body;
use proto::{Incarnation, NodeId, wire};
use scheduler::Mutant;

/// What a node knows of itself when it starts.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Drawn when the node's store was made; not 0.
    pub(crate) store: u64,
    pub(crate) address: String,
    pub(crate) data_address: String,
    /// The name of its machine.
    pub(crate) host: String,
    pub(crate) slots: u32,
    pub(crate) pid: u32,
    pub(crate) seed: u64,
    /// It was not among the first nodes of the cluster: `map` is not the first map.
    pub(crate) late: bool,
    pub(crate) mutant: Option<Mutant>,
}

impl Identity {
    /// This incarnation is there.
    pub(super) fn coming(&self) -> wire::MapCommand {
        membership::command(Body::Up(wire::MemberUp {
            node: self.node.0,
            incarnation: self.incarnation.0,
            store: self.store,
            address: self.address.clone(),
            data_address: self.data_address.clone(),
            slots: self.slots,
            pid: self.pid,
            host: self.host.clone(),
            keeper: self.slots == 0 && self.mutant != Some(Mutant::KeepersUnreported),
        }))
    }
}
