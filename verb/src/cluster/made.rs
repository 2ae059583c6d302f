//! What homes have recorded of tasks with kept outputs: which are done, and the checksums of their
//! outputs.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use client::Client;
use proto::wire::{TaskPhase, TaskState};
use proto::{Attempt, JobId, LocalId, ObjectId};

/// So few tasks are looked up one by one; otherwise the homes list all tasks of the job.
const LOOKED_UP_MAX: usize = 16;
/// The time that all homes have together.
const RECORDS_TIMEOUT: Duration = Duration::from_secs(10);

/// The records of done tasks.
#[derive(Debug, Default)]
pub struct Made {
    done: HashMap<LocalId, (Attempt, Vec<u64>)>,
    /// False: some homes did not answer.
    pub is_complete: bool,
}

impl Made {
    /// Asks the homes of these tasks.
    pub async fn read(client: &Client, job: JobId, tasks: &BTreeSet<LocalId>) -> Self {
        let mut made = Self::default();
        let asked = async {
            if tasks.len() > LOOKED_UP_MAX {
                let see = |state: TaskState| {
                    if tasks.contains(&LocalId(state.local)) {
                        made.note(state);
                    }
                };
                let listed = client.raw().known_tasks(job, RECORDS_TIMEOUT, see).await;
                return listed.unwrap_or(false);
            }
            let mut is_complete = true;
            for &task in tasks {
                match client.raw().explain(job, task).await {
                    Ok(told) => told.task.into_iter().for_each(|state| made.note(state)),
                    // The homes of other tasks may answer.
                    Err(_) => is_complete = false,
                }
            }
            is_complete
        };
        let answered = tokio::time::timeout(RECORDS_TIMEOUT, asked).await;
        made.is_complete = answered.unwrap_or(false);
        made
    }

    fn note(&mut self, state: TaskState) {
        if state.phase() == TaskPhase::TaskDone {
            self.done.insert(LocalId(state.local), (Attempt(state.attempt), state.output_sums));
        }
    }

    /// True if the task is known to be done.
    #[must_use]
    pub fn is_done(&self, task: LocalId) -> bool {
        self.done.contains_key(&task)
    }

    /// The checksum of an object's bytes, as the completion of its task has it.
    #[must_use]
    pub fn checksum(&self, object: ObjectId) -> Option<u64> {
        let (attempt, sums) = self.done.get(&object.task.local)?;
        // Another attempt may have made other bytes.
        let is_same = *attempt == object.attempt;
        sums.get(object.output as usize).copied().filter(|_| is_same)
    }
}

#[cfg(test)]
mod tests {
    use proto::TaskId;

    use super::*;

    #[test]
    fn a_checksum_counts_for_the_attempt_that_made_the_object() {
        let mut made = Made::default();
        let mut state = TaskState { local: 3, attempt: 2, ..TaskState::default() };
        state.output_sums = vec![7, 8];
        state.set_phase(TaskPhase::TaskFailed);
        made.note(state.clone());
        assert!(!made.is_done(LocalId(3)));
        state.set_phase(TaskPhase::TaskDone);
        made.note(state);
        assert!(made.is_done(LocalId(3)) && !made.is_done(LocalId(4)));
        let task = TaskId::new(1, 3);
        let sum =
            |attempt, output| made.checksum(ObjectId { task, attempt: Attempt(attempt), output });
        assert_eq!((sum(2, 0), sum(2, 1), sum(2, 2), sum(1, 0)), (Some(7), Some(8), None, None));
    }
}
