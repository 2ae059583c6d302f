//! The place of a node's socket: its state directory, or a directory of its own if no socket can be
//! made there. The path of a socket is short, and some shared file systems have no sockets.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use executor::private;

use crate::error::reason;

/// The length of a socket's path, with the zero byte at its end, that the kernel accepts.
const SOCKET_PATH_BYTES_MAX: usize = 108;

/// In the state directory of a node.
const DIRECTORY: &str = "door";
const NAME: &str = "socket";
/// A file there: the path of the directory that this node has made elsewhere.
const AT: &str = "at";

/// Nodes make such directories here. The user's runtime directory is no choice: the system removes
/// it at the end of the user's last session, and nodes stay.
const ELSEWHERE: &str = "/tmp";
const PREFIX: &str = "starling-door-";
const NAME_ELSEWHERE: &str = "s";

/// A socket that is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    /// Device and inode: a later incarnation may have bound this path again.
    file: (u64, u64),
    /// Dropped after the socket was removed from it.
    _elsewhere: Option<OwnDirectory>,
}

impl BoundSocket {
    /// Binds the socket of the node with this state directory, which the caller has locked.
    ///
    /// # Errors
    /// No place can hold it: the reason, in one line.
    pub(crate) fn bind(state: &Path) -> Result<Self, String> {
        Self::bind_near(state, Path::new(ELSEWHERE))
    }

    /// `elsewhere`: the parent of the directory for a socket that `state` cannot hold.
    fn bind_near(state: &Path, elsewhere: &Path) -> Result<Self, String> {
        let directory = state.join(DIRECTORY);
        let in_state = |why: &str| format!("no socket in {} ({why})", directory.display());
        private::own_dir(&directory).map_err(|error| in_state(&reason(&error)))?;
        let at = directory.join(AT);
        remove_left(&at, elsewhere);
        let own = directory.join(NAME);
        let first = match fits(&own) {
            true => match Self::bind_at(own, None) {
                Ok(bound) => return Ok(bound),
                Err(error) => reason(&error),
            },
            false => "its path is too long".to_owned(),
        };
        let made = OwnDirectory::make(at, elsewhere).and_then(|made| {
            let path = made.path.join(NAME_ELSEWHERE);
            Self::bind_at(path, Some(made))
        });
        made.map_err(|error| {
            let (place, second) = (elsewhere.display(), reason(&error));
            format!("{}, nor in {place} ({second})", in_state(&first))
        })
    }

