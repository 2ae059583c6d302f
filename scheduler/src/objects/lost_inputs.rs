//! Inputs with a failed maker: copies are looked for. If there is none, the homes of the tasks that
//! read them are informed.

use proto::work::Outcome;
use proto::{NodeId, ObjectId, TaskId, Time, wire};

use crate::Scheduler;
use crate::limits::{FETCH_TRIES_REBUILT_MAX, OBJECTS_PER_MESSAGE_MAX};
use crate::objects::data::{Reads, wire_object};
use crate::objects::fetch::{InflightFetch, Phase};
use crate::output::Out;

impl Scheduler {
    /// Whether the map declares the node failed, and no message of a later incarnation has arrived.
    pub(crate) fn is_dead(&self, node: NodeId) -> bool {
        // The map may know only an earlier incarnation of this node too.
        self.routing.homes().is_gone(node)
            && self.incarnation_of(node) <= self.routing.homes().incarnation_of(node)
    }

    /// Asks the home of the object for copies, up to `FETCH_TRIES_REBUILT_MAX` times.
    pub(crate) fn look_for_copies(&mut self, now: Time, object: ObjectId, out: &mut Out) {
        let home = self.home_of_object(&object);
        let Some(inflight) = self.objects.inflight_fetches.get_mut(&object) else { return };
        inflight.tries += 1;
        let Some(home) = home.filter(|_| inflight.tries <= FETCH_TRIES_REBUILT_MAX) else {
            return self.input_gone(now, object, out);
        };
        self.ask_for_copies(now, object, home, out);
    }

    fn ask_for_copies(&mut self, now: Time, object: ObjectId, home: NodeId, out: &mut Out) {
        let Some(inflight) = self.objects.inflight_fetches.get_mut(&object) else { return };
        self.objects.waiting -= usize::from(inflight.lacks_source());
        inflight.phase = Phase::Locating;
        inflight.copy_known = false;
        let size_bytes = inflight.size_bytes;
        let copies = &mut out.locate.entry(home).or_default().copies_only;
        copies.push(wire_object(object, size_bytes));
        self.objects.set_timer(object, Some(now + self.locate_timeout(size_bytes)));
    }

    /// These homes have lost the lists of waiting askers: they are asked again.
    pub(crate) fn ask_directory_again(
        &mut self,
        now: Time,
        concerns: impl Fn(&ObjectId, &InflightFetch) -> bool,
        out: &mut Out,
    ) {
        let waits =
            |inflight: &InflightFetch| matches!(inflight.phase, Phase::Locating | Phase::Waiting);
        let inflight_fetches = self.objects.inflight_fetches.iter();
        let inflight_fetches = inflight_fetches
            .filter(|(object, inflight)| waits(inflight) && concerns(object, inflight));
        let waiting: Vec<_> =
            inflight_fetches.map(|(&object, inflight)| (object, inflight.maker)).collect();
        for (object, maker) in waiting {
            // A missing answer is no evidence about the object: it does not count as a try.
            let Some(home) = self.home_of_object(&object) else { continue };
            match self.is_dead(maker) {
                true => self.ask_for_copies(now, object, home, out),
                false => self.ask_directory(now, object, home, out),
            }
        }
    }

    /// A node has failed: no more data arrives from it.
    pub(crate) fn source_gone(&mut self, now: Time, node: NodeId, out: &mut Out) {
        let stops = |inflight: &InflightFetch| match inflight.phase {
            Phase::Moving => inflight.from == node,
            Phase::Locating | Phase::Waiting | Phase::Pausing => inflight.maker == node,
        };
        let inflight_fetches =
            self.objects.inflight_fetches.iter().filter(|(_, inflight)| stops(inflight));
        let stopped: Vec<_> =
            inflight_fetches.map(|(&object, inflight)| (object, inflight.maker)).collect();
        for (object, maker) in stopped {
            if self.is_dead(maker) {
                self.look_for_copies(now, object, out);
            } else {
                self.objects.fetch_from(now, object, maker, out);
            }
        }
    }

    /// No node has the object any more. Tasks that wait for nothing else go back to their homes.
    pub(crate) fn input_gone(&mut self, now: Time, object: ObjectId, out: &mut Out) {
        let Some(inflight) = self.end_inflight_fetch(&object) else { return };
        self.object_changed(&object);
        for task in inflight.tasks {
            if self.holder.input_lost(task, object) {
                self.inputs_settled(now, task, out);
            }
        }
    }

    /// An input of a staged task has arrived, or is lost.
    pub(crate) fn inputs_settled(&mut self, now: Time, task: TaskId, out: &mut Out) {
        if !self.holder.settle_inputs(task) {
            return;
        }
        let Some(mut staged) = self.unstage(task, out) else { return };
        let lost = staged.take_lost(OBJECTS_PER_MESSAGE_MAX);
        let first = crate::objects::data::object_id(&lost[0]);
        let error = format!(
            "input {} of {} and {} more are lost: the nodes that had them are dead or have them no \
             more",
            first.output,
            first.task,
            lost.len() - 1
        );
        let outcome = Outcome { error, exit_code: 1, ..Default::default() };
        self.finish_without(now, task, staged.attempt(), lost, Box::new(outcome), out);
    }

    fn finish_without(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: proto::Attempt,
        lost: Vec<wire::Object>,
        outcome: Box<Outcome>,
        out: &mut Out,
    ) {
        let mut completion =
            self.completion(now, task, attempt, now, Reads::default(), outcome, out);
        completion.lost_inputs = lost;
        self.report_end(now, task, completion, None, out);
    }
}
