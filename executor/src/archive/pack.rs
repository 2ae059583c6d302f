//! Packs files and directories into an archive. Entries that an archive cannot hold are named in
//! it, and left out.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use tar::{Builder, EntryType, Header};

use super::matching::Matches;
use super::{ARCHIVE_DEPTH_MAX, ARCHIVE_ENTRIES_MAX, NOTES_ENTRY, stays_inside};
use crate::error::reason;

/// The maximum number of odd entries that are named; others are counted.
const NOTES_MAX: usize = 16;

/// The result of a packing.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Packed {
    /// The files, directories and links in the archive.
    pub entries: usize,
    /// One line for each odd entry: those left out, and links that lead out.
    pub notes: Vec<String>,
}

/// Packs the files of a task below `root` that match its pattern. A link to a file that is not one
/// of them is packed as that file. Directories are named as left out.
pub(crate) fn pack(root: &Path, found: &Matches, to: impl Write) -> Result<Packed, String> {
    let chosen = found.files.iter().map(PathBuf::as_path).collect();
    let mut packer = Packer::new(root, Some(chosen), true, to);
    for path in &found.files {
        packer.add(path, 0)?;
    }
    for directory in &found.directories {
        packer.note(format!("'{}' is a directory: it is left out", shown(directory)));
    }
    packer.finish().map_err(|error| reason(&error))
}

/// Packs the content of a directory.
pub fn pack_directory(directory: &Path, to: impl Write) -> Result<Packed, String> {
    // Behind a link the directory is not the task's.
    let found = fs::symlink_metadata(directory).map_err(|error| reason(&error))?;
    open_up(directory, &found, found.is_dir());
    let names = sorted_names(directory).map_err(|error| reason(&error))?;
    let mut packer = Packer::new(directory, None, found.is_dir(), to);
    for name in &names {
        packer.add(name, 0)?;
    }
    packer.finish().map_err(|error| reason(&error))
}

/// The names in a directory, in the order of their bytes.
fn sorted_names(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names: Vec<OsString> = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name());
        if names.len() > ARCHIVE_ENTRIES_MAX {
            return Err(io::Error::other(format!("more than {ARCHIVE_ENTRIES_MAX} files")));
        }
    }
    names.sort_unstable();
    Ok(names.into_iter().map(PathBuf::from).collect())
}

/// Gives a directory of the task the rights that reading it needs.
fn open_up(directory: &Path, metadata: &Metadata, is_own: bool) {
    let mode = metadata.permissions().mode() & 0o777;
    if is_own && mode & 0o500 != 0o500 {
        // Of another user: the next call fails, and tells why.
        let _ = fs::set_permissions(directory, Permissions::from_mode(mode | 0o500));
    }
}

/// Opens a file. If its mode forbids that to its owner, it gets another mode.
fn open(path: &Path, metadata: &Metadata, is_own: bool) -> io::Result<File> {
    match File::open(path) {
        // A file with several names may be the user's.
        Err(refused)
            if refused.kind() == io::ErrorKind::PermissionDenied
                && is_own
                && metadata.nlink() == 1 =>
        {
            let mode = metadata.permissions().mode() & 0o777 | 0o400;
            fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|_| refused)?;
            File::open(path)
        }
        opened => opened,
    }
}

/// A path for people: one line.
pub(crate) fn shown(path: &Path) -> String {
    let mut text = String::new();
    for letter in path.to_string_lossy().chars() {
        match letter.is_control() {
            true => text.extend(letter.escape_default()),
            false => text.push(letter),
        }
    }
    text
}

/// The name of a kind that no archive holds.
fn kind_of(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else {
        "no file"
    }
}

struct Packer<'r, W: Write> {
    root: &'r Path,
    /// The files of a pattern.
    chosen: Option<HashSet<&'r Path>>,
    is_own: bool,
    builder: Builder<W>,
    /// The entries so far, with those that were left out.
    seen: usize,
    unnamed: usize,
    packed: Packed,
}

impl<'r, W: Write> Packer<'r, W> {
    /// `chosen`: only these files, else whole directories. `is_own` is true if the task may have
    /// made all of it: then a missing right to read is added for the time of the packing.
    fn new(root: &'r Path, chosen: Option<HashSet<&'r Path>>, is_own: bool, to: W) -> Self {
        let (builder, packed) = (Builder::new(to), Packed::default());
        Self { root, chosen, is_own, builder, seen: 0, unnamed: 0, packed }
    }

