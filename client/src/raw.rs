/*!
The records of nodes as they are on the wire, for the other crates of this repository.

This module is not part of the library's interface: its types change with the protocol. The command
line prints fields that the library's own types do not have.
*/

use std::sync::Arc;
use std::time::Duration;

use proto::wire::{self, map_command};
use proto::{JobId, LocalId, NodeId};

use crate::records::Extras;
pub use crate::records::{JobRecordList, JobRecords, is_ended};
use crate::{Client, ClientError, KvOp, KvResult, TaskSpec};

/// The calls of a client that return records.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'c>(&'c Client);

impl Client {
    #[doc(hidden)]
    #[must_use]
    pub fn raw(&self) -> Raw<'_> {
        Raw(self)
    }
}

/// A spec that is a record already. Tasks with one record share it.
#[must_use]
pub fn task_spec(spec: Arc<wire::Spec>) -> TaskSpec {
    TaskSpec { spec, has_needs: true }
}

/// The spec of a task that reads one value and does nothing else. As each reader, it makes a lost
/// value again; at its end its node has the value. It starts before all tasks that wait.
#[must_use]
pub fn reader_spec(name: String) -> wire::Spec {
    let input = wire::Input { key: "0".to_owned(), value: true, ..Default::default() };
    wire::Spec {
        kind: name.clone(),
        name,
        cpus: 1,
        priority: i32::MAX,
        body: Some(wire::spec::Body::Noop(wire::Noop {})),
        inputs: vec![input],
        ..Default::default()
    }
}

/// The record of an operation.
#[must_use]
pub fn kv_op(op: KvOp) -> wire::KvOp {
    op.into_record()
}

/// The record of a result.
#[must_use]
pub fn kv_result(result: KvResult) -> wire::KvResult {
    result.into_record()
}

impl Raw<'_> {
    /// As [`Client::job`].
    pub async fn job(self, job: JobId) -> Result<wire::JobState, ClientError> {
        self.0.job_record(job).await
    }

    /// As [`Client::job_in_round`].
    pub async fn job_in_round(self, job: JobId, round: u32) -> Result<wire::JobState, ClientError> {
        self.0.record_in_round(job, round).await
    }

    /// As [`Client::retry`].
    pub async fn retry(
        self,
        job: JobId,
        round: u32,
        tasks: &[LocalId],
    ) -> Result<wire::JobState, ClientError> {
        self.0.retry_record(job, round, tasks).await
    }

    /// As [`Client::watch_job`].
    #[must_use]
    pub fn watch_job(self, job: JobId) -> JobRecords {
        self.0.watch_records(job)
    }

    /// As [`Client::wait_job`].
    pub async fn wait_job(
        self,
        job: JobId,
        see: impl FnMut(&wire::JobState),
    ) -> Result<wire::JobState, ClientError> {
        self.0.wait_as(job, |state| state, see).await
    }

    /// As [`Client::wait_submitted`].
    pub async fn wait_submitted(self, job: JobId) -> Result<wire::JobState, ClientError> {
        self.0.wait_submitted_record(job).await
    }

    /// As [`Client::jobs`].
    pub async fn jobs(self, request_timeout: Duration) -> Result<JobRecordList, ClientError> {
        self.0.job_records(request_timeout).await
    }

    /// As [`Client::tasks`].
    pub async fn tasks(
        self,
        job: JobId,
        see: impl FnMut(wire::TaskState),
    ) -> Result<(), ClientError> {
        self.0.task_records(job, see).await
    }

    /// Whether a task of the job runs.
    pub async fn runs_some(self, job: JobId) -> Result<bool, ClientError> {
        self.0.runs_some(job).await
    }

    /// As [`Client::known_tasks`].
    pub async fn known_tasks(
        self,
        job: JobId,
        request_timeout: Duration,
        see: impl FnMut(wire::TaskState),
    ) -> Result<bool, ClientError> {
        self.0.known_task_records(job, (request_timeout, Extras::None), see).await
    }

    /// As [`Client::known_tasks`], with the kept outputs of spawned tasks.
    pub async fn kept_tasks(
        self,
        job: JobId,
        request_timeout: Duration,
        see: impl FnMut(wire::TaskState),
    ) -> Result<bool, ClientError> {
        self.0.known_task_records(job, (request_timeout, Extras::Kept), see).await
    }

    /// As [`Client::known_tasks`], with the parents of tasks as far as their homes have them.
    pub async fn tasks_with_parents(
        self,
        job: JobId,
        request_timeout: Duration,
        see: impl FnMut(wire::TaskState),
    ) -> Result<bool, ClientError> {
        self.0.known_task_records(job, (request_timeout, Extras::Parents), see).await
    }

    /// As [`Client::explain`].
    pub async fn explain(
        self,
        job: JobId,
        task: LocalId,
    ) -> Result<wire::Explanation, ClientError> {
        self.0.explain_record(job, task).await
    }

    /// A page of the checksums of a task's outputs, from this output on, which is not the first.
    pub async fn output_sums_page(
        self,
        job: JobId,
        task: LocalId,
        after: u32,
    ) -> Result<Option<wire::TaskState>, ClientError> {
        self.0.output_sums_page(job, task, after).await
    }

    /// As [`Client::node_state`].
    pub async fn node_state(
        self,
        node: NodeId,
        request_timeout: Duration,
    ) -> Result<wire::NodeState, ClientError> {
        self.0.node_record(node, request_timeout).await
    }

    /// As [`Client::node_states`].
    pub async fn node_states(
        self,
        request_timeout: Duration,
    ) -> Vec<(NodeId, Result<wire::NodeState, ClientError>)> {
        self.0.node_records(request_timeout).await
    }

    /// As [`Self::node_states`], with the ready tasks and the free part of each node.
    pub async fn demands(
        self,
        request_timeout: Duration,
    ) -> Vec<(NodeId, Result<wire::NodeState, ClientError>)> {
        self.0.demand_records(request_timeout).await
    }

    /// As [`crate::Kv::each`], under the caller's number if there is one.
    pub async fn kv_each(
        self,
        ops: Vec<wire::KvOp>,
        number: Option<wire::KvNumber>,
    ) -> Result<Vec<wire::KvResult>, ClientError> {
        let kv = self.0.kv();
        match number {
            Some(number) => kv.with_number_record(number).each_record(ops).await,
            None => kv.each_record(ops).await,
        }
    }

    /// The newest map that this client has received.
    #[must_use]
    pub fn map(self) -> Arc<wire::ClusterMap> {
        self.0.map()
    }

    /// The newest map that the voters return within `request_timeout`.
    pub async fn newest_map(self, request_timeout: Duration) -> Arc<wire::ClusterMap> {
        self.0.newest_map(request_timeout).await
    }

    /// Proposes a change of the map. The map shows when it has happened.
    pub async fn propose(self, body: map_command::Body) -> Result<(), ClientError> {
        self.0.propose(body).await
    }

    /// Changes the tuning of one node; absent fields stay as they are.
    pub async fn tune(
        self,
        node: NodeId,
        change: &wire::Tuning,
        request_timeout: Duration,
    ) -> Result<(), ClientError> {
        self.0.tune(node, change, request_timeout).await
    }
}
