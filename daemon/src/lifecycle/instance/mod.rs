/*!
The instance directory: the files by which nodes and clients of one cluster find and trust each
other. Also the state directory of one node.

```text
D/keys/                    keys and certificates of nodes and clients, see `security::Keyring`
D/cluster.json             id, number of nodes and of partitions; written once, by the first node
D/begun                    the cluster was complete once
D/members.json             the nodes there are since others have come
D/starting, joining, members.lock   locks: one `up`, one newcomer, one writer at a time
D/ranks/<rank>             which node a launcher's rank is, where that is not the one of its number
D/nodes/<id>/address.json  where the node listens; there while it runs
D/nodes/<id>/failed.json   why a node that a launcher started did not come up
D/nodes/<id>/removed       the node has left the cluster
D/nodes/<id>/state/        format, lock, incarnation, boot, ended, store, db/, made, events/,
                           streams/, objects/, tasks/, log; replaced stores: `replaced_stores`
```
A file is written under another name, synced, and then linked or renamed. So a reader on a shared
file system sees the complete file or none.
*/

mod end_mark;
mod format;
mod lock;
mod members_file;
mod numbers;
mod ranks;
mod replaced_stores;
mod start_failure;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use executor::private;
use proto::wire::LifeEnd;
use proto::{Incarnation, NodeId, limits};
use serde::{Deserialize, Serialize};

use crate::error::{NodeError, StartError};
use crate::limits::STATE_CHECK_INTERVAL;
pub(crate) use end_mark::EndMark;
pub use lock::DirLock;
pub use members_file::MembersFile;
pub(crate) use members_file::MembersWriter;
use numbers::{last_incarnation, next_incarnation, number_line, number_of_line, store_id};
pub(crate) use replaced_stores::{ReplacedRecords, ReplacedStores};
pub use start_failure::FailureFile;

/// The number of failed checks in a row after which the state directory counts as removed.
const STATE_GONE_CHECKS: u32 = 2;

/// The content of `cluster.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterFile {
    pub format: u32,
    /// The cluster's id, hexadecimal.
    pub cluster: String,
    pub nodes: u32,
    pub partitions: u32,
    /// The replicas of each partition when the cluster was made.
    pub replicas: u32,
    /// Connections are neither encrypted nor authenticated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

impl ClusterFile {
    /// The id as a number; `None` if the text is not hexadecimal.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        u64::from_str_radix(&self.cluster, 16).ok()
    }
}

/// The content of `nodes/<id>/address.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AddressFile {
    pub format: u32,
    pub node: u32,
    pub incarnation: u32,
    /// `ip:port`. If the node has several: all, best first, separated by commas.
    pub address: String,
    pub pid: u32,
    pub slots: u32,
    /// Its resources in the form of the map.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offer: Vec<u8>,
    /// The launch that the process belongs to; empty outside a launcher.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub launch: String,
    /// The address of its data port.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// The name of its machine, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
}

const DB: &str = "db";
const LOCK: &str = "lock";
const REMOVED: &str = "removed";
/// This file marks a node without slots.
const KEEPER: &str = "keeper";
/// The store number that the cluster was given for records which are not made yet.
const JOINED_AS: &str = "joined-as";
/// Records were made here: where there are none, they are lost.
const MADE: &str = "made";
/// The node was part of a complete cluster.
const FORMED: &str = "formed";

/// An instance directory, created if it was missing.
#[derive(Clone, Debug)]
pub struct Instance {
    dir: PathBuf,
}

