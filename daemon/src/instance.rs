/*!
The instance directory: the files by which nodes and clients of one cluster find and trust each
other, and the state directory of one node.

```text
D/keys/                    what nodes and clients show each other, see `security::Keyring`
D/cluster.json             id, number of nodes and of partitions; written once, by whoever is first
D/begun                    the cluster was complete once
D/members.json             the nodes there are since others have come
D/ranks/<rank>             which node a launcher's rank is, where that is not the one of its number
D/nodes/<id>/address.json  where the node listens; there while it runs
D/nodes/<id>/failed.json   why a node that a launcher started did not come up
D/nodes/<id>/removed       the node has left the cluster
D/nodes/<id>/state/        format, lock, incarnation, boot, ended, store, db/, events/, streams/,
                           objects/, tasks/, log; of records that were given up, see `aside`
```
Files appear whole (written under another name, synced, then linked or renamed), so a reader on a
shared file system sees a file or none.
*/

mod end_mark;
mod format;
mod lock;
mod members_file;
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
pub(crate) use end_mark::EndMark;
pub use lock::DirLock;
pub use members_file::MembersFile;
pub(crate) use members_file::MembersWriter;
pub(crate) use replaced_stores::{ReplacedRecords, ReplacedStores};
pub use start_failure::FailureFile;

/// `cluster.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterFile {
    pub format: u32,
    /// The cluster's id, hexadecimal.
    pub cluster: String,
    pub nodes: u32,
    pub partitions: u32,
    /// Copies of each partition when the cluster was made.
    pub replicas: u32,
    /// Connections are neither encrypted nor is anybody asked who it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

impl ClusterFile {
    /// The id as a number; `None` when the text is no such thing.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        u64::from_str_radix(&self.cluster, 16).ok()
    }
}

/// `nodes/<id>/address.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AddressFile {
    pub format: u32,
    pub node: u32,
    pub incarnation: u32,
    /// `ip:port`; of a node with several: all, best first, with commas between.
    pub address: String,
    pub pid: u32,
    pub slots: u32,
    /// The launch that the process belongs to; empty outside a launcher.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub launch: String,
    /// Where it gives out objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// The name of its machine, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
}

const DB: &str = "db";
const LOCK: &str = "lock";
const REMOVED: &str = "removed";
/// It has no slots.
const KEEPER: &str = "keeper";
/// The number of records that are to be made, as it was told to the cluster.
const JOINED_AS: &str = "joined-as";
const NO_NUMBER: &str = "it should hold a number and its checksum";

/// An instance directory, made when it was not there.
#[derive(Clone, Debug)]
pub struct Instance {
    dir: PathBuf,
}

impl Instance {
    /// Refuses a directory in which another user could put keys or an address of theirs.
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

    /// Whether the instance is made already, and then whether it is as insecure as wanted.
    pub fn check_doors(&self, insecure: bool) -> Result<(), StartError> {
        let path = self.dir.join("cluster.json");
        if !path.exists() {
            return Ok(());
        }
        match read_cluster(&path)?.insecure == insecure {
            true => Ok(()),
            false => Err(StartError::Doors { path, insecure }),
        }
    }

    /// How many nodes the cluster of this directory began with, if it has one.
    pub(crate) fn first_nodes(&self) -> Result<Option<u32>, StartError> {
        let path = self.dir.join("cluster.json");
        if !path.exists() {
            return Ok(None);
        }
        read_cluster(&path).map(|cluster| Some(cluster.nodes))
    }

    /// The cluster's identity. `wanted` is written when there is none yet; else what is there must
    /// agree with it. `partitions` and `replicas` are left to whoever was first unless given.
    pub fn cluster(
        &self,
        wanted: &ClusterFile,
        partitions: Option<u32>,
        replicas: Option<u32>,
    ) -> Result<ClusterFile, StartError> {
        let path = self.dir.join("cluster.json");
        if !path.exists() {
            create_once(&path, to_json(wanted).as_bytes())?;
        }
        let found = read_cluster(&path)?;
        if found.insecure != wanted.insecure {
            return Err(StartError::Doors { path, insecure: wanted.insecure });
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

    pub fn write_address(&self, address: &AddressFile) -> Result<(), StartError> {
        make_private_dir(&self.node_dir(NodeId(address.node)))?;
        replace(&self.address_path(NodeId(address.node)), to_json(address).as_bytes())
    }

    /// Where a node says it listens. `None` while it says nothing that makes sense.
    #[must_use]
    pub fn read_address(&self, node: NodeId) -> Option<AddressFile> {
        let text = fs::read(self.address_path(node)).ok()?;
        let file: AddressFile = serde_json::from_slice(&text).ok()?;
        (file.format == limits::FORMAT_VERSION && file.node == node.0).then_some(file)
    }

    /// Of all nodes that say where they listen.
    #[must_use]
    pub fn read_addresses(&self) -> Vec<AddressFile> {
        let entries = fs::read_dir(self.dir.join("nodes")).into_iter().flatten().flatten();
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok().map(NodeId);
        entries.filter_map(number).filter_map(|node| self.read_address(node)).collect()
    }

    /// Takes back what [`Self::write_address`] said, unless a later incarnation has spoken.
    pub fn remove_address(&self, node: NodeId, incarnation: Incarnation) {
        if self.read_address(node).is_some_and(|file| file.incarnation == incarnation.0) {
            let _ = fs::remove_file(self.address_path(node));
        }
    }
}

/// The state of one node, locked for as long as this lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    incarnation: Incarnation,
    former: (Incarnation, LifeEnd),
    store: u64,
    /// As it was found.
    format: u32,
    lock: DirLock,
}

impl StateDir {
    /// Locks the directory, checks its format and takes the next incarnation, durably, before
    /// anything else can be written or said under it.
    pub fn open(path: &Path) -> Result<Self, StartError> {
        Self::open_above(path, Incarnation(0))
    }

