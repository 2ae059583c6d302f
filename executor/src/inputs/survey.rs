//! All entries of a small directory with their states: what a copy of it is made from, and what it
//! is compared with.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::limits::{COPIED_INPUT_BYTES_MAX, COPIED_TREE_ENTRIES_MAX};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Directory,
    File { size_bytes: u64, executable: bool },
    Link(PathBuf),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) inside: PathBuf,
    pub(super) kind: Kind,
    /// A hash of inode, mode, size and times.
    pub(super) state: u64,
}

/// What is kept of an entry for a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EntryState {
    inside: PathBuf,
    state: u64,
    is_directory: bool,
}

/// The result of a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Difference {
    None,
    /// Entries were added, or directories have other modes: all that was there is as before.
    Added,
    /// A file or link that was changed, or an entry that was removed.
    Changed(PathBuf),
}

/// The entries below a directory, sorted: a directory precedes its content.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Survey {
    pub(super) entries: Vec<Entry>,
    pub(super) size_bytes: u64,
}

fn state_of(metadata: &Metadata) -> u64 {
    // The size of a directory may change when it is compacted.
    let size_bytes = if metadata.is_dir() { 0 } else { metadata.len() };
    let (seconds, nanoseconds) = (metadata.mtime() as u64, metadata.mtime_nsec() as u64);
    // A program can set the first time back, but not the second one.
    let changed = [metadata.ctime() as u64, metadata.ctime_nsec() as u64];
    let [inode, mode] = [metadata.ino(), u64::from(metadata.mode())];
    let numbers = [inode, mode, size_bytes, seconds, nanoseconds, changed[0], changed[1]];
    let mut bytes = [0; 56];
    for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    xxh3_64(&bytes)
}

impl Survey {
    /// Reads a directory. `None`: it is too large for a copy, or has an entry that is no file,
    /// directory or link.
    pub(super) fn read(root: &Path) -> io::Result<Option<Self>> {
        let (mut survey, mut waiting) = (Self::default(), vec![PathBuf::new()]);
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(root.join(&directory))? {
                let entry = entry?;
                let (metadata, inside) = (entry.metadata()?, directory.join(entry.file_name()));
                let kind = if metadata.is_dir() {
                    waiting.push(inside.clone());
                    Kind::Directory
                } else if metadata.is_symlink() {
                    Kind::Link(fs::read_link(entry.path())?)
                } else if metadata.is_file() {
                    let (size_bytes, executable) = (metadata.len(), metadata.mode() & 0o111 != 0);
                    survey.size_bytes = survey.size_bytes.saturating_add(size_bytes);
                    Kind::File { size_bytes, executable }
                } else {
                    return Ok(None);
                };
                survey.entries.push(Entry { inside, kind, state: state_of(&metadata) });
                if survey.entries.len() > COPIED_TREE_ENTRIES_MAX
                    || survey.size_bytes > COPIED_INPUT_BYTES_MAX
                {
                    return Ok(None);
                }
            }
        }
        survey.entries.sort_unstable_by(|a, b| a.inside.cmp(&b.inside));
        Ok(Some(survey))
    }

    /// A hash of the directory's path, of all states, and of the targets that links get in a copy.
    /// `root` has no links in its path.
    pub(super) fn hash(&self, root: &Path) -> u64 {
        let mut hash = Xxh3::new();
        hash.update(root.as_os_str().as_encoded_bytes());
        for entry in &self.entries {
            hash.update(&[0]);
            hash.update(entry.inside.as_os_str().as_encoded_bytes());
            hash.update(&entry.state.to_le_bytes());
            if let Kind::Link(target) = &entry.kind {
                let (target, _) = retargeted(root, &entry.inside, target);
                hash.update(target.as_os_str().as_encoded_bytes());
            }
        }
        hash.digest()
    }

    pub(super) fn into_states(self) -> Vec<EntryState> {
        let state = |Entry { inside, kind, state }| {
            let is_directory = kind == Kind::Directory;
            EntryState { inside, state, is_directory }
        };
        self.entries.into_iter().map(state).collect()
    }
}

/// The target of a link in a copy, and whether it is inside. `root` has no links in its path.
pub(super) fn retargeted(root: &Path, inside: &Path, target: &Path) -> (PathBuf, bool) {
    let directory = inside.parent().unwrap_or_else(|| Path::new(""));
    let here = root.join(directory).join(target);
    let behind = fs::canonicalize(&here).ok();
    let behind_inside = behind.as_ref().map(|behind| behind.strip_prefix(root));
    let stays = stays_inside(directory, target);
    match behind_inside {
        Some(Ok(_)) | None if stays => (target.to_owned(), true),
        Some(Ok(inside)) => {
            // A path through the user's own directory would reach it from the copy.
            let up: PathBuf = directory.components().map(|_| Component::ParentDir).collect();
            let target = up.join(inside);
            (if target.as_os_str().is_empty() { PathBuf::from(".") } else { target }, true)
        }
        // Links on that path may change, and what is not there may be made.
        Some(Err(_)) | None => (here, false),
    }
}

/// True if a relative path leads neither above the root, nor up again after a name: that may be a
/// link.
fn stays_inside(directory: &Path, target: &Path) -> bool {
    let (mut depth, mut is_down) = (directory.components().count(), false);
    target.is_relative()
        && target.components().all(|component| match component {
            Component::ParentDir if is_down || depth == 0 => false,
            Component::ParentDir => {
                depth -= 1;
                true
            }
            Component::Normal(_) => {
                is_down = true;
                true
            }
            _ => true,
        })
}

/// Compares a directory with an earlier state.
pub(super) fn difference(root: &Path, before: &[EntryState]) -> Difference {
    match Survey::read(root) {
        Ok(Some(now)) => compared(before, &now.into_states()),
        // A task has added very much or odd entries, or has removed the right to read.
        Ok(None) | Err(_) => {
            let now = |known: &EntryState| {
                let metadata = fs::symlink_metadata(root.join(&known.inside)).ok()?;
                let (state, is_directory) = (state_of(&metadata), metadata.is_dir());
                Some(EntryState { inside: known.inside.clone(), state, is_directory })
            };
            match compared(before, &before.iter().filter_map(now).collect::<Vec<_>>()) {
                Difference::None => Difference::Added,
                other => other,
            }
        }
    }
}

/// Both are sorted. An entry is named before the directory around it, which is removed with it.
fn compared(before: &[EntryState], now: &[EntryState]) -> Difference {
    let (mut new, mut is_added) = (now, false);
    let mut found: Option<&Path> = None;
    for old in before {
        let skipped = new.partition_point(|it| it.inside < old.inside);
        is_added |= skipped > 0;
        new = &new[skipped..];
        let same_place = new.first().filter(|it| it.inside == old.inside);
        new = &new[usize::from(same_place.is_some())..];
        if same_place == Some(old) {
            continue;
        }
        if same_place.is_some_and(|it| it.is_directory && old.is_directory) {
            is_added = true; // Its time changes with each entry.
        } else if found.is_none_or(|earlier| old.inside.starts_with(earlier)) {
            found = Some(&old.inside);
        }
    }
    match found {
        Some(inside) => Difference::Changed(inside.to_owned()),
        None if is_added || !new.is_empty() => Difference::Added,
        None => Difference::None,
    }
}
