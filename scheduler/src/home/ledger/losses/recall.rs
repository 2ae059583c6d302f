//! Recalls: a task that runs again may write other bytes than its earlier attempt.
//!
//! A completion carries a checksum of each output. If the checksums equal those of the earlier end,
//! the readers continue. If one differs, the task's home holds the new end back and recalls the
//! readers of that output: each home of readers withdraws the input. A reader that had ended runs
//! again, and its own readers are recalled at once. They wait for it, and each task below runs
//! again once. The new end counts when all homes of readers have answered. If a reader cannot run
//! again, the task fails instead.
//!
//! `docs/design/021-one-attempt.md` has the options and the orders of events.

use std::collections::BTreeMap;

use proto::event::RetryReason;
use proto::marks::{Mark, mark};
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, TaskId, wire};

use super::earlier::EarlierEnds;
use super::lineage::{CreditAsks, send};
use crate::Mutant;
use crate::home::ledger::records::State;
use crate::home::ledger::{End, Ledger};
use crate::limits::REBUILDS_MAX;
use crate::output::Out;
use crate::routing::partition_owners::Homes;

/// An end that is held back until all readers of the earlier, different bytes are recalled.
#[derive(Debug)]
struct Pending {
    from: NodeId,
    completion: wire::Completion,
    /// The outputs that differ.
    outputs: Vec<u32>,
    /// Recalls that are sent after the job's home has answered that no client fetched results.
    later: BTreeMap<PartitionId, wire::Recall>,
    /// Recalls without an answer, by partition of the readers.
    unanswered: BTreeMap<PartitionId, wire::Recall>,
    /// A reader cannot run again, or a client has fetched results of the job.
    used: bool,
}

#[derive(Debug, Default)]
pub(in crate::home::ledger) struct Recalls {
    pending: BTreeMap<TaskId, Pending>,
    /// While records are loaded: attempts that do not count any more.
    void: BTreeMap<TaskId, Attempt>,
    pub(in crate::home::ledger) earlier: EarlierEnds,
}

impl Recalls {
    pub(in crate::home::ledger) fn is_void(&self, task: TaskId, attempt: Attempt) -> bool {
        self.void.get(&task).is_some_and(|&void| attempt <= void)
    }
    /// Whether a recall made the start of this attempt void. `last`: the last attempt with a stored
    /// end or holder. The start of a recalled attempt that has neither counts: its node has died,
    /// and the home that recalled it had not judged this death.
    pub(in crate::home::ledger) fn is_void_start(
        &self,
        task: TaskId,
        attempt: Attempt,
        last: Attempt,
    ) -> bool {
        let void = self.void.get(&task);
        void.is_some_and(|&void| attempt < void || attempt == void && attempt <= last)
    }
    /// Whether this attempt has ended and its end does not count yet.
    pub(in crate::home::ledger) fn waits(&self, task: TaskId, attempt: Attempt) -> bool {
        let pending = self.pending.get(&task);
        pending.is_some_and(|pending| pending.completion.attempt == attempt.0)
    }
    pub(in crate::home::ledger) fn loaded(&mut self) {
        self.void = BTreeMap::new();
    }
    pub(in crate::home::ledger) fn forget_partition(&mut self, partition: PartitionId) {
        self.pending.retain(|task, _| task.partition() != partition);
    }
    pub(in crate::home::ledger) fn forget_job(&mut self, job: JobId) {
        self.pending.retain(|task, _| task.job != job);
    }
}

/// An end that counts now: its reporter, its report, and the output with a reader that cannot be
/// recalled, if there is one.
pub(crate) type HeldEnd = (NodeId, wire::Completion, Option<u32>);

impl Ledger {
    /// Whether this attempt has ended and its end does not count yet.
    pub(crate) fn awaits_recall(&self, task: TaskId, attempt: Attempt) -> bool {
        self.recalls.waits(task, attempt)
    }

    /// Holds back the end of a task that was done before and has made other bytes now. Returns
    /// false if the end counts at once.
    pub(crate) fn hold_end(
        &mut self,
        task: TaskId,
        from: NodeId,
        completion: &wire::Completion,
        homes: &Homes,
        out: &mut Out,
    ) -> bool {
        let (attempt, own) = (Attempt(completion.attempt), task.partition());
        if self.recalls.waits(task, attempt) {
            return true; // A repeated report.
        }
        let mut outputs = self.changed_outputs(task, &completion.output_sums);
        // An attempt in between, lost since, may have recalled some readers.
        let former = self.recalls.pending.remove(&task);
        outputs.extend(former.into_iter().flat_map(|former| former.outputs));
        if outputs.is_empty() {
            return false;
        }
        mark(Mark::OtherBytes);
        self.start_is_over(task, out);
        let later = self.recalls_of(task, attempt, &outputs);
        let unanswered = [(own, bare_recall(task, attempt, own))].into();
        send_recalls(&unanswered, homes, out);
        let completion = completion.clone();
        let pending = Pending { from, completion, outputs, later, unanswered, used: false };
        self.recalls.pending.insert(task, pending);
        true
    }

