//! Jobs and tasks: state, watching, explanation, cancelling.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use proto::wire::{self, request, response};
use proto::{JobId, LocalId, NodeId, PartitionId, limits};

use super::job_watch::JobRecords;
use crate::call::{Checked, MOVED, name_unknown};
use crate::info::{Cancelled, JobInfo, JobPhase};
use crate::retry::{Retry, Target};
use crate::{Client, ClientError, link};

/// The time that a node has to list the tasks that it runs for others.
const GUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// What a list of tasks has beside their states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extras {
    None,
    /// The kept outputs of spawned tasks.
    Kept,
    /// The parents of tasks.
    Parents,
}

/// The epoch under which this node serves a partition by the map; `None` if it does not.
fn serves(map: &wire::ClusterMap, node: NodeId, partition: PartitionId) -> Option<u64> {
    let entry = map.partitions.get(partition.0 as usize)?;
    (entry.active && entry.replicas.first() == Some(&node.0)).then_some(entry.epoch)
}

/// The user that cancels or retries, for `job info`.
fn canceller() -> String {
    let given = |key: &str| std::env::var(key).ok().filter(|user| !user.is_empty());
    let user = given("USER").or_else(|| given("LOGNAME")).or_else(effective_user);
    let user = user.unwrap_or_else(|| "unknown".to_owned());
    let mut name = format!("{user}@{}", crate::host_name());
    while name.len() > limits::NAME_BYTES_MAX {
        name.pop();
    }
    name
}

/// The user of this process by name, or by number if the name is not known here.
fn effective_user() -> Option<String> {
    let user = std::fs::metadata("/proc/self").ok()?.uid();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    Some(name_of(&users, user).unwrap_or_else(|| user.to_string()))
}

/// The name of a user by the text of `/etc/passwd`.
fn name_of(users: &str, user: u32) -> Option<String> {
    let number = user.to_string();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    })
}

/// True if a job's state is its last.
#[must_use]
pub fn is_ended(state: &wire::JobState) -> bool {
    JobPhase::of_record(state.phase()).is_end()
}

impl Client {
    pub(super) fn job_partition(&self, job: JobId) -> PartitionId {
        kvs::job_partition(job, self.partitions())
    }

    /// The state of a job in its newest round, from its home.
    pub(crate) async fn job_record(&self, job: JobId) -> Result<wire::JobState, ClientError> {
        let query = wire::JobQuery { job: job.0, ..Default::default() };
        self.job_state(job, request::Body::Job(query)).await
    }

    /// As [`Self::job`], before results of it are fetched. From then on the job's outputs so far
    /// count: if a rerun task makes other bytes, it fails.
    pub async fn job_to_fetch(&self, job: JobId) -> Result<JobInfo, ClientError> {
        let query = wire::JobQuery { job: job.0, fetches: true, ..Default::default() };
        self.job_state(job, request::Body::Job(query)).await.map(JobInfo::of_record)
    }

    /// The state of a job at the end of this round; its present state if that is the newest round.
    pub(crate) async fn record_in_round(
        &self,
        job: JobId,
        round: u32,
    ) -> Result<wire::JobState, ClientError> {
        let past_round = round.saturating_add(1);
        let query = wire::JobQuery { job: job.0, past_round, ..Default::default() };
        self.job_state(job, request::Body::Job(query)).await
    }

    /// Opens the round after `round`, in which the job has ended: these tasks run again, or all
    /// unfinished ones. Returns the job in its new round. A repetition opens no second one.
    pub(crate) async fn retry_record(
        &self,
        job: JobId,
        round: u32,
        tasks: &[LocalId],
    ) -> Result<wire::JobState, ClientError> {
        let locals = tasks.iter().map(|task| task.0).collect();
        let retry = wire::JobRetry { job: job.0, round: round + 1, locals, by: canceller() };
        self.job_state(job, request::Body::Retry(retry)).await
    }

    /// Removes all records of an ended job; with `results` its kept outputs as well. A repetition
    /// changes nothing.
    pub async fn forget(&self, job: JobId, results: bool) -> Result<(), ClientError> {
        let forget = request::Body::Forget(wire::JobForget { job: job.0, results });
        let answer = self.ask_home(self.job_partition(job), forget).await;
        answer.map(drop).map_err(|e| name_unknown(e, job, None))
    }

