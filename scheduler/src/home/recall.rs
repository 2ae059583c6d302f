//! Recalls between homes. The rules are in `ledger/losses/recall.rs`.

use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::home::Home;
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

    /// The reason for tasks that wait for a lost output of this one.
    pub(crate) fn failed_again(&self, task: TaskId, completion: &wire::Completion) -> String {
        let (name, code) = (self.ledger.name(task), completion.exit_code);
        let why = match completion.error.as_str() {
            "" => format!("exit code {code}"),
            error => error.to_owned(),
        };
        format!("an input is lost; task '{name}' ran again to make it, and failed: {why}")
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
        self.home.ledger.hold_end(task, from, completion, self.routing.homes(), out)
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
        self.home.ledger.report_at_once(now, job);
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
        if self.home.ledger.on_recall_answer(&answer, self.routing.homes(), out) {
            self.conclude_recall(now, task, out);
        }
    }

    fn conclude_recall(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let Some((from, mut completion, used)) = self.home.ledger.take_held_end(task) else {
            return;
        };
        if let Some(output) = used {
            mark(Mark::OtherBytesUsed);
            completion.verdict = wire::Verdict::Failed as i32;
            completion.error = self.home.not_deterministic(task, output);
            completion.exit_code = 1;
            (completion.output_sizes, completion.output_sums) = (Vec::new(), Vec::new());
        }
        let how = if used.is_some() { Checked::Used } else { Checked::Changed };
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