    /// A home of readers, or the job's home, has answered. Returns whether the end is decided.
    pub(crate) fn on_recall_answer(
        &mut self,
        answer: &wire::Recalled,
        homes: &Homes,
        out: &mut Out,
    ) -> bool {
        let task = TaskId::new(answer.job, answer.parent);
        let mistakes = self.mutant == Some(Mutant::RecallAnswerMistaken);
        let Some(pending) = self.recalls.pending.get_mut(&task) else { return false };
        if pending.completion.attempt != answer.attempt {
            return false;
        }
        pending.used |= answer.used;
        let partition = PartitionId(answer.partition);
        // A question that was sent twice is answered twice. The second answer does not describe the
        // readers.
        let is_awaited = pending
            .unanswered
            .get(&partition)
            .is_some_and(|recall| recall.child.is_empty() != answer.readers || mistakes);
        if is_awaited {
            pending.unanswered.remove(&partition);
        }
        if !is_awaited || !pending.unanswered.is_empty() {
            return false;
        }
        if pending.used || pending.later.is_empty() {
            return true;
        }
        pending.unanswered = std::mem::take(&mut pending.later);
        send_recalls(&pending.unanswered, homes, out);
        false
    }

    /// Takes the held end of the task, if its attempt is still the current one.
    pub(crate) fn take_held_end(&mut self, task: TaskId) -> Option<HeldEnd> {
        let Pending { from, completion, outputs, used, .. } = self.recalls.pending.remove(&task)?;
        let is_current = self.cell(task).is_some_and(|cell| {
            cell.state == State::Ready && cell.attempt == Attempt(completion.attempt)
        });
        let output = used.then(|| outputs.first().copied().unwrap_or(0));
        // Otherwise it was placed again, or has been given up.
        is_current.then_some((from, completion, output))
    }

    /// Outputs that differ from those of the attempt that ended before.
    pub(crate) fn changed_outputs(&self, task: TaskId, sums: &[u64]) -> Vec<u32> {
        if sums.is_empty() {
            return Vec::new();
        }
        let index = task.local.index();
        let segment = self.part(task).and_then(|part| part.segment(index));
        let before = segment.map(|segment| segment.output_sums(index)).unwrap_or_default();
        let pairs = (0u32..).zip(before.iter().zip(sums));
        pairs.filter(|(_, (before, now))| before != now).map(|(output, _)| output).collect()
    }

    /// The readers of these outputs, by their partition.
    fn recalls_of(
        &self,
        task: TaskId,
        attempt: Attempt,
        outputs: &[u32],
    ) -> BTreeMap<PartitionId, wire::Recall> {
        let bare = |partition| bare_recall(task, attempt, partition);
        let mut recalls: BTreeMap<PartitionId, wire::Recall> = BTreeMap::new();
        let runs = self.part(task).into_iter().flat_map(|p| p.edge_runs(task.local.index()));
        let reads = runs.flatten().filter(|edge| edge.output > 0);
        for edge in reads.filter(|edge| outputs.contains(&(edge.output - 1))) {
            let partition = LocalId(edge.child).partition();
            let recall = recalls.entry(partition).or_insert_with(|| bare(partition));
            recall.child.push(edge.child);
            recall.slot.push(edge.slot);
        }
        recalls
    }

    /// Withdraws an input of a task, if an earlier attempt of the parent made it. Returns true if
    /// that is impossible: the task is done and cannot run again.
    pub(crate) fn recall(
        &mut self,
        task: TaskId,
        slot: u32,
        (parent, attempt): (LocalId, Attempt),
        homes: &Homes,
        out: &mut Out,
    ) -> bool {
        let Some(cell) = self.cell(task) else {
            // Only the end is known of a record that has left memory.
            return self.state(task) == Some(State::Ended(End::Done));
        };
        let (state, read_by, rebuilds, slots) =
            (cell.state, cell.attempt, cell.rebuilds, cell.slots);
        if slot >= slots || self.mutant == Some(Mutant::ReadersKept) {
            return false;
        }
        let known = self.inputs(task).find(|input| input.slot == slot);
        let is_earlier = known.is_some_and(|input| input.attempt < attempt.0);
        // The task was done, and its outputs are lost. According to its records that end still
        // counts.
        let is_reopened = rebuilds > 0 && known.is_none();
        let round = self.part(task).map_or(0, |part| part.round);
        if self.has_turned(task) && (state == State::Ended(End::Done) || is_earlier) {
            return true; // What its turns have made of those bytes stays.
        }
        match state {
            State::Ended(End::Done) => {
                let parents =
                    self.part(task).map_or(0, |part| part.parents(task.local.index()).count());
                if rebuilds >= REBUILDS_MAX || parents != slots as usize || round > 0 {
                    return true;
                }
                mark(Mark::ReaderRecalled);
                record_recall(task, slot, (parent, attempt), read_by, out);
                self.run_again(task, RetryReason::Recalled, homes, out);
                self.recall_below(task, read_by, homes, out);
            }
            State::Ended(_) if is_earlier => {
                // A later round runs it again, with the new bytes.
                record_recall(task, slot, (parent, attempt), read_by, out);
                self.take_back(task, slot);
            }
            State::Waiting | State::Ready if is_earlier || is_reopened => {
                record_recall(task, slot, (parent, attempt), read_by, out);
                self.recalls.earlier.forget(task);
                self.take_back(task, slot);
                self.awaiting_lost_inputs.insert(task);
                self.replace_ready(task, RetryReason::InputReplaced, out);
                let mut asks = CreditAsks::new();
                self.ask_for_recalled(task, parent, homes, &mut asks);
                send(asks, out);
            }
            // It has read nothing of an earlier attempt.
            State::Ended(_) | State::Waiting | State::Ready => {}
        }
        false
    }

