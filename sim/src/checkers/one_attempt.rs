//! *One-attempt*: in an ended job, each done task has read the bytes of its parents' counted
//! attempts. A parent that ran again may have made other bytes.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use proto::event::End;
use proto::work::Launch;
use proto::{Attempt, ObjectId, TaskId, wire};

use super::{Jobs, Verdict, Violation, known};
use crate::state::expected::{Commit, ExpectedJob, ExpectedTask};

const NAME: &str = "one-attempt";

/// The checksums of all objects, and the inputs of each attempt.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    sums: BTreeMap<ObjectId, u64>,
    reads: BTreeMap<(TaskId, Attempt), Vec<ObjectId>>,
}

impl Bytes {
    /// The checksums of an attempt's outputs. They follow from its inputs, and for some tasks from
    /// the attempt number. Empty if all tasks of the world always make the same bytes.
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

    /// True if two attempts of the task have made different bytes.
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

/// A client learns that the job has ended.
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
