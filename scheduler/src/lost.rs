//! Inputs with a failed maker: copies are looked for. If there is none, the homes of the tasks that
//! read them are informed.

use proto::limits::{FETCH_TRIES_REBUILT_MAX, OBJECTS_TOLD_MAX};
use proto::work::Outcome;
use proto::{NodeId, ObjectId, TaskId, Time, wire};

use crate::Scheduler;
use crate::data::{Reads, wire_object};
use crate::fetching::{Flight, Phase};
use crate::out::Out;

impl Scheduler {
    /// Whether the map declares the node failed, and no message of a later incarnation has arrived.
    pub(crate) fn is_dead(&self, node: NodeId) -> bool {
        // The map may know only an earlier incarnation of this node too.
        self.homes.is_gone(node) && self.incarnation_of(node) <= self.homes.incarnation_of(node)
    }

    /// Asks the home of the object for copies, up to `FETCH_TRIES_REBUILT_MAX` times.
    pub(crate) fn look_for_copies(&mut self, now: Time, object: ObjectId, out: &mut Out) {
        let home = self.home_of_object(&object);
        let Some(flight) = self.data.flights.get_mut(&object) else { return };
        flight.tries += 1;
        let Some(home) = home.filter(|_| flight.tries <= FETCH_TRIES_REBUILT_MAX) else {
            return self.input_gone(now, object, out);
        };
        self.ask_for_copies(now, object, home, out);
    }

    fn ask_for_copies(&mut self, now: Time, object: ObjectId, home: NodeId, out: &mut Out) {
        let Some(flight) = self.data.flights.get_mut(&object) else { return };
        self.data.waiting -= usize::from(flight.phase == Phase::Waiting);
        flight.phase = Phase::Locating;
        flight.copy_known = false;
        let size_bytes = flight.size_bytes;
        let copies = &mut out.locate.entry(home).or_default().copies_only;
        copies.push(wire_object(object, size_bytes));
        self.set_timer(object, Some(now + self.locate_timeout(size_bytes)));
    }

    /// These homes have lost the lists of waiting askers: they are asked again.
    pub(crate) fn ask_where_again(
        &mut self,
        now: Time,
        concerns: impl Fn(&ObjectId, &Flight) -> bool,
        out: &mut Out,
    ) {
        let waits = |flight: &Flight| matches!(flight.phase, Phase::Locating | Phase::Waiting);
        let flights = self.data.flights.iter();
        let flights = flights.filter(|(object, flight)| waits(flight) && concerns(object, flight));
        let waiting: Vec<_> = flights.map(|(&object, flight)| (object, flight.maker)).collect();
        for (object, maker) in waiting {
            // A missing answer is no evidence about the object: it does not count as a try.
            let Some(home) = self.home_of_object(&object) else { continue };
            match self.is_dead(maker) {
                true => self.ask_for_copies(now, object, home, out),
                false => self.ask_where(now, object, home, out),
            }
        }
    }

    /// A node has failed: no more data arrives from it.
    pub(crate) fn source_gone(&mut self, now: Time, node: NodeId, out: &mut Out) {
        let stops = |flight: &Flight| match flight.phase {
            Phase::Moving => flight.from == node,
            Phase::Locating | Phase::Waiting | Phase::Pausing => flight.maker == node,
        };
        let flights = self.data.flights.iter().filter(|(_, flight)| stops(flight));
        let stopped: Vec<_> = flights.map(|(&object, flight)| (object, flight.maker)).collect();
        for (object, maker) in stopped {
            if self.is_dead(maker) {
                self.look_for_copies(now, object, out);
            } else {
                self.fetch_from(now, object, maker, out);
            }
        }
    }

    /// No node has the object any more. Tasks that wait for nothing else go back to their homes.
    pub(crate) fn input_gone(&mut self, now: Time, object: ObjectId, out: &mut Out) {
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

    /// An input of a staged task has arrived, or is lost.
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
