//! The end that a task had before it ran again for lost outputs.
//!
//! The log has that end until the further run ends well. So if that run fails, is not deterministic
//! or is cancelled, the earlier end counts again, with those of its outputs that still exist. Only
//! the tasks that wait for its lost outputs end, with the reason. If such a task is itself one that
//! was done and runs again, its own earlier end counts again too, and so on.

use std::collections::BTreeMap;

use proto::marks::{Mark, mark};
use proto::{Attempt, Event, JobId, NodeId, ObjectId, PartitionId, TaskId, Time, wire};

use crate::Mutant;
use crate::home::ledger::records::State;
use crate::home::ledger::{End, Ending, Ledger};
use crate::output::Out;

/// The earlier ends of tasks that run again. A recall removes the end of a reader: it rests on
/// bytes that may not count any more.
#[derive(Debug, Default)]
pub(in crate::home::ledger) struct EarlierEnds(BTreeMap<TaskId, EarlierEnd>);

#[derive(Clone, Copy, Debug)]
struct EarlierEnd {
    attempt: Attempt,
    /// The node that has the outputs.
    node: NodeId,
}

/// The reason that the further run of a task made no outputs, for the tasks that wait for them.
#[derive(Debug)]
pub(in crate::home::ledger) struct Refusal {
    /// How these tasks end.
    pub(in crate::home::ledger) end: End,
    pub(in crate::home::ledger) error: String,
    /// Outputs that have been deleted since all their readers had ended.
    gone: Vec<u32>,
}

impl Refusal {
    /// Makes the credit of a done task one that refuses its lost outputs. Nodes that do not know
    /// this take it for the credit of a task that is not done.
    pub(in crate::home::ledger) fn write_into(&self, credit: &mut wire::Credit) {
        credit.verdict = self.end as i32;
        credit.refuses = true;
        credit.error.clone_from(&self.error);
        credit.gone.clone_from(&self.gone);
    }
}

impl EarlierEnds {
    pub(in crate::home::ledger) fn forget(&mut self, task: TaskId) {
        self.0.remove(&task);
    }
    pub(in crate::home::ledger) fn forget_partition(&mut self, partition: PartitionId) {
        self.0.retain(|task, _| task.partition() != partition);
    }
    pub(in crate::home::ledger) fn forget_job(&mut self, job: JobId) {
        self.0.retain(|task, _| task.job != job);
    }
}

impl Ledger {
    /// Whether the task runs again, and its earlier end counts if that run does not end well.
    pub(crate) fn has_earlier_end(&self, task: TaskId) -> bool {
        self.recalls.earlier.0.contains_key(&task)
    }
    /// Whether these may be outputs of an earlier end that counts again.
    pub(in crate::home::ledger) fn may_count_again(&self, task: TaskId, attempt: Attempt) -> bool {
        self.recalls.earlier.0.get(&task).is_some_and(|earlier| earlier.attempt == attempt)
    }

    /// A done task is about to run again.
    pub(in crate::home::ledger) fn keep_earlier_end(&mut self, task: TaskId) {
        if self.mutant == Some(Mutant::EarlierEndLost) {
            return;
        }
        if let Some(cell) = self.cell(task) {
            self.recalls
                .earlier
                .0
                .insert(task, EarlierEnd { attempt: cell.attempt, node: cell.holder });
        }
    }

    /// The further run did not end well: the earlier end counts again. Returns false if there is
    /// none. `error`: the reason for tasks that wait for the lost outputs; they end with `end`.
    pub(in crate::home::ledger) fn count_earlier_end(
        &mut self,
        now: Time,
        task: TaskId,
        end: End,
        error: &str,
        out: &mut Out,
    ) -> bool {
        let Some(earlier) = self.recalls.earlier.0.remove(&task) else { return false };
        mark(Mark::EarlierEndCounts);
        let cell = self.cell(task).expect("a task that runs again has a record");
        if cell.state == State::Ready {
            out.events.push(Event::Stale { task, attempt: cell.attempt });
        }
        self.start_is_over(task, out);
        self.put_end_back(task, earlier);
        self.consume(task, out);
        self.clear_of_deaths(task, End::Done, out);
        self.wake_waiters(task);
        self.awaiting_lost_inputs.remove(&task);
        let gone = self.deleted_outputs(task, earlier.attempt);
        let (end, error) = match end {
            // The parents of its readers are done, so these fail.
            End::Skipped => (End::Failed, self.lost_input_text(task)),
            _ => (end, error.to_owned()),
        };
        let refusal = Refusal { end, error, gone };
        let job = self.jobs.get_mut(&task.job).expect("the task's job");
        let part = job.parts.get_mut(task.partition()).expect("the task's part");
        let delivers = part.has_edges(task.local.index()) && !job.cancelled;
        let idle = if delivers { Vec::new() } else { part.take_idle(task.local.index()) };
        job.parts.mark_changed(task.partition());
        job.report_soon(now, self.report_interval);
        match delivers {
            true => self.refuse_waiting(task, refusal),
            false => self.retire(task.job, task.partition(), &idle),
        }
        true
    }