    async fn job_state(
        &self,
        job: JobId,
        body: request::Body,
    ) -> Result<wire::JobState, ClientError> {
        let answer = self.ask_home(self.job_partition(job), body).await;
        let (node, answer) = answer.map_err(|e| name_unknown(e, job, None))?;
        match answer.body {
            Some(response::Body::Job(state)) => Ok(state),
            _ => Err(ClientError::Protocol { node, what: "no job state" }),
        }
    }

    /// Follows a job from its present state to its end.
    pub(crate) fn watch_records(&self, job: JobId) -> JobRecords {
        JobRecords::of(self.clone(), job)
    }

    /// Follows a job to its end and returns the last state. `see` receives every state.
    pub(crate) async fn wait_as<T>(
        &self,
        job: JobId,
        convert: impl Fn(wire::JobState) -> T,
        mut see: impl FnMut(&T),
    ) -> Result<T, ClientError> {
        let mut watch = self.watch_records(job);
        let mut last = None;
        while let Some(record) = watch.next().await? {
            let state = convert(record);
            see(&state);
            last = Some(state);
        }
        last.ok_or(ClientError::UnknownJob(job))
    }

    /// Cancels a whole job, or the named tasks with all that wait for them. The answer is final.
    pub async fn cancel(&self, job: JobId, tasks: &[LocalId]) -> Result<Cancelled, ClientError> {
        if tasks.is_empty() {
            let answer = self.cancel_job(job).await.map(Cancelled::of_record)?;
            // A forgotten job has no tasks, either. Its record says when it was forgotten.
            if answer.cancelled == 0
                && answer.ended == 0
                && let Err(error @ ClientError::Refused(_)) = self.job_record(job).await
            {
                return Err(error);
            }
            return Ok(answer);
        }
        if let Some(&task) = tasks.iter().find(|task| task.partition().0 >= self.partitions()) {
            return Err(ClientError::UnknownTask { job, task });
        }
        let mut tasks = tasks.to_vec();
        tasks.sort_unstable_by_key(|task| (self.home(task.partition()), *task));
        tasks.dedup();
        let mut sum = wire::Cancelled::default();
        // Tasks that have ended may be about to run again.
        let round = self.round_now(job).await;
        for of_node in tasks.chunk_by(|a, b| self.home(a.partition()) == self.home(b.partition())) {
            for piece in of_node.chunks(limits::CANCEL_TASKS_MAX) {
                self.cancel_tasks(job, round, piece, &mut sum).await?;
            }
        }
        Ok(Cancelled::of_record(sum))
    }

    /// The present round of a job, or 0 if its home does not answer soon.
    async fn round_now(&self, job: JobId) -> u32 {
        let query = request::Body::Job(wire::JobQuery { job: job.0, ..Default::default() });
        let home = self.home(self.job_partition(job));
        match self.ask_once(home, query, GUEST_TIMEOUT).await {
            Ok(Some(response::Body::Job(state))) => state.round(),
            _ => 0,
        }
    }

    /// Cancels tasks of one home. If homes move meanwhile, partitions may get different homes; then
    /// a request is sent for each partition.
    async fn cancel_tasks(
        &self,
        job: JobId,
        round: u32,
        tasks: &[LocalId],
        sum: &mut wire::Cancelled,
    ) -> Result<(), ClientError> {
        let node = self.home(tasks[0].partition());
        let cancel = |tasks: &[LocalId]| {
            let locals = tasks.iter().map(|task| task.0).collect();
            wire::Cancel { job: job.0, locals, by: canceller(), round, ..Default::default() }
        };
        let body = request::Body::Cancel(cancel(tasks));
        let mut answers = Vec::new();
        match self.ask_once(node, body, self.request_timeout()).await {
            Ok(Some(response::Body::Cancelled(answer))) => answers.push(answer),
            Err(
                error @ (ClientError::UnknownJob(_)
                | ClientError::Refused(_)
                | ClientError::UnknownTask { .. }),
            ) => return Err(name_unknown(error, job, Some(tasks[0]))),
            _ => {
                for tasks in tasks.chunk_by(|a, b| a.partition() == b.partition()) {
                    let answer = self.ask_cancel(tasks[0].partition(), cancel(tasks)).await;
                    answers.push(answer.map_err(|e| name_unknown(e, job, Some(tasks[0])))?);
                }
            }
        }
        for answer in answers {
            sum.cancelled += answer.cancelled;
            sum.ended += answer.ended;
            sum.unknown.extend(answer.unknown);
        }
        Ok(())
    }

