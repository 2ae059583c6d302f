//! Submitting a graph: chunks straight to the homes of their tasks, then one commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proto::wire::{self, request};
use proto::{JobId, NodeId, PartitionId, TaskId, limits};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use workloads::{Graph, Placement, Plan};

use crate::call::home_of;
use crate::retry::Target;
use crate::{Cas, Client, ClientError, link};

/// The key that hands out small consecutive job ids.
const NEXT_JOB: &[u8] = b"starling/next-job";

/// Which nodes' partitions a submission goes to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Submit {
    /// Every node gets its share.
    #[default]
    Best,
    /// Everything goes to one node, the paper's worst case.
    Worst,
    Nodes(Vec<NodeId>),
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct SubmitOptions {
    pub placement: Placement,
    pub submit: Submit,
    /// Shown in lists; [`Client::submit`] takes the graph's own when it is empty.
    pub name: String,
    pub settings: wire::JobSettings,
    /// `None`: the next free number of the cluster.
    pub job: Option<JobId>,
    /// When the submission began, if that was before this call. Nanoseconds since the Unix epoch.
    pub submitted_ns: Option<u64>,
}

/// A job the cluster has accepted, durably.
#[derive(Clone, Debug)]
pub struct JobHandle {
    pub job: JobId,
    pub commit: wire::JobCommit,
}

/// The wall clock, nanoseconds since the Unix epoch.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "release times of other machines count from it")]
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).expect("the year is below 2554")
}