    fn bind_at(path: PathBuf, elsewhere: Option<OwnDirectory>) -> io::Result<Self> {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let file = file_of(&path)?;
        Ok(Self { listener, path, file, _elsewhere: elsewhere })
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

/// A private directory with a random name, and the file that names it. Both are removed when this
/// is dropped.
#[derive(Debug)]
struct OwnDirectory {
    path: PathBuf,
    at: PathBuf,
}

impl OwnDirectory {
    fn make(at: PathBuf, parent: &Path) -> io::Result<Self> {
        let number = security::random::<8>().map_err(io::Error::other)?;
        let path = parent.join(format!("{PREFIX}{}", security::to_hex(&number)));
        // First, so that no directory exists that the next start does not know.
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&at);
        file?.write_all(path.as_os_str().as_bytes())?;
        // This fails if anything has the name, a link included.
        DirBuilder::new().mode(0o700).create(&path)?;
        let made = Self { path, at };
        fs::set_permissions(&made.path, Permissions::from_mode(0o700))?; // A umask removes bits.
        Ok(made)
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
        // A later incarnation may have written another path.
        if recorded(&self.at).is_some_and(|path| path == self.path) {
            let _ = fs::remove_file(&self.at);
        }
    }
}

/// The path in this file.
fn recorded(at: &Path) -> Option<PathBuf> {
    fs::read(at).ok().map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
}

/// Removes the directory that a killed incarnation of this node has left. The file may be damaged,
/// so nothing else is removed.
fn remove_left(at: &Path, elsewhere: &Path) {
    let Some(left) = recorded(at) else { return };
    let name = left.file_name().and_then(OsStr::to_str);
    let is_named =
        left.parent() == Some(elsewhere) && name.is_some_and(|name| name.starts_with(PREFIX));
    let user = rustix::process::geteuid().as_raw();
    let found = fs::symlink_metadata(&left);
    if is_named && found.is_ok_and(|found| found.is_dir() && found.uid() == user) {
        let _ = fs::remove_file(left.join(NAME_ELSEWHERE));
        let _ = fs::remove_dir(&left);
    }
    let _ = fs::remove_file(at);
}

/// Device and inode.
fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn fits(path: &Path) -> bool {
    path.as_os_str().len() < SOCKET_PATH_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    /// The number of entries.
    fn entries(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    /// A directory for sockets, and a state directory with a path too long for one.
    fn places() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (elsewhere, state) = (dir.path().join("else"), dir.path().join("d".repeat(120)));
        fs::create_dir(&elsewhere).unwrap();
        (dir, elsewhere, state)
    }

    #[test]
    fn a_socket_is_private_and_goes_with_its_node() {
        let (dir, elsewhere, _) = places();
        let state = dir.path().join("state");
        let bound = BoundSocket::bind_near(&state, &elsewhere).unwrap();
        let path = bound.path().to_owned();
        assert_eq!(path, state.join("door/socket"));
        assert_eq!(mode(&state.join("door")), 0o700);
        assert!(UnixStream::connect(&path).is_ok());
        // A node that was killed leaves its socket, and the next one replaces it.
        std::mem::forget(bound);
        let next = BoundSocket::bind_near(&state, &elsewhere).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(next);
        assert_eq!((entries(&state.join("door")), entries(&elsewhere)), (0, 0));
    }

    #[test]
    fn a_long_directory_gets_a_short_path() {
        let (_dir, elsewhere, state) = places();
        let bound = BoundSocket::bind_near(&state, &elsewhere).unwrap();
        let own = bound.path().parent().unwrap().to_owned();
        assert_eq!(own.parent(), Some(&*elsewhere));
        assert!(UnixStream::connect(bound.path()).is_ok());
        let at = state.join("door/at");
        assert_eq!((mode(&own), mode(&at)), (0o700, 0o600));
        assert_eq!(recorded(&at), Some(own));
        drop(bound);
        assert_eq!((entries(&state.join("door")), entries(&elsewhere)), (0, 0));
    }

    #[test]
    fn a_state_directory_without_sockets_gets_another_place() {
        let (dir, elsewhere, _) = places();
        let state = dir.path().join("state");
        // The name is taken by something that is no socket.
        fs::create_dir_all(state.join("door/socket")).unwrap();
        let bound = BoundSocket::bind_near(&state, &elsewhere).unwrap();
        assert!(bound.path().starts_with(&elsewhere));
        assert!(UnixStream::connect(bound.path()).is_ok());
    }

    #[test]
    fn the_next_start_removes_what_a_killed_node_has_left() {
        let (_dir, elsewhere, state) = places();
        let killed = BoundSocket::bind_near(&state, &elsewhere).unwrap();
        let left = killed.path().to_owned();
        std::mem::forget(killed);
        let next = BoundSocket::bind_near(&state, &elsewhere).unwrap();
        assert!(!left.parent().unwrap().exists() && next.path().exists());
        assert_eq!(entries(&elsewhere), 1);
    }

    #[test]
    fn an_earlier_incarnation_that_ends_late_removes_only_its_own() {
        let (_dir, elsewhere, state) = places();
        let first = BoundSocket::bind_near(&state, &elsewhere).unwrap();
        let next = BoundSocket::bind_near(&state, &elsewhere).unwrap();
        drop(first);
        assert!(next.path().exists() && state.join("door/at").exists());
    }

    #[test]
    fn a_path_that_no_node_has_made_is_not_removed() {
        let (dir, elsewhere, _) = places();
        let at = dir.path().join("at");
        let inner = format!("{PREFIX}1");
        let (foreign, other) = (dir.path().join(&inner), elsewhere.join("other"));
        let (link, file) = (elsewhere.join(format!("{PREFIX}2")), elsewhere.join(&inner));
        for directory in [&foreign, &other] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join(NAME_ELSEWHERE), "x").unwrap();
        }
        symlink(&foreign, &link).unwrap();
        fs::write(&file, "x").unwrap();
        let around = elsewhere.join("..").join(&inner);
        let nothing = PathBuf::new();
        for path in [&foreign, &other, &link, &file, &around, &nothing] {
            fs::write(&at, path.as_os_str().as_bytes()).unwrap();
            remove_left(&at, &elsewhere);
            assert!(!at.exists(), "{path:?}");
        }
        assert_eq!([entries(&foreign), entries(&other), entries(&elsewhere)], [1, 1, 3]);
    }

    #[test]
    fn a_node_without_any_place_gets_the_reason() {
        let (dir, _, state) = places();
        let absent = dir.path().join("absent");
        let error = BoundSocket::bind_near(&state, &absent).unwrap_err();
        assert!(error.contains("its path is too long"), "{error}");
        assert!(error.contains("absent (no such file or directory)"), "{error}");
        let file = dir.path().join("file");
        fs::create_dir(&file).unwrap();
        fs::write(file.join(DIRECTORY), "x").unwrap();
        let error = BoundSocket::bind_near(&file, &absent).unwrap_err();
        assert!(error.starts_with("no socket in "), "{error}");
    }
}