    async fn cancel_job(&self, job: JobId) -> Result<wire::Cancelled, ClientError> {
        let home = self.job_partition(job);
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
        home: PartitionId,
        cancel: wire::Cancel,
    ) -> Result<wire::Cancelled, ClientError> {
        let (node, answer) = self.ask_home(home, request::Body::Cancel(cancel)).await?;
        match answer.body {
            Some(response::Body::Cancelled(answer)) => Ok(answer),
            _ => Err(ClientError::Protocol { node, what: "no answer to a cancellation" }),
        }
    }

    /// True if some node has tasks of a job that its home does not know: the job is being
    /// submitted.
    async fn is_staged(&self, job: JobId) -> bool {
        let job = job.0;
        let query = wire::TasksQuery { job, limit: 1, from_start: true, ..Default::default() };
        let answers = self.ask_all(request::Body::Tasks(query), GUEST_TIMEOUT).await;
        answers.into_iter().any(|(_, answer)| {
            matches!(answer, Ok(Some(response::Body::Tasks(page))) if !page.tasks.is_empty())
        })
    }

    /// All tasks of a job, page by page, in the order of their ids within each home.
    pub(crate) async fn task_records(
        &self,
        job: JobId,
        see: impl FnMut(wire::TaskState),
    ) -> Result<(), ClientError> {
        let state = self.job_record(job).await?;
        let how = (self.request_timeout(), Extras::None);
        self.tasks_by_homes(job, &state, how, see).await?.map_or(Ok(()), Err)
    }

    /// The tasks of a job from homes that answer within `request_timeout`, with more of each as
    /// asked. False if some do not answer.
    pub(crate) async fn known_task_records(
        &self,
        job: JobId,
        (request_timeout, extras): (Duration, Extras),
        see: impl FnMut(wire::TaskState),
    ) -> Result<bool, ClientError> {
        let state = match tokio::time::timeout(request_timeout, self.job_record(job)).await {
            Ok(Err(ClientError::ClusterUnreachable(_))) | Err(_) => return Ok(false),
            Ok(state) => state?,
        };
        Ok(self.tasks_by_homes(job, &state, (request_timeout, extras), see).await?.is_none())
    }

    /// Asks each home for its tasks, with more of each as asked, and repeats this for homes that do
    /// not answer. Returns the error of the last one that has not answered.
    async fn tasks_by_homes(
        &self,
        job: JobId,
        state: &wire::JobState,
        (request_timeout, extras): (Duration, Extras),
        mut see: impl FnMut(wire::TaskState),
    ) -> Result<Option<ClientError>, ClientError> {
        let mut left: BTreeSet<PartitionId> =
            state.partitions.iter().map(|total| PartitionId(total.partition)).collect();
        let running = match is_ended(state) {
            true => BTreeMap::new(),
            false => self.guests(job).await,
        };
        let mut retry = Retry::new(request_timeout);
        let mut told = BTreeSet::new(); // Tasks of partitions that were not listed completely.
        while let Some(&first) = left.first() {
            let map = self.map();
            let homes: BTreeSet<NodeId> = left.iter().map(|&it| self.home(it)).collect();
            let mut silent = None;
            for home in homes {
                let walked = self.tasks_of((job, extras), home, &left, |mut task| {
                    if told.insert(task.local) {
                        if running.get(&task.local) == Some(&task.attempt) {
                            task.set_phase(wire::TaskPhase::RunningTask);
                        }
                        see(task);
                    }
                });
                match walked.await? {
                    Ok(served) => {
                        left.retain(|partition| !served.contains(partition));
                        told.retain(|&local| left.contains(&LocalId(local).partition()));
                    }
                    Err(lost) => silent = Some((home, lost)),
                }
            }
            if let Some((home, lost)) = silent {
                if let Err(error) = retry.pause(Target::Home(first), home.0, &lost).await {
                    return Ok(Some(error));
                }
                self.refresh(&map).await;
            }
        }
        Ok(None)
    }

