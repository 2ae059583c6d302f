//! Kept directories and patterns: archives in the cluster, files for the user.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use executor::archive::{Modes, unpack};
use proto::wire::OutputForm;

/// Puts the files of an archive in their places: those of a directory at `to`, those of a pattern
/// into `dir`. Returns them. Each gets its name only when all are complete.
pub(super) fn place(
    archive: &Path,
    form: OutputForm,
    dir: &Path,
    to: &Path,
) -> io::Result<Vec<PathBuf>> {
    let scratch = tempfile::Builder::new().prefix(".starling-part-").tempdir_in(dir)?;
    let whole = scratch.path().join("whole");
    fs::create_dir(&whole)?;
    let files = unpack(BufReader::new(File::open(archive)?), &whole, Modes::Umask)?;
    if form == OutputForm::Directory {
        let before = scratch.path().join("before");
        match fs::rename(to, &before) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::rename(&whole, to)?,
        }
        return Ok(vec![to.to_owned()]);
    }
    let mut placed = Vec::with_capacity(files.len());
    for file in files {
        let to = dir.join(&file);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::rename(whole.join(&file), &to)?;
        placed.push(to);
    }
    Ok(placed)
}
