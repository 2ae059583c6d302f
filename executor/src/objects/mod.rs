/*!
The objects on this node: one file for each output of an attempt.

A file is at `objects/<job>/<task>-<attempt>-<output>`. A suffix (`-kept`, `-shared` or `-copy`)
determines its deletion, after the end of its job or when space is needed. A number is the wanted
number of copies; 0 means as many as partitions have replicas. The attempt is in the name, so a late
writer of an old attempt can never touch the output of the committed one. A file appears by rename
when it is complete, and does not change afterwards. [`ObjectStore::contains`] uses an index in
memory and needs no system call.

A small copy, or a small result of a call, stays in memory until it is needed as a file. Making a
file costs several times the transfer of its bytes, and most are read once. A restart loses such an
object.
*/

mod files;
mod incoming;
mod index;
mod reader;
mod replace;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use proto::work::{Stay, Stored};
use proto::{Attempt, JobId, ObjectId, TaskId, wire};

use self::files::{PART_SUFFIX, directory_name, file_name, range_of, scan};
pub use self::incoming::IncomingObject;
use self::index::{Entry, Index};
pub use self::reader::ObjectReader;
pub use self::replace::ObjectSource;
use self::replace::Replacement;
use crate::error::ExecutorError;
pub use crate::error::{ObjectError, ObjectName};

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
    replacement: Replacement,
}

/// The reason why an object is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// A task of this node made it.
    Made,
    /// As `Made`, and it is kept after the end of its job.
    Kept,
    /// The wanted number of copies is given, see [`Stay`].
    Shared { keep: bool, share: u32 },
    /// The object is a copy from the node that made it.
    Copy,
}

impl ObjectKind {
    /// The kind of an output of a task that runs here.
    #[must_use]
    pub fn of_output(output: &wire::Output) -> Self {
        Stay::of_output(output, false).into()
    }

    fn suffix(self) -> String {
        match self {
            Self::Made => String::new(),
            Self::Kept => "-kept".to_owned(),
            Self::Shared { keep: true, share } => format!("-kept-{share}"),
            Self::Shared { keep: false, share } => format!("-shared-{share}"),
            Self::Copy => "-copy".to_owned(),
        }
    }

    fn stay(self) -> Stay {
        match self {
            Self::Shared { keep, share } => Stay { keep, share: Some(share) },
            _ => Stay { keep: self == Self::Kept, share: None },
        }
    }
}

impl From<Stay> for ObjectKind {
    fn from(Stay { keep, share }: Stay) -> Self {
        match share {
            Some(share) => Self::Shared { keep, share },
            None if keep => Self::Kept,
            None => Self::Made,
        }
    }
}

impl ObjectStore {
    /// Opens the store, removes incomplete objects and lists the complete ones.
    pub fn open(root: &Path, limit_bytes: u64) -> Result<Self, ExecutorError> {
        let wrong = |error: io::Error| ExecutorError::directory(root, &error);
        crate::private::own_dir(root).map_err(wrong)?;
        let index = Mutex::new(scan(root).map_err(wrong)?);
        let parts = AtomicU64::new(0);
        let (root, replacement) = (root.to_owned(), Replacement::default());
        Ok(Self { inner: Arc::new(Inner { root, limit_bytes, parts, index, replacement }) })
    }

    #[must_use]
    pub fn contains(&self, object: ObjectId) -> bool {
        self.index().objects.contains_key(&object)
    }

    #[must_use]
    pub fn size_bytes(&self, object: ObjectId) -> Option<u64> {
        self.index().objects.get(&object).map(|entry| entry.size_bytes)
    }

    /// The number of objects and of their bytes.
    #[must_use]
    pub fn totals(&self) -> (usize, u64) {
        let index = self.index();
        (index.objects.len(), index.size_bytes)
    }

    /// All objects on this node.
    #[must_use]
    pub fn list(&self) -> Vec<Stored> {
        let stored = |(&object, entry): (&ObjectId, &Entry)| Stored {
            object,
            size_bytes: entry.size_bytes,
            stay: entry.kind.stay(),
            copy: entry.kind == ObjectKind::Copy,
        };
        self.index().objects.iter().map(stored).collect()
    }

    /// The checksum of an object's bytes, if it is known.
    #[must_use]
    pub fn checksum(&self, object: ObjectId) -> Option<u64> {
        self.index().objects.get(&object)?.checksum
    }

    /// Stores a checksum for later readers. Objects do not change.
    pub fn note_checksum(&self, object: ObjectId, checksum: u64) {
        if let Some(entry) = self.index().objects.get_mut(&object) {
            entry.checksum = Some(checksum);
        }
    }

