//! Recalls between homes. The rules are in `ledger/losses/recall.rs`.

use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::home::Home;
use crate::home::ledger::State;
use crate::home::ledger::losses::recall::{Pending, bare_recall, send_recalls};
use crate::output::Out;
use crate::{Mutant, Scheduler};

impl Home {
    fn not_deterministic(&self, task: TaskId, output: u32) -> String {
        let spec = self.ledger.spec(task);
        let key = spec.and_then(|spec| spec.outputs.get(output as usize)).map(|o| o.key.as_str());
        let (name, key) = (self.ledger.name(task), key.unwrap_or_default());
        format!(
            "task '{name}' is not deterministic; its output '{key}' was already used, was lost and \
             came out differently; hint: make the command write the same bytes each time, or use \
             more --replicas"
        )
    }
}

impl Scheduler {
    /// Holds back the end of a task that was done before and has made other bytes now.
    pub(crate) fn hold_for_recall(
        &mut self,
        task: TaskId,
        from: NodeId,
        completion: &wire::Completion,
        out: &mut Out,
    ) -> bool {
        if self.options.mutant == Some(Mutant::ChecksumIgnored) {
            return false;
        }
        if self.home.ledger.recalls.waits(task, Attempt(completion.attempt)) {
            return true; // A repeated report.
        }
        let mut outputs = self.home.ledger.changed_outputs(task, &completion.output_sums);
        // Some readers may have been recalled for an attempt in between that was lost.
        let former = self.home.ledger.recalls.pending.remove(&task);
        outputs.extend(former.into_iter().flat_map(|former| former.outputs));
        if outputs.is_empty() {
            return false;
        }
        mark(Mark::OtherBytes);
        self.home.ledger.start_is_over(task, out);
        let (attempt, own) = (Attempt(completion.attempt), task.partition());
        let later = self.home.ledger.recalls_of(task, attempt, &outputs);
        let unanswered = [(own, bare_recall(task, attempt, own))].into();
        send_recalls(&unanswered, self.routing.homes(), out);
        let completion = completion.clone();
        let pending = Pending { from, completion, outputs, later, unanswered, used: false };
        self.home.ledger.recalls.pending.insert(task, pending);
        true
    }

    /// The home of a parent withdraws inputs that readers homed here have read.
    pub(crate) fn on_recall(&mut self, now: Time, recall: &wire::Recall, out: &mut Out) {
        let (job, partition) = (JobId(recall.job), PartitionId(recall.partition));
        let by = (LocalId(recall.parent), Attempt(recall.attempt));
        let mut used = false;
        let is_over = self.has_ended(job) == Some(true) || self.home.ledger.is_removed(job);
        for (&child, &slot) in recall.child.iter().zip(&recall.slot) {
            let task = TaskId { job, local: LocalId(child) };
            if task.partition() == partition && !is_over {
                used |= self.home.ledger.recall(task, slot, by, self.routing.homes(), out);
            }
        }
        // The job's home first learns that these tasks are not done, then forwards the answer. So
        // it never counts the parent's end together with revoked ends.
        if let Some(job) = self.home.ledger.jobs.get_mut(&job) {
            job.report_at = Some(now);
        }
        self.report(now, out);
        let answer = wire::Recalled {
            job: job.0,
            parent: recall.parent,
            attempt: recall.attempt,
            partition: partition.0,
            used,
            counted: false,
            readers: !recall.child.is_empty(),
        };
        out.reliable.push((self.routing.homes().job_home(job), Body::Recalled(answer)));
    }

    /// As the job's home: forwards the answer. As the parent's home: the last answer decides.
    pub(crate) fn on_recalled(&mut self, now: Time, mut answer: wire::Recalled, out: &mut Out) {
        let task = TaskId::new(answer.job, answer.parent);
        if !answer.counted {
            (answer.counted, answer.used) =
                (true, answer.used || self.home.jobs.is_fetched(task.job));
            if let Some(home) = self.routing.homes().owner(task.partition()) {
                out.reliable.push((home, Body::Recalled(answer)));
            }
            return;
        }
        let Some(pending) = self.home.ledger.recalls.pending.get_mut(&task) else { return };
        if pending.completion.attempt != answer.attempt {
            return;
        }
        pending.used |= answer.used;
        let partition = PartitionId(answer.partition);
        // A question that was sent twice is answered twice. The second answer says nothing of the
        // readers.
        let is_awaited = pending.unanswered.get(&partition).is_some_and(|recall| {
            recall.child.is_empty() != answer.readers
                || self.options.mutant == Some(Mutant::RecallAnswerMistaken)
        });
        if is_awaited {
            pending.unanswered.remove(&partition);
        }
        if !is_awaited || !pending.unanswered.is_empty() {
            return;
        }
        if pending.used || pending.later.is_empty() {
            return self.conclude_recall(now, task, out);
        }
        pending.unanswered = std::mem::take(&mut pending.later);
        send_recalls(&pending.unanswered, self.routing.homes(), out);
    }

    fn conclude_recall(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let Some(pending) = self.home.ledger.recalls.pending.remove(&task) else { return };
        let Pending { from, mut completion, outputs, used, .. } = pending;
        let current = self.home.ledger.cell(task).is_some_and(|cell| {
            cell.state == State::Ready && cell.attempt == Attempt(completion.attempt)
        });
        if !current {
            return; // It was placed again, or has been given up.
        }
        if used {
            mark(Mark::OtherBytesUsed);
            completion.verdict = wire::Verdict::Failed as i32;
            completion.error =
                self.home.not_deterministic(task, outputs.first().copied().unwrap_or(0));
            completion.exit_code = 1;
            (completion.output_sizes, completion.output_sums) = (Vec::new(), Vec::new());
        }
        let how = if used { Checked::Used } else { Checked::Changed };
        self.conclude(now, from, &mut completion, how, out);
    }
}

/// The result of comparing the bytes of an attempt with earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Checked {
    /// The bytes are the first, or the same as before.
    Same,
    /// The bytes differ, and no reader of the earlier bytes counts.
    Changed,
    /// The bytes differ, and a reader of the earlier bytes cannot be recalled.
    Used,
}
