//! Tasks that were staged ahead and then wait for a slot behind long ones: they go back to the
//! queue that they came from, where idle nodes find them. What was fetched for them stays, and as
//! long as it does they are not staged anew before a slot is free.

use proto::event::Reason;
use proto::limits::{OFFER_AGAIN_AFTER, OFFER_AGAIN_FETCHES, STEP_POPS_MAX};
use proto::{Event, Span, TaskId, Time};

use crate::output::Out;
use crate::staging::Staged;
use crate::start_permission::StartPermission;
use crate::{Mutant, Scheduler};

impl Scheduler {
    /// So long a task waits for a slot with its inputs here: others would have to fetch these, and
    /// a short wait is what staging ahead is for.
    fn requeue_timeout(&self) -> Span {
        let fetch_ns = self.data.fetch_time.0.saturating_mul(OFFER_AGAIN_FETCHES);
        Span(OFFER_AGAIN_AFTER.0.saturating_add(fetch_ns))
    }

    /// Whether another node may have it instead. The paper's policies keep what is dedicated.
    fn may_be_requeued(&self, staged: &Staged) -> bool {
        let is_shared = !staged.local_queue || self.rules().shares_local_queue;
        let is_free = staged.complete
            && staged.start_permission == StartPermission::NotNeeded
            && staged.slot.is_none();
        let is_plain = staged.work.deaths == 0 && !staged.work.is_bound();
        is_shared && is_free && is_plain && staged.home_knows
    }

    /// All slots are taken, others are there, and this is the first that may be offered.
    fn longest_waiting(&self) -> Option<(TaskId, Time)> {
        let others = self.homes.living_others() > 0 && self.drain.is_none();
        let never = self.options.mutant == Some(Mutant::StagedNeverRequeued);
        // What was fetched for it would go, and be fetched again for the same long wait.
        let is_full = self.data.objects.copied_bytes > self.options.tuning.cache_bytes;
        if self.slots.free() > 0 || !others || is_full || never {
            return None;
        }
        let first = *self.awaiting_slot.front()?;
        let staged = self.staging.get(&first)?;
        Some((first, staged.since + self.requeue_timeout()))
    }

    pub(crate) fn next_requeue(&self) -> Option<Time> {
        let (first, at) = self.longest_waiting()?;
        // One that may not be offered, or keeps its line waiting, is no reason to wake.
        self.staging.get(&first).filter(|staged| self.may_be_requeued(staged)).map(|_| at)
    }

    /// Those behind one that has waited for too long wait longer.
    pub(crate) fn requeue_staged(&mut self, now: Time, out: &mut Out) {
        if self.longest_waiting().is_none_or(|(_, at)| now < at) {
            return;
        }
        let may = |task: &&TaskId| {
            self.staging.get(task).is_some_and(|staged| self.may_be_requeued(staged))
        };
        let tasks: Vec<TaskId> =
            self.awaiting_slot.iter().filter(may).take(STEP_POPS_MAX).copied().collect();
        // The last first: each goes before its equals.
        for &task in tasks.iter().rev() {
            if let Some(staged) = self.staging.get(&task) {
                staged.pins.iter().for_each(|&object| self.data.objects.outlasts_reader(object));
            }
            let Some(staged) = self.unstage(task, out) else { continue };
            let Staged { attempt, work, local_queue, home_knows, .. } = staged;
            let input_bytes = work.input_bytes();
            let ready = self.ready(task, attempt, &work);
            self.put_first(local_queue, ready, work, home_knows);
            let reason = Reason::OfferedAgain;
            out.events.push(Event::Queued { task, attempt, local_queue, reason, input_bytes });
        }
    }
}
