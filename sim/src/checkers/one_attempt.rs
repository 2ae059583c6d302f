//! *One-attempt*: of a job that has ended, each task that is done has read the bytes that the
//! attempts of its parents made which count. A parent that was done again may have made others.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use proto::event::End;
use proto::work::Launch;
use proto::{Attempt, ObjectId, TaskId, wire};

use super::{Jobs, Verdict, Violation, known};
use crate::expected::{Commit, ExpectedJob, ExpectedTask};

const NAME: &str = "one-attempt";

/// The bytes of all objects, each as a checksum; and what each attempt has read.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    sums: BTreeMap<ObjectId, u64>,
    reads: BTreeMap<(TaskId, Attempt), Vec<ObjectId>>,
}

impl Bytes {
    /// What an attempt will make: it follows from what the attempt reads, and of some tasks from
    /// the attempt itself. Empty where every task of the world makes the same bytes each time.
    pub(crate) fn on_launch(
        &mut self,
        jobs: &mut Jobs,
        launch: &Launch,
        seed: u64,
        permille: u64,
    ) -> Vec<u64> {
        if permille == 0 {
            return Vec::new();
        }
        let (task, attempt) = (launch.task, launch.attempt);
        let reads: Vec<ObjectId> = launch.inputs.iter().map(|input| input.object).collect();
        let read: Vec<u64> =
            reads.iter().map(|object| self.sums.get(object).copied().unwrap_or(0)).collect();
        self.reads.insert((task, attempt), reads);
        let is_upload = matches!(launch.spec.body, Some(wire::spec::Body::Upload(_)));
        let varies = hash(&(seed, task.job.0, task.local.0)) % 1_000 < permille && !is_upload;
        let by = if varies { attempt.0 } else { 0 };
        let outputs = 0..launch.spec.outputs.len() as u32;
        let made = outputs.map(|output| {
            let sum = hash(&(task.job.0, task.local.0, output, by, &read));
            self.sums.insert(ObjectId { task, attempt, output }, sum);
            sum
        });
        let made = made.collect();
        if let Ok(truth) = known(jobs, NAME, task) {
            truth.differs |= self.differs(task);
        }
        made
    }

    /// Two attempts of the task have made different bytes.
    fn differs(&self, task: TaskId) -> bool {
        let first = ObjectId { task, attempt: Attempt(0), output: 0 };
        let last = ObjectId { task, attempt: Attempt(u64::MAX), output: u32::MAX };
        let mut of_output: BTreeMap<u32, u64> = BTreeMap::new();
        let mut all = self.sums.range(first..=last);
        all.any(|(object, &sum)| *of_output.entry(object.output).or_insert(sum) != sum)
    }

    fn sum(&self, task: TaskId, attempt: Attempt, output: u32) -> Option<u64> {
        self.sums.get(&ObjectId { task, attempt, output }).copied()
    }
}

fn hash<T: std::hash::Hash>(value: &T) -> u64 {
    use std::hash::BuildHasher;
    FixedState::with_seed(0).hash_one(value)
}

/// A client hears that the job has ended.
pub(crate) fn on_ended(job: &ExpectedJob, bytes: &Bytes) -> Verdict {
    let done = |truth: &ExpectedTask| truth.current().filter(|commit| commit.end == End::Done);
    for (&local, truth) in &job.tasks {
        let Some(Commit { attempt, .. }) = done(truth) else { continue };
        let task = job.task_id(local);
        for read in bytes.reads.get(&(task, attempt)).into_iter().flatten() {
            let Some(parent) = done(&job.tasks[&read.task.local]) else { continue };
            let was = bytes.sum(read.task, read.attempt, read.output);
            let is = bytes.sum(read.task, parent.attempt, read.output);
            if was != is {
                let text = format!(
                    "{task} is done by attempt {attempt}, which has read output {} of attempt {} \
                     of {}; attempt {} of that counts, and has made other bytes",
                    read.output, read.attempt, read.task, parent.attempt
                );
                return Err(Violation::new(NAME, text));
            }
        }
    }
    Ok(())
}
