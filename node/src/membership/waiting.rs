//! Which proposals wait for their turn.

use kvs::membership::member;
use proto::wire::map_command;
use proto::{NodeId, wire};

/// Whether a change may become possible later: a voter without its disk waits until its vote is
/// gone.
pub(super) fn waits(map: &wire::ClusterMap, command: &wire::MapCommand) -> bool {
    match &command.body {
        Some(map_command::Body::Up(up)) => {
            let known = member(map, NodeId(up.node));
            known.is_some_and(|known| known.incarnation < up.incarnation)
        }
        _ => false,
    }
}
