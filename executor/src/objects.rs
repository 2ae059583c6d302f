/*!
The objects on this node: one file for each output of an attempt.

A file lies at `objects/<job>/<task>-<attempt>-<output>` (`-kept` or `-copy` behind it says what
becomes of it when its job ends, or when room is needed), so a late writer of an old attempt can
never touch what the committed one published. It appears by rename, complete or not at all, and does
not change afterwards. An index in memory answers [`ObjectStore::contains`] without a system call.
*/

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use proto::work::Stored;
use proto::{Attempt, JobId, LocalId, ObjectId, TaskId, wire};

use crate::error::ExecutorError;
pub use crate::error::{ObjectError, ObjectName};
use crate::room;

const PART_SUFFIX: &str = ".part";
/// Each time so much more of an object is written, the room that is left is looked at.
const ROOM_LOOK_BYTES: u64 = 1 << 20;
/// Taking room beforehand pays from here on.
const RESERVE_BYTES_MIN: u64 = 1 << 20;

/// Looked at under one lock when a job is forgotten.
const FORGET_PART_OBJECTS: usize = 256;

/// The objects on this node. Clones share one store.
#[derive(Clone, Debug)]
pub struct ObjectStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    limit_bytes: u64,
    parts: AtomicU64,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    objects: BTreeMap<ObjectId, Entry>,
    /// Of all of them.
    size_bytes: u64,
}

/// Why an object is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// A task of this node made it.
    Made,
    /// And it is to be kept when its job has ended.
    Kept,
    /// It came from the node that made it.
    Copy,
}

impl ObjectKind {
    /// Of an output of a task that runs here.
    #[must_use]
    pub fn of_output(output: &wire::Output) -> Self {
        if output.keep { Self::Kept } else { Self::Made }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Made => "",
            Self::Kept => "-kept",
            Self::Copy => "-copy",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    size_bytes: u64,
    kind: ObjectKind,
    /// xxh3 of the bytes, once somebody has made it.
    checksum: Option<u64>,
}

impl Index {
    fn insert(&mut self, object: ObjectId, size_bytes: u64, kind: ObjectKind) {
        self.remove(object);
        self.size_bytes += size_bytes;
        self.objects.insert(object, Entry { size_bytes, kind, checksum: None });
    }

    fn remove(&mut self, object: ObjectId) {
        if let Some(entry) = self.objects.remove(&object) {
            self.size_bytes -= entry.size_bytes;
        }
    }
}

impl ObjectStore {
    /// Opens the store, forgets half-written objects and lists the whole ones.
    pub fn open(root: &Path, limit_bytes: u64) -> Result<Self, ExecutorError> {
        let wrong = |error: io::Error| ExecutorError::directory(root, &error);
        fs::create_dir_all(root).map_err(wrong)?;
        let index = Mutex::new(scan(root).map_err(wrong)?);
        let parts = AtomicU64::new(0);
        Ok(Self { inner: Arc::new(Inner { root: root.to_owned(), limit_bytes, parts, index }) })
    }

    #[must_use]
    pub fn contains(&self, object: ObjectId) -> bool {
        self.index().objects.contains_key(&object)
    }

    #[must_use]
    pub fn size_bytes(&self, object: ObjectId) -> Option<u64> {
        self.index().objects.get(&object).map(|entry| entry.size_bytes)
    }

    /// Number of objects and their bytes.
    #[must_use]
    pub fn totals(&self) -> (usize, u64) {
        let index = self.index();
        (index.objects.len(), index.size_bytes)
    }

    /// Every object that is here.
    #[must_use]
    pub fn list(&self) -> Vec<Stored> {
        let stored = |(&object, entry): (&ObjectId, &Entry)| Stored {
            object,
            size_bytes: entry.size_bytes,
            keep: entry.kind == ObjectKind::Kept,
            copy: entry.kind == ObjectKind::Copy,
        };
        self.index().objects.iter().map(stored).collect()
    }

    /// The checksum of an object's bytes, where it is known.
    #[must_use]
    pub fn checksum(&self, object: ObjectId) -> Option<u64> {
        self.index().objects.get(&object)?.checksum
    }

