//! Locks and hard links, on file systems that may lack them: Lustre without flock, AFS, some FUSE
//! file systems.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Counts the copies of this process: each has a name of its own until it is complete.
static COPIES: AtomicU64 = AtomicU64::new(0);

/// The result of an attempt to lock a file.
#[derive(Debug)]
pub enum Taken {
    /// This process holds the lock until the file is closed.
    Ours,
    /// Another process holds it.
    Held,
    /// The file system has no locks.
    NoLocks(io::Error),
}

/// Locks a file against all other processes, without waiting.
pub fn take(file: &File) -> io::Result<Taken> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Taken::Ours),
        Err(Errno::WOULDBLOCK) => Ok(Taken::Held),
        Err(errno) if is_missing(errno) => Ok(Taken::NoLocks(errno.into())),
        Err(errno) => Err(errno.into()),
    }
}

/// True if an error means that the file system lacks the requested function.
#[must_use]
pub fn is_missing(errno: Errno) -> bool {
    [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOTSUP, Errno::NOLCK].contains(&errno)
}

/// True if an error of a link call means that the file system has no hard links.
#[must_use]
pub fn lacks_links(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| is_missing(errno) || [Errno::PERM, Errno::MLINK].contains(&errno))
}

/// Gives a file a second name, or copies it if there are no hard links. Fails if the name exists.
pub(crate) fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    link_or_copy_with(from, to, |from, to| fs::hard_link(from, to))
}

fn link_or_copy_with(
    from: &Path,
    to: &Path,
    link: impl Fn(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    match link(from, to) {
        Err(error) if lacks_links(&error) => {}
        linked => return linked,
    }
    if to.exists() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let mut part = to.as_os_str().to_owned();
    part.push(format!(".{}-{}.part", std::process::id(), COPIES.fetch_add(1, Ordering::Relaxed)));
    let part = Path::new(&part);
    let copied = fs::copy(from, part).and_then(|_| fs::rename(part, to));
    copied.inspect_err(|_| {
        let _ = fs::remove_file(part);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_ours_until_the_file_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let (one, other) = (File::create(&path).unwrap(), File::create(&path).unwrap());
        assert!(matches!(take(&one), Ok(Taken::Ours)));
        assert!(matches!(take(&other), Ok(Taken::Held)));
        drop(one);
        assert!(matches!(take(&other), Ok(Taken::Ours)));
    }

    #[test]
    fn without_links_a_copy_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, "text").unwrap();
        for errno in [Errno::PERM, Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK] {
            let link = |_: &Path, _: &Path| Err(errno.into());
            link_or_copy_with(&from, &to, link).unwrap();
            assert_eq!(fs::read(&to).unwrap(), b"text");
            let error = link_or_copy_with(&from, &to, link).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            fs::remove_file(&to).unwrap();
        }
        let full = |_: &Path, _: &Path| Err(Errno::NOSPC.into());
        assert!(link_or_copy_with(&from, &to, full).is_err(), "that is another matter");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
