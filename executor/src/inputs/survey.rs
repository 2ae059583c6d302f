//! All entries of a small directory with their states: what a copy of it is made from, and what it
//! is compared with.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    /// A hash of inode, mode, size and modification time.
    pub(super) state: u64,
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
    let numbers = [metadata.ino(), u64::from(metadata.mode()), size_bytes, seconds, nanoseconds];
    let mut bytes = [0; 40];
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

    /// A hash of the directory's path and of all states.
    pub(super) fn hash(&self, root: &Path) -> u64 {
        let mut hash = Xxh3::new();
        hash.update(root.as_os_str().as_encoded_bytes());
        for entry in &self.entries {
            hash.update(&[0]);
            hash.update(entry.inside.as_os_str().as_encoded_bytes());
            hash.update(&entry.state.to_le_bytes());
        }
        hash.digest()
    }

    pub(super) fn into_states(self) -> Vec<(PathBuf, u64)> {
        self.entries.into_iter().map(|entry| (entry.inside, entry.state)).collect()
    }
}

/// The first entry that differs: changed, added or removed. An entry counts before the directory
/// around it, which changes with it.
pub(super) fn first_difference(
    before: &[(PathBuf, u64)],
    now: &[(PathBuf, u64)],
) -> Option<PathBuf> {
    let (mut old, mut new) = (before, now);
    let mut found: Option<&PathBuf> = None;
    loop {
        let different = match (old.first(), new.first()) {
            (None, None) => return found.cloned(),
            (Some(a), Some(b)) if a.0 == b.0 => {
                (old, new) = (&old[1..], &new[1..]);
                if a.1 == b.1 {
                    continue;
                }
                &a.0
            }
            (Some(a), None) => {
                old = &old[1..];
                &a.0
            }
            (Some(a), Some(b)) if a.0 < b.0 => {
                old = &old[1..];
                &a.0
            }
            (_, Some(b)) => {
                new = &new[1..];
                &b.0
            }
        };
        if found.is_none_or(|earlier| different.starts_with(earlier)) {
            found = Some(different);
        }
    }
}