    /// The outputs of this attempt are about to be replaced: their readers wait for the next
    /// attempt.
    fn recall_below(&self, task: TaskId, attempt: Attempt, homes: &Homes, out: &mut Out) {
        let outputs: Vec<u32> =
            (0..self.spec(task).map_or(0, |spec| spec.outputs.len() as u32)).collect();
        let recalls = self.recalls_of(task, Attempt(attempt.0 + 1), &outputs);
        send_recalls(&recalls, homes, out);
    }

    /// Withdraws an input that the task has. A lost one stays known as lost: if the parent's
    /// earlier end counts again, the task ends, and does not look for the lost output once more.
    fn take_back(&mut self, task: TaskId, slot: u32) {
        let index = task.local.index();
        let segment = self.part_mut(task).and_then(|part| part.segment_mut(index));
        if let Some(segment) = segment.filter(|it| it.is_input_slot_filled(index, slot)) {
            segment.clear_input_slot(index, slot);
            segment.side_mut(index).inputs.remove(&slot);
        }
    }

    /// Loads a stored recall. Ends and holders are loaded after it.
    pub(in crate::home::ledger) fn load_recall(
        &mut self,
        task: TaskId,
        slot: u32,
        attempt: u64,
        void: u64,
    ) {
        let known = self.inputs(task).find(|input| input.slot == slot);
        if known.is_some_and(|input| input.attempt < attempt) {
            self.take_back(task, slot);
            self.awaiting_lost_inputs.insert(task);
        }
        if self.mutant != Some(Mutant::RecallForgotten) {
            let before = self.recalls.void.entry(task).or_default();
            *before = (*before).max(Attempt(void));
        }
    }

    /// Repeats the recalls without an answer: homes of readers may have lost them.
    pub(crate) fn recall_again(&self, homes: &Homes, out: &mut Out) {
        for pending in self.recalls.pending.values() {
            send_recalls(&pending.unanswered, homes, out);
        }
    }
}

/// A recall without readers: a question to the home of the job.
fn bare_recall(task: TaskId, attempt: Attempt, partition: PartitionId) -> wire::Recall {
    wire::Recall {
        job: task.job.0,
        parent: task.local.0,
        attempt: attempt.0,
        partition: partition.0,
        ..Default::default()
    }
}

fn send_recalls(recalls: &BTreeMap<PartitionId, wire::Recall>, homes: &Homes, out: &mut Out) {
    for (&partition, recall) in recalls {
        if let Some(home) = homes.owner(partition) {
            let body = wire::message::Body::Recall(recall.clone());
            out.reliable.push((home, body));
        }
    }
}

fn record_recall(
    task: TaskId,
    slot: u32,
    (parent, attempt): (LocalId, Attempt),
    void: Attempt,
    out: &mut Out,
) {
    let record = out.facts.credits.entry((task.partition(), task.job)).or_default();
    record.credits.push(wire::Credit {
        job: task.job.0,
        parent: parent.0,
        attempt: attempt.0,
        child: vec![task.local.index()],
        slot: vec![slot],
        output: vec![0],
        recalled: vec![void.0],
        ..Default::default()
    });
}

#[cfg(test)]
impl Ledger {
    /// The first output of an end differs: it is held back, and the job's home is asked.
    pub(crate) fn pretend_held_end(
        &mut self,
        completion: wire::Completion,
        readers: BTreeMap<PartitionId, wire::Recall>,
    ) {
        let task = TaskId::new(completion.job, completion.local);
        let (attempt, own) = (Attempt(completion.attempt), task.partition());
        let unanswered = [(own, bare_recall(task, attempt, own))].into();
        let (from, outputs, later) = (NodeId(1), vec![0], readers);
        let pending = Pending { from, completion, outputs, later, unanswered, used: false };
        self.recalls.pending.insert(task, pending);
    }
    /// The partitions of readers that have not answered; `None`: no end is held.
    pub(crate) fn unanswered_recalls(&self, task: TaskId) -> Option<Vec<PartitionId>> {
        let pending = self.recalls.pending.get(&task)?;
        Some(pending.unanswered.keys().copied().collect())
    }
}
