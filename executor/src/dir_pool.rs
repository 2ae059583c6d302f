//! Empty directories for tasks that move no files.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longer than the steps in which any kernel stamps a change.
const STAMP_STEP: Duration = Duration::from_secs(1);

/// A directory that was empty when it was taken.
#[derive(Debug)]
pub(crate) struct PooledDir {
    pub(crate) path: PathBuf,
    /// The stamp of its last change, if whatever is changed from here on gets another.
    stamp: Option<Stamp>,
}

/// When a directory was changed for the last time; nobody can set this one by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    seconds: i64,
    nanos: i64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { seconds: metadata.ctime(), nanos: metadata.ctime_nsec() }
    }
}

/// One that waits to be used, and since when it is known to be empty with this stamp.
#[derive(Debug)]
struct IdleDir {
    path: PathBuf,
    stamp: Stamp,
    since: Instant,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<IdleDir>,
    made: u64,
}

#[derive(Debug)]
pub(crate) struct DirPool {
    root: PathBuf,
    state: Mutex<State>,
}

impl DirPool {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), state: Mutex::default() }
    }

    pub(crate) fn take(&self) -> io::Result<PooledDir> {
        let mut state = self.state();
        if let Some(IdleDir { path, stamp, since }) = state.waiting.pop() {
            let settled = since.elapsed() > STAMP_STEP;
            return Ok(PooledDir { path, stamp: settled.then_some(stamp) });
        }
        loop {
            state.made += 1;
            let path = self.root.join(format!("spare-{}", state.made));
            match fs::create_dir(&path) {
                // An earlier start could not remove what a task left in it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| PooledDir { path, stamp: None }),
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.state().waiting.len()
    }

    /// Takes a directory back if it is empty. One that nobody has changed is not even read: that
    /// costs several times as much as to ask for its stamp.
    pub(crate) fn give_back(&self, directory: &PooledDir) -> bool {
        let PooledDir { path, stamp: before } = directory;
        let Ok(metadata) = fs::symlink_metadata(path) else { return false };
        let stamp = Stamp::of(&metadata);
        let unchanged = *before == Some(stamp);
        if !unchanged && !is_empty(path) {
            return false;
        }
        // What was settled stays so: the stamp is as old as it was.
        let now = Instant::now();
        let since = if unchanged { now.checked_sub(2 * STAMP_STEP).unwrap_or(now) } else { now };
        self.state().waiting.push(IdleDir { path: path.clone(), stamp, since });
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the spare directories panics")
    }
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One whose stamp is trusted.
    fn settled(spare: &DirPool) -> PooledDir {
        for waiting in &mut spare.state().waiting {
            waiting.since -= 2 * STAMP_STEP;
        }
        spare.take().unwrap()
    }

    #[test]
    fn an_empty_one_comes_back_and_one_with_something_in_it_does_not() {
        let root = tempfile::tempdir().unwrap();
        let spare = DirPool::new(root.path());
        let first = spare.take().unwrap();
        assert!(first.stamp.is_none() && spare.give_back(&first) && spare.count() == 1);
        let again = spare.take().unwrap();
        assert_eq!(again.path, first.path);
        // A file of the very moment when it was given back may bear the stamp it had before.
        assert!(again.stamp.is_none(), "a young stamp is not trusted");
        fs::write(again.path.join("left"), b"").unwrap();
        assert!(!spare.give_back(&again));
        assert_ne!(spare.take().unwrap().path, first.path);
    }

    #[test]
    fn a_trusted_stamp_detects_a_hidden_change() {
        let root = tempfile::tempdir().unwrap();
        let spare = DirPool::new(root.path());
        assert!(spare.give_back(&spare.take().unwrap()));
        let trusted = settled(&spare);
        assert!(trusted.stamp.is_some() && spare.give_back(&trusted));
        let still = spare.take().unwrap();
        assert!(still.stamp.is_some(), "one that nobody changed stays trusted");
        std::thread::sleep(Duration::from_millis(50)); // It was not that long, in truth.
        let modified = fs::metadata(&still.path).unwrap().modified().unwrap();
        fs::write(still.path.join("left"), b"").unwrap();
        fs::File::open(&still.path).unwrap().set_modified(modified).unwrap();
        assert!(!spare.give_back(&still));
        fs::remove_file(still.path.join("left")).unwrap();
        assert!(spare.give_back(&still), "empty again, but looked at");
        assert!(spare.take().unwrap().stamp.is_none());
    }
}