impl Instance {
    /// Refuses a directory in which another user could put keys or addresses.
    pub fn open(dir: &Path) -> Result<Self, StartError> {
        make_private_dir(dir)?;
        check_owner(dir, rustix::process::geteuid().as_raw())?;
        let nodes = dir.join("nodes");
        private::own_dir(&nodes).map_err(|e| StartError::io("create", &nodes, e))?;
        Ok(Self { dir: dir.to_path_buf() })
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    #[must_use]
    pub fn node_dir(&self, node: NodeId) -> PathBuf {
        node_dir(&self.dir, node)
    }
    fn address_path(&self, node: NodeId) -> PathBuf {
        self.node_dir(node).join("address.json")
    }

    /// Checks that an existing instance is as insecure as wanted.
    pub fn check_security_mode(&self, insecure: bool) -> Result<(), StartError> {
        let path = self.dir.join("cluster.json");
        if !path.exists() {
            return Ok(());
        }
        match read_cluster(&path)?.insecure == insecure {
            true => Ok(()),
            false => Err(StartError::Security { path, insecure }),
        }
    }

    /// The number of nodes that the cluster of this directory began with, if it has one.
    pub(crate) fn first_nodes(&self) -> Result<Option<u32>, StartError> {
        let path = self.dir.join("cluster.json");
        if !path.exists() {
            return Ok(None);
        }
        read_cluster(&path).map(|cluster| Some(cluster.nodes))
    }

    /// The cluster's identity. Writes `wanted` if there is none yet; otherwise the existing file
    /// must agree with it. `partitions` and `replicas` are checked only if given.
    pub fn cluster(
        &self,
        wanted: &ClusterFile,
        partitions: Option<u32>,
        replicas: Option<u32>,
    ) -> Result<ClusterFile, StartError> {
        let path = self.dir.join("cluster.json");
        if !path.exists() {
            self.check_unused()?;
            create_once(&path, to_json(wanted).as_bytes())?;
        }
        let found = read_cluster(&path)?;
        if found.insecure != wanted.insecure {
            return Err(StartError::Security { path, insecure: wanted.insecure });
        }
        let is_possible = found.id().is_some()
            && found.partitions.is_power_of_two()
            && (1..=limits::COPIES_MAX).contains(&found.replicas);
        if !is_possible {
            let what = "its id, its number of partitions or of copies is impossible".to_owned();
            return Err(StartError::Damaged { path, what });
        }
        if found.nodes != wanted.nodes {
            let (found, wanted) = (format!("{} nodes", found.nodes), wanted.nodes.to_string());
            return Err(StartError::OtherCluster { path, found, wanted });
        }
        let differs = |wanted: Option<u32>, found: u32| wanted.filter(|&wanted| wanted != found);
        if let Some(wanted) = differs(partitions, found.partitions) {
            let (found, wanted) = (format!("{} partitions", found.partitions), wanted.to_string());
            return Err(StartError::OtherCluster { path, found, wanted });
        }
        if let Some(wanted) = differs(replicas, found.replicas) {
            return Err(StartError::OtherReplicas { path, found: found.replicas, wanted });
        }
        Ok(found)
    }

    /// That no node here has the records of a cluster without its file: it would get another
    /// number of nodes, of partitions and of copies.
    fn check_unused(&self) -> Result<(), StartError> {
        let nodes = fs::read_dir(self.dir.join("nodes")).into_iter().flatten().flatten();
        let mut states = nodes.map(|node| node.path().join("state"));
        let Some(state) = states.find(|state| state.join(MADE).exists()) else { return Ok(()) };
        let what = format!("it is missing, and {} has the records of its cluster", state.display());
        Err(StartError::Damaged { path: self.dir.join("cluster.json"), what })
    }

    pub fn write_address(&self, address: &AddressFile) -> Result<(), StartError> {
        make_private_dir(&self.node_dir(NodeId(address.node)))?;
        replace(&self.address_path(NodeId(address.node)), to_json(address).as_bytes())
    }

    /// A node's address file. `None` if it is missing or unusable.
    #[must_use]
    pub fn read_address(&self, node: NodeId) -> Option<AddressFile> {
        let text = fs::read(self.address_path(node)).ok()?;
        let file: AddressFile = serde_json::from_slice(&text).ok()?;
        (file.format == limits::FORMAT_VERSION && file.node == node.0).then_some(file)
    }

    /// The address files of all nodes.
    #[must_use]
    pub fn read_addresses(&self) -> Vec<AddressFile> {
        let entries = fs::read_dir(self.dir.join("nodes")).into_iter().flatten().flatten();
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok().map(NodeId);
        entries.filter_map(number).filter_map(|node| self.read_address(node)).collect()
    }

    /// Removes the file of [`Self::write_address`], unless a later incarnation has written its own.
    pub fn remove_address(&self, node: NodeId, incarnation: Incarnation) {
        if self.read_address(node).is_some_and(|file| file.incarnation == incarnation.0) {
            let _ = fs::remove_file(self.address_path(node));
        }
    }
}

/// What is known of a node that has no records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissingRecords {
    /// It is new, unless its directory had records.
    New,
    /// It has lost them: its cluster has begun, and no other node has them.
    Lost,
    /// Other nodes fill it.
    Filled,
}

