/*!
Files of a shared file system, copied to this node once for all its tasks that want them staged.

A copy is at `staged/<hash>`, with a hash of the path, the size and the modification time: a changed
file is another one. If a file is being copied, other tasks wait for that copy. When the copies
exceed their limit, unused ones are removed, the least recently used first.
*/

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use xxhash_rust::xxh3::xxh3_64;

use crate::disk_reserve;
use crate::error::{ExecutorError, reason};

/// After each such number of bytes the copier checks whether the copy is still wanted.
const PIECE_BYTES: u64 = 8 << 20;

#[derive(Debug)]
struct Copy {
    /// `None` while it is being copied.
    size_bytes: Option<u64>,
    users: u32,
    last_use: u64,
}

#[derive(Debug, Default)]
struct State {
    copies: BTreeMap<u64, Copy>,
    size_bytes: u64,
    uses: u64,
    /// The number of copies made so far.
    made: u64,
}

/// The copies of one node.
#[derive(Debug)]
pub(crate) struct SharedFiles {
    root: PathBuf,
    /// The fixed limit of their bytes, and the space that the store of the node has for them now.
    limit_bytes: u64,
    room_bytes: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

/// A copy stays while a value of this type refers to it.
#[derive(Debug)]
pub(crate) struct SharedFile {
    files: Arc<SharedFiles>,
    hash: u64,
}

impl SharedFile {
    pub(crate) fn path(&self) -> PathBuf {
        self.files.path(self.hash)
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        self.files.release(self.hash);
    }
}

/// The hash of a file's path and state.
fn hash_of(path: &Path, metadata: &Metadata) -> u64 {
    let program = u64::from(metadata.mode() & 0o111 != 0);
    let times = [metadata.mtime() as u64, metadata.mtime_nsec() as u64];
    let numbers = [metadata.len(), times[0], times[1], program];
    let mut text = path.as_os_str().as_encoded_bytes().to_vec();
    numbers.iter().for_each(|number| text.extend(number.to_le_bytes()));
    xxh3_64(&text)
}

fn given_up() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "it is not wanted any more")
}

impl SharedFiles {
    /// Opens an empty directory: copies of an earlier incarnation are dropped.
    pub(crate) fn open(root: &Path, limit_bytes: u64) -> Result<Self, ExecutorError> {
        let wrong = |error: io::Error| ExecutorError::directory(root, &error);
        match fs::remove_dir_all(root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(wrong(error)),
            _ => crate::private::own_dir(root).map_err(wrong)?,
        }
        let (state, changed) = (Mutex::default(), Condvar::new());
        let room_bytes = AtomicU64::new(u64::MAX);
        Ok(Self { root: root.to_owned(), limit_bytes, room_bytes, state, changed })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("files are copied outside the lock")
    }

    fn path(&self, hash: u64) -> PathBuf {
        self.root.join(format!("{hash:016x}"))
    }

    /// Bytes and number of the copies here, and the number ever made.
    #[cfg(test)]
    fn totals(&self) -> (u64, usize, u64) {
        let state = self.state();
        (state.size_bytes, state.copies.len(), state.made)
    }

