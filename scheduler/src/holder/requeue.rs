//! Tasks that were staged ahead and then wait for slots behind long tasks: they go back to their
//! queue, where idle nodes find them. Their fetched inputs stay. While these stay, the tasks are
//! not staged again before they fit.

use proto::event::Reason;

use proto::{Event, Span, TaskId, Time};

use crate::holder::queues::matching::LINE_SCAN_MAX;
use crate::holder::staging::Staged;
use crate::holder::start_permission::StartPermission;
use crate::limits::STEP_POPS_MAX;
use crate::output::Out;
use crate::{Mutant, Scheduler};

/// A task with all inputs here that has waited for a slot this long, and for `OFFER_AGAIN_FETCHES`
/// fetch times, returns to its queue.
const OFFER_AGAIN_AFTER: Span = Span::from_secs(1);
const OFFER_AGAIN_FETCHES: u64 = 4;

impl Scheduler {
    /// How long a task waits for a slot with its inputs here. Other nodes would have to fetch
    /// these, and a short wait is the purpose of staging ahead.
    fn requeue_timeout(&self) -> Span {
        let fetch_ns = self.objects.mean_fetch_time().0.saturating_mul(OFFER_AGAIN_FETCHES);
        Span(OFFER_AGAIN_AFTER.0.saturating_add(fetch_ns))
    }

    /// Whether another node may run it instead. Under the paper's policies dedicated tasks stay.
    fn may_be_requeued(&self, staged: &Staged) -> bool {
        let is_shared = !staged.local_queue || self.rules().shares_local_queue;
        let is_free = staged.complete
            && staged.start_permission == StartPermission::NotNeeded
            && staged.seat.is_none();
        let is_plain = staged.work.deaths == 0 && !staged.work.is_bound();
        is_shared && is_free && is_plain && staged.home_knows
    }

    /// The end of the wait of the first staged task that other nodes may run, if no staged task
    /// fits and other nodes are there.
    pub(crate) fn next_requeue(&self) -> Option<Time> {
        let others = self.routing.homes().living_others() > 0 && !self.objects.is_draining();
        let never = self.options.mutant == Some(Mutant::StagedNeverRequeued);
        // Its inputs would be evicted, and fetched again for the same long wait.
        let is_full = self.objects.is_over_budget(self.options.tuning.cache_bytes);
        if !others || is_full || never || self.holder.line_starts() {
            return None;
        }
        let line = self.holder.awaiting_slot.iter().take(LINE_SCAN_MAX);
        let mut staged = line.filter_map(|task| self.holder.staging.get(task));
        let first = staged.find(|staged| self.may_be_requeued(staged))?;
        Some(first.since + self.requeue_timeout())
    }

    /// The first staged task has waited too long, and those behind it wait longer: all go back.
    pub(crate) fn requeue_staged(&mut self, now: Time, out: &mut Out) {
        if self.next_requeue().is_none_or(|at| now < at) {
            return;
        }
        let may = |task: &&TaskId| {
            self.holder.staging.get(task).is_some_and(|staged| self.may_be_requeued(staged))
        };
        let tasks: Vec<TaskId> =
            self.holder.awaiting_slot.iter().filter(may).take(STEP_POPS_MAX).copied().collect();
        // In reverse order: each task is put before its equals.
        for &task in tasks.iter().rev() {
            if let Some(staged) = self.holder.staging.get(&task) {
                self.objects.outlast_reader(&staged.pins);
            }
            let Some(staged) = self.unstage(task, out) else { continue };
            let Staged { attempt, work, local_queue, home_knows, .. } = staged;
            let input_bytes = work.input_bytes();
            let ready = self.ready_apart(task, attempt, &work);
            self.put_first(local_queue, ready, work, home_knows);
            let reason = Reason::OfferedAgain;
            out.events.push(Event::Queued { task, attempt, local_queue, reason, input_bytes });
        }
    }
}
