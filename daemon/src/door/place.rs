//! The place of a node's socket. The kernel limits the length of its path, so a node in a long
//! directory uses one of the system's short ones.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use executor::private;
use proto::limits;
use xxhash_rust::xxh3::xxh3_64;

/// In the state directory of a node.
const DIRECTORY: &str = "door";
const NAME: &str = "socket";
/// A socket that is younger may belong to a node that starts just now.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// A socket that is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Device and inode: a later incarnation may have bound this path again.
    file: (u64, u64),
}

impl BoundSocket {
    /// Binds the socket of the node with this state directory, which the caller has locked.
    pub(crate) fn bind(state: &Path) -> io::Result<Self> {
        Self::bind_near(state, &short_directory())
    }

    /// `short`: the directory that is used if the path below `state` is too long.
    fn bind_near(state: &Path, short: &Path) -> io::Result<Self> {
        let own = state.join(DIRECTORY).join(NAME);
        let path = if fits(&own) {
            private::own_dir(&state.join(DIRECTORY))?;
            own
        } else {
            private::own_dir(short)?;
            check_owner(short)?;
            sweep(short);
            short.join(format!("{:016x}", xxh3_64(state.as_os_str().as_bytes())))
        };
        if !fits(&path) {
            let text = format!("{} is too long for the path of a socket", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let file = file_of(&path)?;
        Ok(Self { listener, path, file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if file_of(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Device and inode.
fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn fits(path: &Path) -> bool {
    path.as_os_str().len() < limits::SOCKET_PATH_BYTES_MAX
}

/// A directory of the user below the system's temporary directory. The user's runtime directory is
/// no choice: the system removes it at the end of the user's last session, and nodes stay.
fn short_directory() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/tmp/starling-doors-{user}"))
}

/// Refuses a directory that other users could have made or may enter.
fn check_owner(directory: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(directory)?;
    let is_ours = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    match is_ours && metadata.mode() & 0o077 == 0 {
        true => Ok(()),
        false => {
            let text = format!("{} is not a private directory of this user", directory.display());
            Err(io::Error::other(text))
        }
    }
}

/// Removes sockets that nodes have left: no process answers there.
#[expect(clippy::disallowed_methods, reason = "the age of a file is by the system's clock")]
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.filter_map(Result::ok) {
        let Ok(metadata) = entry.metadata() else { continue };
        let age = metadata.modified().map(|at| SystemTime::now().duration_since(at));
        let is_old = matches!(age, Ok(Ok(age)) if age >= STALE_AFTER);
        let refuses = || {
            let asked = UnixStream::connect(entry.path());
            asked.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if metadata.file_type().is_socket() && is_old && refuses() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_socket_is_private_and_goes_with_its_node() {
        let dir = tempfile::tempdir().unwrap();
        let (state, short) = (dir.path().join("state"), dir.path().join("short"));
        let bound = BoundSocket::bind_near(&state, &short).unwrap();
        let path = bound.path().to_owned();
        assert_eq!(path, state.join("door/socket"));
        assert_eq!(mode(&state.join("door")), 0o700);
        assert!(UnixStream::connect(&path).is_ok());
        assert!(!short.exists());
        // A node that was killed leaves its socket, and the next one replaces it.
        std::mem::forget(bound);
        let next = BoundSocket::bind_near(&state, &short).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(next);
        assert!(!path.exists());
    }

    #[test]
    fn a_long_directory_gets_a_short_path() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("d".repeat(120));
        let short = dir.path().join("short");
        let bound = BoundSocket::bind_near(&state, &short).unwrap();
        assert!(bound.path().starts_with(&short) && fits(bound.path()));
        assert_eq!(mode(&short), 0o700);
        // Another directory gets another socket.
        let other = BoundSocket::bind_near(&state.join("e"), &short).unwrap();
        assert_ne!(bound.path(), other.path());
        let far = dir.path().join("f".repeat(120));
        let error = BoundSocket::bind_near(&state, &far).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[expect(clippy::disallowed_methods, reason = "the age of a file is by the system's clock")]
    #[test]
    fn stale_sockets_are_swept_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = dir.path().join(name);
            (UnixListener::bind(&path).unwrap(), path)
        };
        let age = |path: &Path| {
            let before = SystemTime::now() - 2 * STALE_AFTER;
            let stamp = rustix::fs::Timespec {
                tv_sec: before.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64,
                tv_nsec: 0,
            };
            let both = rustix::fs::Timestamps { last_access: stamp, last_modification: stamp };
            let none = rustix::fs::AtFlags::empty();
            rustix::fs::utimensat(rustix::fs::CWD, path, &both, none).unwrap();
        };
        let (_live, live) = make("live");
        let (old, old_path) = make("old");
        let (fresh, fresh_path) = make("fresh");
        drop((old, fresh));
        age(&live);
        age(&old_path);
        fs::write(dir.path().join("file"), "x").unwrap();
        age(&dir.path().join("file"));
        sweep(dir.path());
        assert_eq!(
            [
                live.exists(),
                old_path.exists(),
                fresh_path.exists(),
                dir.path().join("file").exists()
            ],
            [true, false, true, true]
        );
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check_owner(&open).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(check_owner(&link).is_err());
    }
}
