//! Jobs, tasks and nodes in the library's own types.

use std::time::Duration;

use proto::wire::{self, map_command};
use proto::{JobId, LocalId, NodeId};

use crate::info::{Explanation, JobInfo, Jobs, Member, NodeInfo, TaskInfo};
use crate::records::{Extras, JobRecords};
use crate::{Client, ClientError};

impl Client {
    /// The state of a job in its newest round, from its home.
    ///
    /// # Errors
    /// [`ClientError::UnknownJob`]: there is no such job. Otherwise its home does not answer.
    pub async fn job(&self, job: JobId) -> Result<JobInfo, ClientError> {
        self.job_record(job).await.map(JobInfo::of_record)
    }

    /// The state of a job at the end of this round; its present state if that is the newest round.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub async fn job_in_round(&self, job: JobId, round: u32) -> Result<JobInfo, ClientError> {
        self.record_in_round(job, round).await.map(JobInfo::of_record)
    }

    /// Opens the round after `round`, in which the job has ended: these tasks run again, or all
    /// unfinished ones if `tasks` is empty. Returns the job in its new round. A repetition opens no
    /// second one.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: the job still runs, or a later round exists.
    pub async fn retry(
        &self,
        job: JobId,
        round: u32,
        tasks: &[LocalId],
    ) -> Result<JobInfo, ClientError> {
        self.retry_record(job, round, tasks).await.map(JobInfo::of_record)
    }

    /// Follows a job from its present state to its end.
    #[must_use]
    pub fn watch_job(&self, job: JobId) -> JobWatch {
        JobWatch { records: self.watch_records(job) }
    }

    /// Follows a job to its end and returns the last state. `see` receives every state until then,
    /// the last one too.
    ///
    /// # Errors
    /// [`ClientError::UnknownJob`]: there is no such job. Otherwise its home did not answer for the
    /// client's timeout; the job goes on, and may be watched again.
    pub async fn wait_job(
        &self,
        job: JobId,
        see: impl FnMut(&JobInfo),
    ) -> Result<JobInfo, ClientError> {
        self.wait_as(job, JobInfo::of_record, see).await
    }

    /// Waits until no task of an open job is left, and its state counts the ends of all tasks that
    /// were stored before this call, with all that they spawned. The job may stay open.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub async fn wait_submitted(&self, job: JobId) -> Result<JobInfo, ClientError> {
        self.wait_submitted_record(job).await.map(JobInfo::of_record)
    }

    /// Every job of the cluster, by id. If a home does not serve its partitions yet or does not
    /// answer, the request is repeated until it does or `request_timeout` is over.
    ///
    /// # Errors
    /// No node answers at all.
    pub async fn jobs(&self, request_timeout: Duration) -> Result<Jobs, ClientError> {
        let list = self.job_records(request_timeout).await?;
        let jobs = list.states.into_iter().map(JobInfo::of_record).collect();
        Ok(Jobs { jobs, missing: list.missing, away: list.away })
    }

    /// All tasks of a job, page by page, in the order of their ids within each home. `see` receives
    /// each once.
    ///
    /// # Errors
    /// As [`Self::job`], or the home of some tasks does not answer.
    pub async fn tasks(
        &self,
        job: JobId,
        mut see: impl FnMut(TaskInfo),
    ) -> Result<(), ClientError> {
        self.task_records(job, |record| see(TaskInfo::of_record(record))).await
    }

    /// The tasks of a job from homes that answer within `request_timeout`. False if some do not.
    ///
    /// # Errors
    /// [`ClientError::UnknownJob`]: there is no such job.
    pub async fn known_tasks(
        &self,
        job: JobId,
        request_timeout: Duration,
        mut see: impl FnMut(TaskInfo),
    ) -> Result<bool, ClientError> {
        let how = (request_timeout, Extras::None);
        self.known_task_records(job, how, |record| see(TaskInfo::of_record(record))).await
    }

    /// The reason for a task's present state, from its home.
    ///
    /// # Errors
    /// [`ClientError::UnknownTask`]: there is no such task. Otherwise its home does not answer.
    pub async fn explain(&self, job: JobId, task: LocalId) -> Result<Explanation, ClientError> {
        self.explain_record(job, task).await.map(Explanation::of_record)
    }

    /// The nodes of the newest map that this client has received, by id. Removed ones are included.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let mut members: Vec<Member> = self.map().members.iter().map(Member::of_record).collect();
        members.sort_unstable_by_key(|member| member.node);
        members
    }

    /// One node's own state; the node has `request_timeout` to answer.
    ///
    /// # Errors
    /// [`ClientError::ClusterUnreachable`]: the node does not answer.
    pub async fn node_state(
        &self,
        node: NodeId,
        request_timeout: Duration,
    ) -> Result<NodeInfo, ClientError> {
        self.node_record(node, request_timeout).await.map(NodeInfo::of_record)
    }

    /// The state of every node, or the reason for those that do not answer within
    /// `request_timeout`.
    pub async fn node_states(
        &self,
        request_timeout: Duration,
    ) -> Vec<(NodeId, Result<NodeInfo, ClientError>)> {
        let records = self.node_records(request_timeout).await;
        records.into_iter().map(|(node, record)| (node, record.map(NodeInfo::of_record))).collect()
    }

    /// Proposes that a node leaves: it gives its data and its partitions away. [`Self::members`]
    /// shows the phases of that. A repetition changes nothing.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: the other nodes cannot take its place.
    pub async fn leave_node(&self, node: NodeId) -> Result<(), ClientError> {
        self.propose(map_command::Body::Leave(wire::MemberLeave { node: node.0, by_ns: 0 })).await
    }
}

/// The changing state of one job. The watch survives restarts and moves of the job's home.
#[derive(Debug)]
pub struct JobWatch {
    records: JobRecords,
}

impl JobWatch {
    /// The next state; `None` after the last. May be dropped and called again at any point. States
    /// in quick succession may be merged.
    ///
    /// # Errors
    /// As [`Client::wait_job`].
    pub async fn next(&mut self) -> Result<Option<JobInfo>, ClientError> {
        Ok(self.records.next().await?.map(JobInfo::of_record))
    }
}
