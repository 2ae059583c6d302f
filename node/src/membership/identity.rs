//! The identity of a node towards others, the proposal with which it announces itself,
//! and the proposals that wait.

use crate::Mutant;
use kvs::membership::{self, member};
use proto::wire::map_command::Body;
use proto::{Incarnation, NodeId, wire};

/// The facts that a node knows of itself when it starts.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Drawn when the node's store was made; not 0.
    pub(crate) store: u64,
    pub(crate) address: String,
    pub(crate) data_address: String,
    /// The name of the node's machine.
    pub(crate) host: String,
    pub(crate) slots: u32,
    /// [`resources::Totals`] in bytes; empty: cpus alone.
    pub(crate) offer: Vec<u8>,
    pub(crate) pid: u32,
    pub(crate) seed: u64,
    /// The node joined later: `map` is not the first map of the cluster.
    pub(crate) late: bool,
    pub(crate) mutant: Option<Mutant>,
}

impl Identity {
    /// The proposal that this incarnation is up.
    pub(super) fn coming(&self) -> wire::MapCommand {
        membership::command(Body::Up(wire::MemberUp {
            node: self.node.0,
            incarnation: self.incarnation.0,
            store: self.store,
            address: self.address.clone(),
            data_address: self.data_address.clone(),
            slots: self.slots,
            offer: self.offer.clone(),
            pid: self.pid,
            host: self.host.clone(),
            keeper: self.slots == 0 && self.mutant != Some(Mutant::KeepersUnreported),
        }))
    }
}

/// Whether a change may become possible later: a voter without its disk waits until its vote is
/// gone.
pub(super) fn waits(map: &wire::ClusterMap, command: &wire::MapCommand) -> bool {
    match &command.body {
        Some(Body::Up(up)) => {
            let known = member(map, NodeId(up.node));
            known.is_some_and(|known| known.incarnation < up.incarnation)
        }
        _ => false,
    }
}