    /// The reason for tasks that wait for a lost output of a task which was skipped instead of
    /// making it again.
    fn lost_input_text(&self, task: TaskId) -> String {
        let name = self.name(task);
        format!("an input is lost: task '{name}' was to make it again, and was skipped")
    }

    fn put_end_back(&mut self, task: TaskId, earlier: EarlierEnd) {
        let index = task.local.index();
        let job = self.jobs.get_mut(&task.job).expect("the task's job");
        job.open -= 1;
        let part = job.parts.get_mut(task.partition()).expect("the task's part");
        part.open -= 1;
        part.count.done += 1;
        let segment = part.segment_mut(index).expect("the task's segment");
        segment.open -= 1;
        let cell = segment.cell_mut(index).expect("looked at before");
        let was_waiting = cell.state == State::Waiting;
        let holder = std::mem::replace(&mut cell.holder, earlier.node);
        (cell.state, cell.attempt) = (State::Ended(End::Done), earlier.attempt);
        self.waiting -= u64::from(was_waiting);
        if was_waiting {
            self.forget_release(task);
        }
        self.forget_held_remotely(holder, task);
        self.give_place_back(task);
    }

    /// Outputs with bytes that are not to be kept and have no reader left.
    fn deleted_outputs(&self, task: TaskId, attempt: Attempt) -> Vec<u32> {
        let index = task.local.index();
        let side = self.part(task).and_then(|part| part.segment(index)?.side(index));
        let sizes = side.map(|side| side.output_sizes.clone()).unwrap_or_default();
        let Some(spec) = self.spec(task) else { return Vec::new() };
        let keeps = |output: u32| spec.outputs.get(output as usize).is_some_and(|it| it.keep);
        let with_bytes = (0u32..).zip(&sizes).filter(|&(output, &size)| size > 0 && !keeps(output));
        let object = |output| ObjectId { task, attempt, output };
        let outputs = with_bytes.map(|(output, _)| output);
        outputs.filter(|&output| !self.readers.has(&object(output))).collect()
    }

    /// Queues the credits that end the tasks that wait for lost outputs of this one.
    fn refuse_waiting(&mut self, task: TaskId, refusal: Refusal) {
        let Some(ended) = self.delivery_of(task, false) else { return };
        self.push_delivery(ended.refusing(refusal));
    }

    /// The parent runs no more, and its earlier end counts. A task that waits for a lost output of
    /// it ends. For all others this is the credit of that end. Returns whether the input is there
    /// now and was not before.
    pub(in crate::home::ledger) fn on_refusal(
        &mut self,
        now: Time,
        credit: &wire::Credit,
        (task, slot, output): (TaskId, u32, u32),
        out: &mut Out,
    ) -> bool {
        let index = task.local.index();
        let segment = self.part(task).and_then(|part| part.segment(index));
        if segment.is_none_or(|segment| segment.is_input_slot_filled(index, slot)) {
            return false;
        }
        let has_lost =
            |input: &wire::InputAt| input.slot == slot && input.attempt >= credit.attempt;
        let is_gone = output > 0 && credit.gone.contains(&(output - 1));
        if is_gone || self.inputs(task).any(has_lost) {
            self.end_without_input(now, task, credit, out);
            return false;
        }
        let earlier = as_of_earlier_end(credit);
        self.credit(now, &earlier, task.local, slot, output, out)
    }

    fn end_without_input(&mut self, now: Time, task: TaskId, credit: &wire::Credit, out: &mut Out) {
        match credit.verdict() {
            wire::Verdict::Cancelled => {
                self.give_up(now, task, End::Cancelled, "", out);
            }
            wire::Verdict::Failed => {
                let cell = self.cell(task).expect("its home has looked at it");
                let (attempt, node) = (cell.attempt, cell.holder);
                let error = credit.error.clone();
                let detail = wire::EndDetail { error, exit_code: 1, ..Default::default() };
                self.keep_failure(task, attempt, node, &detail);
                let ending = Ending::of_error(detail.error);
                self.end(now, task, End::Failed, node, ending, out);
            }
            wire::Verdict::Skipped | wire::Verdict::Done => {
                self.give_up(now, task, End::Skipped, "", out);
            }
        }
    }
}

/// The same credit without the refusal.
pub(in crate::home::ledger) fn as_of_earlier_end(credit: &wire::Credit) -> wire::Credit {
    wire::Credit {
        verdict: wire::Verdict::Done as i32,
        refuses: false,
        error: String::new(),
        gone: Vec::new(),
        ..credit.clone()
    }
}
