//! Copies of other nodes that take the place of objects that were changed or lost on this node's
//! disk.

use std::fs;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use proto::ObjectId;

use super::{ObjectError, ObjectKind, ObjectStore};

/// Brings objects from other nodes.
pub trait ObjectSource: Send + Sync {
    /// Stores a copy of an object in the store of this node. Blocks meanwhile.
    ///
    /// # Errors
    /// No other node has it: one line.
    fn fetch(&self, object: ObjectId, size_bytes: u64) -> Result<(), String>;
}

#[derive(Default)]
pub(super) struct Replacement {
    source: OnceLock<Arc<dyn ObjectSource>>,
    /// One object at a time is replaced: this happens seldom.
    turn: Mutex<()>,
}

impl std::fmt::Debug for Replacement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replacement").finish_non_exhaustive()
    }
}

impl ObjectStore {
    /// Sets the source of copies; without one, changed objects stay unreadable.
    pub fn set_source(&self, source: Arc<dyn ObjectSource>) {
        let _ = self.inner.replacement.source.set(source); // The first one stays.
    }

    /// Uses an object for a task of this node. If its file was changed or is lost, it is replaced
    /// first.
    pub(crate) fn sound<T>(
        &self,
        object: ObjectId,
        access: impl Fn() -> Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        let bad = match access() {
            Err(error @ (ObjectError::Changed(_) | ObjectError::Absent(_))) => error,
            done => return done,
        };
        let Replacement { source, turn } = &self.inner.replacement;
        let Some(source) = source.get() else { return Err(bad) };
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Another task may have caused the replacement meanwhile.
        if let Ok(done) = access() {
            return Ok(done);
        }
        let Some(size_bytes) = self.size_bytes(object) else { return Err(bad) };
        match self.replace(object, || source.fetch(object, size_bytes)) {
            Ok(()) => access(),
            Err(_) => Err(bad),
        }
    }

    /// Removes the file of an object that was changed. The object counts as one of this node until
    /// [`Self::replace`] brings another copy.
    pub(crate) fn drop_changed(&self, object: ObjectId) {
        let mut index = self.index();
        let Some(entry) = index.objects.get_mut(&object) else { return };
        if entry.held.is_none() {
            entry.is_dropped = true;
            let _ = fs::remove_file(self.path_of(object, entry.kind)); // It is not read again.
        }
    }

    /// Replaces a changed object by a copy, which `fetch` stores here. It stays as long as the
    /// changed one would have. Without a copy, the changed file stays.
    pub(crate) fn replace(
        &self,
        object: ObjectId,
        fetch: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(entry) = self.index().remove(object) else { return fetch() };
        let (kind, before) = (entry.kind, self.path_of(object, entry.kind));
        if let Err(error) = fetch() {
            let mut index = self.index();
            if !index.objects.contains_key(&object) {
                index.put(object, entry);
            }
            return Err(error);
        }
        if kind == ObjectKind::Copy {
            if self.held_bytes(object).is_some() {
                let _ = fs::remove_file(before); // The copy is in memory.
            }
            return Ok(());
        }
        // The rename replaces the changed file.
        self.take_over(object, kind.stay()).map_err(|error| error.to_string())
    }
}
