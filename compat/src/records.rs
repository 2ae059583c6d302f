//! What the front keeps in the key-value store.

use std::collections::BTreeMap;
use std::fmt::Display;

use client::{Cas, Client, ClientError};
use proto::JobId;
use serde::{Deserialize, Serialize};
use verb::errors::Failure;

use crate::args::Pin;

/// One way to run a task.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Way {
    /// Names and amounts with their policies.
    pub(crate) amounts: Vec<(String, String)>,
    #[serde(default)]
    pub(crate) weight: Option<f64>,
    #[serde(default)]
    pub(crate) time_request_ns: u64,
}

/// The texts of a submission. A job that was opened has several.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Submission {
    pub(crate) ids: Vec<u64>,
    pub(crate) command: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: String,
    pub(crate) submit_dir: String,
    /// Templates; `None`: no file.
    pub(crate) stdout: Option<String>,
    pub(crate) stderr: Option<String>,
    /// The directory of `--stream`: only a name, Starling keeps the output.
    #[serde(default)]
    pub(crate) stream: Option<String>,
    /// Of the first way.
    pub(crate) resources: Vec<(String, String)>,
    #[serde(default)]
    pub(crate) ways: Vec<Way>,
    /// The number of workers of each task; 0: a part of one.
    #[serde(default)]
    pub(crate) nodes: u32,
    /// By task, the tasks that it waits for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) deps: BTreeMap<u64, Vec<u64>>,
    pub(crate) priority: i32,
    pub(crate) time_limit_ns: u64,
    pub(crate) crash_limit: String,
    pub(crate) pin: Option<Pin>,
    pub(crate) task_dir: bool,
}

impl Submission {
    /// All ways to run a task, in the order of preference.
    pub(crate) fn ways(&self) -> Vec<Way> {
        match self.ways.is_empty() {
            true => vec![Way { amounts: self.resources.clone(), ..Way::default() }],
            false => self.ways.clone(),
        }
    }
}

/// The front's part of a job.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub(crate) submissions: Vec<Submission>,
    #[serde(default)]
    pub(crate) cancel_reason: String,
    #[serde(default)]
    pub(crate) max_fails: Option<u64>,
}

impl JobRecord {
    pub(crate) fn of_task(&self, task: u64) -> Option<&Submission> {
        self.submissions.iter().find(|one| one.ids.contains(&task))
    }
}

/// A pool of a worker.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) amount: f64,
    /// The names of the indices by group; empty: a sum.
    #[serde(default)]
    pub(crate) groups: Vec<Vec<String>>,
}

/// Two groups that are near each other: `cpus[0]` and `gpus[1]`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Coupling {
    pub(crate) left: String,
    pub(crate) right: String,
    pub(crate) weight: u16,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WorkerRecord {
    pub(crate) id: u64,
    pub(crate) pid: u32,
    /// The machine, as the map names it.
    #[serde(default)]
    pub(crate) machine: String,
    /// The name that is shown.
    pub(crate) host: String,
    pub(crate) group: String,
    /// Names and sizes, as a list of workers shows them.
    pub(crate) resources: Vec<(String, String)>,
    #[serde(default)]
    pub(crate) pools: Vec<Pool>,
    #[serde(default)]
    pub(crate) couplings: Vec<Coupling>,
    pub(crate) heartbeat: String,
    #[serde(default)]
    pub(crate) heartbeat_s: f64,
    #[serde(default)]
    pub(crate) time_limit_ns: u64,
    #[serde(default)]
    pub(crate) idle_timeout_ns: u64,
    #[serde(default)]
    pub(crate) on_server_lost: String,
    /// The batch system, and its number of the job.
    #[serde(default)]
    pub(crate) manager: Option<(String, String)>,
    pub(crate) work_dir: String,
    pub(crate) started_ns: u64,
    /// 'worker stop' has asked it to end.
    #[serde(default)]
    pub(crate) is_stopped: bool,
}

impl WorkerRecord {
    pub(crate) fn is_of(&self, member: &proto::wire::Member) -> bool {
        self.pid == member.pid && self.machine == member.host
    }
}

/// A queue of a batch system. Starling's queue has the rest.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct QueueRecord {
    pub(crate) id: u64,
    /// Several queues may have one name.
    pub(crate) name: String,
}

#[derive(Default, Serialize, Deserialize)]
struct Queues {
    last: u64,
    queues: Vec<QueueRecord>,
}

fn job_key(job: JobId) -> Vec<u8> {
    format!("hq/job/{}", job.0).into_bytes()
}
fn worker_key(id: u64) -> Vec<u8> {
    format!("hq/worker/{id}").into_bytes()
}
const WORKERS_KEY: &[u8] = b"hq/workers";
const QUEUES_KEY: &[u8] = b"hq/queues";

/// The key of the standard input of a submission, which its first task names.
pub(crate) fn input_key(job: JobId, ids: &[u64]) -> String {
    format!("hq/stdin/{}/{}", job.0, ids.first().copied().unwrap_or_default())
}