    /// Keeps a checksum for the next who asks. Objects do not change.
    pub fn note_checksum(&self, object: ObjectId, checksum: u64) {
        if let Some(entry) = self.index().objects.get_mut(&object) {
            entry.checksum = Some(checksum);
        }
    }

    /// Opens an object for reading, with its size.
    pub fn open_object(&self, object: ObjectId) -> Result<(File, u64), ObjectError> {
        let absent = || ObjectError::Absent(ObjectName(object));
        let size_bytes = self.size_bytes(object).ok_or_else(absent)?;
        let opened = File::open(self.path(object)).map(|file| (file, size_bytes));
        opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => absent(), // Somebody took its file away.
            _ => ObjectError::failed("read", object, &error),
        })
    }

    /// Begins an object whose bytes come in pieces; it exists once committed.
    pub fn create_incoming(
        &self,
        object: ObjectId,
        kind: ObjectKind,
    ) -> Result<IncomingObject, ObjectError> {
        let number = self.inner.parts.fetch_add(1, Ordering::Relaxed);
        let directory = self.inner.root.join(directory_name(object.task.job));
        let path = directory.join(format!("{}-{number}{PART_SUFFIX}", file_name(object, kind)));
        // Nobody may change it once it is whole, so it begins as what only its writer can write to.
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path);
        let made = create().or_else(|error| match error.kind() {
            // The first of its job.
            io::ErrorKind::NotFound => fs::create_dir_all(&directory).and_then(|()| create()),
            _ => Err(error),
        });
        let file = made.map_err(|error| ObjectError::failed("write", object, &error))?;
        let store = self.clone();
        Ok(IncomingObject { store, object, kind, path, file, size_bytes: 0, done: false })
    }

    /// Makes a finished file an object, by rename. The file must lie on the same file system.
    pub(crate) fn adopt(
        &self,
        file: &Path,
        object: ObjectId,
        kind: ObjectKind,
    ) -> Result<u64, ObjectError> {
        let wrong = |error: io::Error| ObjectError::failed("keep", object, &error);
        let metadata = fs::metadata(file).map_err(wrong)?;
        self.check_limit(object, metadata.len())?;
        // Consumers see this very file as their input: none may change it.
        let mut permissions = metadata.permissions();
        permissions.set_mode(permissions.mode() & 0o555 | 0o400);
        fs::set_permissions(file, permissions).map_err(wrong)?;
        let target = self.path_of(object, kind);
        if let Err(error) = fs::rename(file, &target) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(wrong(error));
            }
            let directory = target.parent().expect("an object lies in its job's directory");
            fs::create_dir_all(directory).map_err(wrong)?;
            fs::rename(file, &target).map_err(wrong)?;
        }
        self.index().insert(object, metadata.len(), kind);
        Ok(metadata.len())
    }

    /// An object that came as a copy stays here for good from now on: who made it leaves.
    pub fn take_over(&self, object: ObjectId, keep: bool) -> Result<(), ObjectError> {
        let kind = if keep { ObjectKind::Kept } else { ObjectKind::Made };
        let mut index = self.index();
        let entry =
            index.objects.get_mut(&object).ok_or(ObjectError::Absent(ObjectName(object)))?;
        let before = std::mem::replace(&mut entry.kind, kind);
        if before != kind {
            // Under the lock: nobody looks for it where it is not.
            fs::rename(self.path_of(object, before), self.path_of(object, kind))
                .map_err(|error| ObjectError::failed("keep", object, &error))?;
        }
        Ok(())
    }

    /// Removes every object of an attempt that is here.
    pub fn discard(&self, task: TaskId, attempt: Attempt) {
        let range =
            ObjectId { task, attempt, output: 0 }..=ObjectId { task, attempt, output: u32::MAX };
        self.remove_range(range);
    }

    /// Removes one object, a cached copy for example.
    pub fn discard_object(&self, object: ObjectId) {
        self.remove_range(object..=object);
    }

    /// Removes every object of a job.
    pub fn discard_job(&self, job: JobId) {
        self.remove_range(range_of(job));
        let _ = fs::remove_dir(self.inner.root.join(directory_name(job)));
    }

    /// Removes what a job that has ended needs no more: all but its kept outputs. A file is removed
    /// for each, which takes its time; others use the store meanwhile.
    pub fn forget_job(&self, job: JobId) {
        let (mut from, last) = range_of(job).into_inner();
        loop {
            let index = self.index();
            let part = index.objects.range(from..=last).take(FORGET_PART_OBJECTS);
            let part: Vec<_> = part.map(|(object, entry)| (*object, entry.kind)).collect();
            drop(index);
            let gone = part.iter().filter(|(_, kind)| *kind != ObjectKind::Kept);
            gone.for_each(|(object, _)| self.discard_object(*object));
            match part.last() {
                // The first of the next part is looked at twice, if it is there still.
                Some(&(object, _)) if part.len() == FORGET_PART_OBJECTS => from = object,
                _ => break,
            }
        }
        // It stays while there is something in it.
        let _ = fs::remove_dir(self.inner.root.join(directory_name(job)));
    }

    /// [`Self::forget_job`] for each job here that is over.
    pub fn forget_jobs(&self, is_over: impl Fn(JobId) -> bool) {
        let index = self.index();
        let jobs: BTreeSet<JobId> = index.objects.keys().map(|object| object.task.job).collect();
        drop(index);
        jobs.into_iter().filter(|&job| is_over(job)).for_each(|job| self.forget_job(job));
    }

    /// Where the bytes of an object lie, or would.
    #[must_use]
    pub fn path(&self, object: ObjectId) -> PathBuf {
        let kind = self.index().objects.get(&object).map_or(ObjectKind::Made, |entry| entry.kind);
        self.path_of(object, kind)
    }

    fn path_of(&self, object: ObjectId, kind: ObjectKind) -> PathBuf {
        let mut path = self.inner.root.join(directory_name(object.task.job));
        path.push(file_name(object, kind));
        path
    }

    fn remove_range(&self, range: std::ops::RangeInclusive<ObjectId>) {
        let mut index = self.index();
        let kinds = index.objects.range(range).map(|(object, entry)| (*object, entry.kind));
        let gone: Vec<_> = kinds.collect();
        for (object, _) in &gone {
            index.remove(*object);
        }
        drop(index);
        for (object, kind) in gone {
            // A file that is gone already is as good as removed; one that cannot be is only space.
            let _ = fs::remove_file(self.path_of(object, kind));
        }
    }

    fn check_limit(&self, object: ObjectId, size_bytes: u64) -> Result<(), ObjectError> {
        let limit_bytes = self.inner.limit_bytes;
        if size_bytes <= limit_bytes {
            return Ok(());
        }
        Err(ObjectError::TooLarge { object: ObjectName(object), limit_bytes })
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.inner.index.lock().expect("no holder of the index panics")
    }
}

