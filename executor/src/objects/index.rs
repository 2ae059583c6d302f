//! The index of the objects on this node: size and kind of each, and the bytes of those without a
//! file.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::{ObjectId, limits};

use super::ObjectKind;
use crate::limits::COPIES_IN_MEMORY_BYTES_MAX;

#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) objects: BTreeMap<ObjectId, Entry>,
    /// The bytes of all objects.
    pub(super) size_bytes: u64,
    /// The bytes of those in memory.
    held_bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) size_bytes: u64,
    pub(super) kind: ObjectKind,
    /// xxh3 of the bytes, once it was computed.
    pub(super) checksum: Option<u64>,
    /// The modification time of its file when the object was complete. Objects do not change.
    pub(super) changed_ns: Option<i64>,
    /// The file was changed after the attempt, and removed: the object must be fetched again.
    pub(super) is_dropped: bool,
    /// The file of an object in memory will get the executable bit.
    pub(super) executable: bool,
    /// The bytes of an object without a file.
    pub(super) held: Option<Arc<[u8]>>,
}

impl Index {
    /// Adds an object that has a file.
    pub(super) fn insert(
        &mut self,
        object: ObjectId,
        size_bytes: u64,
        changed_ns: Option<i64>,
        kind: ObjectKind,
    ) {
        self.remove(object);
        let entry = Entry {
            size_bytes,
            kind,
            checksum: None,
            changed_ns,
            is_dropped: false,
            executable: false,
            held: None,
        };
        self.put(object, entry);
    }

    /// Adds an object with all that is known about it.
    pub(super) fn put(&mut self, object: ObjectId, entry: Entry) {
        self.size_bytes += entry.size_bytes;
        self.held_bytes += entry.held.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.objects.insert(object, entry);
    }

    /// True if an object of that size may stay in memory.
    pub(super) fn may_hold(&self, size_bytes: u64) -> bool {
        size_bytes <= limits::SMALL_OBJECT_BYTES
            && self.held_bytes + size_bytes <= COPIES_IN_MEMORY_BYTES_MAX
    }

    /// Keeps an object in memory.
    pub(super) fn hold(
        &mut self,
        object: ObjectId,
        kind: ObjectKind,
        bytes: &[u8],
        checksum: u64,
        executable: bool,
    ) {
        let size_bytes = bytes.len() as u64;
        self.insert(object, size_bytes, None, kind);
        let entry = self.objects.get_mut(&object).expect("just inserted");
        entry.checksum = Some(checksum);
        entry.executable = executable;
        entry.held = Some(bytes.into());
        self.held_bytes += size_bytes;
    }

    /// Drops the bytes in memory of an object that has a file now. True if there were any.
    pub(super) fn free_bytes(&mut self, object: ObjectId, changed_ns: Option<i64>) -> bool {
        let entry = self.objects.get_mut(&object);
        let bytes = entry.and_then(|entry| {
            entry.changed_ns = changed_ns;
            entry.held.take()
        });
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
