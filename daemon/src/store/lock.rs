/*!
The lock file of RocksDB, for a file system without locks.

RocksDB takes a POSIX lock on `db/LOCK`, and does not open a store without it. Its interface has no
option to skip that. So the file becomes a link to one on a file system of this machine that has
locks. The lock then excludes other processes of this machine. The beat of the state directory
excludes those of other machines.
*/

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use executor::{locks, private};
use rustix::fs::{FlockOperation, fcntl_lock};

const FILE: &str = "LOCK";

/// Makes the lock file lockable. Returns the error of the original file if it was replaced. Must be
/// called before the store is opened, and while no other process opens it.
pub(super) fn fit(db: &Path) -> io::Result<Option<io::Error>> {
    fit_with(db, &places(), can_lock)
}

fn fit_with(
    db: &Path,
    places: &[PathBuf],
    can_lock: impl Fn(&Path) -> io::Result<Result<(), io::Error>>,
) -> io::Result<Option<io::Error>> {
    let path = db.join(FILE);
    // A link from another machine may have no target here.
    if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
        fs::remove_file(&path)?;
    }
    let Err(missing) = can_lock(&path)? else { return Ok(None) };
    for place in places {
        if own_place(place).is_err() {
            continue;
        }
        let elsewhere = place.join(name_of(db));
        if can_lock(&elsewhere).is_ok_and(|locked| locked.is_ok()) {
            fs::remove_file(&path)?;
            symlink(&elsewhere, &path)?;
            return Ok(Some(missing));
        }
    }
    Err(missing)
}

/// Tests whether a file can be locked. An inner error: its file system has no locks. A lock held by
/// another process is left to RocksDB to report.
fn can_lock(path: &Path) -> io::Result<Result<(), io::Error>> {
    let file: File =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(errno) if locks::is_missing(errno) => Ok(Err(errno.into())),
        _ => Ok(Ok(())), // Closing the file releases the lock.
    }
}

/// Directories of this user on this machine, those first that a reboot clears.
fn places() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("starling"));
    let shared = ["/dev/shm", "/var/lock", "/tmp"].map(PathBuf::from);
    let of_user = shared.into_iter().chain([std::env::temp_dir()]);
    let of_user = of_user.map(|dir| dir.join(format!("starling-locks-{user}")));
    runtime.into_iter().chain(of_user).collect()
}

/// Ensures that a directory belongs to this user and that no other user can write to it.
fn own_place(place: &Path) -> io::Result<()> {
    private::make_dir(place)?;
    let found = fs::symlink_metadata(place)?;
    let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    match is_own && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// The lock name of a store.
fn name_of(db: &Path) -> String {
    let path = std::path::absolute(db).unwrap_or_else(|_| db.to_owned());
    let bytes = OsStr::as_bytes(path.as_os_str());
    format!("{:016x}.lock", xxhash_rust::xxh3::xxh3_64(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_with_locks_keeps_its_own_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(fit(dir.path()).unwrap().is_none());
        assert!(fs::symlink_metadata(dir.path().join(FILE)).unwrap().is_file());
        assert!(!places().is_empty());
    }

    #[test]
    fn without_locks_the_lock_file_is_one_of_this_machine() {
        let (dir, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let places = [local.path().join("absent/../\0"), local.path().join("locks")];
        let here = dir.path().to_owned();
        let lacks = move |path: &Path| match path.starts_with(&here) {
            true => {
                File::create(path)?;
                Ok(Err(rustix::io::Errno::NOLCK.into()))
            }
            false => can_lock(path),
        };
        // A link from another machine.
        symlink("/nowhere/at/all", dir.path().join(FILE)).unwrap();
        for _ in 0..2 {
            assert!(fit_with(dir.path(), &places, &lacks).unwrap().is_some());
            let link = fs::read_link(dir.path().join(FILE)).unwrap();
            assert!(link.starts_with(&places[1]), "{link:?}");
        }
        assert!(fit_with(dir.path(), &[], &lacks).is_err(), "there is no place for a lock");
        // The file system has locks again.
        assert!(fit(dir.path()).unwrap().is_none());
        assert!(fs::symlink_metadata(dir.path().join(FILE)).unwrap().is_file());
    }
}