/// The state of one node, locked for as long as this lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    incarnation: Incarnation,
    former: (Incarnation, LifeEnd),
    store: u64,
    /// The format that was found.
    format: u32,
    lock: DirLock,
}

impl StateDir {
    /// Locks the directory, checks its format and takes the next incarnation. The incarnation is
    /// durable before anything is written or sent under it.
    pub fn open(path: &Path) -> Result<Self, StartError> {
        Self::open_above(path, Incarnation(0), MissingRecords::Filled)
    }

    /// As [`Self::open`], with an incarnation above `known` too: the cluster may have known this
    /// node from another directory, and must not take the two for one. Lost records are an error
    /// unless other nodes fill this one: then it begins like a node without state.
    /// `missing`: of a node that has no records.
    pub fn open_above(
        path: &Path,
        known: Incarnation,
        missing: MissingRecords,
    ) -> Result<Self, StartError> {
        make_private_dir(path)?;
        check_owner(path, rustix::process::geteuid().as_raw())?;
        let lock = DirLock::take(path, LOCK)?;
        let format = format::check(path)?;
        check_not_removed(path)?;
        let replaced = ReplacedStores { state: path.to_path_buf() };
        let had_records = missing == MissingRecords::Lost || path.join(MADE).exists();
        if had_records && replaced.lacks_records() {
            match missing {
                MissingRecords::Filled => forget_records(path)?,
                _ => return Err(StartError::LostRecords { path: replaced.missing() }),
            }
        }
        for part in ["events", "streams", "objects", "tasks"] {
            let path = path.join(part);
            private::own_dir(&path).map_err(|e| StartError::io("create", &path, e))?;
        }
        let former = end_mark::look(path, last_incarnation(path)?)?;
        let incarnation = next_incarnation(path, known)?;
        replaced.begin()?;
        let store = store_id(path)?;
        Ok(Self { path: path.to_path_buf(), incarnation, former, store, format, lock })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the directory is still the locked one. Otherwise it was removed or replaced, and
    /// another process may run this node there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.lock.is_there()
    }

    /// The reason why locks do not protect the directory, if its file system has none.
    #[must_use]
    pub fn lacks_locks(&self) -> Option<String> {
        self.lock.missing()
    }

    /// Returns when the directory is no longer the locked one.
    pub(crate) async fn gone(&self) {
        let mut looks = 0;
        while looks < STATE_GONE_CHECKS && !self.lock.is_taken() {
            tokio::time::sleep(Duration::from_nanos(STATE_CHECK_INTERVAL.0)).await;
            looks = if self.is_there() { 0 } else { looks + 1 };
        }
    }
    /// The error of a node for which [`Self::gone`] has returned.
    pub(crate) fn gone_error(&self, node: NodeId) -> NodeError {
        let path = self.path.clone();
        match self.lock.is_taken() {
            true => NodeError::DirectoryTaken { node, path },
            false => NodeError::DirectoryGone { node, path },
        }
    }
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The previous incarnation in this directory, and how it ended.
    #[must_use]
    pub fn former(&self) -> (Incarnation, LifeEnd) {
        self.former
    }
    pub(crate) fn end_mark(&self) -> EndMark {
        EndMark { state: self.path.clone(), incarnation: self.incarnation }
    }