    /// Opens an object for reading, with its exact size.
    pub fn open_object(&self, object: ObjectId) -> Result<(ObjectReader, u64), ObjectError> {
        let Entry { size_bytes, kind, executable, held, changed_ns, .. } = self.entry(object)?;
        let reader = match held {
            Some(bytes) => Ok(Some(ObjectReader::of_memory(bytes, executable))),
            None => {
                let path = self.path_of(object, kind);
                ObjectReader::of_unchanged_file(&path, size_bytes, changed_ns)
            }
        };
        let opened = reader.map_err(|error| match error.kind() {
            // The file was removed by another process.
            io::ErrorKind::NotFound => ObjectError::Absent(ObjectName(object)),
            _ => ObjectError::failed("read", object, &error),
        })?;
        let reader = opened.ok_or(ObjectError::Changed(ObjectName(object)))?;
        Ok((reader, size_bytes))
    }

    /// This output of any attempt of a task, if one is here.
    #[must_use]
    pub fn any_attempt(&self, task: TaskId, output: u32) -> Option<ObjectId> {
        let of = |attempt, output| ObjectId { task, attempt, output };
        let all = of(Attempt(0), 0)..=of(Attempt(u64::MAX), u32::MAX);
        let index = self.index();
        let mut found = index.objects.range(all).map(|(object, _)| *object);
        found.find(|object| object.output == output)
    }

    /// Stores a complete copy. Objects do not change: an existing one stays.
    pub fn keep_copy(
        &self,
        object: ObjectId,
        bytes: &[u8],
        checksum: u64,
    ) -> Result<(), ObjectError> {
        self.keep_copy_as(object, bytes, checksum, false)
    }

    /// As [`Self::keep_copy`]; `executable`: its file gets the executable bit.
    pub fn keep_copy_as(
        &self,
        object: ObjectId,
        bytes: &[u8],
        checksum: u64,
        executable: bool,
    ) -> Result<(), ObjectError> {
        let size_bytes = bytes.len() as u64;
        self.check_limit(object, size_bytes)?;
        let mut index = self.index();
        if index.objects.contains_key(&object) {
            return Ok(());
        }
        if index.may_hold(size_bytes) {
            index.hold(object, ObjectKind::Copy, bytes, checksum, executable);
            return Ok(());
        }
        drop(index);
        let mut incoming = self.create_incoming(object, ObjectKind::Copy)?;
        incoming.set_executable(executable)?;
        incoming.write(bytes)?;
        incoming.commit_with(checksum).map(drop)
    }

    /// Stores a small object that a task of this node made. It stays in memory, unless it must
    /// outlive this process.
    pub(crate) fn keep_made(
        &self,
        object: ObjectId,
        kind: ObjectKind,
        bytes: &[u8],
        checksum: u64,
    ) -> Result<(), ObjectError> {
        self.check_limit(object, bytes.len() as u64)?;
        let mut index = self.index();
        if kind == ObjectKind::Made && index.may_hold(bytes.len() as u64) {
            index.hold(object, kind, bytes, checksum, false);
            return Ok(());
        }
        drop(index);
        let mut incoming = self.create_incoming(object, kind)?;
        incoming.write(bytes)?;
        incoming.commit_with(checksum).map(drop)
    }

    /// The bytes of an object in memory; `None` if it has a file or is not here.
    pub(crate) fn held_bytes(&self, object: ObjectId) -> Option<Arc<[u8]>> {
        self.index().objects.get(&object)?.held.clone()
    }

