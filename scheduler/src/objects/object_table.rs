//! The objects on this node: outputs made here, and copies of outputs made on other nodes. Copies
//! are evicted, least recently used first, when space is needed. An object that a staged or running
//! task uses is pinned and stays. An output made here is deleted when no task will read it any
//! more.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use proto::work::Stay;
use proto::{Attempt, JobId, LocalId, ObjectId, TaskId, wire};

use crate::objects::drain::AttemptKey;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Made {
        stay: Stay,
    },
    Copy {
        /// Fetched before any task asked for it: its first reader is the task for which it was
        /// fetched.
        fresh: bool,
        /// Only one task reads it: afterwards no task needs the copy.
        single: bool,
    },
}

#[derive(Debug)]
struct Entry {
    size_bytes: u64,
    /// Its bytes are in files; virtual data takes no space.
    real: bool,
    kind: Kind,
    /// The number of staged and running tasks that use it.
    pins: u32,
    /// The key in [`ObjectTable::idle`] while the object is an unpinned copy.
    last_use: u64,
    /// No task will read it: it is deleted with the last pin.
    delete_when_unpinned: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ObjectTable {
    entries: BTreeMap<ObjectId, Entry>,
    /// Copies without pins, least recently used first.
    idle: BTreeMap<u64, ObjectId>,
    uses: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) copied_bytes: u64,
    pub(crate) copies: u64,
    /// Bytes of all objects that take space on the disk.
    real_bytes: u64,
    /// Bytes of idle copies.
    idle_bytes: u64,
    idle_real_bytes: u64,
    pub(crate) evicted_bytes: u64,
    /// A mutant: pinned copies are evicted too.
    pub(crate) ignores_pins: bool,
}

impl ObjectTable {
    #[must_use]
    pub(crate) fn contains(&self, object: &ObjectId) -> bool {
        self.entries.contains_key(object)
    }
    pub(crate) fn has_any(&self, objects: RangeInclusive<ObjectId>) -> bool {
        self.entries.range(objects).next().is_some()
    }
    /// Whether the object is a copy that the fetch of an earlier task brought. A copy that was
    /// fetched early counts as fetched for its first reader.
    pub(crate) fn read_copy(&mut self, object: &ObjectId) -> bool {
        match self.entries.get_mut(object).map(|entry| &mut entry.kind) {
            Some(Kind::Copy { fresh, .. }) => !std::mem::take(fresh),
            _ => false,
        }
    }
    /// Bytes of objects that tasks made here and that take space, by job.
    pub(crate) fn bytes_by_job(&self) -> BTreeMap<JobId, u64> {
        let mut bytes = BTreeMap::new();
        let made = |entry: &Entry| entry.real && matches!(entry.kind, Kind::Made { .. });
        for (object, entry) in self.entries.iter().filter(|(_, entry)| made(entry)) {
            *bytes.entry(object.task.job).or_default() += entry.size_bytes;
        }
        bytes
    }