    fn add(&mut self, inside: &Path, depth: usize) -> Result<(), String> {
        let wrong = |error: io::Error| format!("'{}': {}", shown(inside), reason(&error));
        self.seen += 1;
        if self.seen > ARCHIVE_ENTRIES_MAX {
            return Err(format!("has more than {ARCHIVE_ENTRIES_MAX} files"));
        }
        if depth > ARCHIVE_DEPTH_MAX {
            let (name, most) = (shown(inside), ARCHIVE_DEPTH_MAX);
            return Err(format!("'{name}': more than {most} directories deep"));
        }
        let path = self.root.join(inside);
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.vanished(inside),
            found => found.map_err(wrong)?,
        };
        if metadata.is_dir() {
            return self.add_directory(inside, &path, &metadata, depth);
        }
        if metadata.is_symlink() {
            return self.add_link(inside, &path);
        }
        if !metadata.is_file() {
            let kind = kind_of(&metadata);
            self.note(format!("'{}' is {kind}: it is left out", shown(inside)));
            return Ok(());
        }
        match open(&path, &metadata, self.is_own) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.vanished(inside),
            file => self.add_file(inside, file.map_err(wrong)?, metadata.permissions().mode()),
        }
    }

    /// A process that the command left behind may still remove files.
    fn vanished(&mut self, inside: &Path) -> Result<(), String> {
        let name = shown(inside);
        self.note(format!("'{name}' was removed while the output was packed: it is left out"));
        Ok(())
    }

    fn add_directory(
        &mut self,
        inside: &Path,
        path: &Path,
        metadata: &Metadata,
        depth: usize,
    ) -> Result<(), String> {
        let wrong = |error: io::Error| format!("'{}': {}", shown(inside), reason(&error));
        open_up(path, metadata, self.is_own);
        let names = match sorted_names(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.vanished(inside),
            names => names.map_err(wrong)?,
        };
        let mut header = header(EntryType::Directory, 0, metadata.permissions().mode());
        self.builder.append_data(&mut header, inside, io::empty()).map_err(wrong)?;
        self.packed.entries += 1;
        for name in names {
            self.add(&inside.join(name), depth + 1)?;
        }
        Ok(())
    }

    /// A link inside stays a link, also one to nothing. A file outside takes the place of its link.
    /// Any other link stays what it is, with a note.
    fn add_link(&mut self, inside: &Path, path: &Path) -> Result<(), String> {
        let wrong = |error: io::Error| format!("'{}': {}", shown(inside), reason(&error));
        let target = match fs::read_link(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.vanished(inside),
            target => target.map_err(wrong)?,
        };
        if !self.holds(inside, &target) {
            let behind = fs::metadata(path).and_then(|behind| match behind.is_file() {
                true => File::open(path).map(Some),
                false => Ok(None), // A directory, or a pipe, which would block.
            });
            let why = match behind {
                Ok(Some(file)) => {
                    let mode = file.metadata().map_err(wrong)?.permissions().mode();
                    return self.add_file(inside, file, mode);
                }
                Ok(None) => "which is no file".to_owned(),
                Err(error) => reason(&error),
            };
            let (name, target) = (shown(inside), shown(&target));
            self.note(format!("'{name}' stays a link to '{target}', out of the output: {why}"));
        }
        let mut header = header(EntryType::Symlink, 0, 0o777);
        self.packed.entries += 1;
        // A target that fits into its field is stored as it is; 'append_link' writes '/' as '//'.
        let added = match header.set_link_name_literal(target.as_os_str().as_bytes()) {
            Ok(()) => self.builder.append_data(&mut header, inside, io::empty()),
            Err(_) => self.builder.append_link(&mut header, inside, &target),
        };
        added.map_err(wrong)
    }

    /// True if the target of a link stays inside; of a pattern's files, if it is one of them.
    fn holds(&self, inside: &Path, target: &Path) -> bool {
        let Some(chosen) = &self.chosen else { return stays_inside(inside, target) };
        let mut path = inside.parent().unwrap_or_else(|| Path::new("")).to_owned();
        let mut is_down = false;
        for component in target.components() {
            match component {
                Component::Normal(name) => {
                    path.push(name);
                    is_down = true;
                }
                // After a name, which may be a link, it leads elsewhere.
                Component::ParentDir if !is_down && path.pop() => {}
                Component::CurDir => {}
                _ => return false,
            }
        }
        chosen.contains(path.as_path())
    }

    /// Packs the bytes that the file has now, even if a process still writes to it.
    fn add_file(&mut self, inside: &Path, mut file: File, mode: u32) -> Result<(), String> {
        let wrong = |error: io::Error| format!("'{}': {}", shown(inside), reason(&error));
        let size_bytes = file.metadata().map_err(wrong)?.len();
        let mut header = header(EntryType::Regular, size_bytes, mode);
        let mut bytes = (&mut file).take(size_bytes);
        self.builder.append_data(&mut header, inside, &mut bytes).map_err(wrong)?;
        let missing_bytes = bytes.limit();
        if missing_bytes > 0 {
            let name = shown(inside);
            return Err(format!("'{name}' lost {missing_bytes} bytes while it was packed"));
        }
        let now_bytes = file.metadata().map_err(wrong)?.len();
        if now_bytes > size_bytes {
            let name = shown(inside);
            self.note(format!("'{name}' grew while it was packed: {size_bytes} bytes are kept"));
        }
        self.packed.entries += 1;
        Ok(())
    }

    fn note(&mut self, text: String) {
        match self.packed.notes.len() < NOTES_MAX {
            true => self.packed.notes.push(text),
            false => self.unnamed += 1,
        }
    }

    /// The notes are the last entry, if there are any.
    fn finish(mut self) -> io::Result<Packed> {
        if self.unnamed > 0 {
            self.packed.notes.push(format!("{} more entries are odd", self.unnamed));
        }
        if !self.packed.notes.is_empty() {
            let text = self.packed.notes.join("\n");
            let mut header = header(EntryType::XGlobalHeader, text.len() as u64, 0o644);
            self.builder.append_data(&mut header, NOTES_ENTRY, text.as_bytes())?;
        }
        self.builder.finish()?;
        Ok(self.packed)
    }
}

pub(super) fn header(kind: EntryType, size_bytes: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size_bytes);
    header.set_mode(mode & 0o777);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}
