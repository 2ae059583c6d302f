//! *Inputs*: each input of an attempt is on its node and comes from an attempt that the parent's
//! home committed. Every slot with an object has an input.

use std::collections::BTreeMap;

use proto::work::Launch;
use proto::{NodeId, ObjectId};

use super::{Verdict, Violation};
use crate::state::expected::ExpectedJob;

const NAME: &str = "inputs";

pub(crate) fn on_launch(
    job: &ExpectedJob,
    launch: &Launch,
    node: NodeId,
    objects: &BTreeMap<ObjectId, u64>,
) -> Verdict {
    let task = launch.task;
    let truth = &job.tasks[&task.local];
    let mut given: BTreeMap<u32, ObjectId> = BTreeMap::new();
    for input in &launch.inputs {
        given.insert(input.slot, input.object);
    }
    for (slot, edge) in truth.slots.iter().enumerate() {
        let edge = edge.expect("every slot is filled");
        let object = given.remove(&(slot as u32));
        let Some(object) = object else {
            if edge.output == 0 {
                continue;
            }
            let text = format!("{task}: slot {slot} carries an object, but none was given");
            return Err(Violation::new(NAME, text));
        };
        let right = object.task == job.task_id(edge.parent) && object.output + 1 == edge.output;
        if !right {
            let text = format!("{task}: slot {slot} was given {object:?}, not {edge:?}");
            return Err(Violation::new(NAME, text));
        }
        if !job.tasks[&edge.parent].ever_done_by(object.attempt) {
            let text = format!("{task}: {object:?} is of an attempt that was never committed");
            return Err(Violation::new(NAME, text));
        }
        // An attempt orphaned by a power cut may outlive its input. It fails and does not count.
        let undone = job.tasks[&edge.parent].is_undone(object.attempt);
        if !objects.contains_key(&object) && !undone {
            let text = format!("{task} runs on {node} without its input {object:?}");
            return Err(Violation::new(NAME, text));
        }
    }
    match given.first_key_value() {
        Some((slot, object)) => {
            let text = format!("{task}: slot {slot} does not exist, but was given {object:?}");
            Err(Violation::new(NAME, text))
        }
        None => Ok(()),
    }
}
