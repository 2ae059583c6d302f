//! Submission of a graph: chunks directly to the homes of their tasks, then one commit.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proto::wire::{self, request};
use proto::{JobId, NodeId, PartitionId, TaskId, limits};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use workloads::{Graph, Placement, Plan};

use crate::map::home_of;
use crate::retry::Target;
use crate::{Cas, Client, ClientError, DeclaredVariable, link};

/// The key with the next small consecutive job id.
const NEXT_JOB: &[u8] = b"starling/next-job";

/// The nodes that a submission is sent to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Submit {
    /// Every node gets its share.
    #[default]
    Best,
    /// Everything is sent to one node, the paper's worst case.
    Worst,
    /// Shares for these nodes alone.
    Nodes(Vec<NodeId>),
}

/// A job that another one waits for. Its text is `7`, or `any:7`.
///
/// ```
/// let after: starling_client::AfterJob = "any:7".parse().unwrap();
/// assert!(after.any);
/// assert!("seven".parse::<starling_client::AfterJob>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AfterJob {
    /// Its number in the cluster.
    pub job: JobId,
    /// The other job starts however this one ends. Otherwise this one must end without failures.
    pub any: bool,
}

impl FromStr for AfterJob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wire::AfterJob { job, any, .. } = proto::after::parse(text)?;
        Ok(Self { job: JobId(job), any })
    }
}

impl AfterJob {
    pub(crate) fn records(list: &[Self]) -> Vec<wire::AfterJob> {
        let record = |one: &Self| wire::AfterJob { job: one.job.0, any: one.any, end: 0 };
        list.iter().map(record).collect()
    }
}

/// The settings of a submission.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SubmitOptions {
    /// Which tasks share a home.
    pub placement: Placement,
    /// The homes that get tasks.
    pub submit: Submit,
    /// The name in lists; if it is empty, [`Client::submit`] uses the graph's own.
    pub name: String,
    /// The settings of the job.
    pub settings: JobSettings,
    /// `None`: the next free number of the cluster.
    pub job: Option<JobId>,
    /// The start of the submission, if that was before this call. Nanoseconds since the Unix epoch.
    pub submitted_ns: Option<u64>,
    /// Values that the tasks share.
    pub variables: Vec<DeclaredVariable>,
    /// No task starts before these jobs have ended; empty: as the workflow file says.
    pub after: Vec<AfterJob>,
}

/// The settings of a job.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct JobSettings {
    /// Outputs have real bytes, also those of tasks that are no commands. A job that is submitted
    /// as a whole and has a command always has real bytes.
    pub real_data: bool,
    /// The modelled time of a transfer between nodes, in nanoseconds a byte, for outputs without
    /// real bytes; 0: none.
    pub transfer_ns_per_byte: f64,
    /// The maximum number of tasks, with those that tasks spawn; 0: the default.
    pub max_tasks: u64,
    /// The job is cancelled when more tasks than this have failed; `None`: never.
    pub max_fails: Option<u64>,
    /// The most tasks of the job that run at once; `None`: as its workflow file says, or no limit.
    /// All tasks of such a job have one home.
    pub at_most: Option<u32>,
}

/// A job that the cluster has accepted durably.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobHandle {
    /// Its number in the cluster.
    pub job: JobId,
    /// The number of submitted tasks.
    pub tasks: u64,
    /// The number of pairs of a parent and a child.
    pub edges: u64,
}

impl JobSettings {
    pub(crate) fn to_record(self) -> wire::JobSettings {
        wire::JobSettings {
            real_data: self.real_data,
            transfer_ns_per_byte: self.transfer_ns_per_byte,
            max_tasks: self.max_tasks,
            fails_limit: self.max_fails.map_or(0, |fails| fails.saturating_add(1)),
            at_most: self.at_most.unwrap_or(0),
            ..wire::JobSettings::default()
        }
    }
}

/// One partition of the homes: the job's own if they have it, so that jobs have different ones.
fn one_partition(homes: &[Vec<PartitionId>], own: PartitionId) -> Vec<Vec<PartitionId>> {
    let has_own = homes.iter().any(|home| home.contains(&own));
    let first = homes.first().and_then(|home| home.first()).copied().unwrap_or(own);
    vec![vec![if has_own { own } else { first }]]
}

