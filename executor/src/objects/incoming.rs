//! An object whose bytes come in pieces.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use proto::ObjectId;

use super::{ObjectError, ObjectKind, ObjectName, ObjectStore};
use crate::disk_reserve;

/// Each time so much more of an object is written, the room that is left is looked at.
const ROOM_LOOK_BYTES: u64 = 1 << 20;

/// An object on its way in. Dropping it before [`Self::commit`] removes what was written.
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
            // Where the room was taken beforehand there need not be as much again.
            disk_reserve::check(&self.file, 0).map_err(wrong)?;
        }
        self.file.write_all(piece).map_err(wrong)?;
        self.size_bytes = size_bytes;
        Ok(())
    }

    /// Gives its file an x bit, where the file of the task had one.
    pub fn set_executable(&self, executable: bool) -> Result<(), ObjectError> {
        if !executable {
            return Ok(());
        }
        let mode = fs::Permissions::from_mode(0o555);
        let changed = self.file.set_permissions(mode);
        changed.map_err(|error| ObjectError::failed("write", self.object, &error))
    }

    /// Takes the room for all of it now: a full disk is known before bytes come in vain.
    pub fn reserve(&self, total_bytes: u64) -> Result<(), ObjectError> {
        self.store.check_limit(self.object, total_bytes)?;
        disk_reserve::reserve(&self.file, total_bytes)
            .map_err(|error| ObjectError::failed("write", self.object, &error))
    }

    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// As [`Self::commit`], with the checksum of what was written.
    pub fn commit_with(self, checksum: u64) -> Result<u64, ObjectError> {
        let (store, object) = (self.store.clone(), self.object);
        let size_bytes = self.commit()?;
        store.note_checksum(object, checksum);
        Ok(size_bytes)
    }

    /// Publishes the object. Answers its size in bytes.
    pub fn commit(mut self) -> Result<u64, ObjectError> {
        let Self { object, kind, size_bytes, .. } = self;
        let target = self.store.path_of(object, kind);
        fs::rename(&self.path, &target)
            .map_err(|error| ObjectError::failed("keep", object, &error))?;
        self.done = true;
        self.store.index().insert(object, size_bytes, kind);
        Ok(size_bytes)
    }

    /// Becomes the file of an object that lay in memory, unless that has one or is gone by now.
    pub(super) fn commit_held(mut self) -> Result<(), ObjectError> {
        let target = self.store.path_of(self.object, self.kind);
        let store = self.store.clone();
        let mut index = store.index();
        let entry = index.objects.get(&self.object);
        let entry = entry.ok_or(ObjectError::Absent(ObjectName(self.object)))?;
        if entry.held.is_none() {
            return Ok(()); // Somebody was faster.
        }
        // Under the lock: nobody looks for it where it is not.
        fs::rename(&self.path, target)
            .map_err(|error| ObjectError::failed("keep", self.object, &error))?;
        self.done = true;
        index.free_bytes(self.object);
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