/// An object on its way in. Dropping it before [`Self::commit`] removes what was written.
#[derive(Debug)]
pub struct IncomingObject {
    store: ObjectStore,
    object: ObjectId,
    kind: ObjectKind,
    path: PathBuf,
    file: File,
    size_bytes: u64,
    done: bool,
}

impl IncomingObject {
    /// Appends the next piece.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), ObjectError> {
        let size_bytes = self.size_bytes + piece.len() as u64;
        self.store.check_limit(self.object, size_bytes)?;
        let wrong = |error| ObjectError::failed("write", self.object, &error);
        if self.size_bytes / ROOM_LOOK_BYTES < size_bytes / ROOM_LOOK_BYTES {
            // Where the room was taken beforehand there need not be as much again.
            room::check(&self.file, 0).map_err(wrong)?;
        }
        self.file.write_all(piece).map_err(wrong)?;
        self.size_bytes = size_bytes;
        Ok(())
    }

    /// Takes the room for all of it now: a full disk is known before bytes come in vain.
    pub fn reserve(&self, total_bytes: u64) -> Result<(), ObjectError> {
        self.store.check_limit(self.object, total_bytes)?;
        if total_bytes < RESERVE_BYTES_MIN {
            return Ok(());
        }
        room::check(&self.file, total_bytes)
            .map_err(|error| ObjectError::failed("write", self.object, &error))?;
        let mode = rustix::fs::FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, mode, 0, total_bytes) {
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
                Err(ObjectError::failed("write", self.object, &rustix::io::Errno::NOSPC.into()))
            }
            // Not every file system can; then it is found out while writing.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// As [`Self::commit`], with the checksum of what was written.
    pub fn commit_with(self, checksum: u64) -> Result<u64, ObjectError> {
        let (store, object) = (self.store.clone(), self.object);
        let size_bytes = self.commit()?;
        store.note_checksum(object, checksum);
        Ok(size_bytes)
    }

    /// Publishes the object. Answers its size in bytes.
    pub fn commit(mut self) -> Result<u64, ObjectError> {
        let Self { object, kind, size_bytes, .. } = self;
        let target = self.store.path_of(object, kind);
        fs::rename(&self.path, &target)
            .map_err(|error| ObjectError::failed("keep", object, &error))?;
        self.done = true;
        self.store.index().insert(object, size_bytes, kind);
        Ok(size_bytes)
    }
}

