//! Remote tasks that this node holds, grouped by job: the end of a job does not visit all others.

use std::collections::BTreeMap;

use proto::{Attempt, JobId, TaskId};

use crate::holder::execution::RemoteTask;

type Tasks = hashbrown::HashMap<TaskId, RemoteTask, foldhash::fast::FixedState>;

#[derive(Debug, Default)]
pub(crate) struct RemoteTasks {
    jobs: BTreeMap<JobId, Tasks>,
}

impl RemoteTasks {
    pub(crate) fn get(&self, task: &TaskId) -> Option<&RemoteTask> {
        self.jobs.get(&task.job)?.get(task)
    }
    pub(crate) fn get_mut(&mut self, task: &TaskId) -> Option<&mut RemoteTask> {
        self.jobs.get_mut(&task.job)?.get_mut(task)
    }
    pub(crate) fn contains_key(&self, task: &TaskId) -> bool {
        self.get(task).is_some()
    }
    pub(crate) fn insert(&mut self, task: TaskId, remote: RemoteTask) {
        let fresh = || Tasks::with_hasher(foldhash::fast::FixedState::with_seed(0));
        self.jobs.entry(task.job).or_insert_with(fresh).insert(task, remote);
    }
    pub(crate) fn remove(&mut self, task: &TaskId) -> Option<RemoteTask> {
        self.jobs.get_mut(&task.job)?.remove(task)
    }
    /// All remote tasks, in no meaningful order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TaskId, &RemoteTask)> {
        self.jobs.values().flatten()
    }
    pub(crate) fn of_job(&self, job: JobId) -> impl Iterator<Item = (TaskId, Attempt)> + '_ {
        let tasks = self.jobs.get(&job).into_iter().flatten();
        tasks.map(|(&task, remote)| (task, remote.attempt))
    }
    /// The job is over; its remaining tasks have been dropped before.
    pub(crate) fn forget_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }
}
