/*!
Files of submitters: they are uploaded before their job is committed, and become the one output of
the task that stands for them.

A file is at `uploads/<job>/<task>`, complete or not at all. Each attempt of the task links it into
the object store, so a second attempt finds it too. It is removed with its job.

Several nodes may have the file. If the task's home has moved, the task may run on a node without
it. That node searches the others first.
*/

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use proto::work::Outcome;
use proto::{JobId, ObjectId, TaskId};

use crate::disk_reserve;
use crate::error::{ExecutorError, reason};
use crate::locks;
use crate::objects::{ObjectError, ObjectKind, ObjectReader, ObjectStore};
use crate::table::Key;

const PART_SUFFIX: &str = ".part";
/// The suffix of directories that are being removed.
const ASIDE_SUFFIX: &str = ".gone";

/// The reason why a file of a submitter was not kept.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("cannot keep the file of task {task}: {reason}")]
    Io { task: TaskId, reason: String },
    #[error("the file of task {task} has {came_bytes} bytes instead of {size_bytes}")]
    Size { task: TaskId, came_bytes: u64, size_bytes: u64 },
    #[error("the file of task {task} is larger than {limit_bytes} bytes, the most this node keeps")]
    TooLarge { task: TaskId, limit_bytes: u64 },
}

fn failed(task: TaskId, error: &io::Error) -> UploadError {
    UploadError::Io { task, reason: reason(error) }
}

/// Puts the names in a directory on stable storage.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Fetches the file of a task, of the given size, from another node, unless it is not wanted any
/// more. An error has the reason why there is none.
pub type UploadFinder = Box<dyn Fn(TaskId, u64, &AtomicBool) -> Result<(), String> + Send + Sync>;

/// The files that were uploaded to this node. Clones share one set.
#[derive(Clone)]
pub struct Uploads {
    root: Arc<Path>,
    limit_bytes: u64,
    parts: Arc<AtomicU64>,
    finder: Arc<OnceLock<UploadFinder>>,
}

