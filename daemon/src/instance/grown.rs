//! Which nodes an instance has besides its first ones, as they last agreed (`members.json`).
//!
//! A first node that has lost its state directory looks for the cluster that it was part of: the
//! number of first nodes does not tell it that others have come. Of one that was alone at first
//! there would be a second cluster with the same name.

use std::path::PathBuf;

use proto::wire::{self, MemberPhase};
use proto::{NodeId, limits};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{Instance, replace, to_json};
use crate::error::StartError;

const FILE: &str = "members.json";
/// A file of ours is not longer.
const BYTES_MAX: u64 = 16 << 20;

/// `members.json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MembersFile {
    pub format: u32,
    /// Of the map that says so.
    pub epoch: u64,
    /// The nodes that agree on the map.
    pub voters: Vec<u32>,
    pub members: Vec<MemberLine>,
}

/// A node that has not left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberLine {
    pub node: u32,
    pub incarnation: u32,
    pub address: String,
}

impl MembersFile {
    fn of(map: &wire::ClusterMap) -> Self {
        let stays = |member: &&wire::Member| member.phase() != MemberPhase::Removed;
        let line = |member: &wire::Member| MemberLine {
            node: member.node,
            incarnation: member.incarnation,
            address: member.address.clone(),
        };
        Self {
            format: limits::FORMAT_VERSION,
            epoch: map.epoch,
            voters: map.voters.clone(),
            members: map.members.iter().filter(stays).map(line).collect(),
        }
    }

    /// Whether it says the same but for the epoch.
    fn is_like(&self, other: &Self) -> bool {
        (&self.voters, &self.members) == (&other.voters, &other.members)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| NodeId(member.node))
    }
}

impl Instance {
    fn members_path(&self) -> PathBuf {
        self.dir().join(FILE)
    }

    /// `None` where no node has come besides the first ones.
    #[must_use]
    pub fn read_members(&self) -> Option<MembersFile> {
        let path = self.members_path();
        if std::fs::metadata(&path).ok()?.len() > BYTES_MAX {
            return None;
        }
        let file: MembersFile = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        (file.format == limits::FORMAT_VERSION).then_some(file)
    }

    /// Unless the file has later news.
    fn write_members(&self, file: &MembersFile) -> Result<(), StartError> {
        match self.read_members() {
            Some(known) if known.epoch >= file.epoch || known.is_like(file) => Ok(()),
            _ => replace(&self.members_path(), to_json(file).as_bytes()),
        }
    }
}

/// Writes down the members of newer maps, one after another and none twice, beside the loop.
#[derive(Debug)]
pub(crate) struct Scribe {
    last: MembersFile,
    newest: watch::Sender<Option<MembersFile>>,
}

impl Scribe {
    /// `say` is told what could not be written.
    pub(crate) fn start(instance: Instance, say: impl Fn(&str) + Send + 'static) -> Self {
        let (newest, mut news) = watch::channel(None::<MembersFile>);
        tokio::spawn(async move {
            while news.changed().await.is_ok() {
                let Some(file) = news.borrow_and_update().clone() else { continue };
                let instance = instance.clone();
                let write = move || instance.write_members(&file);
                if let Ok(Err(error)) = tokio::task::spawn_blocking(write).await {
                    say(&error.to_string());
                }
            }
        });
        Self { last: MembersFile::default(), newest }
    }

    /// `first`: how many nodes the cluster began with. Where no other has come the file says
    /// nothing that `cluster.json` does not say.
    pub(crate) fn note(&mut self, map: &wire::ClusterMap, first: u32) {
        if map.members.last().is_none_or(|last| last.node < first) {
            return;
        }
        let file = MembersFile::of(map);
        if !self.last.is_like(&file) {
            self.newest.send_replace(Some(file.clone()));
            self.last = file;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_members_are_read_and_no_one_that_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let instance = Instance::open(dir.path()).unwrap();
        assert_eq!(instance.read_members(), None);
        let mut map = kvs::make_replicated_map(1, 3, 8, 2);
        map.members[2].address = "127.0.0.1:7".to_owned();
        map.members[1].phase = MemberPhase::Removed as i32;
        map.epoch = 9;
        instance.write_members(&MembersFile::of(&map)).unwrap();
        let read = instance.read_members().unwrap();
        assert_eq!(read.nodes().collect::<Vec<_>>(), [NodeId(0), NodeId(2)]);
        assert_eq!(read.members[1].address, "127.0.0.1:7");
        map.epoch = 8;
        map.members[0].phase = MemberPhase::Removed as i32;
        instance.write_members(&MembersFile::of(&map)).unwrap();
        assert_eq!(instance.read_members().unwrap(), read, "older news");
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(instance.read_members(), None);
    }
}