    /// Bytes on the disk that eviction cannot free.
    #[must_use]
    pub(crate) fn firm_bytes(&self) -> u64 {
        self.real_bytes - self.idle_real_bytes
    }
    /// Bytes on the disk.
    #[must_use]
    pub(crate) fn real_bytes(&self) -> u64 {
        self.real_bytes
    }
    /// Bytes on the disk that eviction could free while no task uses the object.
    #[must_use]
    pub(crate) fn idle_bytes_of(&self, object: &ObjectId) -> u64 {
        let idle = |entry: &&Entry| {
            entry.real && entry.pins == 0 && matches!(entry.kind, Kind::Copy { .. })
        };
        self.entries.get(object).filter(idle).map_or(0, |entry| entry.size_bytes)
    }
    /// Bytes of pinned copies.
    #[must_use]
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.copied_bytes - self.idle_bytes
    }

    /// Adds an output that a task made here.
    pub(crate) fn made(
        &mut self,
        object: ObjectId,
        size_bytes: u64,
        real: bool,
        stay: impl Into<Stay>,
    ) {
        self.insert(object, size_bytes, real, Kind::Made { stay: stay.into() });
    }
    /// Adds a copy. `fresh`: fetched before a task asked for it; `single`: only one task reads it.
    pub(crate) fn copied(
        &mut self,
        object: ObjectId,
        size_bytes: u64,
        real: bool,
        (fresh, single): (bool, bool),
    ) {
        self.insert(object, size_bytes, real, Kind::Copy { fresh, single });
    }
    /// Adds an output of another node, as if it had been made here.
    pub(crate) fn take(
        &mut self,
        object: ObjectId,
        size_bytes: u64,
        real: bool,
        stay: impl Into<Stay>,
    ) {
        let stay = stay.into();
        self.made(object, size_bytes, real, stay);
        self.keep(object, stay);
    }
    /// Keeps a copy like an output that was made here.
    pub(crate) fn keep(&mut self, object: ObjectId, stay: impl Into<Stay>) {
        if self.is_made(&object) {
            return;
        }
        self.make_busy(object); // An output made here is never idle.
        let Some(entry) = self.entries.get_mut(&object) else { return };
        entry.kind = Kind::Made { stay: stay.into() };
        self.copied_bytes -= entry.size_bytes;
        self.copies -= 1;
    }
    /// A copy with one reader stays, although this reader does not need it now.
    pub(crate) fn outlasts_reader(&mut self, object: ObjectId) {
        if let Some(Kind::Copy { single, .. }) =
            self.entries.get_mut(&object).map(|entry| &mut entry.kind)
        {
            *single = false;
        }
    }
    /// Whether the object was made here, or taken over from its maker.
    #[must_use]
    pub(crate) fn is_made(&self, object: &ObjectId) -> bool {
        let entry = self.entries.get(object);
        entry.is_some_and(|entry| matches!(entry.kind, Kind::Made { .. }))
    }
    /// All objects that were made here or taken over.
    pub(crate) fn made_here(&self) -> impl Iterator<Item = &ObjectId> {
        let made = |entry: &Entry| matches!(entry.kind, Kind::Made { .. });
        self.entries.iter().filter(move |(_, entry)| made(entry)).map(|(object, _)| object)
    }
    /// The attempts of a task of which objects are here.
    pub(crate) fn attempts_of(&self, task: TaskId) -> Vec<AttemptKey> {
        let bound = |attempt, output| ObjectId { task, attempt, output };
        let all = bound(Attempt(0), 0)..=bound(Attempt(u64::MAX), u32::MAX);
        let mut made: Vec<AttemptKey> =
            self.entries.range(all).map(|(object, _)| (task, object.attempt)).collect();
        made.dedup();
        made
    }
    /// The outputs of an attempt that some task may still read.
    pub(crate) fn outputs_of(&self, (task, attempt): AttemptKey) -> Vec<wire::TransferredOutput> {
        let bound = |output| ObjectId { task, attempt, output };
        let all = self.entries.range(bound(0)..=bound(u32::MAX));
        let made = all.filter_map(|(object, entry)| match entry.kind {
            Kind::Made { stay } if !entry.delete_when_unpinned => Some(wire::TransferredOutput {
                output: object.output,
                size_bytes: entry.size_bytes,
                keep: stay.keep,
                real: entry.real,
                share: stay.share,
            }),
            _ => None,
        });
        made.collect()
    }
    fn insert(&mut self, object: ObjectId, size_bytes: u64, real: bool, kind: Kind) {
        if self.entries.contains_key(&object) {
            return;
        }
        let entry =
            Entry { size_bytes, real, kind, pins: 0, last_use: 0, delete_when_unpinned: false };
        self.stored_bytes += size_bytes;
        self.real_bytes += if real { size_bytes } else { 0 };
        if matches!(kind, Kind::Copy { .. }) {
            self.copied_bytes += size_bytes;
            self.copies += 1;
        }
        self.entries.insert(object, entry);
        self.make_idle(object);
    }

    fn make_idle(&mut self, object: ObjectId) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        if matches!(entry.kind, Kind::Copy { .. }) {
            self.uses += 1;
            entry.last_use = self.uses;
            self.idle.insert(self.uses, object);
            self.idle_bytes += entry.size_bytes;
            self.idle_real_bytes += if entry.real { entry.size_bytes } else { 0 };
        }
    }
    fn make_busy(&mut self, object: ObjectId) {
        let Some(entry) = self.entries.get(&object) else { return };
        if self.idle.remove(&entry.last_use).is_some() {
            self.idle_bytes -= entry.size_bytes;
            self.idle_real_bytes -= if entry.real { entry.size_bytes } else { 0 };
        }
    }

    /// Pins the object for a task. Returns false if the object is not here.
    pub(crate) fn pin(&mut self, object: ObjectId) -> bool {
        let Some(entry) = self.entries.get_mut(&object) else { return false };
        entry.pins += 1;
        if entry.pins == 1 {
            self.make_busy(object);
        }
        true
    }
    /// Removes the pin of a task. Returns true if the object is deleted with it.
    pub(crate) fn unpin(&mut self, object: ObjectId) -> bool {
        let Some(entry) = self.entries.get_mut(&object) else { return false };
        if entry.pins == 0 {
            return false; // The object was deleted while pinned, and fetched again.
        }
        entry.pins -= 1;
        if entry.pins > 0 {
            return false;
        }
        if entry.delete_when_unpinned || matches!(entry.kind, Kind::Copy { single: true, .. }) {
            self.remove(object);
            return true;
        }
        self.make_idle(object);
        false
    }

    /// No task will read it any more. Returns true if it is deleted now, or is not known here at
    /// all.
    pub(crate) fn mark_deleted(&mut self, object: ObjectId) -> bool {
        match self.entries.get_mut(&object) {
            Some(entry) if entry.pins > 0 => {
                entry.delete_when_unpinned = true;
                false
            }
            Some(_) => {
                self.remove(object);
                true
            }
            None => true,
        }
    }

    fn remove(&mut self, object: ObjectId) {
        self.make_busy(object);
        let Some(entry) = self.entries.remove(&object) else { return };
        self.stored_bytes -= entry.size_bytes;
        self.real_bytes -= if entry.real { entry.size_bytes } else { 0 };
        if matches!(entry.kind, Kind::Copy { .. }) {
            self.copied_bytes -= entry.size_bytes;
            self.copies -= 1;
        }
    }

    /// Evicts idle copies until copies and files are within these limits, as far as possible.
    /// Returns the evicted objects with their sizes.
    pub(crate) fn evict(&mut self, copied_max: u64, real_max: u64) -> Vec<(ObjectId, u64)> {
        let mut gone = Vec::new();
        while self.copied_bytes > copied_max || self.real_bytes > real_max {
            let pinned = |this: &Self| {
                let copy = |entry: &Entry| matches!(entry.kind, Kind::Copy { .. });
                this.entries.iter().find(|(_, entry)| copy(entry)).map(|(&object, _)| object)
            };
            let first = self.idle.first_key_value().map(|(_, &object)| object);
            let next = first.or_else(|| if self.ignores_pins { pinned(self) } else { None });
            let Some(object) = next else { break };
            let size_bytes = self.entries.get(&object).map_or(0, |entry| entry.size_bytes);
            self.evicted_bytes += size_bytes;
            self.remove(object);
            gone.push((object, size_bytes));
        }
        gone
    }

    /// The job is over: its objects are removed, except for kept outputs. `all_made`: its tasks may
    /// be retried, and all outputs made here may still be read.
    pub(crate) fn forget_job(&mut self, job: JobId, all_made: bool) -> Vec<ObjectId> {
        let kept = |entry: &Entry| match entry.kind {
            Kind::Made { stay } => stay.keep || all_made,
            Kind::Copy { .. } => false,
        };
        let of_job = self.entries.range(first_of(job)..).take_while(|(o, _)| o.task.job == job);
        let gone: Vec<_> =
            of_job.filter(|(_, entry)| !kept(entry)).map(|(&object, _)| object).collect();
        for &object in &gone {
            self.remove(object);
        }
        gone
    }
}

