//! An object that arrives in pieces.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use proto::ObjectId;

use super::reader::changed_ns;
use super::{ObjectError, ObjectKind, ObjectName, ObjectStore};
use crate::disk_reserve;

/// After each such number of bytes the free space is checked.
const ROOM_LOOK_BYTES: u64 = 1 << 20;

/// An object that is being written. Dropping it before [`Self::commit`] removes the written bytes.
#[derive(Debug)]
pub struct IncomingObject {
    pub(super) store: ObjectStore,
    pub(super) object: ObjectId,
    pub(super) kind: ObjectKind,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) size_bytes: u64,
    pub(super) done: bool,
}

impl IncomingObject {
    /// Appends the next piece.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), ObjectError> {
        let size_bytes = self.size_bytes + piece.len() as u64;
        self.store.check_limit(self.object, size_bytes)?;
        let wrong = |error| ObjectError::failed("write", self.object, &error);
        if self.size_bytes / ROOM_LOOK_BYTES < size_bytes / ROOM_LOOK_BYTES {
            // Reserved space is not needed a second time.
            disk_reserve::check(&self.file, 0).map_err(wrong)?;
        }
        self.file.write_all(piece).map_err(wrong)?;
        self.size_bytes = size_bytes;
        Ok(())
    }

    /// Sets the executable bit, if the file of the task had one.
    pub fn set_executable(&self, executable: bool) -> Result<(), ObjectError> {
        if !executable {
            return Ok(());
        }
        let mode = fs::Permissions::from_mode(0o555);
        let changed = self.file.set_permissions(mode);
        changed.map_err(|error| ObjectError::failed("write", self.object, &error))
    }

    /// Reserves space for all bytes, so that a full disk is detected before they arrive.
    pub fn reserve(&self, total_bytes: u64) -> Result<(), ObjectError> {
        self.store.check_limit(self.object, total_bytes)?;
        disk_reserve::reserve(&self.file, total_bytes)
            .map_err(|error| ObjectError::failed("write", self.object, &error))
    }

    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// As [`Self::commit`], with the checksum of the bytes.
    pub fn commit_with(self, checksum: u64) -> Result<u64, ObjectError> {
        let (store, object) = (self.store.clone(), self.object);
        let size_bytes = self.commit()?;
        store.note_checksum(object, checksum);
        Ok(size_bytes)
    }

    /// Publishes the object. Returns its size in bytes.
    pub fn commit(mut self) -> Result<u64, ObjectError> {
        let Self { object, kind, size_bytes, .. } = self;
        let target = self.store.path_of(object, kind);
        fs::rename(&self.path, &target)
            .map_err(|error| ObjectError::failed("keep", object, &error))?;
        self.done = true;
        let changed_ns = self.changed_ns();
        self.store.index().insert(object, size_bytes, changed_ns, kind);
        Ok(size_bytes)
    }

    /// The modification time of the complete file.
    fn changed_ns(&self) -> Option<i64> {
        self.file.metadata().ok().as_ref().map(changed_ns)
    }

    /// Becomes the file of an object in memory, unless the object has a file or is deleted by now.
    pub(super) fn commit_held(mut self) -> Result<(), ObjectError> {
        let target = self.store.path_of(self.object, self.kind);
        let store = self.store.clone();
        let mut index = store.index();
        let entry = index.objects.get(&self.object);
        let entry = entry.ok_or(ObjectError::Absent(ObjectName(self.object)))?;
        if entry.held.is_none() {
            return Ok(()); // Another thread was faster.
        }
        // Under the lock, so that index and file agree.
        fs::rename(&self.path, target)
            .map_err(|error| ObjectError::failed("keep", self.object, &error))?;
        self.done = true;
        index.free_bytes(self.object, self.changed_ns());
        Ok(())
    }
}

impl Drop for IncomingObject {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_file(&self.path);
        }
    }
}
