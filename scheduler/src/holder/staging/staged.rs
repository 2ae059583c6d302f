//! A task between its queue and its slot.

use std::collections::{BTreeMap, BTreeSet};

use proto::{Attempt, ObjectId, Time, wire};

use crate::holder::slots::Seat;
use crate::holder::start_permission::StartPermission;
use crate::holder::task::Work;
use crate::objects::data::Reads;
use crate::objects::shared_files::SharedFile;

/// A task that has left its queue and has no slot yet.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(in crate::holder) attempt: Attempt,
    pub(in crate::holder) work: Work,
    /// The class of the task, also without a request.
    pub(in crate::holder) class: u64,
    /// The queue that it left, and whether its home knew then that the task is here.
    pub(in crate::holder) local_queue: bool,
    pub(in crate::holder) home_knows: bool,
    /// When the task left its queue, and its fetches began.
    pub(in crate::holder) since: Time,
    /// Objects that are being fetched, each with its size.
    pub(in crate::holder) missing: BTreeMap<ObjectId, u64>,
    /// Objects that no node has any more.
    pub(in crate::holder) lost: Vec<wire::Object>,
    /// Missing objects that their maker could not deliver.
    pub(in crate::holder) failed_fetches: BTreeSet<ObjectId>,
    /// All inputs are here: it waits only for a slot.
    pub(in crate::holder) complete: bool,
    /// The state of the task's request to start, if the task needs one.
    pub(in crate::holder) start_permission: StartPermission,
    pub(in crate::holder) late: u32, // How often the request timed out.
    /// The task's slots and claim, while the task waits for the answer.
    pub(in crate::holder) seat: Option<Seat>,
    /// Its inputs that are here and pinned.
    pub(in crate::holder) pins: Vec<ObjectId>,
    pub(in crate::holder) reads: Reads,
    /// The declared bytes of the task's outputs.
    pub(in crate::holder) output_bytes: u64,
    /// Files that are copied to this node for the task.
    pub(in crate::holder) shared_files: Vec<SharedFile>,
}

impl Staged {
    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt
    }
    pub(crate) fn work(&self) -> &Work {
        &self.work
    }
    /// When the task left its queue, and its fetches began.
    pub(crate) fn since(&self) -> Time {
        self.since
    }
    pub(crate) fn missing(&self) -> impl ExactSizeIterator<Item = &ObjectId> {
        self.missing.keys()
    }
    pub(crate) fn misses(&self, object: &ObjectId) -> bool {
        self.missing.contains_key(object)
    }
    /// Whether it has asked its home for the permission to start, and waits for the answer.
    pub(crate) fn awaits_permission(&self) -> bool {
        matches!(self.start_permission, StartPermission::Requested | StartPermission::Overdue)
    }
    /// The first of the objects that no node has any more, up to this number.
    pub(crate) fn take_lost(&mut self, most: usize) -> Vec<wire::Object> {
        let mut lost = std::mem::take(&mut self.lost);
        lost.truncate(most);
        lost
    }
    /// Whether the task needs neither a slot nor a permission, and misses nothing.
    pub(in crate::holder) fn starts_at_once(&self) -> bool {
        let is_plain = self.work.deaths == 0 && !self.work.alone;
        self.missing.is_empty() && is_plain && self.work.is_instant()
    }
    /// Whether the task waits: for a slot, among the complete tasks; for its home; or for objects.
    pub(crate) fn waits(&self, in_line: bool) -> bool {
        in_line || self.start_permission != StartPermission::NotNeeded || !self.missing.is_empty()
    }
}
