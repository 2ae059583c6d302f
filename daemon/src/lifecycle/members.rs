//! Facts about the members that the shell knows and the core does not: addresses, processes and
//! reachability. They are filled into the answers of the core.

use proto::{Incarnation, NodeId, limits, wire};

use crate::event_loop::stats;
use crate::lifecycle::instance::AddressFile;
use crate::store::scrubber::ScrubPass;

/// The agreed map, with the known facts about its members.
#[derive(Debug)]
pub(crate) struct Members {
    own: NodeId,
    map: wire::ClusterMap,
    /// True if the nodes agree on the members that are up. Otherwise it is this node's view.
    agreed: bool,
    /// The number of complete reads of all records in this incarnation, and the bytes of the last.
    scrub_passes: u64,
    scrubbed_bytes: u64,
}

impl Members {
    /// Loads the address files. The other nodes are down until their links are up.
    pub(crate) fn new(
        mut map: wire::ClusterMap,
        own: &AddressFile,
        read: impl Fn(NodeId) -> Option<AddressFile>,
    ) -> Self {
        let agreed = map.copies > 1;
        for (at, member) in map.members.iter_mut().enumerate() {
            assert_eq!(member.node as usize, at, "members are numbered from 0");
            if let Some(file) = read(NodeId(member.node)) {
                if !agreed {
                    member.incarnation = file.incarnation;
                }
                tell(member, file);
            }
            if !agreed {
                member.phase = wire::MemberPhase::Down as i32;
            }
        }
        let (own_id, scrub_passes, scrubbed_bytes) = (NodeId(own.node), 0, 0);
        let mut this = Self { own: own_id, map, agreed, scrub_passes, scrubbed_bytes };
        this.up(NodeId(own.node), Incarnation(own.incarnation), Some(own.clone()));
        this
    }

    /// The map with all known facts about its members.
    pub(crate) fn map(&self) -> &wire::ClusterMap {
        &self.map
    }

    /// Returns true if that changes a fact about the member other than its phase.
    pub(crate) fn up(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        file: Option<AddressFile>,
    ) -> bool {
        let Some(member) = self.map.members.get_mut(node.0 as usize) else { return false };
        if self.agreed {
            // The address is known before the map has the member.
            if let Some(file) = file.filter(|_| member.incarnation == 0) {
                tell(member, file);
            }
            return false;
        }
        let before = member.clone();
        member.incarnation = incarnation.0;
        // A file of another incarnation describes a process that is gone.
        if let Some(file) = file.filter(|file| file.incarnation == incarnation.0) {
            tell(member, file);
        }
        member.phase = before.phase;
        let changed = *member != before;
        member.phase = wire::MemberPhase::Up as i32;
        changed
    }

    pub(crate) fn down(&mut self, node: NodeId) {
        if !self.agreed {
            self.map.members[node.0 as usize].phase = wire::MemberPhase::Down as i32;
        }
    }

    /// Replaces the map by a newer one. Keeps the facts about members that the map has no
    /// incarnation of yet.
    pub(crate) fn set_map(&mut self, map: &wire::ClusterMap) {
        let older = std::mem::replace(&mut self.map, map.clone());
        for (member, before) in self.map.members.iter_mut().zip(older.members) {
            if member.incarnation == 0 {
                (member.address, member.slots, member.pid) =
                    (before.address, before.slots, before.pid);
                member.host = before.host;
                member.offer = before.offer;
            }
        }
    }

    /// Counts a complete, sound read of all records.
    pub(crate) fn scrubbed(&mut self, pass: ScrubPass) {
        self.scrub_passes += 1;
        self.scrubbed_bytes = pass.bytes;
    }

