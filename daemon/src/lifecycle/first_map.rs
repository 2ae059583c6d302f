//! The nodes and the map that a node knows before it has records.

use std::collections::BTreeSet;

use proto::{NodeId, wire};

use super::incarnations::NodeContext;
use super::instance::{ClusterFile, StateDir};

impl NodeContext {
    /// The founding nodes and those that joined later, as far as the directory shows.
    pub(super) fn known_nodes(&self) -> BTreeSet<NodeId> {
        let first = (0..self.options.expect).map(NodeId);
        match self.instance.read_members() {
            Some(file) if self.moves() => {
                let left = |node: &NodeId| file.nodes().all(|it| it != *node);
                let own = self.options.node;
                let first = first.filter(|node| *node == own || !left(node));
                first.chain(file.nodes()).collect()
            }
            _ => first.collect(),
        }
    }

    /// The initial map. Later maps are in the records.
    pub(super) fn first_map(&self, state: &StateDir) -> wire::ClusterMap {
        match &self.known_map {
            Some(map) if state.is_late() => map.clone(),
            _ => self.map_at_first(),
        }
    }

    pub(crate) fn map_at_first(&self) -> wire::ClusterMap {
        let id = self.cluster.id().expect("checked when it was read");
        let ClusterFile { nodes, partitions, replicas, .. } = self.cluster;
        kvs::make_replicated_map(id, nodes, partitions, replicas)
    }
}
