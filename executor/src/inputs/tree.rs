/*!
The files of a user's directory, for a comparison before and after an attempt.

Of each file two numbers are kept: a hash of its path, and a hash of its inode, size and
modification time. So a directory of a million files takes 16 MiB. All attempts on this node that
read it share them.
*/

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use xxhash_rust::xxh3::xxh3_64;

/// A directory with more entries is refused as an input that is only compared.
pub(crate) const GUARDED_ENTRIES_MAX: usize = 1 << 20;

/// Up to this number of files their paths are kept too, so that a removed file can be named.
const NAMED_FILES_MAX: usize = 4096;

/// The maximum number of directories for which attempts share these numbers.
const SHARED_TREES_MAX: usize = 1024;

/// The state of a file: a write to it changes this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileState {
    pub(crate) inode: u64,
    pub(crate) size_bytes: u64,
    changed_ns: i128,
}

impl FileState {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let changed_ns =
            i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Self { inode: metadata.ino(), size_bytes: metadata.len(), changed_ns }
    }

    fn hash(&self) -> u64 {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.inode.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.changed_ns.to_le_bytes());
        xxh3_64(&bytes)
    }
}

/// The files below a directory, and those behind links in it.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Tree {
    /// The hashes of path and state of each file, sorted.
    files: Vec<(u64, u64)>,
    /// The paths, unless there are too many.
    names: Vec<PathBuf>,
    /// Only the files behind links count.
    links_only: bool,
}

/// The directory has more than [`GUARDED_ENTRIES_MAX`] entries.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct TooManyEntries;

fn hash_of(path: &Path) -> u64 {
    xxh3_64(path.as_os_str().as_encoded_bytes())
}

/// Calls a function for each file below a directory. Links to directories are not followed.
fn walk(
    directory: &Path,
    entries_max: usize,
    links_only: bool,
    mut each: impl FnMut(PathBuf, FileState) -> ControlFlow<()>,
) -> Result<(), TooManyEntries> {
    let (mut rest, mut entries) = (vec![directory.to_owned()], 0);
    while let Some(directory) = rest.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            entries += 1;
            if entries > entries_max {
                return Err(TooManyEntries);
            }
            // The kind costs no call.
            if links_only && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            let Ok(mut metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                rest.push(entry.path());
                continue;
            }
            if metadata.is_symlink() {
                // A write through the link reaches the file behind it.
                let Ok(target) = fs::metadata(entry.path()) else { continue };
                metadata = target;
            }
            if metadata.is_file() && each(entry.path(), FileState::of(&metadata)).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl Tree {
    pub(crate) fn read(directory: &Path) -> Result<Self, TooManyEntries> {
        Self::default().read_up_to(directory, GUARDED_ENTRIES_MAX)
    }

    /// Of a directory that is read-only: the files behind links, which may be outside.
    pub(crate) fn of_links(directory: &Path) -> Result<Self, TooManyEntries> {
        let tree = Self { links_only: true, ..Self::default() };
        tree.read_up_to(directory, GUARDED_ENTRIES_MAX)
    }

    fn has(&self, path: u64) -> bool {
        self.files.binary_search_by_key(&path, |file| file.0).is_ok()
    }

    fn read_up_to(self, directory: &Path, entries_max: usize) -> Result<Self, TooManyEntries> {
        let mut tree = self;
        walk(directory, entries_max, tree.links_only, |path, state| {
            tree.files.push((hash_of(&path), state.hash()));
            if tree.files.len() <= NAMED_FILES_MAX {
                tree.names.push(path);
            }
            ControlFlow::Continue(())
        })?;
        if tree.files.len() > NAMED_FILES_MAX {
            tree.names = Vec::new();
        }
        tree.files.sort_unstable();
        tree.names.sort_unstable();
        Ok(tree)
    }

    /// A file that is changed or removed by now; the directory itself if its name is not known.
    /// Files that were added do not count.
    pub(crate) fn changed(&self, directory: &Path) -> Option<PathBuf> {
        let mut now = Vec::with_capacity(self.files.len());
        // With the added files, there may be more entries than the limit.
        let _ = walk(directory, usize::MAX, self.links_only, |path, state| {
            let path = hash_of(&path);
            if self.has(path) {
                now.push((path, state.hash()));
            }
            ControlFlow::Continue(())
        });
        now.sort_unstable();
        let unequal = self.files.iter().zip(&now).position(|(before, now)| before != now);
        // The first file that is missing, or unequal, is in this place.
        let changed = self.files.get(unequal.unwrap_or(now.len()))?;
        let is_changed = |path: &PathBuf| hash_of(path) == changed.0;
        if let Some(path) = self.names.iter().find(|path| is_changed(path)) {
            return Some(path.clone());
        }
        let mut found = directory.to_owned();
        let _ = walk(directory, usize::MAX, self.links_only, |path, _| match is_changed(&path) {
            true => {
                found = path;
                ControlFlow::Break(())
            }
            false => ControlFlow::Continue(()),
        });
        Some(found)
    }
}

/// The trees that running attempts have in common.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    known: Mutex<HashMap<PathBuf, Weak<Tree>>>,
}