    /// Completes an answer.
    pub(crate) fn fill_in(&self, response: &mut wire::Response) {
        match &mut response.body {
            Some(wire::response::Body::Node(state)) => {
                let slots = state.member.as_ref().map_or(0, |member| member.slots);
                let own = self.map.members.get(self.own.0 as usize).cloned().unwrap_or_default();
                let slots = if slots > 0 { slots } else { own.slots };
                let told = state.member.take().unwrap_or_default();
                let incarnation = told.incarnation.max(own.incarnation);
                state.member = Some(wire::Member { slots, incarnation, ..own });
                state.cpu_ns = stats::cpu_ns();
                state.peak_rss_bytes = stats::peak_rss_bytes();
                state.scrub_passes = self.scrub_passes;
                state.scrubbed_bytes = self.scrubbed_bytes;
            }
            Some(wire::response::Body::Map(map)) => {
                map.speaks = limits::PEER_VERSION;
                for member in &mut map.members {
                    let known = self.map.members.get(member.node as usize);
                    // An answer is never newer than these facts.
                    if let Some(known) =
                        known.filter(|it| !self.agreed || it.incarnation == member.incarnation)
                    {
                        member.clone_from(known);
                    }
                }
            }
            _ => {}
        }
    }
}

fn tell(member: &mut wire::Member, file: AddressFile) {
    member.address = file.address;
    member.slots = file.slots;
    member.offer = file.offer;
    member.pid = file.pid;
    member.host = file.host;
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::MemberPhase::{Down, Up};

    fn file(node: u32, incarnation: u32) -> AddressFile {
        AddressFile {
            format: 1,
            node,
            incarnation,
            address: format!("127.0.0.1:{node}"),
            pid: 77,
            slots: 2,
            offer: Vec::new(),
            launch: String::new(),
            data: String::new(),
            host: "alpha".to_owned(),
        }
    }

    fn members(own: u32) -> Members {
        let plain = (0..3).map(|node| wire::Member { node, ..Default::default() }).collect();
        let map = wire::ClusterMap { members: plain, ..Default::default() };
        Members::new(map, &file(own, 5), |_| None)
    }

    #[test]
    fn a_map_gives_the_state_and_address_of_each_node() {
        let mut members = members(1);
        let map = members.map().clone();
        assert!(members.up(NodeId(2), Incarnation(4), Some(file(2, 3))));
        let answer = |members: &Members| {
            let body = Some(wire::response::Body::Map(map.clone()));
            let mut response = wire::Response { body, ..Default::default() };
            members.fill_in(&mut response);
            let Some(wire::response::Body::Map(map)) = response.body else { unreachable!() };
            map.members.iter().map(|m| (m.phase(), m.address.clone())).collect::<Vec<_>>()
        };
        let at = |node: u32| format!("127.0.0.1:{node}");
        // The file of node 2 is of an earlier incarnation: it is up, and its address is unknown.
        assert_eq!(answer(&members), [(Down, String::new()), (Up, at(1)), (Up, String::new())]);
        assert!(members.up(NodeId(2), Incarnation(4), Some(file(2, 4))));
        assert!(!members.up(NodeId(2), Incarnation(4), Some(file(2, 4))));
        members.up(NodeId(0), Incarnation(1), Some(file(0, 1)));
        members.down(NodeId(0));
        assert_eq!(answer(&members), [(Down, at(0)), (Up, at(1)), (Up, at(2))]);
    }

    #[test]
    fn a_node_state_describes_the_process() {
        let mut members = members(0);
        for bytes in [90, 100] {
            members.scrubbed(ScrubPass { records: 3, bytes, ..ScrubPass::default() });
        }
        let body = Some(wire::response::Body::Node(wire::NodeState::default()));
        let mut response = wire::Response { body, ..Default::default() };
        members.fill_in(&mut response);
        let Some(wire::response::Body::Node(state)) = response.body else { unreachable!() };
        let member = state.member.unwrap();
        assert_eq!((member.pid, member.host.as_str()), (77, "alpha"));
        assert!(state.cpu_ns > 0 && state.peak_rss_bytes > 0);
        assert_eq!((state.scrub_passes, state.scrubbed_bytes), (2, 100));
    }
}
