//! Empty directories that are reused by tasks without files.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longer than the granularity of any kernel's timestamps.
const STAMP_STEP: Duration = Duration::from_secs(1);

/// A directory that was empty when it was taken.
#[derive(Debug)]
pub(crate) struct PooledDir {
    pub(crate) path: PathBuf,
    /// The time of its last change, if any later change would get another time.
    stamp: Option<Stamp>,
}

/// The time of a directory's last status change, which no program can set.
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

/// A directory that waits for use, and the time since when it has this stamp and is empty.
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
                // An earlier start could not remove a task's files from it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| PooledDir { path, stamp: None }),
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.state().waiting.len()
    }

    /// Takes a directory back if it is empty. An unchanged one is not read, because that costs
    /// several times as much as reading its stamp.
    pub(crate) fn give_back(&self, directory: &PooledDir) -> bool {
        let PooledDir { path, stamp: before } = directory;
        let Ok(metadata) = fs::symlink_metadata(path) else { return false };
        let stamp = Stamp::of(&metadata);
        let unchanged = *before == Some(stamp);
        if !unchanged && !is_empty(path) {
            return false;
        }
        // The stamp of an unchanged directory is as old as before, so it stays trusted.
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

    /// A directory with a trusted stamp.
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
        // A file that was made at the moment of the return may leave the stamp unchanged.
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
        assert!(still.stamp.is_some(), "an unchanged directory stays trusted");
        std::thread::sleep(Duration::from_millis(50)); // This much time has not really passed.
        let modified = fs::metadata(&still.path).unwrap().modified().unwrap();
        fs::write(still.path.join("left"), b"").unwrap();
        fs::File::open(&still.path).unwrap().set_modified(modified).unwrap();
        assert!(!spare.give_back(&still));
        fs::remove_file(still.path.join("left")).unwrap();
        assert!(spare.give_back(&still), "empty again, but looked at");
        assert!(spare.take().unwrap().stamp.is_none());
    }
}