    /// As [`Self::open`], with an incarnation above `known` too: the cluster may have known this
    /// node from another directory, and must not take the two for one.
    pub fn open_above(path: &Path, known: Incarnation) -> Result<Self, StartError> {
        make_private_dir(path)?;
        check_owner(path, rustix::process::geteuid().as_raw())?;
        let lock = DirLock::take(path, LOCK)?;
        let format = format::check(path)?;
        check_not_removed(path)?;
        for part in ["events", "streams", "objects", "tasks"] {
            let path = path.join(part);
            private::own_dir(&path).map_err(|e| StartError::io("create", &path, e))?;
        }
        let former = end_mark::look(path, last_incarnation(path)?)?;
        let incarnation = next_incarnation(path, known)?;
        ReplacedStores { state: path.to_path_buf() }.begin()?;
        let store = store_id(path)?;
        Ok(Self { path: path.to_path_buf(), incarnation, former, store, format, lock })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory is still the one that this has locked. When not, it was removed or
    /// replaced, and another process may be this node there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.lock.is_there()
    }

    /// Why locks do not protect the directory, where its file system has none.
    #[must_use]
    pub fn lacks_locks(&self) -> Option<String> {
        self.lock.missing()
    }

    /// Comes back when the directory is no longer the one that this has locked.
    pub(crate) async fn gone(&self) {
        let mut looks = 0;
        while looks < limits::STATE_GONE_CHECKS && !self.lock.is_taken() {
            tokio::time::sleep(Duration::from_nanos(limits::STATE_CHECK_INTERVAL.0)).await;
            looks = if self.is_there() { 0 } else { looks + 1 };
        }
    }
    /// Why it has ended when [`Self::gone`] has come back.
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

    /// The last life in this directory before this one, and how it ended.
    #[must_use]
    pub fn former(&self) -> (Incarnation, LifeEnd) {
        self.former
    }
    pub(crate) fn end_mark(&self) -> EndMark {
        EndMark { state: self.path.clone(), incarnation: self.incarnation }
    }

    /// Drawn when the records of this directory began: others have another number.
    #[must_use]
    pub fn store(&self) -> u64 {
        self.store
    }
    /// Where the records are.
    #[must_use]
    pub fn db(&self) -> PathBuf {
        self.path.join(DB)
    }

    /// To be called when the records have been made: those that ever follow them are others, and
    /// must not have the number that the cluster was told for these.
    pub(crate) fn records_are_made(&self) -> Result<(), StartError> {
        let joined_as = self.path.join(JOINED_AS);
        match fs::remove_file(&joined_as) {
            Ok(()) => sync_parent(&joined_as),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(StartError::io("remove", &joined_as, e)),
        }
    }

    /// Whether a program of an earlier version could still use it.
    pub(crate) fn is_older(&self) -> bool {
        self.format < limits::STATE_VERSION
    }
    /// Before anything is written there that a program of an earlier version would pass over.
    pub(crate) fn upgrade(&self) -> Result<(), StartError> {
        if self.is_older() { format::write(&self.path) } else { Ok(()) }
    }

    /// Puts the records aside, for whoever wants to look: the next start has none, and another
    /// store.
    pub(crate) fn give_up_records(&self) -> Result<ReplacedRecords, StartError> {
        self.aside().give_up()
    }
    /// What was put aside.
    pub(crate) fn aside(&self) -> ReplacedStores {
        ReplacedStores { state: self.path.clone() }
    }