    /// The copy of a file; makes it if there is none. Blocks during the copy, and stops when it is
    /// no longer wanted. Then the other waiting tasks make it themselves.
    pub(crate) fn get(
        self: &Arc<Self>,
        source: &Path,
        is_wanted: impl Fn() -> bool,
    ) -> Result<SharedFile, String> {
        let metadata = fs::metadata(source).map_err(|error| reason(&error))?;
        if !metadata.is_file() {
            return Err("only files are staged".to_owned());
        }
        let hash = hash_of(source, &metadata);
        let mut state = self.state();
        loop {
            if !is_wanted() {
                return Err(reason(&given_up()));
            }
            state.uses += 1;
            let now = state.uses;
            let Some(copy) = state.copies.get_mut(&hash) else { break };
            if copy.size_bytes.is_some() {
                copy.users += 1;
                copy.last_use = now;
                return Ok(SharedFile { files: Arc::clone(self), hash });
            }
            state = self.changed.wait(state).expect("files are copied outside the lock");
        }
        let last_use = state.uses;
        state.copies.insert(hash, Copy { size_bytes: None, users: 1, last_use });
        self.make_room(&mut state, metadata.len());
        drop(state);
        let copied = self.copy(source, hash, is_wanted);
        let mut state = self.state();
        match &copied {
            Ok(size_bytes) => {
                state.size_bytes += size_bytes;
                state.made += 1;
                if let Some(copy) = state.copies.get_mut(&hash) {
                    copy.size_bytes = Some(*size_bytes);
                }
            }
            Err(_) => _ = state.copies.remove(&hash),
        }
        drop(state);
        self.changed.notify_all();
        let made = copied.map(|_| SharedFile { files: Arc::clone(self), hash });
        made.map_err(|error| reason(&error))
    }