    /// Begins an object that arrives in pieces. It exists once it is committed.
    pub fn create_incoming(
        &self,
        object: ObjectId,
        kind: ObjectKind,
    ) -> Result<IncomingObject, ObjectError> {
        let number = self.inner.parts.fetch_add(1, Ordering::Relaxed);
        let directory = self.inner.root.join(directory_name(object.task.job));
        let path = directory.join(format!("{}-{number}{PART_SUFFIX}", file_name(object, kind)));
        // Read-only from the start, because a complete object must not change; only this handle can
        // write.
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path);
        let made = create().or_else(|error| match error.kind() {
            // The first object of its job.
            io::ErrorKind::NotFound => fs::create_dir_all(&directory).and_then(|()| create()),
            _ => Err(error),
        });
        let file = made.map_err(|error| ObjectError::failed("write", object, &error))?;
        let store = self.clone();
        Ok(IncomingObject { store, object, kind, path, file, size_bytes: 0, done: false })
    }

    /// Makes a finished file an object, by rename. The file must be on the same file system.
    pub(crate) fn adopt(
        &self,
        file: &Path,
        object: ObjectId,
        kind: ObjectKind,
    ) -> Result<u64, ObjectError> {
        let wrong = |error: io::Error| ObjectError::failed("keep", object, &error);
        let metadata = fs::metadata(file).map_err(wrong)?;
        self.check_limit(object, metadata.len())?;
        // Readers get this very file as their input, so it becomes read-only.
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
        let changed_ns = Some(reader::changed_ns(&metadata));
        self.index().insert(object, metadata.len(), changed_ns, kind);
        Ok(metadata.len())
    }

    /// Keeps an object that was a copy permanently, because the node that made it leaves.
    pub fn take_over(&self, object: ObjectId, stay: Stay) -> Result<(), ObjectError> {
        let kind = ObjectKind::from(stay);
        self.file(object)?;
        let mut index = self.index();
        let entry =
            index.objects.get_mut(&object).ok_or(ObjectError::Absent(ObjectName(object)))?;
        let before = std::mem::replace(&mut entry.kind, kind);
        if before != kind {
            // Under the lock, so that index and file agree.
            fs::rename(self.path_of(object, before), self.path_of(object, kind))
                .map_err(|error| ObjectError::failed("keep", object, &error))?;
        }
        Ok(())
    }

    /// Removes all objects of an attempt from this node.
    pub fn discard(&self, task: TaskId, attempt: Attempt) {
        let range =
            ObjectId { task, attempt, output: 0 }..=ObjectId { task, attempt, output: u32::MAX };
        self.remove_range(range);
    }

    /// Removes one object, a cached copy for example.
    pub fn discard_object(&self, object: ObjectId) {
        self.remove_range(object..=object);
    }

    /// Removes all objects of a job.
    pub fn discard_job(&self, job: JobId) {
        self.remove_range(range_of(job));
        let _ = fs::remove_dir(self.inner.root.join(directory_name(job)));
    }

    /// Removes the objects of an ended job, except its kept outputs.
    pub fn forget_job(&self, job: JobId) {
        self.remove_listed(job, &self.list_to_forget(job));
    }

    /// The objects that [`Self::forget_job`] would remove now.
    #[must_use]
    pub fn list_to_forget(&self, job: JobId) -> Vec<ObjectId> {
        let index = self.index();
        let here = index.objects.range(range_of(job));
        here.filter(|(_, entry)| !entry.kind.stay().keep).map(|(object, _)| *object).collect()
    }

    /// Removes these objects of a job. Each may be a file, so this takes time; other threads use
    /// the store meanwhile.
    pub fn remove_listed(&self, job: JobId, objects: &[ObjectId]) {
        objects.iter().for_each(|object| self.discard_object(*object));
        // A directory that is not empty stays.
        let _ = fs::remove_dir(self.inner.root.join(directory_name(job)));
    }

    /// Calls [`Self::forget_job`] for each job here that is over.
    pub fn forget_jobs(&self, is_over: impl Fn(JobId) -> bool) {
        let index = self.index();
        let jobs: BTreeSet<JobId> = index.objects.keys().map(|object| object.task.job).collect();
        drop(index);
        jobs.into_iter().filter(|&job| is_over(job)).for_each(|job| self.forget_job(job));
    }

    /// The path of an object's file. An object in memory is written to its file now.
    pub fn file(&self, object: ObjectId) -> Result<PathBuf, ObjectError> {
        let Entry { kind, executable, held, changed_ns, .. } = self.entry(object)?;
        if let Some(before_ns) = changed_ns {
            match fs::metadata(self.path_of(object, kind)) {
                Ok(now) if reader::changed_ns(&now) == before_ns => {}
                Ok(_) => return Err(ObjectError::Changed(ObjectName(object))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(ObjectError::Absent(ObjectName(object)));
                }
                Err(error) => return Err(ObjectError::failed("read", object, &error)),
            }
        }
        if let Some(bytes) = held {
            let mut incoming = self.create_incoming(object, kind)?;
            incoming.set_executable(executable)?;
            incoming.write(&bytes)?;
            incoming.commit_held()?;
        }
        Ok(self.path_of(object, kind))
    }

    fn entry(&self, object: ObjectId) -> Result<Entry, ObjectError> {
        match self.index().objects.get(&object) {
            None => Err(ObjectError::Absent(ObjectName(object))),
            Some(entry) if entry.is_dropped => Err(ObjectError::Changed(ObjectName(object))),
            Some(entry) => Ok(entry.clone()),
        }
    }

    fn path_of(&self, object: ObjectId, kind: ObjectKind) -> PathBuf {
        let mut path = self.inner.root.join(directory_name(object.task.job));
        path.push(file_name(object, kind));
        path
    }

    fn remove_range(&self, range: std::ops::RangeInclusive<ObjectId>) {
        let mut index = self.index();
        let objects: Vec<_> = index.objects.range(range).map(|(object, _)| *object).collect();
        let remove = |object| Some((object, index.remove(object)?));
        let gone: Vec<_> = objects.into_iter().filter_map(remove).collect();
        drop(index);
        for (object, entry) in gone.iter().filter(|(_, entry)| entry.held.is_none()) {
            // A missing file counts as removed. A file that cannot be removed only costs space.
            let _ = fs::remove_file(self.path_of(*object, entry.kind));
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