/// The key of the hosts of a task on several workers.
fn hosts_key(job: impl Display, task: impl Display) -> Vec<u8> {
    format!("hq/hosts/{job}/{task}").into_bytes()
}

fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("texts and numbers always serialise")
}

/// Changes a record; nothing is lost if others change it, too.
async fn change<T: Default + Serialize + for<'de> Deserialize<'de>>(
    client: &Client,
    key: &[u8],
    mut with: impl FnMut(&mut T),
) -> Result<T, Failure> {
    let kv = client.kv();
    loop {
        let old = kv.lookup(key).await?.map(|value| value.bytes);
        let old = old.as_deref();
        let mut record: T =
            old.and_then(|old| serde_json::from_slice(old).ok()).unwrap_or_default();
        with(&mut record);
        if let Cas::Swapped { .. } = kv.cas(key, old, &bytes(&record)).await? {
            return Ok(record);
        }
    }
}

async fn read<T: for<'de> Deserialize<'de>>(
    client: &Client,
    key: &[u8],
) -> Result<Option<T>, Failure> {
    let value = client.kv().lookup(key).await?;
    Ok(value.and_then(|value| serde_json::from_slice(&value.bytes).ok()))
}

pub(crate) async fn job(client: &Client, job: JobId) -> Result<JobRecord, Failure> {
    Ok(read(client, &job_key(job)).await?.unwrap_or_default())
}

pub(crate) async fn change_job(
    client: &Client,
    job: JobId,
    with: impl FnMut(&mut JobRecord),
) -> Result<JobRecord, Failure> {
    change(client, &job_key(job), with).await
}

/// Removes a submission that was refused; the first one of a job with the job.
pub(crate) async fn withdraw(client: &Client, job: JobId, ids: &[u64]) -> Result<(), Failure> {
    client.kv().remove(input_key(job, ids).as_bytes()).await?;
    let keep = |record: &mut JobRecord| record.submissions.retain(|it| it.ids != ids);
    let left = change_job(client, job, keep).await?;
    match left == JobRecord::default() {
        true => forget_job(client, job).await,
        false => Ok(()),
    }
}

pub(crate) async fn forget_job(client: &Client, job: JobId) -> Result<(), Failure> {
    let kv = client.kv();
    for submission in self::job(client, job).await?.submissions {
        kv.remove(input_key(job, &submission.ids).as_bytes()).await?;
        for task in submission.ids.iter().filter(|_| submission.nodes > 0) {
            kv.remove(&hosts_key(job.0, task)).await?;
        }
    }
    kv.remove(&job_key(job)).await?;
    Ok(())
}

/// Keeps the hosts of the last attempt of a task on several workers.
pub(crate) async fn note_hosts(
    client: &Client,
    (job, task): (&str, &str),
    hosts: &[String],
) -> Result<(), ClientError> {
    client.kv().insert(&hosts_key(job, task), &bytes(&hosts)).await.map(drop)
}

/// The hosts of the last attempt of a task on several workers.
pub(crate) async fn hosts(
    client: &Client,
    job: JobId,
    task: u64,
) -> Result<Option<Vec<String>>, Failure> {
    read(client, &hosts_key(job.0, task)).await
}

/// Adds a worker, and gives it the next number.
pub(crate) async fn add_worker(client: &Client, mut worker: WorkerRecord) -> Result<u64, Failure> {
    let mut id = 0;
    change(client, WORKERS_KEY, |last: &mut u64| {
        *last += 1;
        id = *last;
    })
    .await?;
    worker.id = id;
    client.kv().insert(&worker_key(id), &bytes(&worker)).await?;
    Ok(id)
}

pub(crate) async fn workers(client: &Client) -> Result<Vec<WorkerRecord>, Failure> {
    let last: u64 = read(client, WORKERS_KEY).await?.unwrap_or_default();
    let mut workers = Vec::new();
    for id in 1..=last {
        workers.extend(read(client, &worker_key(id)).await?);
    }
    Ok(workers)
}

pub(crate) async fn stop_worker(client: &Client, id: u64) -> Result<(), Failure> {
    let stop = |worker: &mut WorkerRecord| worker.is_stopped = true;
    change(client, &worker_key(id), stop).await.map(drop)
}

/// The number of a new queue.
pub(crate) async fn next_queue(client: &Client) -> Result<u64, Failure> {
    change(client, QUEUES_KEY, |queues: &mut Queues| queues.last += 1).await.map(|it| it.last)
}

pub(crate) async fn add_queue(client: &Client, queue: QueueRecord) -> Result<(), Failure> {
    let add = |queues: &mut Queues| queues.queues.push(queue.clone());
    change(client, QUEUES_KEY, add).await.map(drop)
}

pub(crate) async fn queues(client: &Client) -> Result<Vec<QueueRecord>, Failure> {
    Ok(read::<Queues>(client, QUEUES_KEY).await?.unwrap_or_default().queues)
}

pub(crate) async fn remove_queue(client: &Client, id: u64) -> Result<(), Failure> {
    let remove = |queues: &mut Queues| queues.queues.retain(|queue| queue.id != id);
    change(client, QUEUES_KEY, remove).await.map(drop)
}
