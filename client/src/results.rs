//! The outputs of tasks that are done.

use std::path::Path;

use bytes::Bytes;
use proto::{JobId, LocalId, NodeId, ObjectId, TaskId};

use crate::{Client, ClientError, TaskPhase};

impl Client {
    /// The bytes of an output of a task that is done: output 0 is the first one of its spec. They
    /// come from the node that made them, or from one with a copy. It asks the nodes in turn, each
    /// for up to [`crate::ClientOptions::request_timeout`]. The whole output is in memory;
    /// [`Self::fetch_output`] writes a large one into a file.
    ///
    /// After the end of a job only kept outputs are there. Before it, and while an open job is
    /// open, also those that are not freed yet.
    ///
    /// # Errors
    /// [`ClientError::UnknownTask`]: there is no such task. [`ClientError::Refused`]: it is not
    /// done, or it has no such output any more. [`ClientError::ClusterUnreachable`]: the node that
    /// has the bytes does not answer.
    pub async fn read_output(
        &self,
        job: JobId,
        task: LocalId,
        output: u32,
    ) -> Result<Bytes, ClientError> {
        let made = self.output(job, task, output).await?;
        self.of_any_node(made, |node, object| self.read_object(node, object)).await
    }

    /// Copies an output of a task that is done into a file; returns its size in bytes. Otherwise as
    /// [`Self::read_output`]. The file gets its name only when it is complete. A directory arrives
    /// as one archive.
    ///
    /// # Errors
    /// As [`Self::read_output`], and [`ClientError::File`]: the file cannot be written.
    pub async fn fetch_output(
        &self,
        job: JobId,
        task: LocalId,
        output: u32,
        to: &Path,
    ) -> Result<u64, ClientError> {
        let made = self.output(job, task, output).await?;
        self.of_any_node(made, |node, object| self.fetch_object(node, object, to)).await
    }

    /// The answer of the first node that has the object: its maker is asked first. If none has it,
    /// the first error. An error of a file of this machine ends the search.
    async fn of_any_node<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        (maker, object): (NodeId, ObjectId),
        ask: impl Fn(NodeId, ObjectId) -> F,
    ) -> Result<T, ClientError> {
        let mut first = None;
        for node in self.makers_first(maker) {
            match ask(node, object).await {
                Ok(answer) => return Ok(answer),
                Err(error @ ClientError::File { .. }) => return Err(error),
                Err(error) => first.get_or_insert(error),
            };
        }
        Err(first
            .unwrap_or_else(|| ClientError::ClusterUnreachable(format!("node {maker} is down"))))
    }

    /// The node that has made an output, and the output of its attempt that counts.
    async fn output(
        &self,
        job: JobId,
        local: LocalId,
        output: u32,
    ) -> Result<(NodeId, ObjectId), ClientError> {
        // From now on another attempt does not change the outputs.
        self.job_to_fetch(job).await?;
        let gone = || ClientError::UnknownTask { job, task: local };
        let task = self.explain(job, local).await?.task.ok_or_else(gone)?;
        let Some(node) = task.node.filter(|_| task.phase == TaskPhase::Done) else {
            let text = format!("task {local} of job {} is {}: no output", job.0, task.phase);
            return Err(ClientError::Refused(text));
        };
        let id = TaskId { job, local };
        Ok((node, ObjectId { task: id, attempt: task.attempt, output }))
    }

    fn makers_first(&self, maker: NodeId) -> Vec<NodeId> {
        let mut nodes = self.nodes();
        nodes.retain(|&node| !self.is_given_up(node));
        nodes.sort_by_key(|&node| (node != maker, node));
        nodes
    }
}
