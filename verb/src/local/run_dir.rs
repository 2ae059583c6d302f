//! The directory of a run, and the removal of those that killed runs left behind.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use executor::locks::{self, Taken};
use executor::private;

const PREFIX: &str = "starling-run-";
/// Locked while the run lives.
const LOCK: &str = "run.lock";

/// A directory of one run. Dropping it removes it.
#[derive(Debug)]
pub(super) struct RunDir {
    dir: tempfile::TempDir,
    is_kept: bool,
    _lock: File,
}

impl RunDir {
    /// Makes one in the directory for temporary files, and removes those of dead runs.
    pub(super) fn new() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        let made = Self::new_in(&parent)?;
        sweep(&parent);
        Ok(made)
    }

    fn new_in(parent: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // A umask removes bits, and a set-group-id directory above adds one.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700))?;
        // The lock gets its name only when it is held: a free lock of that name belongs to a dead
        // run.
        let unnamed = dir.path().join(".run.lock");
        let mut options = OpenOptions::new();
        let lock = options.create_new(true).write(true).mode(0o600).open(&unnamed)?;
        // Without locks no later run can detect the death of this one: the directory stays until
        // the user removes it.
        if !matches!(locks::take(&lock)?, Taken::NoLocks(_)) {
            std::fs::rename(&unnamed, dir.path().join(LOCK))?;
        }
        Ok(Self { dir, is_kept: false, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Keeps the directory after the end of the run, even from later runs, because it has the only
    /// copy of some file.
    pub(super) fn keep(&mut self) {
        self.dir.disable_cleanup(true);
        self.is_kept = true;
        // Without its lock no run takes it for that of a dead run.
        let _ = std::fs::remove_file(self.dir.path().join(LOCK));
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // The next run removes the rest.
        let _ = private::remove_tree(self.dir.path());
    }
}

/// Removes the directories of this user's dead runs. A node of such a run may still be ending; then
/// its directory stays for the next sweep.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let names = entries.filter_map(Result::ok);
    let runs = names.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for run in runs.map(|entry| entry.path()) {
        if let Some(_locks) = locks_of_dead(&run) {
            let _ = private::remove_tree(&run);
        }
    }
}

/// All locks of a run, if it is this user's and none is held.
fn locks_of_dead(run: &Path) -> Option<Vec<File>> {
    let user = rustix::process::geteuid().as_raw();
    let metadata = std::fs::symlink_metadata(run).ok()?;
    if !metadata.is_dir() || metadata.uid() != user {
        return None;
    }
    let mut locks = vec![take(&run.join(LOCK))?];
    let nodes = std::fs::read_dir(run.join("nodes")).into_iter().flatten();
    let states: Vec<PathBuf> =
        nodes.filter_map(Result::ok).map(|node| node.path().join("state/lock")).collect();
    for lock in states.into_iter().filter(|lock| lock.exists()) {
        locks.push(take(&lock)?);
    }
    Some(locks)
}

fn take(path: &Path) -> Option<File> {
    let lock = OpenOptions::new().write(true).open(path).ok()?;
    matches!(locks::take(&lock), Ok(Taken::Ours)).then_some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_dead_runs_go() {
        let parent = tempfile::tempdir().unwrap();
        let lives = RunDir::new_in(parent.path()).unwrap();
        let [dead, ends, young] = ["dead", "ends", "young"].map(|name| {
            let path = parent.path().join(format!("{PREFIX}{name}"));
            std::fs::create_dir_all(path.join("nodes/0/state")).unwrap();
            path
        });
        for run in [&dead, &ends] {
            std::fs::write(run.join(LOCK), b"").unwrap();
            std::fs::write(run.join("nodes/0/state/lock"), b"").unwrap();
        }
        let held = take(&ends.join("nodes/0/state/lock")).unwrap();
        sweep(parent.path());
        assert!(lives.path().exists(), "this run lives");
        assert!(!dead.exists(), "a killed run left it");
        assert!(ends.exists(), "a node of it has not ended");
        assert!(young.exists(), "one that is just being made has no lock yet");
        drop(held);
        sweep(parent.path());
        assert!(!ends.exists());
        let path = lives.path().to_owned();
        drop(lives);
        assert!(!path.exists());
        let mut kept = RunDir::new_in(parent.path()).unwrap();
        let path = kept.path().to_owned();
        kept.keep();
        drop(kept);
        sweep(parent.path());
        assert!(path.exists(), "it has the only copy of something");
    }
}
