/*!
The instance directory: the files by which nodes and clients of one cluster find and trust each
other, and the state directory of one node.

```text
D/keys/                    what nodes and clients show each other, see `security::Keyring`
D/cluster.json             id, number of nodes and of partitions; written once, by whoever is first
D/nodes/<id>/address.json  where the node listens; there while it runs
D/nodes/<id>/state/        format, lock, incarnation, db/, events/, streams/, objects/, tasks/, log
```
Files appear whole (written under another name, synced, then linked or renamed), so a reader on a
shared file system sees a file or none.
*/

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proto::{Incarnation, NodeId, limits};
use serde::{Deserialize, Serialize};

use crate::error::StartError;

/// `cluster.json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterFile {
    pub format: u32,
    /// The cluster's id, hexadecimal.
    pub cluster: String,
    pub nodes: u32,
    pub partitions: u32,
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
    pub address: String,
    pub pid: u32,
    pub slots: u32,
    /// The launch that the process belongs to; empty outside a launcher.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub launch: String,
    /// Where it gives out objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
}

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
        make_private_dir(&nodes)?;
        Ok(Self { dir: dir.to_path_buf() })
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    #[must_use]
    pub fn node_dir(&self, node: NodeId) -> PathBuf {
        self.dir.join("nodes").join(node.0.to_string())
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

    /// The cluster's identity. `wanted` is written when there is none yet; else what is there must
    /// agree with it. `partitions` is left to whoever was first unless it is given.
    pub fn cluster(
        &self,
        wanted: &ClusterFile,
        partitions: Option<u32>,
    ) -> Result<ClusterFile, StartError> {
        let path = self.dir.join("cluster.json");
        if !path.exists() {
            create_once(&path, to_json(wanted).as_bytes())?;
        }
        let found = read_cluster(&path)?;
        if found.insecure != wanted.insecure {
            return Err(StartError::Doors { path, insecure: wanted.insecure });
        }
        if found.id().is_none() || !found.partitions.is_power_of_two() {
            let what = "its cluster id or its number of partitions is impossible".to_owned();
            return Err(StartError::Damaged { path, what });
        }
        if found.nodes != wanted.nodes {
            let (found, wanted) = (format!("{} nodes", found.nodes), wanted.nodes.to_string());
            return Err(StartError::OtherCluster { path, found, wanted });
        }
        match partitions {
            Some(wanted) if wanted != found.partitions => {
                let found = format!("{} partitions", found.partitions);
                Err(StartError::OtherCluster { path, found, wanted: wanted.to_string() })
            }
            _ => Ok(found),
        }
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
    /// The lock goes with the file, even when the process is killed.
    _lock: File,
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
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|e| StartError::io("write", &lock_path, e))?;
        take_lock(&lock).map_err(|errno| match errno {
            rustix::io::Errno::WOULDBLOCK => StartError::InUse { path: path.to_path_buf() },
            errno => StartError::io("lock", &lock_path, errno.into()),
        })?;
        check_format(path)?;
        for part in ["events", "streams", "objects", "tasks"] {
            make_private_dir(&path.join(part))?;
        }
        let incarnation = next_incarnation(path, known)?;
        Ok(Self { path: path.to_path_buf(), incarnation, _lock: lock })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
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
}

