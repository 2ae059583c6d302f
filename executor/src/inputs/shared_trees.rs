/*!
Small directories of the user, copied to this node once for all its tasks, where neither mounts nor
clones protect them.

A copy is at `trees/<number>`; its files and directories are read-only. It is known by a hash of the
path and of the states of all entries, so a changed directory is another one. A copy is compared
after each attempt that had it. If it differs, no later task gets it. Entries that were added do not
fail the attempt. A copy is removed with its last user, and unused ones when the copies exceed a
limit: the least recently used first.
*/

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use crate::disk_reserve;
use crate::error::ExecutorError;
use crate::inputs::survey::{Difference, EntryState, Kind, Survey, difference, retargeted};
use crate::limits::{
    TREE_COPIES_BYTES_MAX, TREE_COPIES_ENTRIES_MAX, TREE_COPIES_PER_SOURCE_MAX, TREE_SOURCES_MAX,
};
use crate::private;

/// A copy, which is removed with its last user.
#[derive(Debug)]
pub(crate) struct TreeCopy {
    path: PathBuf,
    hash: u64,
    size_bytes: u64,
    /// The states of its entries when it was made.
    before: Vec<EntryState>,
    leads_out: bool,
}

impl TreeCopy {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// True if a link in it leads to a file outside, which is not copied.
    pub(crate) fn leads_out(&self) -> bool {
        self.leads_out
    }

    /// What attempts have done to it since it was made.
    pub(crate) fn difference(&self) -> Difference {
        difference(&self.path, &self.before)
    }
}

impl Drop for TreeCopy {
    fn drop(&mut self) {
        let _ = private::remove_tree(&self.path); // The next start removes it otherwise.
    }
}

#[derive(Debug)]
enum Slot {
    Making { size_bytes: u64, entries: usize },
    Ready { copy: Arc<TreeCopy>, last_use: u64 },
}

#[derive(Debug, Default)]
struct State {
    copies: HashMap<u64, Slot>,
    /// The copies made of each directory, by a hash of its path: their hashes.
    made: HashMap<u64, HashSet<u64>>,
    size_bytes: u64,
    entries: usize,
    uses: u64,
}

impl State {
    fn remove(&mut self, hash: u64) -> Option<Arc<TreeCopy>> {
        let (size_bytes, entries, copy) = match self.copies.remove(&hash)? {
            Slot::Making { size_bytes, entries } => (size_bytes, entries, None),
            Slot::Ready { copy, .. } => (copy.size_bytes, copy.before.len(), Some(copy)),
        };
        self.size_bytes -= size_bytes;
        self.entries -= entries;
        copy
    }

    /// Takes out unused copies until these further bytes and entries fit. Returns them, to be
    /// dropped outside the lock, and whether there is room now.
    fn make_room(
        &mut self,
        (more_bytes, more_entries): (u64, usize),
        limit_bytes: u64,
    ) -> (Vec<Arc<TreeCopy>>, bool) {
        let mut evicted = Vec::new();
        loop {
            let fits = self.size_bytes.saturating_add(more_bytes) <= limit_bytes
                && self.entries.saturating_add(more_entries) <= TREE_COPIES_ENTRIES_MAX;
            if fits {
                return (evicted, true);
            }
            let idle = self.copies.iter().filter_map(|(hash, slot)| match slot {
                Slot::Ready { copy, last_use } if Arc::strong_count(copy) == 1 => {
                    Some((*last_use, *hash))
                }
                _ => None,
            });
            let Some((_, oldest)) = idle.min() else { return (evicted, false) };
            evicted.extend(self.remove(oldest));
        }
    }

    /// Counts a copy, unless the same was made before. False: there were many, because the
    /// directory changes often.
    fn counts(&mut self, source: &Path, copy: u64) -> bool {
        let hash = path_hash(source);
        if self.made.len() >= TREE_SOURCES_MAX && !self.made.contains_key(&hash) {
            self.made.clear();
        }
        let made = self.made.entry(hash).or_default();
        made.contains(&copy) || (made.len() < TREE_COPIES_PER_SOURCE_MAX && made.insert(copy))
    }
}

fn path_hash(source: &Path) -> u64 {
    xxh3_64(source.as_os_str().as_encoded_bytes())
}

