//! The shell's part of a change of the map.

use std::sync::atomic::Ordering;

use kvs::membership::wanted_copies;
use proto::{NodeId, wire};

use crate::error::NodeError;
use crate::event_loop::run_loop::Loop;
use crate::lifecycle::membership_log;
use crate::rpc::links;

impl Loop {
    /// Handles a newer map of the members.
    pub(super) fn map_changed(&mut self, map: &wire::ClusterMap) -> Result<(), NodeError> {
        let shared = &self.shared;
        shared.copies.store(wanted_copies(map), Ordering::Relaxed);
        for (member, before) in map
            .members
            .iter()
            .zip(self.members.map().members.iter().map(Some).chain(std::iter::repeat(None)))
        {
            let (node, own) = (NodeId(member.node), shared.identity.node);
            if node == own {
                continue;
            }
            if member.phase() == wire::MemberPhase::Removed {
                shared.others.leave(node);
                continue;
            }
            shared.addresses.hear(member);
            let is_new = shared.others.add(node);
            shared.others.set_down(node, member.phase() == wire::MemberPhase::Down);
            if is_new && node > own {
                links::start(shared, node);
            } else if before.is_none_or(|it| it.incarnation != member.incarnation) {
                shared.others.request_dial(node);
            }
        }
        for line in membership_log::map_changes(shared.identity.node, self.members.map(), map) {
            shared.log.peer(&line);
        }
        self.members.set_map(map);
        self.members_writer.note(map);
        self.look_whether_filled(map)
    }
}
