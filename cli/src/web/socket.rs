//! A Unix socket for the page, which only its user can open.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::UnixListener;
use verb::errors::{Failure, plain};
use web::{Guard, Settings, Source};

/// The longest path of a socket on Linux.
const PATH_BYTES_MAX: usize = 107;

/// A bound socket. Its file goes with it.
#[derive(Debug)]
pub(super) struct PageSocket {
    listener: Option<UnixListener>,
    file: SocketFile,
}

#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl PageSocket {
    /// Binds it in a private directory, and moves it to its place when its mode is set: no other
    /// user can connect in between.
    pub(super) fn bind(path: &Path) -> Result<Self, Failure> {
        let path = std::path::absolute(path).map_err(|error| Failure::file(path, &error))?;
        let failed = |error: io::Error| {
            Failure::refused(format!("--socket {}: {}", path.display(), plain(&error)))
        };
        let parent = path.parent().unwrap_or_else(|| Path::new("/"));
        check_free(&path)?;
        let private = tempfile::Builder::new().prefix(".w").rand_bytes(4).tempdir_in(parent);
        let private = private.map_err(failed)?;
        let made = private.path().join("s");
        if made.as_os_str().len().max(path.as_os_str().len()) > PATH_BYTES_MAX {
            let text = format!("--socket {}: the path is too long", path.display());
            let hint = format!("a socket has at most {PATH_BYTES_MAX} bytes, and needs a few more");
            return Err(Failure::refused(text).hint(hint));
        }
        let listener = UnixListener::bind(&made).map_err(failed)?;
        fs::set_permissions(&made, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        fs::rename(&made, &path).map_err(failed)?;
        Ok(Self { listener: Some(listener), file: SocketFile(path.clone()) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.file.0
    }

    pub(super) async fn serve(
        mut self,
        source: Arc<dyn Source>,
        guard: Guard,
        settings: &Settings,
    ) -> io::Result<()> {
        let listener = self.listener.take().expect("it is served once");
        web::serve(listener, source, guard, settings).await
    }
}

/// A socket that an ended server has left may be replaced; nothing else.
fn check_free(path: &Path) -> Result<(), Failure> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let text = |what: &str| format!("--socket {}: {what}", path.display());
    if !found.file_type().is_socket() {
        return Err(Failure::refused(text("there is a file of this name"))
            .hint("name a path that does not exist"));
    }
    match UnixStream::connect(path) {
        Ok(_) => {
            Err(Failure::refused(text("a server listens there"))
                .hint("end it, or name another path"))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(Failure::refused(text(&plain(&error)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_user_can_open_it_and_it_goes_with_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.sock");
        let socket = PageSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the private directory is gone");
        let taken = PageSocket::bind(&path).unwrap_err();
        assert!(taken.message.ends_with("a server listens there"), "{taken:?}");
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_that_was_left_is_replaced_and_a_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (left, file) = (dir.path().join("left"), dir.path().join("file"));
        drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
        PageSocket::bind(&left).unwrap();
        fs::write(&file, "text").unwrap();
        assert!(PageSocket::bind(&file).unwrap_err().message.contains("there is a file"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        let long = PageSocket::bind(&dir.path().join("x".repeat(120))).unwrap_err();
        assert!(long.message.ends_with("the path is too long"), "{long:?}");
    }
}