/// The wall clock, nanoseconds since the Unix epoch.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "release times of other machines count from it")]
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).expect("the year is below 2554")
}

impl Client {
    /// The next free job number of the cluster: 1, 2, 3. If its client fails, the number is
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

    /// The partitions of each node that a submission is sent to.
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

    /// Refuses a list of jobs to wait for that names an unknown job, before anything is sent.
    async fn check_after(&self, job: JobId, after: &[wire::AfterJob]) -> Result<(), ClientError> {
        proto::after::check(job.0, after).map_err(ClientError::Refused)?;
        for one in after {
            self.job_record(JobId(one.job)).await?;
        }
        Ok(())
    }

    /// The placement of a graph's tasks. Takes the job's number and sends nothing.
    pub async fn plan<'g>(
        &self,
        graph: &'g Graph,
        options: &SubmitOptions,
    ) -> Result<Plan<'g>, ClientError> {
        let (tasks, most) = (graph.len() as u64, options.settings.max_tasks);
        if most > 0 && tasks > most {
            let text = format!("the job has {tasks} tasks, --max-tasks allows {most}");
            return Err(ClientError::Refused(text));
        }
        let mut homes = self.homes(&options.submit)?;
        let job = match options.job {
            Some(job) => job,
            None => self.next_job().await?,
        };
        if options.settings.at_most.or_else(|| graph.job_options().at_most).is_some() {
            homes = one_partition(&homes, kvs::job_partition(job, self.partitions()));
        }
        Ok(Plan::new(graph, job, options.placement, &homes))
    }

    /// Sends a plan to the cluster and commits it. After success the job runs independently of this
    /// client. After a failure the job may have been committed, if the answer to the commit was
    /// lost; else no task of it runs, and its data on the nodes expires.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: another job has this number, or a limit is exceeded.
    /// [`ClientError::File`]: a file that is to be uploaded cannot be read. Otherwise a home does
    /// not answer. A repetition with the same plan is the same job.
    pub async fn submit_plan(
        &self,
        plan: &Plan<'_>,
        options: &SubmitOptions,
    ) -> Result<JobHandle, ClientError> {
        let submitted_ns = options.submitted_ns.unwrap_or_else(now_ns);
        let of_file = plan.graph().job_options();
        let after = match options.after.is_empty() {
            true => of_file.after.clone(),
            false => AfterJob::records(&options.after),
        };
        self.check_after(plan.job(), &after).await?;
        self.send_chunks(plan).await?;
        // After the chunks: homes that know the job delete its files if it is never committed.
        tokio::select! {
            put = self.put_uploads(plan) => put?,
            lost = self.keep_alive(plan) => return Err(lost),
        }
        let mut settings = options.settings;
        settings.at_most = settings.at_most.or(of_file.at_most);
        let mut commit = plan.commit(&options.name, submitted_ns, settings.to_record());
        commit.after = after;
        commit.variables = DeclaredVariable::records(&options.variables);
        let is_new = |one: &&wire::VarDeclared| {
            options.variables.iter().all(|other| other.name() != one.name)
        };
        commit.variables.extend(of_file.variables.iter().filter(is_new).cloned());
        self.commit(&commit).await?;
        let tasks = commit.partitions.iter().map(|total| total.tasks).sum();
        Ok(JobHandle { job: JobId(commit.job), tasks, edges: commit.edges })
    }

    /// [`Self::plan`] and [`Self::submit_plan`] in one.
    ///
    /// # Errors
    /// As [`Self::submit_plan`], but a repetition is another job. [`SubmitOptions::job`] makes it
    /// the same.
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

    /// Uploads the files of the submitter to the homes of the tasks that stand for them.
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

    /// An uncommitted job expires on a node that receives no message about it, so each node
    /// periodically gets a chunk again. Returns when a request fails.
    async fn keep_alive(&self, plan: &Plan<'_>) -> ClientError {
        let mut chunks = BTreeMap::new();
        let mut homes = None;
        loop {
            tokio::time::sleep(Duration::from_nanos(limits::STAGED_JOB_TTL.0 / 4)).await;
            let epoch = self.map().epoch;
            if homes.replace(epoch) != Some(epoch) {
                // Not earlier: short uploads need no chunks, and a graph may have many.
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