    fn copy(&self, source: &Path, hash: u64, is_wanted: impl Fn() -> bool) -> io::Result<u64> {
        let path = self.path(hash);
        let copy = || {
            let (mut from, mut to) = (File::open(source)?, File::create(&path)?);
            let mut size_bytes = 0;
            loop {
                if !is_wanted() {
                    return Err(given_up());
                }
                disk_reserve::check(&to, PIECE_BYTES)?;
                let copied_bytes = io::copy(&mut (&mut from).take(PIECE_BYTES), &mut to)?;
                size_bytes += copied_bytes;
                if copied_bytes < PIECE_BYTES {
                    break;
                }
            }
            // The tasks see this very file, so it becomes read-only.
            let program = from.metadata()?.mode() & 0o111 != 0;
            let mode = if program { 0o555 } else { 0o444 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            Ok(size_bytes)
        };
        copy().inspect_err(|_| {
            // The copy may not have been created.
            let _ = fs::remove_file(&path);
        })
    }

    /// Drops the copy of a file that has changed on this node: the next task gets another.
    pub(crate) fn forget(&self, source: &Path) {
        let Ok(metadata) = fs::metadata(source) else { return };
        let hash = hash_of(source, &metadata);
        let mut state = self.state();
        // A copy that is being made comes from the file itself.
        if state.copies.get(&hash).is_none_or(|copy| copy.size_bytes.is_none()) {
            return;
        }
        let gone = state.copies.remove(&hash).and_then(|copy| copy.size_bytes);
        state.size_bytes -= gone.unwrap_or(0);
        let _ = fs::remove_file(self.path(hash)); // A remaining file is replaced.
    }

    /// Sets the limit of the copies. Returns whether unused ones must be removed.
    pub(crate) fn set_room(&self, room_bytes: u64) -> bool {
        self.room_bytes.store(room_bytes, Ordering::Relaxed);
        let state = self.state();
        state.size_bytes > room_bytes && state.copies.values().any(|copy| copy.users == 0)
    }
    pub(crate) fn trim(&self) {
        self.make_room(&mut self.state(), 0);
    }

    /// Removes unused copies until this number of further bytes fits.
    fn make_room(&self, state: &mut State, more_bytes: u64) {
        let limit_bytes = self.limit_bytes.min(self.room_bytes.load(Ordering::Relaxed));
        while state.size_bytes.saturating_add(more_bytes) > limit_bytes {
            let idle = state.copies.iter().filter(|(_, it)| it.users == 0);
            let oldest = idle.min_by_key(|(_, it)| it.last_use).map(|(hash, _)| *hash);
            let Some(hash) = oldest else { return };
            let gone = state.copies.remove(&hash).and_then(|copy| copy.size_bytes);
            state.size_bytes -= gone.unwrap_or(0);
            let _ = fs::remove_file(self.path(hash));
        }
    }

    fn release(&self, hash: u64) {
        let mut state = self.state();
        if let Some(copy) = state.copies.get_mut(&hash) {
            copy.users -= 1;
        }
        self.make_room(&mut state, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(limit_bytes: u64) -> (tempfile::TempDir, Arc<SharedFiles>) {
        let dir = tempfile::tempdir().unwrap();
        let files = SharedFiles::open(&dir.path().join("staged"), limit_bytes).unwrap();
        (dir, Arc::new(files))
    }

    #[test]
    fn concurrent_requests_for_a_file_share_one_copy() {
        let (dir, files) = files(1000);
        let source = dir.path().join("a");
        fs::write(&source, "abc").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let staged = files.get(&source, || true).unwrap();
                    assert_eq!(fs::read(staged.path()).unwrap(), b"abc");
                });
            }
        });
        assert_eq!(files.totals(), (3, 1, 1));
        fs::write(&source, "longer").unwrap();
        assert_eq!(fs::read(files.get(&source, || true).unwrap().path()).unwrap(), b"longer");
        assert_eq!(files.totals(), (9, 2, 2), "a file that has changed is another one");
        assert!(files.get(&dir.path().join("none"), || true).unwrap_err().contains("no such file"));
        assert!(files.get(dir.path(), || true).unwrap_err().contains("only files"));
    }

    #[test]
    fn the_one_used_longest_ago_goes_and_never_one_in_use() {
        let (dir, files) = files(10);
        let path = |name: &str| dir.path().join(name);
        for name in ["a", "b", "c"] {
            fs::write(path(name), "12345").unwrap();
        }
        let a = files.get(&path("a"), || true).unwrap();
        drop(files.get(&path("b"), || true).unwrap());
        drop(files.get(&path("c"), || true).unwrap());
        assert_eq!(files.totals(), (10, 2, 3), "b made room for c");
        drop(files.get(&path("a"), || true).unwrap());
        assert_eq!(files.totals().2, 3);
        let b = files.get(&path("b"), || true).unwrap();
        let c = files.get(&path("c"), || true).unwrap();
        assert_eq!(files.totals(), (15, 3, 5), "all in use: none can go");
        drop((a, b));
        assert_eq!(files.totals().1, 2);
        assert!(c.path().exists());
    }

    #[test]
    fn unused_files_are_evicted_when_the_store_shrinks() {
        let (dir, files) = files(1000);
        let path = |name: &str| dir.path().join(name);
        for name in ["a", "b"] {
            fs::write(path(name), "12345").unwrap();
        }
        let a = files.get(&path("a"), || true).unwrap();
        assert!(!files.set_room(0), "it is in use");
        files.trim();
        assert_eq!(files.totals(), (5, 1, 1));
        assert!(!files.set_room(10));
        drop(files.get(&path("b"), || true).unwrap());
        assert_eq!(files.totals(), (10, 2, 2));
        assert!(files.set_room(9), "one has to go");
        files.trim();
        assert_eq!(files.totals(), (5, 1, 2));
        files.set_room(0);
        drop(a);
        assert_eq!(files.totals(), (0, 0, 2), "with its last user");
    }

    #[test]
    fn an_unneeded_copy_is_abandoned() {
        let (dir, files) = files(1 << 30);
        let source = dir.path().join("large");
        File::create(&source).unwrap().set_len(3 * PIECE_BYTES).unwrap();
        let asked = std::cell::Cell::new(0);
        // Killed when the first piece has been copied.
        let is_wanted = || asked.replace(asked.get() + 1) < 2;
        assert!(files.get(&source, is_wanted).unwrap_err().contains("not wanted"));
        assert_eq!((asked.get(), files.totals()), (3, (0, 0, 0)));
        assert_eq!(fs::read_dir(&files.root).unwrap().count(), 0, "nor does a part stay");
        drop(files.get(&source, || true).unwrap());
        assert_eq!(files.totals(), (3 * PIECE_BYTES, 1, 1));
    }
}