    /// Lists the tasks of the partitions in `wanted` that this node is home of. Returns these
    /// partitions.
    async fn tasks_of(
        &self,
        (job, extras): (JobId, Extras),
        home: NodeId,
        wanted: &BTreeSet<PartitionId>,
        mut see: impl FnMut(wire::TaskState),
    ) -> Result<Result<BTreeSet<PartitionId>, link::LinkError>, ClientError> {
        let away = |error: ClientError| match error {
            ClientError::ClusterUnreachable(text) => Ok(Err(link::LinkError(text))),
            ClientError::Protocol { what: MOVED, .. } => Ok(Err(link::LinkError(MOVED.to_owned()))),
            error => Err(name_unknown(error, job, None)),
        };
        // The node's own map, which may be older than this client's.
        let before = match self.map_of(home).await {
            Ok(map) => map,
            Err(error) => return away(error),
        };
        let served: BTreeSet<PartitionId> =
            wanted.iter().copied().filter(|&it| serves(&before, home, it).is_some()).collect();
        if served.is_empty() {
            return Ok(Err(link::LinkError(MOVED.to_owned())));
        }
        let (mut after, mut from_start) = (0, true);
        loop {
            let limit = limits::TASKS_PER_ANSWER_MAX as u32;
            let (kept, parents) = (extras == Extras::Kept, extras == Extras::Parents);
            let query = wire::TasksQuery { job: job.0, after, limit, from_start, kept, parents };
            let body = request::Body::Tasks(query);
            let page = match self.ask_once(home, body, self.request_timeout()).await {
                Ok(Some(response::Body::Tasks(page))) => page,
                Ok(_) => {
                    return Err(ClientError::Protocol { node: home.0, what: "no list of tasks" });
                }
                Err(error) => return away(error),
            };
            let last = page.tasks.last().map(|task| task.local);
            // The node's own tasks come first, then those it runs for others.
            let is_own = |task: &wire::TaskState| served.contains(&LocalId(task.local).partition());
            page.tasks.into_iter().filter(is_own).for_each(&mut see);
            match last {
                Some(last) if !page.end => (after, from_start) = (last, false),
                _ => break,
            }
        }
        if before.copies <= 1 {
            return Ok(Ok(served));
        }
        // A home that moved meanwhile has not listed all.
        let now = match self.map_of(home).await {
            Ok(map) => map,
            Err(error) => return away(error),
        };
        let stayed = |&it: &PartitionId| serves(&before, home, it) == serves(&now, home, it);
        Ok(Ok(served.into_iter().filter(stayed).collect()))
    }

    async fn map_of(&self, node: NodeId) -> Result<wire::ClusterMap, ClientError> {
        let query = request::Body::Map(wire::MapQuery {});
        match self.ask_once(node, query, self.request_timeout()).await? {
            Some(response::Body::Map(map)) => Ok(map),
            _ => Err(ClientError::Protocol { node: node.0, what: "no map" }),
        }
    }

    /// Whether a task of the job runs on some node that answers. Nodes list what they run for the
    /// homes of others; a home lists its own.
    pub(crate) async fn runs_some(&self, job: JobId) -> Result<bool, ClientError> {
        let mut runs = false;
        let see = |task: wire::TaskState| runs |= task.phase() == wire::TaskPhase::RunningTask;
        self.task_records(job, see).await?;
        Ok(runs)
    }

    /// Tasks that run on another node than their home, with their attempts. Their homes know only
    /// the holders.
    async fn guests(&self, job: JobId) -> BTreeMap<u64, u64> {
        // After the last id only tasks of other homes follow.
        let (job, after) = (job.0, u64::MAX - 1);
        let query = wire::TasksQuery { job, after, limit: 1, ..Default::default() };
        let mut guests = BTreeMap::new();
        for (_, answer) in self.ask_all(request::Body::Tasks(query), GUEST_TIMEOUT).await {
            if let Ok(Some(response::Body::Tasks(page))) = answer {
                guests.extend(page.tasks.into_iter().map(|task| (task.local, task.attempt)));
            }
        }
        guests
    }