/// A predecessor that was killed keeps its lock until the last of its threads is gone: it is waited
/// for, a while.
fn take_lock(lock: &File) -> Result<(), rustix::io::Errno> {
    let start = Instant::now();
    loop {
        let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        match rustix::fs::flock(lock, operation) {
            Err(rustix::io::Errno::WOULDBLOCK)
                if start.elapsed() < Duration::from_nanos(limits::STATE_LOCK_PATIENCE.0) =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

fn check_format(state: &Path) -> Result<(), StartError> {
    let path = state.join("format");
    let known = limits::FORMAT_VERSION;
    match fs::read_to_string(&path) {
        Ok(text) if text.trim() == known.to_string() => Ok(()),
        Ok(text) => {
            let found = text.trim().chars().take(32).collect();
            Err(StartError::NewerFormat { path: state.to_path_buf(), found, known })
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            replace(&path, format!("{known}\n").as_bytes())
        }
        Err(e) => Err(StartError::io("read", &path, e)),
    }
}

fn next_incarnation(state: &Path, known: Incarnation) -> Result<Incarnation, StartError> {
    let path = state.join("incarnation");
    let last = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse::<u32>().map_err(|e| StartError::Damaged {
            path: path.clone(),
            what: format!("it should hold a number: {e}"),
        })?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
        Err(e) => return Err(StartError::io("read", &path, e)),
    };
    let next = last.max(known.0).checked_add(1).ok_or_else(|| StartError::Damaged {
        path: path.clone(),
        what: "the last incarnation is used up".to_owned(),
    })?;
    replace(&path, format!("{next}\n").as_bytes())?;
    Ok(Incarnation(next))
}

fn read_cluster(path: &Path) -> Result<ClusterFile, StartError> {
    let text = fs::read_to_string(path).map_err(|e| StartError::io("read", path, e))?;
    let found: ClusterFile = serde_json::from_str(&text)
        .map_err(|e| StartError::Damaged { path: path.to_path_buf(), what: e.to_string() })?;
    if found.format != limits::FORMAT_VERSION {
        let (path, found) = (path.to_path_buf(), found.format.to_string());
        return Err(StartError::NewerFormat { path, found, known: limits::FORMAT_VERSION });
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
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|e| StartError::io("create", path, e))
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

/// Writes a file that appears whole, or not at all when somebody else was first.
fn create_once(path: &Path, bytes: &[u8]) -> Result<(), StartError> {
    let temporary = temporary(path)?;
    write_synced(&temporary, bytes)?;
    let linked = fs::hard_link(&temporary, path);
    let _ = fs::remove_file(&temporary);
    match linked {
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
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn wanted(nodes: u32) -> ClusterFile {
        ClusterFile {
            format: 1,
            cluster: format!("{:016x}", 77),
            nodes,
            partitions: 64,
            insecure: false,
        }
    }

    #[test]
    fn a_directory_that_others_own_or_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("instance");
        fs::create_dir(&path).unwrap();
        for (mode, good) in [(0o777, false), (0o770, false), (0o1777, false), (0o755, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match Instance::open(&path) {
                Ok(_) => assert!(good, "{mode:o}"),
                Err(StartError::DirectoryMode { mode: found, .. }) => {
                    assert!(!good && found == mode, "{mode:o}");
                    assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing was written");
                }
                Err(error) => panic!("{error}"),
            }
        }
        let user = fs::metadata(&path).unwrap().uid();
        check_owner(&path, user).unwrap();
        let error = check_owner(&path, user + 1).unwrap_err();
        assert!(matches!(error, StartError::OtherOwner { .. }), "{error}");
    }

    #[test]
    fn the_cluster_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let instance = Instance::open(dir.path()).unwrap();
        assert_eq!(instance.cluster(&wanted(3), None).unwrap().id(), Some(77));
        let other = ClusterFile { cluster: "5".to_owned(), partitions: 128, ..wanted(3) };
        assert_eq!(instance.cluster(&other, None).unwrap().id(), Some(77));
        let error = instance.cluster(&wanted(4), None).unwrap_err();
        assert!(matches!(error, StartError::OtherCluster { .. }), "{error}");
        assert!(instance.cluster(&other, Some(128)).is_err());
        let insecure = ClusterFile { insecure: true, ..wanted(3) };
        assert!(matches!(instance.cluster(&insecure, None), Err(StartError::Doors { .. })));
        assert!(matches!(instance.check_doors(true), Err(StartError::Doors { .. })));
        instance.check_doors(false).unwrap();
        assert!(
            fs::read_dir(dir.path())
                .unwrap()
                .all(|e| { !e.unwrap().file_name().to_string_lossy().starts_with('.') })
        );
    }

    #[test]
    fn incarnations_grow_and_the_lock_holds() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        assert_eq!(state.incarnation(), Incarnation(1));
        let error = StateDir::open(dir.path()).unwrap_err();
        assert!(matches!(error, StartError::InUse { .. }), "{error}");
        drop(state);
        assert_eq!(StateDir::open(dir.path()).unwrap().incarnation(), Incarnation(2));
        fs::write(dir.path().join("format"), "2\n").unwrap();
        let error = StateDir::open(dir.path()).unwrap_err();
        assert!(matches!(error, StartError::NewerFormat { .. }), "{error}");
    }

    #[test]
    fn an_address_is_taken_back_only_by_its_incarnation() {
        let dir = tempfile::tempdir().unwrap();
        let instance = Instance::open(dir.path()).unwrap();
        let file = AddressFile {
            format: 1,
            node: 2,
            incarnation: 5,
            address: "127.0.0.1:1".to_owned(),
            pid: 1,
            slots: 2,
            data: "127.0.0.1:8".to_owned(),
            launch: String::new(),
        };
        assert_eq!(instance.read_address(NodeId(2)), None);
        instance.write_address(&file).unwrap();
        instance.remove_address(NodeId(2), Incarnation(4));
        assert_eq!(instance.read_address(NodeId(2)), Some(file));
        instance.remove_address(NodeId(2), Incarnation(5));
        assert_eq!(instance.read_address(NodeId(2)), None);
    }
}
