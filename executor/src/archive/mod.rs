/*!
Several files as the bytes of one object: a directory, or the files that match a pattern.

The format is tar. The bytes depend on the files only: entries are sorted by name, and owners and
times are left out. So two attempts that write the same files make the same bytes. Modes are kept.

A symbolic link with a target inside the directory is kept as a link, even if there is no such file.
A link among the files of a pattern is kept if its target is one of them. A link to any other file
is packed as that file. Any other link stays a link, and is noted. An entry that is no file,
directory or link is left out, and is noted. The notes are the last entry: so they reach each reader
of the object. An archive from another node is not trusted: [`unpack`] writes nothing through a
link.
*/

mod matching;
mod pack;

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use tar::EntryType;

pub(crate) use self::matching::matching;
pub use self::pack::{Packed, pack_directory};
pub(crate) use self::pack::{pack, shown};

use crate::commands::names;

/// The number of files in one output that is a directory or a pattern, and their depth.
const ARCHIVE_ENTRIES_MAX: usize = 1_000_000;
const ARCHIVE_DEPTH_MAX: usize = 256;

/// The name of the entry with the notes, and the number of their bytes that are read.
const NOTES_ENTRY: &str = "notes";
const NOTES_BYTES_MAX: u64 = 256 << 10;

/// True if a link with that name and target points to a place below the same root.
fn stays_inside(name: &Path, target: &Path) -> bool {
    let mut depth = name.components().count() as i64 - 1;
    for component in target.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir => depth -= 1,
            Component::RootDir | Component::Prefix(_) => return false,
        }
        if depth < 0 {
            return false;
        }
    }
    true
}

/// The modes of unpacked files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Modes {
    /// The packed modes; the owner may read and write.
    Packed,
    /// Modes by the umask of this process; the executable bit stays.
    Umask,
}

/// The content of an archive.
#[derive(Debug, Default)]
pub struct Unpacked {
    /// The paths of files and links below the directory, in the order of the archive.
    pub files: Vec<PathBuf>,
    /// One line for each odd entry: see [`Packed`].
    pub notes: Vec<String>,
    /// The modes of directories: set last, because a directory may lack the executable bit.
    closed: Vec<(PathBuf, u32)>,
}

fn bad(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Unpacks an archive into a directory, which must exist. Existing files are not replaced.
pub fn unpack(from: impl Read, directory: &Path, modes: Modes) -> io::Result<Unpacked> {
    let mut archive = tar::Archive::new(from);
    let (mut unpacked, mut entries) = (Unpacked::default(), 0_usize);
    for entry in archive.entries()? {
        entries += 1;
        if entries > ARCHIVE_ENTRIES_MAX + 1 {
            return Err(bad(format!("the archive has more than {ARCHIVE_ENTRIES_MAX} files")));
        }
        unpacked.add(entry?, directory, modes)?;
    }
    for (path, mode) in unpacked.closed.drain(..).rev() {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(unpacked)
}

impl Unpacked {
    fn add<R: Read>(
        &mut self,
        mut entry: tar::Entry<'_, R>,
        directory: &Path,
        modes: Modes,
    ) -> io::Result<()> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            let mut bytes = Vec::new();
            entry.take(NOTES_BYTES_MAX).read_to_end(&mut bytes)?;
            let text = String::from_utf8_lossy(&bytes); // The limit may cut a character.
            self.notes.extend(text.lines().map(|line| shown(Path::new(line))));
            return Ok(());
        }
        let inside = entry.path()?.into_owned();
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if inside.as_os_str().is_empty() || !inside.components().all(is_plain) {
            return Err(bad(format!("the archive has a file '{}'", shown(&inside))));
        }
        names::no_link_above(directory, &inside).map_err(bad)?;
        let path = directory.join(&inside);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mode = entry.header().mode()? & 0o777;
        match kind {
            EntryType::Directory => {
                let is_there = |path: &Path| fs::symlink_metadata(path).is_ok_and(|it| it.is_dir());
                fs::create_dir(&path).or_else(|error| match is_there(&path) {
                    true => Ok(()),
                    false => Err(error),
                })?;
                if modes == Modes::Packed {
                    self.closed.push((path, mode | 0o700));
                }
            }
            EntryType::Symlink => {
                symlink(entry.link_name()?.unwrap_or_default(), &path)?;
                self.files.push(inside);
            }
            EntryType::Regular => {
                let wanted = match (modes, mode & 0o111 != 0) {
                    (Modes::Packed, _) => mode | 0o600,
                    (Modes::Umask, true) => 0o777,
                    (Modes::Umask, false) => 0o666,
                };
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(wanted).open(&path)?;
                io::copy(&mut entry, &mut file)?;
                self.files.push(inside);
            }
            _ => return Err(bad(format!("'{}' is no file, directory or link", shown(&inside)))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
