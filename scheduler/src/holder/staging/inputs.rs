//! The inputs of staged tasks: each arrives, fails to come, or is lost.

use proto::{Attempt, ObjectId, TaskId, Time};

use crate::holder::Holder;
use crate::objects::data::wire_object;

/// An input of this size has arrived, for an attempt that was staged at that time.
pub(crate) struct InputArrived {
    pub(crate) attempt: Attempt,
    pub(crate) since: Time,
    pub(crate) bytes: u64,
}

impl Holder {
    /// `None`: the task does not wait for the object any more. `pin` returns whether it has pinned
    /// the object for the task.
    pub(crate) fn input_arrived(
        &mut self,
        task: TaskId,
        object: ObjectId,
        pin: impl FnOnce(ObjectId) -> bool,
    ) -> Option<InputArrived> {
        let staged = self.staging.get_mut(&task)?;
        let bytes = staged.missing.remove(&object)?;
        if pin(object) {
            staged.pins.push(object);
        }
        Some(InputArrived { attempt: staged.attempt, since: staged.since, bytes })
    }

    /// No node has the object. Returns false if the task does not wait for it any more.
    pub(crate) fn input_lost(&mut self, task: TaskId, object: ObjectId) -> bool {
        let Some(staged) = self.staging.get_mut(&task) else { return false };
        let Some(size_bytes) = staged.missing.remove(&object) else { return false };
        staged.lost.push(wire_object(object, size_bytes));
        true
    }

    /// The maker could not deliver the object. Returns whether this is the first failed fetch of
    /// the task, if it waits for the object.
    pub(crate) fn fetch_fails(&mut self, task: TaskId, object: ObjectId) -> bool {
        let Some(staged) = self.staging.get_mut(&task) else { return false };
        let fails = staged.missing.contains_key(&object) && staged.failed_fetches.insert(object);
        fails && staged.failed_fetches.len() == 1
    }

    /// The failed fetch of the object goes on. Returns whether it was the last failed one of the
    /// task.
    pub(crate) fn fetch_resumes(&mut self, task: TaskId, object: &ObjectId) -> bool {
        let Some(staged) = self.staging.get_mut(&task) else { return false };
        staged.failed_fetches.remove(object) && staged.failed_fetches.is_empty()
    }

    /// A task with all inputs waits for a slot from now on. Returns true for a task that misses
    /// nothing but lost inputs: it cannot run.
    pub(crate) fn settle_inputs(&mut self, task: TaskId) -> bool {
        let Some(staged) = self.staging.get_mut(&task) else { return false };
        if !staged.missing.is_empty() || staged.complete {
            return false;
        }
        if !staged.lost.is_empty() {
            return true;
        }
        staged.complete = true;
        self.join_line(task);
        false
    }
}