impl Drop for IncomingObject {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where the objects of a job are in the index.
fn range_of(job: JobId) -> std::ops::RangeInclusive<ObjectId> {
    let bound = |local: u64, attempt: u64, output: u32| ObjectId {
        task: TaskId { job, local: LocalId(local) },
        attempt: Attempt(attempt),
        output,
    };
    bound(0, 0, 0)..=bound(u64::MAX, u64::MAX, u32::MAX)
}

fn directory_name(job: JobId) -> String {
    format!("{:016x}", job.0)
}

fn file_name(object: ObjectId, kind: ObjectKind) -> String {
    let (partition, index) = (object.task.partition().0, object.task.local.index());
    let suffix = kind.suffix();
    format!("{partition}.{index}-{:x}-{}{suffix}", object.attempt.0, object.output)
}

fn parse_name(job: JobId, name: &str) -> Option<(ObjectId, ObjectKind)> {
    let mut parts = name.split('-');
    let local: LocalId = parts.next()?.parse().ok()?;
    let attempt = Attempt(u64::from_str_radix(parts.next()?, 16).ok()?);
    let output = parts.next()?.parse().ok()?;
    let object = ObjectId { task: TaskId { job, local }, attempt, output };
    let kind = match parts.next() {
        None => ObjectKind::Made,
        Some("kept") => ObjectKind::Kept,
        Some("copy") => ObjectKind::Copy,
        Some(_) => return None,
    };
    parts.next().is_none().then_some((object, kind))
}

/// Lists whole objects and removes `.part` files of an earlier incarnation.
fn scan(root: &Path) -> io::Result<Index> {
    let mut index = Index::default();
    for directory in fs::read_dir(root)? {
        let directory = directory?;
        let name = directory.file_name();
        let Some(job) = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok()) else {
            continue;
        };
        for entry in fs::read_dir(directory.path())? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.ends_with(PART_SUFFIX) {
                fs::remove_file(entry.path())?;
            } else if let Some((object, kind)) = parse_name(JobId(job), name) {
                index.insert(object, entry.metadata()?.len(), kind);
            }
        }
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn object(local: u64, output: u32) -> ObjectId {
        ObjectId { task: TaskId::new(9, local), attempt: Attempt(3 << 32 | 1), output }
    }

    fn put(store: &ObjectStore, object: ObjectId, bytes: &[u8]) {
        let mut incoming = store.create_incoming(object, ObjectKind::Made).unwrap();
        for piece in bytes.chunks(3) {
            incoming.write(piece).unwrap();
        }
        assert!(!store.contains(object), "an uncommitted object must not be visible");
        assert_eq!(incoming.commit().unwrap(), bytes.len() as u64);
    }

    #[test]
    fn objects_survive_a_restart_and_parts_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let store = ObjectStore::open(directory.path(), 100).unwrap();
        put(&store, object(1, 0), b"hello world");
        put(&store, object(1, 7), b"");
        let mut torn = store.create_incoming(object(2, 0), ObjectKind::Made).unwrap();
        torn.write(b"half").unwrap();
        std::mem::forget(torn);

