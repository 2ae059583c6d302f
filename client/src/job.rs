//! Jobs and tasks: state, watching, explanation, cancelling; and the nodes' own state.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::wire::{self, request, response};
use proto::{JobId, LocalId, NodeId, PartitionId, limits};
use tokio::time::Instant;

use crate::call::{Checked, Repeat, Retry, home_of, name_unknown};
use crate::{Client, ClientError, link};

/// How long a node may take to tell what it runs for others.
const GUEST_PATIENCE: Duration = Duration::from_secs(2);

/// The jobs of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// By id.
    pub states: Vec<wire::JobState>,
    /// Nodes that did not answer; jobs whose home is there are not in the list.
    pub missing: Vec<NodeId>,
}

fn state_of(
    node: NodeId,
    answer: Result<Option<response::Body>, ClientError>,
) -> Result<wire::NodeState, ClientError> {
    match answer? {
        Some(response::Body::Node(state)) => Ok(state),
        _ => Err(ClientError::Protocol { node: node.0, what: "no node state" }),
    }
}

/// Who cancels: `job info` tells it.
fn canceller() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    let user = if user.is_empty() { "somebody".to_owned() } else { user };
    let mut name = format!("{user}@{}", host.trim());
    while name.len() > limits::NAME_BYTES_MAX {
        name.pop();
    }
    name
}

/// Whether a job's state is its last.
#[must_use]
pub fn is_ended(state: &wire::JobState) -> bool {
    matches!(
        state.phase(),
        wire::JobPhase::Finished | wire::JobPhase::JobCancelled | wire::JobPhase::Lost
    )
}

impl Client {
    fn job_home(&self, job: JobId) -> NodeId {
        self.home(kvs::job_partition(job, self.partitions()))
    }

    /// One job as its home knows it.
    pub async fn job(&self, job: JobId) -> Result<wire::JobState, ClientError> {
        let node = self.job_home(job);
        let body = request::Body::Job(wire::JobQuery { job: job.0 });
        let answer = self.ask(node, body).await.map_err(|e| name_unknown(e, job, None))?;
        match answer.body {
            Some(response::Body::Job(state)) => Ok(state),
            _ => Err(ClientError::Protocol { node: node.0, what: "no job state" }),
        }
    }

    /// Every job of the cluster, by id, as far as the homes of jobs answer within `patience`.
    pub async fn jobs(&self, patience: Duration) -> Result<Jobs, ClientError> {
        let mut jobs = Jobs::default();
        let mut last = None;
        for (node, answer) in self.ask_all(request::Body::Jobs(wire::JobsQuery {}), patience).await
        {
            match answer {
                Ok(Some(response::Body::Jobs(states))) => jobs.states.extend(states.jobs),
                Ok(_) => {
                    return Err(ClientError::Protocol { node: node.0, what: "no list of jobs" });
                }
                Err(error) => {
                    jobs.missing.push(node);
                    last = Some(error);
                }
            }
        }
        jobs.states.sort_unstable_by_key(|state| state.job);
        jobs.states.dedup_by_key(|state| state.job);
        match last {
            Some(error) if jobs.missing.len() == self.nodes().len() => Err(error),
            _ => Ok(jobs),
        }
    }

    /// Follows a job from its present state to its end.
    #[must_use]
    pub fn watch_job(&self, job: JobId) -> JobWatch {
        JobWatch { client: self.clone(), job, responses: None, ended: false }
    }

    /// Follows a job to its end and returns the last state; `see` gets every state on the way.
    pub async fn wait_job(
        &self,
        job: JobId,
        mut see: impl FnMut(&wire::JobState),
    ) -> Result<wire::JobState, ClientError> {
        let mut watch = self.watch_job(job);
        let mut last = None;
        while let Some(state) = watch.next().await? {
            see(&state);
            last = Some(state);
        }
        last.ok_or(ClientError::UnknownJob(job))
    }

