//! What is on this node: each object's size and kind, and the bytes of those that have no file.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::{ObjectId, limits};

use super::ObjectKind;

#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) objects: BTreeMap<ObjectId, Entry>,
    /// Of all of them.
    pub(super) size_bytes: u64,
    /// Of those in memory.
    held_bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) size_bytes: u64,
    pub(super) kind: ObjectKind,
    /// xxh3 of the bytes, once somebody has made it.
    pub(super) checksum: Option<u64>,
    /// Whether the file of bytes that lie in no file yet gets an x bit.
    pub(super) executable: bool,
    /// The bytes, where they lie in no file yet.
    pub(super) held: Option<Arc<[u8]>>,
}

impl Index {
    /// Notes an object that lies in a file.
    pub(super) fn insert(&mut self, object: ObjectId, size_bytes: u64, kind: ObjectKind) {
        self.remove(object);
        self.size_bytes += size_bytes;
        let entry = Entry { size_bytes, kind, checksum: None, executable: false, held: None };
        self.objects.insert(object, entry);
    }

    /// Whether a copy of that size may stay in memory.
    pub(super) fn may_hold(&self, size_bytes: u64) -> bool {
        size_bytes <= limits::SMALL_OBJECT_BYTES
            && self.held_bytes + size_bytes <= limits::COPIES_IN_MEMORY_BYTES_MAX
    }

    /// Keeps a copy in memory.
    pub(super) fn hold(&mut self, object: ObjectId, bytes: &[u8], checksum: u64, executable: bool) {
        let size_bytes = bytes.len() as u64;
        self.insert(object, size_bytes, ObjectKind::Copy);
        let entry = self.objects.get_mut(&object).expect("just inserted");
        entry.checksum = Some(checksum);
        entry.executable = executable;
        entry.held = Some(bytes.into());
        self.held_bytes += size_bytes;
    }

    /// The object has a file from now on. Whether it had none before.
    pub(super) fn free_bytes(&mut self, object: ObjectId) -> bool {
        let bytes = self.objects.get_mut(&object).and_then(|entry| entry.held.take());
        self.held_bytes -= bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        bytes.is_some()
    }

    pub(super) fn remove(&mut self, object: ObjectId) -> Option<Entry> {
        let entry = self.objects.remove(&object)?;
        self.size_bytes -= entry.size_bytes;
        self.held_bytes -= entry.held.as_ref().map_or(0, |bytes| bytes.len() as u64);
        Some(entry)
    }
}