    /// The random number of this directory's records. Other records have another number.
    #[must_use]
    pub fn store(&self) -> u64 {
        self.store
    }
    /// The directory of the records.
    #[must_use]
    pub fn db(&self) -> PathBuf {
        self.path.join(DB)
    }

    /// Must be called after the records have been created. Any later records are others, and must
    /// not have the number that the cluster was given for these.
    pub(crate) fn records_are_made(&self) -> Result<(), StartError> {
        let made = self.path.join(MADE);
        if !made.exists() {
            replace(&made, b"1\n")?;
        }
        remove(&self.path.join(JOINED_AS))
    }

    /// True if a program of an earlier version could still use it.
    pub(crate) fn is_older(&self) -> bool {
        self.format < limits::STATE_VERSION
    }
    /// Raises the format, before anything is written that a program of an earlier version would
    /// ignore.
    pub(crate) fn upgrade(&self) -> Result<(), StartError> {
        if self.is_older() { format::write(&self.path) } else { Ok(()) }
    }

    /// Sets the records aside for inspection. The next start has none, and another store number.
    pub(crate) fn give_up_records(&self) -> Result<ReplacedRecords, StartError> {
        remove(&self.path.join(MADE))?;
        self.replaced_stores().give_up()
    }
    /// The records that were set aside.
    pub(crate) fn replaced_stores(&self) -> ReplacedStores {
        ReplacedStores { state: self.path.clone() }
    }

    /// True if this node was part of a complete cluster before. Then it need not wait for the
    /// others again: the nodes know each other.
    #[must_use]
    pub fn was_formed(&self) -> bool {
        self.path.join(FORMED).exists()
    }
    pub(crate) fn set_formed(&self) -> Result<(), StartError> {
        replace(&self.path.join(FORMED), b"1\n")
    }

    /// Notes whether the node is a keeper: 'up' starts it as one again.
    pub(crate) fn set_keeper(&self, keeper: bool) -> Result<(), StartError> {
        let path = self.path.join(KEEPER);
        match (keeper, path.exists()) {
            (true, false) => replace(&path, b"1\n"),
            (false, true) => fs::remove_file(&path).map_err(|e| StartError::io("remove", &path, e)),
            _ => Ok(()),
        }
    }

    /// True if the cluster had begun without this directory.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.path.join("late").exists()
    }
    pub(crate) fn set_late(&self) -> Result<(), StartError> {
        replace(&self.path.join("late"), b"1\n")
    }
}

pub(crate) fn node_dir(dir: &Path, node: NodeId) -> PathBuf {
    dir.join("nodes").join(node.0.to_string())
}

/// True if the node of this state directory joined the cluster after it had begun.
pub(crate) fn has_joined(state: &Path) -> bool {
    state.join("late").exists()
}

/// The store number of a directory, if it has one and no process uses the directory.
pub(crate) fn free_store(state: &Path) -> Option<u64> {
    if !lock::is_free(state, LOCK) {
        return None;
    }
    let text = fs::read_to_string(state.join("store")).ok()?;
    u64::from_str_radix(number_of_line(&text)?, 16).ok()
}

/// Notes that the node of this state directory has left the cluster.
pub(crate) fn note_removed(state: &Path, node: NodeId) -> Result<(), StartError> {
    replace(&state.join(REMOVED), format!("{}\n", node.0).as_bytes())
}

/// Fails if the node of this state directory has left the cluster.
pub(crate) fn check_not_removed(state: &Path) -> Result<(), StartError> {
    let Ok(node) = fs::read_to_string(state.join(REMOVED)) else { return Ok(()) };
    Err(StartError::Removed { node: NodeId(node.trim().parse().unwrap_or_default()) })
}