/// The copies of one node.
#[derive(Debug)]
pub(crate) struct SharedTrees {
    root: PathBuf,
    limit_bytes: u64,
    room_bytes: AtomicU64,
    number: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

impl SharedTrees {
    /// Opens an empty directory: copies of an earlier incarnation are dropped.
    pub(crate) fn open(root: &Path, limit_bytes: u64) -> Result<Self, ExecutorError> {
        let wrong = |error: io::Error| ExecutorError::directory(root, &error);
        match private::remove_tree(root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(wrong(error)),
            _ => private::own_dir(root).map_err(wrong)?,
        }
        let limit_bytes = limit_bytes.min(TREE_COPIES_BYTES_MAX);
        let (root, room_bytes) = (root.to_owned(), AtomicU64::new(u64::MAX));
        let (number, state, changed) = (AtomicU64::new(0), Mutex::default(), Condvar::new());
        Ok(Self { root, limit_bytes, room_bytes, number, state, changed })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limit_bytes(&self) -> u64 {
        self.limit_bytes.min(self.room_bytes.load(Ordering::Relaxed))
    }

    /// The copy of a directory; makes it if there is none. `None`: the directory is too large, has
    /// odd files, changes often or just now, or there is no space. Blocks during the copy.
    pub(crate) fn get(&self, source: &Path, is_wanted: impl Fn() -> bool) -> Option<Arc<TreeCopy>> {
        let survey = Survey::read(source).ok()??;
        let root = fs::canonicalize(source).ok()?;
        let (hash, size_bytes) = (survey.hash(&root), survey.size_bytes);
        let entries = survey.entries.len();
        let mut state = self.state();
        loop {
            if !is_wanted() {
                return None;
            }
            state.uses += 1;
            let now = state.uses;
            match state.copies.get_mut(&hash) {
                None => break,
                Some(Slot::Ready { copy, last_use }) => {
                    *last_use = now;
                    return Some(copy.clone());
                }
                Some(Slot::Making { .. }) => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        let (evicted, fits) = state.make_room((size_bytes, entries), self.limit_bytes());
        let makes = fits && state.counts(source, hash);
        if makes {
            state.copies.insert(hash, Slot::Making { size_bytes, entries });
            state.size_bytes += size_bytes;
            state.entries += entries;
        }
        drop(state);
        drop(evicted);
        if !makes {
            return None;
        }
        let made = self.make(source, survey, hash, is_wanted).ok().map(Arc::new);
        let mut state = self.state();
        let last_use = state.uses;
        match &made {
            Some(copy) => {
                _ = state.copies.insert(hash, Slot::Ready { copy: copy.clone(), last_use });
            }
            None => _ = state.remove(hash),
        }
        drop(state);
        self.changed.notify_all();
        made
    }

    fn make(
        &self,
        source: &Path,
        survey: Survey,
        hash: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<TreeCopy> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join(number.to_string());
        DirBuilder::new().mode(0o700).create(&path)?;
        disk_reserve::check(&File::open(&path)?, survey.size_bytes)?;
        // From here on the copy is removed in any case.
        let (before, size_bytes) = (Vec::new(), survey.size_bytes);
        let mut copy = TreeCopy { path, hash, size_bytes, before, leads_out: false };
        let root = fs::canonicalize(source)?;
        copy.leads_out = fill(&root, &survey, &copy.path, is_wanted)?;
        // A directory that changed meanwhile may be half old and half new.
        let now = Survey::read(source)?;
        let is_same = now.as_ref() == Some(&survey) && survey.hash(&root) == hash;
        let states = Survey::read(&copy.path)?.filter(|_| is_same).map(Survey::into_states);
        copy.before = states.ok_or(io::ErrorKind::Interrupted)?;
        Ok(copy)
    }

    /// No later task gets this copy, which has changed.
    pub(crate) fn forget(&self, changed: &Arc<TreeCopy>) {
        let mut state = self.state();
        let is_present = matches!(
            state.copies.get(&changed.hash),
            Some(Slot::Ready { copy, .. }) if Arc::ptr_eq(copy, changed)
        );
        let gone = is_present.then(|| state.remove(changed.hash));
        drop(state);
        drop(gone);
    }

    /// Sets the limit of the copies. Returns whether unused ones must be removed.
    pub(crate) fn set_room(&self, room_bytes: u64) -> bool {
        self.room_bytes.store(room_bytes, Ordering::Relaxed);
        self.state().size_bytes > room_bytes
    }

    pub(crate) fn trim(&self) {
        let (evicted, _) = self.state().make_room((0, 0), self.limit_bytes());
        drop(evicted);
    }
}

/// Copies all entries with their times; true if a link leads out of the directory. `root` has no
/// links in its path.
fn fill(root: &Path, survey: &Survey, to: &Path, is_wanted: impl Fn() -> bool) -> io::Result<bool> {
    let mut leads_out = false;
    for entry in &survey.entries {
        if !is_wanted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (from, path) = (root.join(&entry.inside), to.join(&entry.inside));
        match &entry.kind {
            Kind::Directory => DirBuilder::new().mode(0o700).create(&path)?,
            Kind::Link(target) => {
                let (target, is_inside) = retargeted(root, &entry.inside, target);
                symlink(target, &path)?;
                leads_out |= !is_inside;
            }
            Kind::File { size_bytes, executable } => {
                let mut from = File::open(from)?;
                let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
                if io::copy(&mut from, &mut file)? != *size_bytes {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                file.set_modified(from.metadata()?.modified()?)?;
                let mode = if *executable { 0o555 } else { 0o444 };
                file.set_permissions(Permissions::from_mode(mode))?;
            }
        }
    }
    let directories = survey.entries.iter().rev().filter(|it| it.kind == Kind::Directory);
    for inside in directories.map(|it| it.inside.as_path()).chain([Path::new("")]) {
        let copy = File::open(to.join(inside))?;
        copy.set_modified(fs::metadata(root.join(inside))?.modified()?)?;
        copy.set_permissions(Permissions::from_mode(0o555))?;
    }
    Ok(leads_out)
}

#[cfg(test)]
mod tests;
