//! Files that are complete or absent.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::errors::Failure;

/// Writes a file for the user, with the permissions of the umask. It gets its name when it is
/// complete, so no reader finds a part.
pub fn put(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    put_with_mode(path, bytes, 0o666)
}

/// The same for a file of an instance: only its user may read it, whatever the umask.
pub fn put_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    put_with_mode(path, bytes, 0o600)
}

fn put_with_mode(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::file(path, &error);
    // Other things than files, such as pipes, are written to.
    if fs::metadata(path).is_ok_and(|it| !it.is_file()) {
        return fs::write(path, bytes).map_err(failed);
    }
    let dir =
        path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".starling-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
        .tempfile_in(dir)
        .map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_private_file_is_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        put_private(&dir.path().join("own"), b"x").unwrap();
        put(&dir.path().join("users"), b"x").unwrap();
        assert_eq!(mode("own") & 0o777, 0o600);
        assert_ne!(mode("users") & 0o600, 0, "the umask decides about the rest");
        // It replaces one that others may read.
        put_private(&dir.path().join("users"), b"y").unwrap();
        assert_eq!(mode("users") & 0o777, 0o600);
    }
}