        let store = ObjectStore::open(directory.path(), 100).unwrap();
        assert_eq!(store.totals(), (2, 11));
        let (mut file, size_bytes) = store.open_object(object(1, 0)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), size_bytes), ("hello world", 11));
        assert!(matches!(store.open_object(object(2, 0)), Err(ObjectError::Absent(_))));
        fs::remove_file(store.path(object(1, 7))).unwrap();
        assert!(matches!(store.open_object(object(1, 7)), Err(ObjectError::Absent(_))));
        let job = directory.path().join(directory_name(JobId(9)));
        assert_eq!(fs::read_dir(&job).unwrap().count(), 1, "the part file is gone");
        store.discard(object(1, 0).task, object(1, 0).attempt);
        assert_eq!(store.totals(), (0, 0));
        assert_eq!(fs::read_dir(&job).unwrap().count(), 0);
    }

    #[test]
    fn a_job_goes_alone() {
        let directory = tempfile::tempdir().unwrap();
        let store = ObjectStore::open(directory.path(), 100).unwrap();
        let other = ObjectId { task: TaskId::new(10, 0), ..object(0, 0) };
        put(&store, object(u64::MAX >> 1, 5), b"x");
        put(&store, other, b"y");
        store.discard_job(JobId(9));
        assert!(store.contains(other));
        assert_eq!(store.totals(), (1, 1));
    }

    #[test]
    fn a_large_job_is_forgotten_whole_but_for_what_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = ObjectStore::open(directory.path(), 100).unwrap();
        let count = 3 * FORGET_PART_OBJECTS as u64 + 1;
        let kept = |number: u64| number < FORGET_PART_OBJECTS as u64 || number.is_multiple_of(9);
        for number in 0..count {
            let kind = if kept(number) { ObjectKind::Kept } else { ObjectKind::Made };
            store.create_incoming(object(number, 0), kind).unwrap().commit().unwrap();
        }
        store.forget_job(JobId(9));
        let left = (0..count).filter(|&number| kept(number)).count();
        assert_eq!(store.totals().0, left);
        let job = directory.path().join(directory_name(JobId(9)));
        assert_eq!(fs::read_dir(&job).unwrap().count(), left);
    }

    #[test]
    fn too_large_is_refused_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = ObjectStore::open(directory.path(), 4).unwrap();
        let mut incoming = store.create_incoming(object(1, 0), ObjectKind::Made).unwrap();
        incoming.write(b"1234").unwrap();
        assert!(matches!(incoming.write(b"5"), Err(ObjectError::TooLarge { .. })));
        drop(incoming);
        let job = directory.path().join(directory_name(JobId(9)));
        assert_eq!(fs::read_dir(job).unwrap().count(), 0);
    }

    #[test]
    fn what_is_taken_over_is_no_copy_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let store = ObjectStore::open(dir.path(), u64::MAX).unwrap();
        for number in 0..2 {
            store.create_incoming(object(number, 0), ObjectKind::Copy).unwrap().commit().unwrap();
            store.take_over(object(number, 0), number == 1).unwrap();
        }
        store.take_over(object(7, 0), true).unwrap_err();
        let listed = ObjectStore::open(dir.path(), u64::MAX).unwrap().list();
        let kinds: Vec<_> = listed.iter().map(|stored| (stored.keep, stored.copy)).collect();
        assert_eq!(kinds, [(false, false), (true, false)]);
    }

    #[test]
    fn an_ended_job_leaves_what_is_kept_also_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let store = ObjectStore::open(directory.path(), 100).unwrap();
        let kinds = [ObjectKind::Made, ObjectKind::Kept, ObjectKind::Copy];
        for (number, kind) in kinds.into_iter().enumerate() {
            let mut incoming = store.create_incoming(object(number as u64, 0), kind).unwrap();
            incoming.write(b"bytes").unwrap();
            incoming.commit_with(7).unwrap();
        }
        assert_eq!(store.checksum(object(2, 0)), Some(7));
        let marks = |store: &ObjectStore| -> Vec<_> {
            store.list().iter().map(|it| (it.size_bytes, it.keep, it.copy)).collect()
        };
        let all = [(5, false, false), (5, true, false), (5, false, true)];
        assert_eq!(marks(&store), all);
        let store = ObjectStore::open(directory.path(), 100).unwrap();
        assert_eq!(marks(&store), all);
        store.forget_job(JobId(8));
        store.forget_jobs(|job| job != JobId(9));
        assert_eq!(store.totals(), (3, 15));
        store.forget_jobs(|job| job == JobId(9));
        assert_eq!(marks(&store), all[1..2]);
        assert!(store.path(object(1, 0)).exists());
        let job = directory.path().join(directory_name(JobId(9)));
        assert_eq!(fs::read_dir(&job).unwrap().count(), 1);
    }
}
