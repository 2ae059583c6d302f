//! The members of an instance by the last agreed map (`members.json`). The file exists once members
//! or voters differ from the founding ones.
//!
//! A founding node that has lost its state directory searches for its cluster. The number of
//! founding nodes alone does not show that others have joined. A node that was alone at first would
//! found a second cluster with the same name. A node with damaged records learns from the file
//! whether other nodes vote.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proto::wire::{self, MemberPhase};
use proto::{NodeId, limits};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{Instance, read_cluster, replace, to_json};
use crate::error::StartError;

const FILE: &str = "members.json";
const BEGUN: &str = "begun";
/// The maximum size of the file.
const BYTES_MAX: u64 = 16 << 20;
/// The maximum wait for another node's write, which takes at most as long as a slow disk needs.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The content of `members.json`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MembersFile {
    pub format: u32,
    /// The cluster's id, as `cluster.json` has it. Empty in files that are older than this field.
    #[serde(default)]
    pub cluster: String,
    /// Of the map that says so.
    pub epoch: u64,
    /// The nodes that agree on the map.
    pub voters: Vec<u32>,
    pub members: Vec<MemberLine>,
    /// Nodes that have left. Their numbers are not used again.
    #[serde(default)]
    pub left: Vec<u32>,
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
        let has_left = |member: &&wire::Member| member.phase() == MemberPhase::Removed;
        let line = |member: &wire::Member| MemberLine {
            node: member.node,
            incarnation: member.incarnation,
            address: member.address.clone(),
        };
        let stay = map.members.iter().filter(|member| !has_left(member));
        Self {
            format: limits::FORMAT_VERSION,
            cluster: format!("{:016x}", map.cluster),
            epoch: map.epoch,
            voters: map.voters.clone(),
            members: stay.map(line).collect(),
            left: map.members.iter().filter(has_left).map(|member| member.node).collect(),
        }
    }

    /// True if the content is the same except for the epoch.
    fn is_like(&self, other: &Self) -> bool {
        (&self.voters, &self.members) == (&other.voters, &other.members)
    }

    /// True if the content is that of the first map.
    fn is_as(&self, first: &wire::ClusterMap) -> bool {
        let first = Self::of(first);
        self.voters == first.voters && self.nodes().eq(first.nodes())
    }

    /// True if the node has left. (A file that is older than the list names no such node.)
    pub(crate) fn has_left(&self, node: NodeId) -> bool {
        let is_known = self.nodes().any(|it| it >= node);
        self.left.contains(&node.0) || (is_known && self.nodes().all(|it| it != node))
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| NodeId(member.node))
    }
}

impl Instance {
    /// True if the cluster of this directory was complete once. Then a node without state has lost
    /// it. (Directories that are older than the mark are recognized by other files.)
    pub(crate) fn has_begun(&self) -> bool {
        let dirs = std::fs::read_dir(self.dir().join("nodes")).into_iter().flatten().flatten();
        let mut formed = dirs.map(|node| node.path().join("state").join("formed"));
        self.dir().join(BEGUN).exists() || self.has_members() || formed.any(|path| path.exists())
    }

    /// Must be called when the cluster is complete, before it acknowledges anything.
    pub(crate) fn note_begun(&self) -> Result<(), StartError> {
        let path = self.dir().join(BEGUN);
        if path.exists() { Ok(()) } else { replace(&path, b"1\n") }
    }

    fn members_path(&self) -> PathBuf {
        self.dir().join(FILE)
    }

    /// Whether there is a file, be it damaged, and not of another cluster.
    pub(crate) fn has_members(&self) -> bool {
        self.members_path().exists() && self.parse_members().is_none_or(|it| self.is_ours(&it))
    }

    /// `None` if the members and voters are the founding ones.
    #[must_use]
    pub fn read_members(&self) -> Option<MembersFile> {
        self.parse_members().filter(|file| self.is_ours(file))
    }

    fn parse_members(&self) -> Option<MembersFile> {
        let path = self.members_path();
        if std::fs::metadata(&path).ok()?.len() > BYTES_MAX {
            return None;
        }
        let file: MembersFile = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        (file.format == limits::FORMAT_VERSION).then_some(file)
    }

    /// The directory may have been removed in part while a node of it ran, and used again.
    fn is_ours(&self, file: &MembersFile) -> bool {
        let cluster = || read_cluster(&self.dir().join("cluster.json")).ok();
        file.cluster.is_empty() || cluster().is_some_and(|it| it.cluster == file.cluster)
    }