    /// Cancels a whole job, or the tasks named with all that waits for them. What is told is final.
    pub async fn cancel(
        &self,
        job: JobId,
        tasks: &[LocalId],
    ) -> Result<wire::Cancelled, ClientError> {
        if tasks.is_empty() {
            return self.cancel_job(job).await;
        }
        if let Some(&task) = tasks.iter().find(|task| task.partition().0 >= self.partitions()) {
            return Err(ClientError::UnknownTask { job, task });
        }
        let mut tasks = tasks.to_vec();
        tasks.sort_unstable_by_key(|task| (self.home(task.partition()), *task));
        tasks.dedup();
        let mut sum = wire::Cancelled::default();
        for of_node in tasks.chunk_by(|a, b| self.home(a.partition()) == self.home(b.partition())) {
            for piece in of_node.chunks(limits::CANCEL_TASKS_MAX) {
                let locals = piece.iter().map(|task| task.0).collect();
                let cancel =
                    wire::Cancel { job: job.0, locals, by: canceller(), ..Default::default() };
                let answer = self.ask_cancel(self.home(piece[0].partition()), cancel).await;
                let answer = answer.map_err(|e| name_unknown(e, job, Some(piece[0])))?;
                sum.cancelled += answer.cancelled;
                sum.ended += answer.ended;
                sum.unknown.extend(answer.unknown);
            }
        }
        Ok(sum)
    }

    async fn cancel_job(&self, job: JobId) -> Result<wire::Cancelled, ClientError> {
        let home = self.job_home(job);
        let cancel = wire::Cancel { job: job.0, by: canceller(), ..Default::default() };
        match self.ask_cancel(home, cancel.clone()).await {
            Err(ClientError::UnknownJob(_)) if self.is_staged(job).await => {
                self.ask_cancel(home, wire::Cancel { staged: true, ..cancel }).await
            }
            answer => answer.map_err(|e| name_unknown(e, job, None)),
        }
    }

    async fn ask_cancel(
        &self,
        node: NodeId,
        cancel: wire::Cancel,
    ) -> Result<wire::Cancelled, ClientError> {
        match self.ask(node, request::Body::Cancel(cancel)).await?.body {
            Some(response::Body::Cancelled(answer)) => Ok(answer),
            _ => Err(ClientError::Protocol { node: node.0, what: "no answer to a cancellation" }),
        }
    }

    /// Whether some node keeps tasks of a job that its home does not know: it is being submitted.
    async fn is_staged(&self, job: JobId) -> bool {
        let query = wire::TasksQuery { job: job.0, after: 0, limit: 1, from_start: true };
        let answers = self.ask_all(request::Body::Tasks(query), GUEST_PATIENCE).await;
        answers.into_iter().any(|(_, answer)| {
            matches!(answer, Ok(Some(response::Body::Tasks(page))) if !page.tasks.is_empty())
        })
    }

