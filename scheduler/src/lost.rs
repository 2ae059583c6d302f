//! Inputs whose maker is dead, or has them no more: other copies are looked for, and where there is
//! none, the homes of the tasks that want them are told.

use proto::limits::{COPIES_NAMED_MAX, FETCH_TRIES_REBUILT_MAX, OBJECTS_TOLD_MAX};
use proto::work::Outcome;
use proto::{NodeId, ObjectId, TaskId, Time, wire};

use crate::Scheduler;
use crate::data::{Reads, wire_object};
use crate::fetching::{Flight, Phase};
use crate::out::Out;

impl Scheduler {
    /// The map says that a node has died, and nothing was heard of a later life of it.
    pub(crate) fn is_dead(&self, node: NodeId) -> bool {
        // Of itself too the map may know its last life alone.
        self.homes.is_gone(node) && self.incarnation_of(node) <= self.homes.incarnation_of(node)
    }

    /// The maker of what is to come here is dead, or does not have it.
    pub(crate) fn is_maker_out(&self, object: &ObjectId) -> bool {
        let flight = self.data.flights.get(object);
        flight.is_some_and(|flight| {
            flight.lacking.contains(&flight.maker) || self.is_dead(flight.maker)
        })
    }

    /// A node that is well has no such object. To ask it again is of no use: its maker may have
    /// it, and the home knows who else.
    pub(crate) fn not_there(&mut self, now: Time, object: ObjectId, node: NodeId, out: &mut Out) {
        let Some(flight) = self.data.flights.get_mut(&object) else { return };
        if !flight.lacking.contains(&node) && flight.lacking.len() < COPIES_NAMED_MAX {
            flight.lacking.push(node);
        }
        let maker = flight.maker;
        match self.is_maker_out(&object) {
            true => self.look_for_copies(now, object, out),
            false => self.fetch_from(now, object, maker, out),
        }
    }

    /// Asks the home of the maker for copies, a bounded number of times.
    pub(crate) fn look_for_copies(&mut self, now: Time, object: ObjectId, out: &mut Out) {
        let home = self.home_of_object(&object);
        let Some(flight) = self.data.flights.get_mut(&object) else { return };
        flight.tries += 1;
        let Some(home) = home.filter(|_| flight.tries <= FETCH_TRIES_REBUILT_MAX) else {
            return self.nowhere(now, object, out);
        };
        self.data.waiting -= usize::from(flight.phase == Phase::Waiting);
        flight.phase = Phase::Locating;
        flight.copy_known = false;
        let size_bytes = flight.size_bytes;
        let asked = wire_object(object, size_bytes);
        let nodes: Vec<u32> = flight.lacking.iter().map(|node| node.0).collect();
        let locate = out.locate.entry(home).or_default();
        match nodes.is_empty() {
            true => locate.copies_only.push(asked),
            false => {
                let lacking = wire::ObjectAt { object: Some(asked), nodes, later: false };
                locate.lacking.push(lacking);
            }
        }
        self.set_timer(object, Some(now + self.locate_timeout(size_bytes)));
    }

    /// A node is dead: what was coming from it will not come.
    pub(crate) fn source_gone(&mut self, now: Time, node: NodeId, out: &mut Out) {
        let stops = |flight: &Flight| match flight.phase {
            Phase::Moving => flight.from == node,
            Phase::Locating | Phase::Waiting | Phase::Pausing => flight.maker == node,
        };
        let flights = self.data.flights.iter().filter(|(_, flight)| stops(flight));
        let stopped: Vec<_> = flights.map(|(&object, flight)| (object, flight.maker)).collect();
        for (object, maker) in stopped {
            if self.is_maker_out(&object) {
                self.look_for_copies(now, object, out);
            } else {
                self.fetch_from(now, object, maker, out);
            }
        }
    }

    /// Whoever had it is dead or has it no more.
    pub(crate) fn nowhere(&mut self, now: Time, object: ObjectId, out: &mut Out) {
        let maker = self.data.flights.get(&object).map(|flight| flight.maker);
        match maker.is_some_and(|maker| self.is_dead(maker)) {
            true => self.input_gone(now, object, out),
            false => self.give_up_fetch(now, object, "is lost: no node has it any more", out),
        }
    }

    /// It will not come. Where homes move it is made again, elsewhere who wants it fails.
    pub(crate) fn give_up_fetch(&mut self, now: Time, object: ObjectId, why: &str, out: &mut Out) {
        if self.homes.moves() {
            self.input_gone(now, object, out);
            return;
        }
        let tasks = self.end_flight(&object).map(|flight| flight.tasks).unwrap_or_default();
        self.object_changed(&object);
        let error = format!("input {} of {} {why}", object.output, object.task);
        for task in tasks {
            let waits = self.staging.get(&task).is_some_and(|s| s.missing.contains_key(&object));
            if !waits {
                continue;
            }
            if let Some(staged) = self.unstage(task, out) {
                let outcome = Outcome { error: error.clone(), exit_code: 1, ..Default::default() };
                self.finish(now, task, staged.attempt, now, Reads::default(), outcome, out);
            }
        }
    }

    /// Nobody has it any more. Tasks that wait for nothing else go back to their homes.
    fn input_gone(&mut self, now: Time, object: ObjectId, out: &mut Out) {
        let Some(flight) = self.end_flight(&object) else { return };
        self.object_changed(&object);
        for task in flight.tasks {
            let Some(staged) = self.staging.get_mut(&task) else { continue };
            if let Some(size_bytes) = staged.missing.remove(&object) {
                staged.lost.push(wire_object(object, size_bytes));
                self.inputs_settled(now, task, out);
            }
        }
    }

    /// An input of a staged task has come, or never will.
    pub(crate) fn inputs_settled(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let Some(staged) = self.staging.get_mut(&task) else { return };
        if !staged.missing.is_empty() || staged.complete {
            return;
        }
        if staged.lost.is_empty() {
            staged.complete = true;
            self.staged.push_back(task);
            return;
        }
        let Some(mut staged) = self.unstage(task, out) else { return };
        let mut lost = std::mem::take(&mut staged.lost);
        lost.truncate(OBJECTS_TOLD_MAX);
        let first = crate::data::object_id(&lost[0]);
        let error = format!(
            "input {} of {} and {} more are lost: the nodes that had them are dead or have them no \
             more",
            first.output,
            first.task,
            lost.len() - 1
        );
        let outcome = Outcome { error, exit_code: 1, ..Default::default() };
        self.finish_without(now, task, staged.attempt, lost, outcome, out);
    }

    fn finish_without(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: proto::Attempt,
        lost: Vec<wire::Object>,
        outcome: Outcome,
        out: &mut Out,
    ) {
        let mut completion =
            self.completion(now, task, attempt, now, Reads::default(), outcome, out);
        completion.lost_inputs = lost;
        self.tell_end(now, task, completion, out);
    }
}