/// Makes the state directory of a node that the cluster has accepted under this store number.
pub(crate) fn prepare_joined(state: &Path, store: u64) -> Result<(), StartError> {
    make_private_dir(state)?;
    replace(&state.join(JOINED_AS), number_line(&format!("{store:016x}")).as_bytes())?;
    replace(&state.join("late"), b"1\n")?;
    replace(&state.join(FORMED), b"1\n")
}

/// The records are lost, and other nodes fill those that follow. As long as `made` stands this is
/// repeated.
fn forget_records(state: &Path) -> Result<(), StartError> {
    if !has_joined(state) {
        remove(&state.join(FORMED))?; // One that came late never waits for others.
    }
    remove(&state.join(MADE))
}

/// Removes a file, durably; one that is not there is removed already.
fn remove(path: &Path) -> Result<(), StartError> {
    match fs::remove_file(path) {
        Ok(()) => sync_parent(path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(StartError::io("remove", path, e)),
    }
}

fn read_cluster(path: &Path) -> Result<ClusterFile, StartError> {
    let text = fs::read_to_string(path).map_err(|e| StartError::io("read", path, e))?;
    let found: ClusterFile = serde_json::from_str(&text)
        .map_err(|e| StartError::Damaged { path: path.to_path_buf(), what: e.to_string() })?;
    if found.format != limits::FORMAT_VERSION {
        let (path, found) = (path.to_path_buf(), found.format.to_string());
        let known = limits::FORMAT_VERSION.to_string();
        return Err(StartError::NewerFormat { path, found, known });
    }
    Ok(found)
}

/// A number that cannot be guessed.
pub(crate) fn random_u64() -> Result<u64, StartError> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn fill_random(bytes: &mut [u8]) -> Result<(), StartError> {
    let path = Path::new("/dev/urandom");
    File::open(path)
        .and_then(|mut file| file.read_exact(bytes))
        .map_err(|e| StartError::io("read", path, e))
}

fn to_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("numbers and strings always serialise");
    text + "\n"
}

fn make_private_dir(path: &Path) -> Result<(), StartError> {
    private::make_dir(path).map_err(|e| StartError::io("create", path, e))
}

/// Checks that the directory belongs to the user and that no other user can write there. Of a link
/// both the link and its target are checked.
fn check_owner(dir: &Path, user: u32) -> Result<(), StartError> {
    for metadata in [fs::symlink_metadata(dir), fs::metadata(dir)] {
        let metadata = metadata.map_err(|e| StartError::io("read", dir, e))?;
        let (path, mode) = (dir.to_path_buf(), metadata.mode() & 0o7777);
        if metadata.uid() != user {
            return Err(StartError::OtherOwner { path });
        }
        if metadata.is_dir() && mode & 0o022 != 0 {
            return Err(StartError::DirectoryMode { path, mode });
        }
    }
    Ok(())
}

/// A name beside `path` that no other writer uses.
fn temporary(path: &Path) -> Result<PathBuf, StartError> {
    let name = path.file_name().expect("a file of ours has a name").to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.{:016x}", random_u64()?)))
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), StartError> {
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .map_err(|e| {
            let _ = fs::remove_file(path);
            StartError::io("write", path, e)
        })
}

fn sync_parent(path: &Path) -> Result<(), StartError> {
    let parent = path.parent().expect("a file of ours lies in a directory");
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(|e| StartError::io("sync", parent, e))
}

/// Creates a complete file. Does nothing if another process created it first.
fn create_once(path: &Path, bytes: &[u8]) -> Result<(), StartError> {
    let temporary = temporary(path)?;
    write_synced(&temporary, bytes)?;
    match security::once::give_name(&temporary, path) {
        Ok(()) => sync_parent(path),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(StartError::io("write", path, e)),
    }
}

/// Replaces a file durably: readers see the old content or the new one.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), StartError> {
    let temporary = temporary(path)?;
    write_synced(&temporary, bytes)?;
    fs::rename(&temporary, path).map_err(|e| {
        let _ = fs::remove_file(&temporary);
        StartError::io("write", path, e)
    })?;
    sync_parent(path)
}

#[cfg(test)]
mod tests;
