//! What a node knows of itself when it starts, and tells the cluster.

use kvs::membership;
use proto::wire::map_command;
use proto::{Incarnation, NodeId, wire};
use scheduler::Mutant;

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
    /// That this incarnation is there.
    pub(super) fn coming(&self) -> wire::MapCommand {
        let Self { node, incarnation, store, slots, pid, .. } = *self;
        let up = wire::MemberUp {
            node: node.0,
            incarnation: incarnation.0,
            store,
            address: self.address.clone(),
            data_address: self.data_address.clone(),
            slots,
            pid,
            host: self.host.clone(),
        };
        membership::command(map_command::Body::Up(up))
    }
}