    /// Unless the file has later news, or there is none and the first map says the same.
    fn write_members(
        &self,
        file: &MembersFile,
        first: &wire::ClusterMap,
    ) -> Result<(), StartError> {
        if !self.is_ours(file) {
            return Ok(()); // The directory was removed under this node.
        }
        // Without the lock an older map may stay until the next one comes.
        let _lock = self.lock_file("members.lock", LOCK_TIMEOUT).ok();
        let is_told = match self.read_members() {
            Some(known) => known.epoch >= file.epoch,
            None => !self.has_members() && file.is_as(first),
        };
        if is_told { Ok(()) } else { replace(&self.members_path(), to_json(file).as_bytes()) }
    }
}

/// Writes the members of each newer map, one after another, on another thread than the run loop.
#[derive(Debug)]
pub(crate) struct MembersWriter {
    last: MembersFile,
    newest: watch::Sender<Option<MembersFile>>,
}

impl MembersWriter {
    /// `first`: the map that the cluster began with. `say` receives the errors of writes.
    pub(crate) fn start(
        instance: Instance,
        first: wire::ClusterMap,
        say: impl Fn(&str) + Send + 'static,
    ) -> Self {
        let first = Arc::new(first);
        let (newest, mut news) = watch::channel(None::<MembersFile>);
        tokio::spawn(async move {
            while news.changed().await.is_ok() {
                let Some(file) = news.borrow_and_update().clone() else { continue };
                let (instance, first) = (instance.clone(), Arc::clone(&first));
                let write = move || instance.write_members(&file, &first);
                if let Ok(Err(error)) = tokio::task::spawn_blocking(write).await {
                    say(&error.to_string());
                }
            }
        });
        Self { last: MembersFile::default(), newest }
    }

    pub(crate) fn note(&mut self, map: &wire::ClusterMap) {
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

    /// The directory of the cluster with the id 1.
    fn instance(dir: &std::path::Path) -> Instance {
        let cluster = r#"{"format":1,"cluster":"0000000000000001","nodes":3,"partitions":8,
                          "replicas":2}"#;
        std::fs::write(dir.join("cluster.json"), cluster).unwrap();
        Instance::open(dir).unwrap()
    }

    #[test]
    fn members_of_another_cluster_are_neither_read_nor_written() {
        let dir = tempfile::tempdir().unwrap();
        let instance = instance(dir.path());
        let first = kvs::make_replicated_map(2, 3, 8, 2);
        let mut other = MembersFile::of(&first);
        other.voters = vec![0];
        instance.write_members(&other, &first).unwrap();
        assert!(!dir.path().join(FILE).exists());
        replace(&instance.members_path(), to_json(&other).as_bytes()).unwrap();
        assert_eq!(instance.read_members(), None);
        assert!(!instance.has_members() && !instance.has_begun());
        other.cluster.clear();
        replace(&instance.members_path(), to_json(&other).as_bytes()).unwrap();
        assert_eq!(instance.read_members(), Some(other), "it is older than the field");
    }

    #[test]
    fn the_latest_members_are_read_and_no_one_that_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let instance = instance(dir.path());
        assert_eq!(instance.read_members(), None);
        let first = kvs::make_replicated_map(1, 3, 8, 2);
        let write = |map: &wire::ClusterMap| {
            instance.write_members(&MembersFile::of(map), &first).unwrap();
            instance.read_members()
        };
        let mut map = first.clone();
        map.members[2].address = "127.0.0.1:7".to_owned();
        map.epoch = 8;
        assert_eq!(write(&map), None, "the first map says the same");
        map.members[1].phase = MemberPhase::Removed as i32;
        map.epoch = 9;
        let read = write(&map).unwrap();
        assert_eq!(read.nodes().collect::<Vec<_>>(), [NodeId(0), NodeId(2)]);
        assert_eq!((read.left.as_slice(), &*read.members[1].address), (&[1][..], "127.0.0.1:7"));
        map.epoch = 8;
        map.members[0].phase = MemberPhase::Removed as i32;
        assert_eq!(write(&map).unwrap(), read, "older news");
        // The epoch counts even if the rest is the same: a map with an epoch in between is older.
        map.members[0].phase = MemberPhase::Up as i32;
        map.epoch = 12;
        assert_eq!(write(&map).unwrap().epoch, 12);
        map.voters = vec![0];
        map.epoch = 11;
        assert_eq!(write(&map).unwrap().voters, [0, 1, 2]);
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(instance.read_members(), None);
        assert!(instance.has_members());
        assert!(write(&first).is_some(), "damage is written over");
    }

    #[test]
    fn the_voters_are_written_where_first_nodes_have_left() {
        let dir = tempfile::tempdir().unwrap();
        let instance = instance(dir.path());
        let first = kvs::make_replicated_map(1, 3, 8, 2);
        let mut map = first.clone();
        map.voters = vec![0];
        map.epoch = 4;
        instance.write_members(&MembersFile::of(&map), &first).unwrap();
        assert_eq!(instance.read_members().unwrap().voters, [0]);
    }
}