impl ObjectTable {
    /// The job is forgotten: its kept outputs are removed too.
    pub(crate) fn forget_results(&mut self, job: JobId) -> Vec<ObjectId> {
        let of_job = self.entries.range(first_of(job)..).take_while(|(o, _)| o.task.job == job);
        let gone: Vec<_> = of_job.map(|(&object, _)| object).collect();
        for &object in &gone {
            self.remove(object);
        }
        gone
    }
}

/// Removes every object of the job from a table.
pub(crate) fn remove_of_job<T>(table: &mut BTreeMap<ObjectId, T>, job: JobId) {
    let of_job = table.range(first_of(job)..).take_while(|(object, _)| object.task.job == job);
    let gone: Vec<_> = of_job.map(|(&object, _)| object).collect();
    for object in gone {
        table.remove(&object);
    }
}

/// The smallest possible object of the job.
#[must_use]
pub(crate) fn first_of(job: JobId) -> ObjectId {
    let task = TaskId { job, local: LocalId(0) };
    ObjectId { task, attempt: Attempt(0), output: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: u64) -> ObjectId {
        ObjectId { task: TaskId::new(1, number), attempt: Attempt(7), output: 0 }
    }
    fn gone(objects: &mut ObjectTable, copied_max: u64, real_max: u64) -> Vec<u64> {
        let gone = objects.evict(copied_max, real_max);
        gone.iter().map(|(object, _)| object.task.local.0).collect()
    }

    #[test]
    fn the_copy_that_was_used_longest_ago_goes_first() {
        let mut objects = ObjectTable::default();
        for number in 0..4 {
            objects.copied(object(number), 10, true, (false, false));
        }
        objects.made(object(9), 1_000, true, false);
        assert!(objects.pin(object(0)));
        assert!(!objects.unpin(object(0)), "it stays");
        assert_eq!(gone(&mut objects, 20, u64::MAX), [1, 2]);
        assert_eq!((objects.copied_bytes, objects.evicted_bytes, objects.copies), (20, 20, 2));
        assert_eq!(gone(&mut objects, u64::MAX, 1_005), [3, 0], "own outputs are no copies");
        assert_eq!(gone(&mut objects, 0, 0), [0; 0]);
        assert_eq!(objects.stored_bytes, 1_000);
    }

    #[test]
    fn what_is_in_use_is_never_evicted() {
        let mut objects = ObjectTable::default();
        objects.copied(object(1), 10, true, (false, false));
        objects.copied(object(2), 10, true, (false, false));
        objects.pin(object(1));
        objects.pin(object(1));
        assert_eq!(gone(&mut objects, 0, 0), [2]);
        objects.unpin(object(1));
        assert_eq!((objects.pinned_bytes(), objects.firm_bytes()), (10, 10));
        assert_eq!(gone(&mut objects, 0, 0), [0; 0], "one task still uses it");
        objects.unpin(object(1));
        assert_eq!(gone(&mut objects, 0, 0), [1]);
        assert_eq!((objects.stored_bytes, objects.real_bytes, objects.firm_bytes()), (0, 0, 0));
    }

    #[test]
    fn an_unread_object_is_deleted_with_its_last_pin() {
        let mut objects = ObjectTable::default();
        objects.made(object(1), 10, true, false);
        objects.pin(object(1));
        assert!(!objects.mark_deleted(object(1)));
        assert!(objects.contains(&object(1)));
        assert!(objects.unpin(object(1)));
        assert!(!objects.contains(&object(1)));
        assert!(objects.mark_deleted(object(5)), "files of an earlier incarnation go as well");
        objects.copied(object(6), 10, true, (false, true));
        objects.pin(object(6));
        assert!(objects.unpin(object(6)), "no other task reads this copy");
    }

    #[test]
    fn a_copy_that_is_taken_over_is_never_evicted() {
        let mut objects = ObjectTable::default();
        objects.copied(object(1), 10, true, (false, false));
        objects.copied(object(2), 10, true, (false, true));
        objects.pin(object(2));
        objects.take(object(1), 10, true, true);
        objects.take(object(2), 10, true, false);
        objects.take(object(3), 10, true, false);
        assert_eq!(gone(&mut objects, 0, 0), [0; 0]);
        assert!(!objects.unpin(object(2)), "it is no copy for one reader any more");
        assert_eq!((objects.copies, objects.copied_bytes, objects.firm_bytes()), (0, 0, 30));
        assert_eq!(objects.outputs_of((TaskId::new(1, 1), Attempt(7))).len(), 1);
        assert_eq!(objects.forget_job(JobId(1), false), [object(2), object(3)]);
    }

    #[test]
    fn a_job_leaves_what_is_kept() {
        let mut objects = ObjectTable::default();
        objects.made(object(1), 10, false, true);
        objects.made(object(2), 10, false, false);
        objects.copied(object(3), 10, false, (true, false));
        assert!(!objects.read_copy(&object(3)), "it was brought for this reader");
        assert!(objects.read_copy(&object(3)));
        assert_eq!(objects.forget_job(JobId(2), false), []);
        assert_eq!(objects.forget_job(JobId(1), true), [object(3)], "it may be read again");
        assert_eq!(objects.forget_job(JobId(1), false), [object(2)]);
        assert_eq!((objects.stored_bytes, objects.real_bytes), (10, 0));
    }
}