impl std::fmt::Debug for Uploads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uploads").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Uploads {
    /// Opens the directory and removes incomplete files.
    pub(crate) fn open(root: &Path, limit_bytes: u64) -> Result<Self, ExecutorError> {
        let wrong = |error: io::Error| ExecutorError::directory(root, &error);
        crate::private::own_dir(root).map_err(wrong)?;
        root.parent().map_or(Ok(()), sync).map_err(wrong)?;
        for directory in fs::read_dir(root).map_err(wrong)? {
            let directory = directory.map_err(wrong)?.path();
            if directory.to_string_lossy().ends_with(ASIDE_SUFFIX) {
                Self::remove(&directory);
                continue;
            }
            for file in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if file.file_name().to_string_lossy().ends_with(PART_SUFFIX) {
                    let _ = fs::remove_file(file.path());
                }
            }
        }
        let (parts, finder) = (Arc::default(), Arc::default());
        Ok(Self { root: root.into(), limit_bytes, parts, finder })
    }

    /// Sets the search for missing files; without it there is none.
    pub fn set_finder(&self, finder: UploadFinder) {
        let _ = self.finder.set(finder); // The first one stays.
    }

    /// The tasks with files on this node.
    #[must_use]
    pub fn list(&self) -> Vec<TaskId> {
        let mut tasks = Vec::new();
        for job in self.jobs() {
            let files = fs::read_dir(self.directory(job)).into_iter().flatten().flatten();
            let name = |file: fs::DirEntry| file.file_name().to_str()?.parse().ok();
            tasks.extend(files.filter_map(name).map(|local| TaskId { job, local }));
        }
        tasks.sort_unstable();
        tasks
    }

    /// Opens the file of a task for reading, with its size. `None`: it is not here.
    pub fn read(&self, task: TaskId) -> io::Result<Option<(ObjectReader, u64)>> {
        let path = self.path(task);
        let size_bytes = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some((ObjectReader::of_file(&path, size_bytes)?, size_bytes)))
    }

    /// The jobs that have a directory here.
    fn jobs(&self) -> impl Iterator<Item = JobId> + use<> {
        let entries = fs::read_dir(&*self.root).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            u64::from_str_radix(entry.file_name().to_str()?, 16).ok().map(JobId)
        })
    }

    fn directory(&self, job: JobId) -> PathBuf {
        self.root.join(format!("{:016x}", job.0))
    }

    fn path(&self, task: TaskId) -> PathBuf {
        self.directory(task.job).join(task.local.to_string())
    }

    /// Begins a file, which exists once it is committed. It replaces an existing file.
    pub fn begin(&self, task: TaskId, size_bytes: u64) -> Result<IncomingUpload, UploadError> {
        if size_bytes > self.limit_bytes {
            return Err(UploadError::TooLarge { task, limit_bytes: self.limit_bytes });
        }
        let directory = self.directory(task.job);
        fs::create_dir_all(&directory).map_err(|error| failed(task, &error))?;
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        let part = directory.join(format!("{}-{number}{PART_SUFFIX}", task.local));
        let file = File::create(&part).map_err(|error| failed(task, &error))?;
        let to = self.path(task);
        let upload =
            IncomingUpload { task, size_bytes, came_bytes: 0, part, to, file, is_whole: false };
        let reserved = disk_reserve::check(&upload.file, size_bytes)
            .and_then(|()| disk_reserve::reserve(&upload.file, size_bytes));
        reserved.map_err(|error| failed(task, &error))?;
        Ok(upload)
    }

    /// Removes the files of a job.
    pub fn discard_job(&self, job: JobId) {
        self.set_aside(job).iter().for_each(|directory| Self::remove(directory));
    }

    /// Renames the directory of a job for removal: later files of the job stay.
    #[must_use]
    pub fn set_aside(&self, job: JobId) -> Option<PathBuf> {
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        let aside = self.root.join(format!("{:016x}-{number}{ASIDE_SUFFIX}", job.0));
        // A missing directory needs no removal.
        fs::rename(self.directory(job), &aside).is_ok().then_some(aside)
    }

    /// Removes a directory that was set aside.
    pub fn remove(aside: &Path) {
        let _ = fs::remove_dir_all(aside); // A remaining file only costs space.
    }

    /// Removes the files of unknown jobs.
    pub fn keep_only(&self, is_known: impl Fn(JobId) -> bool) {
        self.jobs().filter(|&job| !is_known(job)).for_each(|job| self.discard_job(job));
    }

    /// Makes the file of a task the output of its attempt. `None`: it is not here.
    fn adopt(
        &self,
        store: &ObjectStore,
        object: ObjectId,
        kind: ObjectKind,
    ) -> Result<Option<u64>, String> {
        let file = self.path(object.task);
        let number = self.parts.fetch_add(1, Ordering::Relaxed);
        let link = file.with_extension(format!("{number}{PART_SUFFIX}"));
        match locks::link_or_copy(&file, &link) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("its file cannot be used: {}", reason(&error))),
        }
        let adopted = store.adopt(&link, object, kind).map_err(|error: ObjectError| {
            let _ = fs::remove_file(&link);
            error.to_string()
        });
        adopted.map(Some)
    }

    /// Uses the file here in place of another node's output of the same task, which then need not
    /// be fetched. True if it did.
    #[must_use]
    pub fn stands_in(&self, store: &ObjectStore, object: ObjectId, size_bytes: u64) -> bool {
        let size = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.len());
        let is_here = object.output == 0 && size(&self.path(object.task)) == Some(size_bytes);
        // If it cannot be used, the output is fetched like any other.
        is_here && matches!(self.adopt(store, object, ObjectKind::Copy), Ok(Some(_)))
    }

    /// Restores a missing file from a complete output of an attempt, if there is one. True if it
    /// did.
    fn restore(&self, store: &ObjectStore, task: TaskId, size_bytes: u64) -> bool {
        let made = store.any_attempt(task, 0);
        let Some(made) = made.filter(|made| store.size_bytes(*made) == Some(size_bytes)) else {
            return false;
        };
        let linked = store.file(made).ok().and_then(|file| {
            fs::create_dir_all(self.directory(task.job)).ok()?;
            Some(locks::link_or_copy(&file, &self.path(task)))
        });
        let is_there = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        linked.is_some_and(|linked| linked.as_ref().map_or_else(is_there, |()| true))
    }

    /// Runs the task that stands for a file of the given size.
    pub(crate) fn run(
        &self,
        store: &ObjectStore,
        key: Key,
        size_bytes: u64,
        cancelled: &AtomicBool,
    ) -> Outcome {
        match self.make_object(store, key, size_bytes, cancelled) {
            Ok(size_bytes) => Outcome { output_sizes: vec![size_bytes], ..Outcome::default() },
            Err(error) => Outcome { error, exit_code: 1, ..Outcome::default() },
        }
    }

    fn make_object(
        &self,
        store: &ObjectStore,
        (task, attempt): Key,
        size_bytes: u64,
        cancelled: &AtomicBool,
    ) -> Result<u64, String> {
        let object = ObjectId { task, attempt, output: 0 };
        // No task can make it again.
        let kind = ObjectKind::Shared { keep: false, share: 0 };
        let adopt = || self.adopt(store, object, kind);
        if let Some(size_bytes) = adopt()? {
            return Ok(size_bytes);
        }
        if self.restore(store, task, size_bytes)
            && let Some(size_bytes) = adopt()?
        {
            return Ok(size_bytes);
        }
        let is_nowhere =
            || "its file was not uploaded to this node: submit the job again".to_owned();
        let finder = self.finder.get().ok_or_else(is_nowhere)?;
        finder(task, size_bytes, cancelled)?;
        adopt()?.ok_or_else(is_nowhere)
    }
}