impl Client {
    /// The next free job number of the cluster: 1, 2, 3. A number whose client then dies is
    /// skipped.
    pub async fn next_job(&self) -> Result<JobId, ClientError> {
        let kv = self.kv();
        loop {
            let present = kv.lookup(NEXT_JOB).await?;
            let expected = present.as_ref().map(|value| &value.bytes[..]);
            let number = match expected.map(std::str::from_utf8) {
                None => 1,
                Some(text) => text.ok().and_then(|text| text.parse().ok()).ok_or_else(|| {
                    ClientError::Refused("key starling/next-job holds no number".to_owned())
                })?,
            };
            let next: u64 = number + 1;
            match kv.cas(NEXT_JOB, expected, next.to_string().as_bytes()).await {
                Ok(Cas::Swapped { .. }) => return Ok(JobId(number)),
                Ok(Cas::Conflict { .. }) | Err(ClientError::Uncertain { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The partitions of each node a submission goes to.
    fn homes(&self, submit: &Submit) -> Result<Vec<Vec<PartitionId>>, ClientError> {
        let map = self.map();
        let mut homes: BTreeMap<u32, Vec<PartitionId>> = BTreeMap::new();
        for at in 0..map.partitions.len() as u32 {
            homes.entry(home_of(&map, PartitionId(at))).or_default().push(PartitionId(at));
        }
        let chosen = match submit {
            Submit::Best => homes.into_values().collect(),
            Submit::Worst => homes.into_values().take(1).collect(),
            Submit::Nodes(nodes) => {
                let mut chosen = Vec::with_capacity(nodes.len());
                for node in nodes {
                    let partitions = homes.remove(&node.0).ok_or_else(|| {
                        ClientError::Refused(format!("--submit: no node {node}, or named twice"))
                    })?;
                    chosen.push(partitions);
                }
                chosen
            }
        };
        Ok(chosen)
    }

    /// Where the tasks of a graph would go: the job's number is taken, nothing is sent.
    pub async fn plan<'g>(
        &self,
        graph: &'g Graph,
        options: &SubmitOptions,
    ) -> Result<Plan<'g>, ClientError> {
        let homes = self.homes(&options.submit)?;
        let job = match options.job {
            Some(job) => job,
            None => self.next_job().await?,
        };
        Ok(Plan::new(graph, job, options.placement, &homes))
    }

    /// Streams a plan into the cluster and commits it. When this returns, the job runs whatever
    /// becomes of this client; when it fails, or the client dies before, nothing of it runs, and
    /// what it has put here goes in time.
    pub async fn submit_plan(
        &self,
        plan: &Plan<'_>,
        options: &SubmitOptions,
    ) -> Result<JobHandle, ClientError> {
        let submitted_ns = options.submitted_ns.unwrap_or_else(now_ns);
        self.send_chunks(plan).await?;
        // After the chunks: where the job is known, what is never committed goes with it.
        tokio::select! {
            put = self.put_uploads(plan) => put?,
            lost = self.keep_alive(plan) => return Err(lost),
        }
        let commit = plan.commit(&options.name, submitted_ns, options.settings);
        self.commit(&commit).await?;
        Ok(JobHandle { job: JobId(commit.job), commit })
    }

    /// [`Self::plan`] and [`Self::submit_plan`] in one.
    pub async fn submit(
        &self,
        graph: &Graph,
        mut options: SubmitOptions,
    ) -> Result<JobHandle, ClientError> {
        options.submitted_ns.get_or_insert_with(now_ns);
        if options.name.is_empty() {
            graph.name().clone_into(&mut options.name);
        }
        let plan = self.plan(graph, &options).await?;
        self.submit_plan(&plan, &options).await
    }

    /// Puts the files of the submitter where the tasks that stand for them will run.
    async fn put_uploads(&self, plan: &Plan<'_>) -> Result<(), ClientError> {
        let mut sending: JoinSet<Result<(), ClientError>> = JoinSet::new();
        for (task, file) in plan.graph().uploads() {
            let size_bytes = plan.graph().output_bytes(task, 0);
            while sending.len() >= limits::UPLOADS_IN_FLIGHT_MAX {
                if let Some(sent) = sending.join_next().await {
                    sent.expect("sending does not panic")?;
                }
            }
            let task = TaskId { job: plan.job(), local: plan.local_id(task) };
            let client = self.clone();
            sending.spawn(async move { client.put_file(task, &file, size_bytes).await });
        }
        while let Some(sent) = sending.join_next().await {
            sent.expect("sending does not panic")?;
        }
        Ok(())
    }

    /// What is not committed expires where nothing is heard of it: each node hears a chunk again
    /// from time to time. Ends when one cannot be told.
    async fn keep_alive(&self, plan: &Plan<'_>) -> ClientError {
        let mut chunks = BTreeMap::new();
        let mut homes = None;
        loop {
            tokio::time::sleep(Duration::from_nanos(limits::STAGED_JOB_TTL.0 / 4)).await;
            let epoch = self.map().epoch;
            if homes.replace(epoch) != Some(epoch) {
                // Only now: short uploads need none of them, and a graph may have many.
                chunks = self.chunk_of_each_home(plan);
            }
            for chunk in chunks.values() {
                let home = PartitionId(chunk.partition);
                if let Err(error) = self.ask_home(home, request::Body::Submit(chunk.clone())).await
                {
                    return error;
                }
            }
        }
    }

    fn chunk_of_each_home(&self, plan: &Plan<'_>) -> BTreeMap<NodeId, wire::Chunk> {
        let used = plan.commit("", 0, wire::JobSettings::default()).partitions;
        let homes: BTreeSet<NodeId> =
            used.iter().map(|total| self.home(PartitionId(total.partition))).collect();
        let mut found = BTreeMap::new();
        for chunk in plan.chunks() {
            found.entry(self.home(PartitionId(chunk.partition))).or_insert(chunk);
            if found.len() == homes.len() {
                break;
            }
        }
        found
    }

    async fn send_chunks(&self, plan: &Plan<'_>) -> Result<(), ClientError> {
        let mut windows: BTreeMap<u32, Arc<Semaphore>> = BTreeMap::new();
        let mut sending: JoinSet<Result<(), ClientError>> = JoinSet::new();
        for chunk in plan.chunks() {
            let home = PartitionId(chunk.partition);
            let id = self.next_id();
            let bytes = link::encode(id, request::Body::Submit(chunk));
            let window = windows
                .entry(self.home(home).0)
                .or_insert_with(|| Arc::new(Semaphore::new(limits::CHUNKS_IN_FLIGHT_MAX)));
            let permit = Arc::clone(window).acquire_owned().await.expect("never closed");
            let client = self.clone();
            sending.spawn(async move {
                let answer = client.ask_bytes(Target::Home(home), id, bytes).await;
                drop(permit);
                answer.map(drop)
            });
            while let Some(sent) = sending.try_join_next() {
                sent.expect("sending does not panic")?;
            }
        }
        while let Some(sent) = sending.join_next().await {
            sent.expect("sending does not panic")?;
        }
        Ok(())
    }
}