    /// Whether this node was part of a complete cluster before: then it need not wait for the
    /// others again, they know it and it knows them.
    #[must_use]
    pub fn was_formed(&self) -> bool {
        self.path.join("formed").exists()
    }
    pub(crate) fn set_formed(&self) -> Result<(), StartError> {
        replace(&self.path.join("formed"), b"1\n")
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

    /// Whether the cluster had begun without this directory.
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

/// Whether the node of this state directory came to the cluster after it had begun.
pub(crate) fn has_joined(state: &Path) -> bool {
    state.join("late").exists()
}

/// The number of a directory's records, if it has one and nobody uses the directory.
pub(crate) fn free_store(state: &Path) -> Option<u64> {
    if !lock::is_free(state, LOCK) {
        return None;
    }
    let text = fs::read_to_string(state.join("store")).ok()?;
    u64::from_str_radix(number_of_line(&text)?, 16).ok()
}

/// The node of this state directory has left the cluster.
pub(crate) fn note_removed(state: &Path, node: NodeId) -> Result<(), StartError> {
    replace(&state.join(REMOVED), format!("{}\n", node.0).as_bytes())
}

/// That the node of this state directory has not left the cluster.
pub(crate) fn check_not_removed(state: &Path) -> Result<(), StartError> {
    let Ok(node) = fs::read_to_string(state.join(REMOVED)) else { return Ok(()) };
    Err(StartError::Removed { node: NodeId(node.trim().parse().unwrap_or_default()) })
}

/// Makes the state directory of a node that the cluster has taken in under this store.
pub(crate) fn prepare_joined(state: &Path, store: u64) -> Result<(), StartError> {
    make_private_dir(state)?;
    replace(&state.join(JOINED_AS), number_line(&format!("{store:016x}")).as_bytes())?;
    replace(&state.join("late"), b"1\n")?;
    replace(&state.join("formed"), b"1\n")
}

fn last_incarnation(state: &Path) -> Result<Incarnation, StartError> {
    let path = state.join("incarnation");
    let last = match fs::read_to_string(&path) {
        Ok(text) => {
            let number = number_of_line(&text).and_then(|digits| digits.parse::<u32>().ok());
            let what = NO_NUMBER.to_owned();
            number.ok_or_else(|| StartError::Damaged { path: path.clone(), what })?
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
        Err(e) => return Err(StartError::io("read", &path, e)),
    };
    Ok(Incarnation(last))
}

fn next_incarnation(state: &Path, known: Incarnation) -> Result<Incarnation, StartError> {
    let path = state.join("incarnation");
    let Incarnation(last) = last_incarnation(state)?;
    let next = last.max(known.0).checked_add(1).ok_or_else(|| StartError::Damaged {
        path: path.clone(),
        what: "the last incarnation is used up".to_owned(),
    })?;
    replace(&path, number_line(&next.to_string()).as_bytes())?;
    Ok(Incarnation(next))
}

/// A number and its checksum: a smaller one would be believed as well.
fn number_line(digits: &str) -> String {
    format!("{digits}-{:08x}\n", crc32fast::hash(digits.as_bytes()))
}

/// What [`number_line`] wrote. Lines without a checksum are from before there was one.
fn number_of_line(line: &str) -> Option<&str> {
    let line = line.trim_end();
    let Some((digits, checksum)) = line.split_once('-') else { return Some(line) };
    let checksum = u32::from_str_radix(checksum, 16).ok()?;
    (crc32fast::hash(digits.as_bytes()) == checksum).then_some(digits)
}

/// The number of the records that are here, or of those that will be.
fn store_id(state: &Path) -> Result<u64, StartError> {
    let (path, joined_as) = (state.join("store"), state.join(JOINED_AS));
    let read = |path: &Path| {
        let text = fs::read_to_string(path).map_err(|e| StartError::io("read", path, e))?;
        let digits = number_of_line(&text);
        let id = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let (id, what) = (id.filter(|&id| id != 0), NO_NUMBER.to_owned());
        id.ok_or_else(|| StartError::Damaged { path: path.to_path_buf(), what })
    };
    if !state.join(DB).join("CURRENT").exists() {
        let id = match joined_as.exists() {
            true => read(&joined_as)?,
            false => random_u64()?.max(1), // 0 stands for none.
        };
        replace(&path, number_line(&format!("{id:016x}")).as_bytes())?;
        return Ok(id);
    }
    read(&path)
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

/// Numbers that cannot be guessed.
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

/// That the directory is the user's and that nobody else writes there. A link counts as what made
/// it and as what it leads to.
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

/// Writes a file that appears whole, or not at all when another was first.
fn create_once(path: &Path, bytes: &[u8]) -> Result<(), StartError> {
    let temporary = temporary(path)?;
    write_synced(&temporary, bytes)?;
    match security::once::give_name(&temporary, path) {
        Ok(()) => sync_parent(path),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(StartError::io("write", path, e)),
    }
}

/// Replaces a file, durably: readers see the old one or the new one.
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