/// A file that is being uploaded. Dropping it before [`Self::commit`] removes the written bytes.
#[derive(Debug)]
pub struct IncomingUpload {
    task: TaskId,
    size_bytes: u64,
    came_bytes: u64,
    part: PathBuf,
    to: PathBuf,
    file: File,
    is_whole: bool,
}

impl IncomingUpload {
    /// Sets the executable bit, if the submitter's file has one.
    pub fn set_executable(&self, executable: bool) -> Result<(), UploadError> {
        if !executable {
            return Ok(());
        }
        let mode = fs::Permissions::from_mode(0o755);
        self.file.set_permissions(mode).map_err(|error| failed(self.task, &error))
    }

    /// Appends the next piece.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), UploadError> {
        self.came_bytes += piece.len() as u64;
        self.check(self.came_bytes <= self.size_bytes)?;
        self.file.write_all(piece).map_err(|error| failed(self.task, &error))
    }

    fn check(&self, is_right: bool) -> Result<(), UploadError> {
        let &Self { task, came_bytes, size_bytes, .. } = self;
        if is_right { Ok(()) } else { Err(UploadError::Size { task, came_bytes, size_bytes }) }
    }

    /// Gives the file its name, on stable storage: the job that is committed next relies on it.
    pub fn commit(mut self) -> Result<(), UploadError> {
        self.check(self.came_bytes == self.size_bytes)?;
        self.file.sync_all().map_err(|error| failed(self.task, &error))?;
        fs::rename(&self.part, &self.to).map_err(|error| failed(self.task, &error))?;
        self.is_whole = true;
        // The name of the file as well, and that of the job's directory, which may be new.
        let mut above = self.to.ancestors().skip(1).take(2);
        above.try_for_each(sync).map_err(|error| failed(self.task, &error))
    }
}

impl Drop for IncomingUpload {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = fs::remove_file(&self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::Attempt;

    use super::*;

    fn files(root: &Path) -> usize {
        fs::read_dir(root)
            .unwrap()
            .flatten()
            .map(|it| fs::read_dir(it.path()).unwrap().count())
            .sum()
    }

    #[test]
    fn an_upload_is_whole_or_not_there_and_serves_every_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::open(&dir.path().join("uploads"), 100).unwrap();
        let store = ObjectStore::open(&dir.path().join("objects"), 100).unwrap();
        let task = TaskId::new(4, 9);
        assert!(matches!(uploads.begin(task, 101), Err(UploadError::TooLarge { .. })));
        let mut short = uploads.begin(task, 5).unwrap();
        short.write(b"1234").unwrap();
        assert!(short.commit().unwrap_err().to_string().contains("4 bytes instead of 5"));
        let mut long = uploads.begin(task, 3).unwrap();
        assert!(long.write(b"1234").is_err());
        drop(long);
        assert_eq!(files(&uploads.root), 0);
        let object = |attempt| ObjectId { task, attempt: Attempt(attempt), output: 0 };
        assert_eq!(uploads.adopt(&store, object(1), ObjectKind::Made), Ok(None));

        let mut whole = uploads.begin(task, 4).unwrap();
        whole.write(b"1234").unwrap();
        whole.commit().unwrap();
        for attempt in [1, 2] {
            assert_eq!(uploads.adopt(&store, object(attempt), ObjectKind::Made), Ok(Some(4)));
            store.discard(task, Attempt(attempt));
        }
        let mut torn = uploads.begin(task, 4).unwrap();
        torn.write(b"12").unwrap();
        std::mem::forget(torn);
        assert_eq!(files(&uploads.root), 2);
        let uploads = Uploads::open(&dir.path().join("uploads"), 100).unwrap();
        assert_eq!(files(&uploads.root), 1, "what is not whole is gone after a restart");
        uploads.keep_only(|job| job == JobId(4));
        assert_eq!(files(&uploads.root), 1);
        uploads.keep_only(|job| job != JobId(4));
        assert_eq!(files(&uploads.root), 0);
    }