    /// All tasks of a job, page by page, in the order of their ids within each home.
    pub async fn tasks(
        &self,
        job: JobId,
        mut see: impl FnMut(wire::TaskState),
    ) -> Result<(), ClientError> {
        let state = self.job(job).await?;
        let mut homes: Vec<NodeId> =
            state.partitions.iter().map(|total| self.home(PartitionId(total.partition))).collect();
        homes.sort_unstable();
        homes.dedup();
        let running = match is_ended(&state) {
            true => BTreeMap::new(),
            false => self.guests(job).await,
        };
        for home in homes {
            let (mut after, mut from_start) = (0, true);
            loop {
                let limit = limits::TASKS_PER_ANSWER_MAX as u32;
                let query = wire::TasksQuery { job: job.0, after, limit, from_start };
                let answer = self.ask(home, request::Body::Tasks(query)).await;
                let answer = answer.map_err(|e| name_unknown(e, job, None))?;
                let Some(response::Body::Tasks(page)) = answer.body else {
                    return Err(ClientError::Protocol { node: home.0, what: "no list of tasks" });
                };
                let is_own =
                    |task: &wire::TaskState| self.home(LocalId(task.local).partition()) == home;
                let mut last = None;
                for mut task in page.tasks.into_iter().filter(is_own) {
                    last = Some(task.local);
                    if running.get(&task.local) == Some(&task.attempt) {
                        task.set_phase(wire::TaskPhase::RunningTask);
                    }
                    see(task);
                }
                match last {
                    Some(last) if !page.end => (after, from_start) = (last, false),
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// Tasks that run on another node than their home, with their attempts. Their homes know who
    /// holds them, and no more.
    async fn guests(&self, job: JobId) -> BTreeMap<u64, u64> {
        // After the last id there are only guests.
        let query =
            wire::TasksQuery { job: job.0, after: u64::MAX - 1, limit: 1, from_start: false };
        let mut guests = BTreeMap::new();
        for (_, answer) in self.ask_all(request::Body::Tasks(query), GUEST_PATIENCE).await {
            if let Ok(Some(response::Body::Tasks(page))) = answer {
                guests.extend(page.tasks.into_iter().map(|task| (task.local, task.attempt)));
            }
        }
        guests
    }

    /// Why a task is where it is, as its home sees it.
    pub async fn explain(
        &self,
        job: JobId,
        task: LocalId,
    ) -> Result<wire::Explanation, ClientError> {
        if task.partition().0 >= self.partitions() {
            return Err(ClientError::UnknownTask { job, task });
        }
        let home = self.home(task.partition());
        let body = request::Body::Explain(wire::TaskQuery { job: job.0, local: task.0 });
        let answer = self.ask(home, body.clone()).await;
        let answer = answer.map_err(|e| name_unknown(e, job, Some(task)))?;
        let Some(response::Body::Explanation(mut explanation)) = answer.body else {
            return Err(ClientError::Protocol { node: home.0, what: "no explanation" });
        };
        let Some(state) = &mut explanation.task else { return Ok(explanation) };
        let holder = NodeId(state.node);
        if state.phase() != wire::TaskPhase::Ready || !state.placed || holder == home {
            return Ok(explanation);
        }
        // What it waits for there only its holder knows; a holder that is away says nothing.
        let held = self.ask_once(holder, body, GUEST_PATIENCE).await;
        if let Ok(Some(response::Body::Explanation(held))) = held {
            if let Some(seen) = held.task.filter(|seen| seen.attempt == state.attempt) {
                state.phase = seen.phase;
            }
            explanation.lines.extend(held.lines);
        }
        Ok(explanation)
    }

    /// One attempt at one node.
    async fn ask_once(
        &self,
        node: NodeId,
        body: request::Body,
        patience: Duration,
    ) -> Result<Option<response::Body>, ClientError> {
        let away = |text: String| ClientError::ClusterUnreachable(format!("node {node}: {text}"));
        let ask = async {
            let link = self.link(node.0).await.map_err(|lost| away(lost.0))?;
            let id = self.next_id();
            let answer = link.send(id, link::encode(id, body)).await;
            let answer = answer.map_err(|lost| away(lost.0))?.await;
            let answer = answer.map_err(|_| away("connection closed".to_owned()))?;
            answer.map_err(|lost| away(lost.0))
        };
        let answer = tokio::time::timeout(patience, ask).await;
        let answer = answer.map_err(|_| away("it does not answer".to_owned()))??;
        match self.check(node.0, answer)? {
            Checked::Answer(response) => Ok(response.body),
            Checked::Busy { text, .. } => Err(ClientError::Busy { node: node.0, text }),
        }
    }

    /// One attempt at each node, all at the same time.
    async fn ask_all(
        &self,
        body: request::Body,
        patience: Duration,
    ) -> Vec<(NodeId, Result<Option<response::Body>, ClientError>)> {
        let mut asked = tokio::task::JoinSet::new();
        for node in self.nodes() {
            let (client, body) = (self.clone(), body.clone());
            asked.spawn(async move { (node, client.ask_once(node, body, patience).await) });
        }
        let mut answers = asked.join_all().await;
        answers.sort_unstable_by_key(|(node, _)| *node);
        answers
    }

    /// One node's own state; the node is given `patience` to answer.
    pub async fn node_state(
        &self,
        node: NodeId,
        patience: Duration,
    ) -> Result<wire::NodeState, ClientError> {
        let body = request::Body::Node(wire::NodeQuery {});
        state_of(node, self.ask_once(node, body, patience).await)
    }

    /// The state of every node, with the reason for those that do not answer.
    pub async fn node_states(
        &self,
        patience: Duration,
    ) -> Vec<(NodeId, Result<wire::NodeState, ClientError>)> {
        let answers = self.ask_all(request::Body::Node(wire::NodeQuery {}), patience).await;
        answers.into_iter().map(|(node, answer)| (node, state_of(node, answer))).collect()
    }

    /// Changes how one node decides and what it keeps; absent fields stay as they are.
    pub async fn tune(
        &self,
        node: NodeId,
        change: &wire::Tuning,
        patience: Duration,
    ) -> Result<(), ClientError> {
        self.ask_once(node, request::Body::Tune(change.clone()), patience).await.map(drop)
    }

    /// Commits a staged job: from here on it belongs to the cluster.
    pub(crate) async fn commit(&self, commit: &wire::JobCommit) -> Result<(), ClientError> {
        let job = JobId(commit.job);
        let partition = kvs::job_partition(job, self.partitions());
        let route = |map: &wire::ClusterMap| {
            (home_of(map, partition), request::Body::Commit(commit.clone()))
        };
        self.ask_routed(&route, Repeat::Safe).await.map(drop)
    }
}

/// The changing state of one job. Survives restarts of the job's home.
#[derive(Debug)]
pub struct JobWatch {
    client: Client,
    job: JobId,
    responses: Option<(u32, Instant, Responses)>,
    ended: bool,
}
type Responses = tokio::sync::mpsc::UnboundedReceiver<Result<wire::Response, link::Lost>>;

impl JobWatch {
    /// The next state; `None` after the last. May be dropped and called again at any point.
    pub async fn next(&mut self) -> Result<Option<wire::JobState>, ClientError> {
        let mut retry = Retry::new(self.client.patience());
        while !self.ended {
            let Some((node, opened, responses)) = &mut self.responses else {
                if let Err((node, lost)) = self.open().await {
                    retry.pause(node, &lost).await?;
                }
                continue;
            };
            let (node, opened) = (*node, *opened);
            let response = match responses.recv().await {
                Some(Ok(response)) => response,
                lost => {
                    self.responses = None;
                    retry.rearm(opened);
                    let closed = || link::Lost("connection closed".to_owned());
                    let lost = lost.and_then(Result::err).unwrap_or_else(closed);
                    retry.pause(node, &lost).await?;
                    continue;
                }
            };
            let checked = self.client.check(node, response);
            match checked.map_err(|e| name_unknown(e, self.job, None))? {
                Checked::Busy { after, text } => {
                    self.responses = None;
                    retry.wait_busy(node, after, text).await?;
                }
                Checked::Answer(response) => {
                    let more = response.more;
                    let Some(response::Body::Job(state)) = response.body else {
                        return Err(ClientError::Protocol { node, what: "no job state" });
                    };
                    self.ended = is_ended(&state);
                    if !more {
                        self.responses = None;
                    }
                    return Ok(Some(state));
                }
            }
        }
        Ok(None)
    }

    async fn open(&mut self) -> Result<(), (u32, link::Lost)> {
        let node = self.client.job_home(self.job).0;
        let failed = |lost| (node, lost);
        let link = self.client.link(node).await.map_err(failed)?;
        let id = self.client.next_id();
        let query = request::Body::WatchJob(wire::JobQuery { job: self.job.0 });
        let responses = link.watch(id, link::encode(id, query)).await.map_err(failed)?;
        self.responses = Some((node, Instant::now(), responses));
        Ok(())
    }
}
