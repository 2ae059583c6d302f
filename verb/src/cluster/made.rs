//! What homes have recorded of tasks with kept outputs: which are done, and the checksums of their
//! outputs.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use client::Client;
use proto::limits::TASK_SIZES_REPORTED_MAX;
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
    /// Asks the homes of these tasks, each with the number of its last output that counts.
    pub async fn read(client: &Client, job: JobId, tasks: &BTreeMap<LocalId, u32>) -> Self {
        let mut made = Self::default();
        let asked = async {
            if tasks.len() > LOOKED_UP_MAX {
                let see = |state: TaskState| {
                    if tasks.contains_key(&LocalId(state.local)) {
                        made.note(state);
                    }
                };
                let listed = client.raw().known_tasks(job, RECORDS_TIMEOUT, see).await;
                let is_complete = listed.unwrap_or(false);
                return made.read_rest(client, job, tasks).await && is_complete;
            }
            let mut is_complete = true;
            for &task in tasks.keys() {
                match client.raw().explain(job, task).await {
                    Ok(told) => told.task.into_iter().for_each(|state| made.note(state)),
                    // The homes of other tasks may answer.
                    Err(_) => is_complete = false,
                }
            }
            made.read_rest(client, job, tasks).await && is_complete
        };
        let answered = tokio::time::timeout(RECORDS_TIMEOUT, asked).await;
        made.is_complete = answered.unwrap_or(false);
        made
    }

    /// Asks for the checksums that did not fit into the states of the tasks. Only tasks with many
    /// outputs cost a further question.
    async fn read_rest(
        &mut self,
        client: &Client,
        job: JobId,
        tasks: &BTreeMap<LocalId, u32>,
    ) -> bool {
        let mut is_complete = true;
        for (&task, &last) in tasks {
            while let Some(after) = self.next_page(task, last) {
                let page = client.raw().output_sums_page(job, task, after).await;
                is_complete &= page.is_ok();
                // No answer, fewer outputs than expected, or a node of an older program.
                if !page.ok().flatten().is_some_and(|page| self.add_page(task, page)) {
                    break;
                }
            }
        }
        is_complete
    }

    /// The first output without a checksum so far, up to the last one that counts.
    fn next_page(&self, task: LocalId, last: u32) -> Option<u32> {
        let (_, sums) = self.done.get(&task)?;
        let has_more = sums.len() >= TASK_SIZES_REPORTED_MAX && sums.len() <= last as usize;
        has_more.then(|| u32::try_from(sums.len()).ok()).flatten()
    }

    /// Adds the next checksums; false if there are none of the same attempt.
    fn add_page(&mut self, task: LocalId, page: TaskState) -> bool {
        let Some((attempt, sums)) = self.done.get_mut(&task) else { return false };
        let is_next = page.phase() == TaskPhase::TaskDone
            && page.attempt == attempt.0
            && page.sums_after as usize == sums.len();
        if is_next {
            sums.extend(&page.output_sums);
        }
        is_next && !page.output_sums.is_empty()
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

    #[test]
    fn only_outputs_beyond_the_first_ones_are_asked_for() {
        let mut made = Made::default();
        let task = LocalId(3);
        let mut state = TaskState { local: 3, attempt: 2, ..TaskState::default() };
        state.set_phase(TaskPhase::TaskDone);
        made.note(TaskState { output_sums: vec![1; 3], ..state.clone() });
        assert_eq!(made.next_page(task, 9), None, "the state of a small task has all");
        made.note(TaskState { output_sums: vec![1; 64], ..state.clone() });
        assert_eq!([made.next_page(task, 63), made.next_page(task, 64)], [None, Some(64)]);
        assert_eq!(made.next_page(LocalId(4), 64), None, "it is not done");
        let page = |sums_after| TaskState { sums_after, output_sums: vec![2, 3], ..state.clone() };
        let other = TaskState { attempt: 3, ..page(64) };
        assert!(!made.add_page(task, page(0)) && !made.add_page(task, other));
        assert!(made.add_page(task, page(64)));
        assert_eq!([made.next_page(task, 65), made.next_page(task, 66)], [None, Some(66)]);
        assert!(!made.add_page(task, TaskState { output_sums: Vec::new(), ..page(66) }));
        let object = |output| ObjectId { task: TaskId::new(1, 3), attempt: Attempt(2), output };
        let sums = [63, 64, 65, 66].map(|output| made.checksum(object(output)));
        assert_eq!(sums, [Some(1), Some(2), Some(3), None]);
    }
}