    /// The reason for a task's present state, from its home.
    pub(crate) async fn explain_record(
        &self,
        job: JobId,
        task: LocalId,
    ) -> Result<wire::Explanation, ClientError> {
        if task.partition().0 >= self.partitions() {
            return Err(ClientError::UnknownTask { job, task });
        }
        let query = wire::TaskQuery { job: job.0, local: task.0, sums_after: 0 };
        let body = request::Body::Explain(query);
        let answer = self.ask_home(task.partition(), body.clone()).await;
        let (home, answer) = answer.map_err(|e| name_unknown(e, job, Some(task)))?;
        let home = NodeId(home);
        let Some(response::Body::Explanation(mut explanation)) = answer.body else {
            return Err(ClientError::Protocol { node: home.0, what: "no explanation" });
        };
        let Some(state) = &mut explanation.task else { return Ok(explanation) };
        let holder = NodeId(state.node);
        if state.phase() != wire::TaskPhase::Ready || !state.placed || holder == home {
            return Ok(explanation);
        }
        // Only the holder knows the reason for its wait there; an unreachable holder is skipped.
        let held = self.ask_once(holder, body, GUEST_TIMEOUT).await;
        if let Ok(Some(response::Body::Explanation(held))) = held {
            if let Some(seen) = held.task.filter(|seen| seen.attempt == state.attempt) {
                state.phase = seen.phase;
            }
            explanation.lines.extend(held.lines);
        }
        Ok(explanation)
    }

    /// A page of the checksums of a done task's outputs from output `after` on, which is not 0.
    /// Empty: there are no more, or its home does not know the task or this question.
    pub(crate) async fn output_sums_page(
        &self,
        job: JobId,
        task: LocalId,
        after: u32,
    ) -> Result<Option<wire::TaskState>, ClientError> {
        let query = wire::TaskQuery { job: job.0, local: task.0, sums_after: after };
        let answer = self.ask_home(task.partition(), request::Body::Explain(query)).await;
        let (home, answer) = answer.map_err(|e| name_unknown(e, job, Some(task)))?;
        let Some(response::Body::Explanation(told)) = answer.body else {
            return Err(ClientError::Protocol { node: home, what: "no explanation" });
        };
        // A node of an older program answers with the first ones.
        Ok(told.task.filter(|state| state.sums_after == after))
    }

    /// One attempt at one node.
    pub(crate) async fn ask_once(
        &self,
        node: NodeId,
        body: request::Body,
        request_timeout: Duration,
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
        let answer = tokio::time::timeout(request_timeout, ask).await;
        let answer = answer.map_err(|_| away("it does not answer".to_owned()))??;
        match self.check(answer)? {
            Checked::Answer(response) => Ok(response.body),
            Checked::Busy { text, .. } => Err(ClientError::Busy { node: node.0, text }),
            Checked::Moved => Err(ClientError::Protocol { node: node.0, what: MOVED }),
            Checked::Forgotten { .. } => {
                Err(ClientError::Protocol { node: node.0, what: "this has no number" })
            }
        }
    }

    /// One attempt at each node, all at the same time.
    pub(crate) async fn ask_all(
        &self,
        body: request::Body,
        request_timeout: Duration,
    ) -> Vec<(NodeId, Result<Option<response::Body>, ClientError>)> {
        let mut asked = tokio::task::JoinSet::new();
        let mut answers = Vec::new();
        for node in self.nodes() {
            if self.is_given_up(node) {
                let text = format!("node {node} is down");
                answers.push((node, Err(ClientError::ClusterUnreachable(text))));
                continue;
            }
            let (client, body) = (self.clone(), body.clone());
            asked.spawn(async move { (node, client.ask_once(node, body, request_timeout).await) });
        }
        answers.extend(asked.join_all().await);
        answers.sort_unstable_by_key(|(node, _)| *node);
        answers
    }

    /// Commits a staged job: from then on it belongs to the cluster.
    pub(crate) async fn commit(&self, commit: &wire::JobCommit) -> Result<(), ClientError> {
        let partition = self.job_partition(JobId(commit.job));
        self.ask_home(partition, request::Body::Commit(commit.clone())).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_or_numbers() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_of(users, 1000).as_deref(), Some("ann"));
        assert_eq!((name_of(users, 0).as_deref(), name_of(users, 7)), (Some("root"), None));
        assert!(effective_user().is_none_or(|user| !user.is_empty()));
    }
}
