//! Ready tasks that are sent to another node at once.

use proto::event::Reason;
use proto::wire::message::Body;
use proto::{Attempt, Event, NodeId, TaskId, Time, wire};

use crate::Scheduler;
use crate::holder::queues::classes::class_of;
use crate::holder::task::Work;
use crate::home::ledger::{End, Ending};
use crate::output::Out;

impl Scheduler {
    /// Whether all nodes that are wide enough are down. They may return, unless they are removed.
    pub(crate) fn waits_for_wide_node(&self, work: &Work) -> bool {
        let mut living = self.routing.homes().living();
        let mut members = self.routing.homes().members();
        !self.holder.fits_here(work)
            && !living.any(|node| self.offers_enough(node, work))
            && members.any(|node| self.offers_ever(node, work))
    }

    /// Why a task does not stay at its home.
    pub(crate) fn reason_to_leave(&self, work: &Work) -> Reason {
        match work.has_request() {
            true if work.is_gang() && self.holder.fits_here(work) => Reason::GangLed,
            true => Reason::NotOffered,
            false => Reason::TooWide,
        }
    }

    /// The task does not fit this node, or another one leads it: it is pushed to nodes where it
    /// fits, in turns, or is refused.
    pub(crate) fn place_elsewhere(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        work: Work,
        out: &mut Out,
    ) {
        let widest = self.routing.homes().slots_max();
        let fits = |node: &NodeId| self.offers_enough(*node, &work) && *node != self.options.me;
        let mut fitting: Vec<NodeId> = self.routing.homes().staying().filter(fits).collect();
        if fitting.is_empty() {
            // A leaving node waits for it.
            fitting.extend(self.routing.homes().living().filter(fits));
        }
        // Of several variants, the preferred one.
        let class = self.holder.class(class_of(&work.spec)).filter(|_| !work.is_gang());
        let is_preferred = |&node: &NodeId| {
            class.is_some_and(|it| it.is_preferred_on(self.routing.homes().kind_of(node)))
        };
        if fitting.iter().any(is_preferred) {
            fitting.retain(is_preferred);
        }
        let turn = match work.is_gang() {
            true => {
                self.leader_of(task, &work).and_then(|it| fitting.iter().position(|&n| n == it))
            }
            false => None,
        };
        let turn = turn.unwrap_or_else(|| task.local.index() as usize);
        match fitting.get(turn % fitting.len().max(1)).copied() {
            Some(node) => {
                let reason = self.reason_to_leave(&work);
                self.push(now, task, attempt, work, node, reason, out);
            }
            _ => {
                let error = match work.request() {
                    Some(request) => self.no_offer(&request),
                    None => format!(
                        "it needs {} cpus and the widest node has {}",
                        work.cpus(),
                        widest.max(self.options.slots)
                    ),
                };
                let detail = wire::EndDetail { error: error.clone(), ..Default::default() };
                let me = self.options.me;
                self.home.ledger.keep_failure(task, attempt, me, &detail);
                let ending = Ending::of_error(error);
                self.home.ledger.end(now, task, End::Failed, me, ending, out);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what, where and why")]
    pub(crate) fn push(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        work: Work,
        to: NodeId,
        reason: Reason,
        out: &mut Out,
    ) {
        let incarnation = self.incarnation_of(to);
        self.home.ledger.set_holder(task, to, incarnation, out);
        self.stats.pushes += 1;
        let length = self.length_of(&work);
        self.policy.note_sent(now, to, self.routing.homes().slots_of(to), length);
        let input_bytes = work.input_bytes();
        out.events.push(Event::Pushed { task, attempt, to, reason, input_bytes });
        let leaves = self.holder.life().leaves();
        let bundle = self.holder.pushes.entry(to).or_default();
        bundle.push(task, attempt, work);
        if bundle.is_full() {
            let bundle = Some(std::mem::take(bundle).finish());
            out.reliable.push((to, Body::Push(wire::Push { bundle, leaves })));
        }
    }
}
