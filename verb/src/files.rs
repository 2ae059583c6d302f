//! Files that are complete or absent.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::errors::Failure;

/// Writes a file. It gets its name when it is complete, so no reader finds a part.
pub fn put(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::file(path, &error);
    // Other things than files, such as pipes, are written to.
    if fs::metadata(path).is_ok_and(|it| !it.is_file()) {
        return fs::write(path, bytes).map_err(failed);
    }
    let dir =
        path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".starling-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(dir)
        .map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