impl Trees {
    /// Reads a directory; an attempt that read the same before has the same tree.
    pub(crate) fn read(&self, directory: &Path) -> Result<Arc<Tree>, TooManyEntries> {
        let tree = Tree::read(directory)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = known.get(directory).and_then(Weak::upgrade)
            && *earlier == tree
        {
            return Ok(earlier);
        }
        let tree = Arc::new(tree);
        known.retain(|_, earlier| earlier.strong_count() > 0);
        if known.len() < SHARED_TREES_MAX {
            known.insert(directory.to_owned(), Arc::downgrade(&tree));
        }
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    fn directory_of(files: usize) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..files {
            let folder = dir.path().join(format!("d{}", number % 8));
            let _ = fs::create_dir(&folder);
            fs::write(folder.join(number.to_string()), "same").unwrap();
        }
        dir
    }

    fn append(path: &Path) {
        let file = fs::OpenOptions::new().append(true).open(path);
        file.unwrap().write_all(b"!").unwrap();
    }

    #[test]
    fn a_change_is_found_and_named_whatever_the_number_of_files() {
        for files in [16, NAMED_FILES_MAX + 100] {
            let dir = directory_of(files);
            let before = Tree::read(dir.path()).unwrap();
            assert_eq!(before.files.len(), files);
            fs::write(dir.path().join("d1/added"), "new").unwrap();
            assert_eq!(before.changed(dir.path()), None, "an added file does not count");
            let victim = dir.path().join("d3/11");
            append(&victim);
            assert_eq!(before.changed(dir.path()), Some(victim));
            let before = Tree::read(dir.path()).unwrap();
            let removed = dir.path().join("d4/12");
            fs::remove_file(&removed).unwrap();
            let named = if files > NAMED_FILES_MAX { dir.path().to_owned() } else { removed };
            assert_eq!(before.changed(dir.path()), Some(named));
        }
    }

    #[test]
    fn a_file_behind_a_link_is_compared() {
        let (dir, other) = (directory_of(4), directory_of(1));
        let behind = other.path().join("d0/0");
        symlink(&behind, dir.path().join("link")).unwrap();
        symlink("/absent", dir.path().join("broken")).unwrap();
        let before = Tree::read(dir.path()).unwrap();
        assert_eq!(before.changed(dir.path()), None);
        append(&behind);
        assert_eq!(before.changed(dir.path()), Some(dir.path().join("link")));
    }

    #[test]
    fn a_directory_above_the_limit_is_refused() {
        let dir = directory_of(8);
        assert_eq!(Tree::default().read_up_to(dir.path(), 15), Err(TooManyEntries));
        assert_eq!(Tree::default().read_up_to(dir.path(), 16).unwrap().files.len(), 8);
    }

    #[test]
    fn attempts_share_the_tree_of_an_unchanged_directory() {
        let (dir, trees) = (directory_of(3), Trees::default());
        let first = trees.read(dir.path()).unwrap();
        assert!(Arc::ptr_eq(&first, &trees.read(dir.path()).unwrap()));
        append(&dir.path().join("d0/0"));
        assert!(!Arc::ptr_eq(&first, &trees.read(dir.path()).unwrap()));
    }
}
