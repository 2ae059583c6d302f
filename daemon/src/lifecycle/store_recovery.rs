//! Decides when given-up records are no longer needed: when the records that replaced them are
//! complete, and so are all other replicas.

use std::path::PathBuf;

use kvs::membership::{is_fully_replicated, member, wanted_copies};
use proto::wire::MemberPhase;
use proto::{Incarnation, NodeId, wire};

use crate::error::NodeError;
use crate::event_loop::run_loop::Loop;
use crate::lifecycle::instance::ReplacedStores;

/// The state of refilling in one incarnation.
#[derive(Debug)]
pub(crate) struct StoreRecovery {
    replaced: ReplacedStores,
    node: NodeId,
    incarnation: Incarnation,
    /// The number of its store.
    store: u64,
    /// True while the mark exists.
    goes_on: bool,
    /// The stores that were given up and still exist.
    kept: Vec<PathBuf>,
}

impl StoreRecovery {
    pub(crate) fn new(
        replaced: ReplacedStores,
        node: NodeId,
        incarnation: Incarnation,
        store: u64,
    ) -> Self {
        let (goes_on, kept) = (replaced.is_refilling(), replaced.kept());
        Self { replaced, node, incarnation, store, goes_on, kept }
    }

    /// The log line for a start, if there is one.
    pub(crate) fn announcement(&self) -> Option<String> {
        let kept = self.kept()?;
        Some(match self.goes_on {
            true => format!("is filled from the other nodes; what it had before lies in {kept}"),
            false => format!("records that were given up lie in {kept}: nothing needs them"),
        })
    }

    fn kept(&self) -> Option<String> {
        let paths = self.paths();
        (!paths.is_empty()).then(|| paths.join(" and "))
    }

    fn paths(&self) -> Vec<String> {
        self.kept.iter().map(|path| path.display().to_string()).collect()
    }

    /// True if by this map all replicas are complete, including the records of this incarnation. An
    /// older map in those records may describe an earlier incarnation.
    pub(crate) fn is_done_by(&self, map: &wire::ClusterMap) -> bool {
        let knows_this = |own: &wire::Member| {
            let (incarnation, store) = (own.incarnation, own.store);
            own.phase() == MemberPhase::Up
                && !own.slow
                && (incarnation, store) == (self.incarnation.0, self.store)
        };
        self.goes_on
            && member(map, self.node).is_some_and(knows_this)
            && is_fully_replicated(map)
            && map.partitions.iter().all(|entry| entry.learners.is_empty())
            && has_wanted_copies(map)
    }

    /// Must be called once the state of [`Self::is_done_by`] is on stable storage. Returns a log
    /// line.
    pub(crate) fn end(&mut self) -> String {
        if let Err(error) = self.replaced.filled() {
            return format!("its records are filled again, which is not noted: {error}");
        }
        (self.goes_on, self.kept) = (false, self.replaced.kept());
        match self.kept() {
            None => "its records are filled again".to_owned(),
            Some(kept) => format!(
                "its records are filled again, and nothing needs {kept} any more: remove it when \
                 you have looked at it"
            ),
        }
    }

    /// Completes an answer.
    pub(crate) fn fill_in(&self, response: &mut wire::Response) {
        if let Some(wire::response::Body::Node(state)) = &mut response.body {
            state.records_aside = self.paths();
            state.refilling = self.goes_on;
        }
    }
}

/// True if each partition has the wanted number of replicas. Slow nodes do not lower that number.
fn has_wanted_copies(map: &wire::ClusterMap) -> bool {
    let up = map.members.iter().filter(|member| member.phase() == MemberPhase::Up).count();
    let wanted = up.min(wanted_copies(map) as usize);
    map.partitions.iter().all(|entry| entry.replicas.len() >= wanted)
}

impl Loop {
    /// Ends the refilling once all filled records are durable.
    pub(crate) fn look_whether_filled(&mut self, map: &wire::ClusterMap) -> Result<(), NodeError> {
        if self.refill.is_done_by(map) {
            self.store.sync().map_err(|error| self.store_error(error))?;
            let said = self.refill.end();
            self.shared.log.line(&said);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: u64 = 77;

    fn refill(dir: &std::path::Path) -> StoreRecovery {
        std::fs::create_dir(dir.join("db.damaged")).unwrap();
        drop(crate::lifecycle::instance::StateDir::open(dir).unwrap());
        let state = crate::lifecycle::instance::StateDir::open(dir).unwrap();
        StoreRecovery::new(state.replaced_stores(), NodeId(1), Incarnation(4), STORE)
    }

    /// Three nodes with two replicas; node 1 runs in this incarnation.
    fn map() -> wire::ClusterMap {
        let mut map = kvs::make_replicated_map(1, 3, 8, 2);
        for member in &mut map.members {
            member.set_phase(MemberPhase::Up);
            (member.incarnation, member.store) = (4, STORE);
        }
        for entry in &mut map.partitions {
            entry.active = true;
        }
        map
    }

    #[test]
    fn the_mark_goes_when_all_has_its_copies_in_this_life() {
        let dir = tempfile::tempdir().unwrap();
        let mut refill = refill(dir.path());
        assert!(refill.announcement().unwrap().contains("db.damaged"));
        assert!(refill.is_done_by(&map()));
        let not = |change: fn(&mut wire::ClusterMap)| {
            let mut map = map();
            change(&mut map);
            assert!(!refill.is_done_by(&map), "{map:?}");
        };
        not(|map| map.members[1].incarnation = 3); // A map of the previous incarnation.
        not(|map| map.members[1].store = 76);
        not(|map| map.members[1].set_phase(MemberPhase::Down));
        not(|map| map.members[1].slow = true); // A slow node is filled when it is fast again.
        not(|map| {
            // Another slow node has lost its replicas, and no node has got them.
            map.members[2].slow = true;
            map.members[0].slow = true;
            map.partitions.iter_mut().for_each(|entry| entry.replicas.truncate(1));
        });
        not(|map| map.members[1].set_phase(MemberPhase::Leaving));
        not(|map| map.partitions[3].learners.push(1)); // This replica is still being filled.
        not(|map| map.partitions[3].learners.push(2));
        not(|map| _ = map.partitions[3].replicas.pop()); // Others have too few replicas.
        not(|map| (map.partitions[3].active, map.partitions[3].lost) = (false, true));
        assert!(dir.path().join("refilling").exists());
        assert!(refill.end().contains("nothing needs"));
        assert!(!dir.path().join("refilling").exists() && dir.path().join("db.damaged").exists());
        assert!(!refill.is_done_by(&map()), "once");
        assert!(refill.announcement().unwrap().contains("nothing needs"));
    }
}