    /// The job was unknown here, and then its client uploads once more.
    #[test]
    fn what_comes_after_the_others_were_set_aside_stays() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("uploads");
        let uploads = Uploads::open(&root, 100).unwrap();
        let task = TaskId::new(4, 7);
        let upload = || {
            let mut upload = uploads.begin(task, 4).unwrap();
            upload.write(b"1234").unwrap();
            upload.commit().unwrap();
        };
        upload();
        let aside = uploads.set_aside(JobId(4)).expect("there was a file");
        assert_eq!(uploads.set_aside(JobId(4)), None);
        upload();
        Uploads::remove(&aside);
        assert!(uploads.path(task).exists() && !aside.exists());
        uploads.set_aside(JobId(4)).expect("there was a file");
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
        Uploads::open(&root, 100).unwrap();
        assert_eq!(
            fs::read_dir(&root).unwrap().count(),
            0,
            "the process died before it removed it"
        );
    }

    fn put(uploads: &Uploads, task: TaskId) {
        let mut upload = uploads.begin(task, 4).unwrap();
        upload.write(b"1234").unwrap();
        upload.commit().unwrap();
    }

    #[test]
    fn what_is_not_here_is_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::open(&dir.path().join("uploads"), 100).unwrap();
        let store = ObjectStore::open(&dir.path().join("objects"), 100).unwrap();
        let (there, nowhere) = (TaskId::new(4, 1), TaskId::new(4, 2));
        let run = |task| uploads.run(&store, (task, Attempt(1)), 4, &AtomicBool::new(false));
        assert!(run(there).error.contains("not uploaded to this node"));
        let theirs = uploads.clone();
        uploads.set_finder(Box::new(move |task, _, _| match task == there {
            true => {
                put(&theirs, task);
                Ok(())
            }
            false => Err("it is nowhere".to_owned()),
        }));
        assert_eq!(run(there).output_sizes, [4]);
        assert_eq!(run(nowhere).error, "it is nowhere");
        assert_eq!(uploads.list(), [there]);
        let (_, size_bytes) = uploads.read(there).unwrap().expect("it has come");
        assert!(size_bytes == 4 && uploads.read(nowhere).unwrap().is_none());
    }

    /// The output that another node made of the same file.
    #[test]
    fn a_file_stands_in_for_what_was_made_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::open(&dir.path().join("uploads"), 100).unwrap();
        let store = ObjectStore::open(&dir.path().join("objects"), 100).unwrap();
        let task = TaskId::new(4, 1);
        put(&uploads, task);
        let object = |output| ObjectId { task, attempt: Attempt(9), output };
        assert!(!uploads.stands_in(&store, object(0), 5), "it is another file");
        assert!(!uploads.stands_in(&store, object(1), 4), "it is another output");
        assert!(uploads.stands_in(&store, object(0), 4));
        assert_eq!(store.size_bytes(object(0)), Some(4));
        assert_eq!(store.any_attempt(task, 0), Some(object(0)));
        assert_eq!(
            (store.any_attempt(task, 1), store.any_attempt(TaskId::new(4, 2), 0)),
            (None, None)
        );
    }

    /// A node that has the output, and not the file, may become the task's home.
    #[test]
    fn what_was_made_of_a_file_stands_in_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::open(&dir.path().join("uploads"), 100).unwrap();
        let store = ObjectStore::open(&dir.path().join("objects"), 100).unwrap();
        let task = TaskId::new(4, 1);
        let object = ObjectId { task, attempt: Attempt(1), output: 0 };
        store.keep_copy(object, b"1234", 0).unwrap();
        let never = AtomicBool::new(false);
        let run = |attempt, bytes| uploads.run(&store, (task, Attempt(attempt)), bytes, &never);
        assert!(!run(2, 5).is_done(), "a power cut has torn it");
        assert_eq!(run(2, 4).output_sizes, [4]);
        store.discard(task, Attempt(1));
        assert_eq!(run(3, 4).output_sizes, [4]);
    }
}
