//! A connection to a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client::{
    Client, ClientError, JobSettings, OpenJob, OpenOptions, Silence, SilenceAction, StreamFilter,
    StreamPiece, TaskInfo, TaskPhase,
};
use proto::{Attempt, JobId, LocalId, NodeId, ObjectId, TaskId, wire};
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList};
use tokio::runtime::{Handle, Runtime};

use crate::dispatch::{self, Dispatch};
use crate::failure::{closed, cluster_error, fetch_error};
use crate::job::Job;

/// The time that nodes have to report their state.
const NODES_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which a wait looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The job of a silent client is closed after this time.
const HELD_AFTER_SILENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Connects to the instance in a directory.
#[pyfunction]
pub(crate) fn connect(py: Python<'_>, dir: PathBuf) -> PyResult<Core> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("starling-client")
        .enable_all()
        .build()?;
    let client = py.detach(|| runtime.block_on(Client::connect(&dir)));
    let client = client.map_err(|error| cluster_error(&error))?;
    let threads = Mutex::new(Some(Threads { runtime, dispatchers: Vec::new() }));
    Ok(Core { shared: Arc::new(Shared { client, threads }) })
}

#[pyclass(frozen)]
pub(crate) struct Core {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) client: Client,
    /// `None`: closed.
    threads: Mutex<Option<Threads>>,
}

struct Threads {
    runtime: Runtime,
    dispatchers: Vec<Dispatch>,
}

impl Shared {
    pub(crate) fn handle(&self) -> PyResult<Handle> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.as_ref().map(|it| it.runtime.handle().clone()).ok_or_else(closed)
    }

    /// Waits without the interpreter's lock.
    pub(crate) fn wait<T: Send>(
        &self,
        py: Python<'_>,
        future: impl Future<Output = Result<T, ClientError>> + Send,
    ) -> PyResult<T> {
        self.interruptible(py, future)?.map_err(|error| cluster_error(&error))
    }

    /// The same. A signal handler of Python that raises, as for Ctrl-C, ends the wait.
    fn interruptible<T: Send>(
        &self,
        py: Python<'_>,
        future: impl Future<Output = T> + Send,
    ) -> PyResult<T> {
        let (handle, mut future) = (self.handle()?, std::pin::pin!(future));
        loop {
            let slice = async { tokio::time::timeout(LOOK_EVERY, future.as_mut()).await };
            match py.detach(|| handle.block_on(slice)) {
                Ok(done) => return Ok(done),
                Err(_) => py.check_signals()?,
            }
        }
    }
}

impl Core {
    /// Without a handle, of a job that is closed.
    fn follow(
        &self,
        id: JobId,
        job: Option<OpenJob>,
        on_ends: Py<PyAny>,
        on_lost: Py<PyAny>,
    ) -> PyResult<Job> {
        let mut threads = self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(threads) = threads.as_mut() else { return Err(closed()) };
        let client = self.shared.client.clone();
        let handle = threads.runtime.handle();
        let dispatch = dispatch::start(handle, client, id, job.clone(), on_ends, on_lost)?;
        threads.dispatchers.push(dispatch);
        Ok(Job::new(Arc::clone(&self.shared), id, job))
    }
}

#[pymethods]
impl Core {
    /// The nodes that answer: dicts with `id`, `state` and `slots`.
    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let handle = self.shared.handle()?;
        let states = py.detach(|| handle.block_on(self.shared.client.node_states(NODES_TIMEOUT)));
        let nodes = PyList::empty(py);
        for (node, state) in states {
            let entry = PyDict::new(py);
            let member = state.ok().and_then(|state| state.member);
            entry.set_item("id", node.0)?;
            entry.set_item("state", if member.is_some() { "up" } else { "silent" })?;
            entry.set_item("slots", member.map_or(0, |member| member.slots))?;
            nodes.append(entry)?;
        }
        Ok(nodes)
    }

    /// Opens a job. `on_ends` receives lists of (local, attempt, verdict, error, size, node,
    /// inline), `on_lost` the reason if no more ends can come. A client that is silent for
    /// `silent_after_s` has its job cancelled, or closed after a day.
    fn open_job(
        &self,
        py: Python<'_>,
        name: String,
        on_ends: Py<PyAny>,
        on_lost: Py<PyAny>,
        silent_after_s: f64,
        cancels: bool,
    ) -> PyResult<Job> {
        let after = Duration::try_from_secs_f64(silent_after_s)
            .map_err(|error| PyValueError::new_err(format!("silent_after: {error}")))?;
        let action = match cancels {
            true => SilenceAction::Cancel,
            false => SilenceAction::CloseAfter(HELD_AFTER_SILENCE),
        };
        let silence = Some(Silence { after, action });
        // The values of calls are bytes that nodes send each other.
        let settings = JobSettings { real_data: true, ..JobSettings::default() };
        let options = OpenOptions { name, settings, silence, ..OpenOptions::default() };
        let job = self.shared.wait(py, self.shared.client.open_job(options))?;
        self.follow(job.id(), Some(job), on_ends, on_lost)
    }

    /// A handle to a job that is open. The ends of all its tasks come, from the first on.
    fn join_job(
        &self,
        py: Python<'_>,
        job: u64,
        on_ends: Py<PyAny>,
        on_lost: Py<PyAny>,
    ) -> PyResult<Job> {
        let job = self.shared.wait(py, self.shared.client.attach_job(JobId(job)))?;
        self.follow(job.id(), Some(job), on_ends, on_lost)
    }

    /// As `join_job`. A job that takes no more tasks is only read.
    fn attach_job(
        &self,
        py: Python<'_>,
        job: u64,
        on_ends: Py<PyAny>,
        on_lost: Py<PyAny>,
    ) -> PyResult<Job> {
        let joined = async {
            match self.shared.client.attach_job(JobId(job)).await {
                Ok(job) => Ok(Some(job)),
                Err(refused @ ClientError::Refused(_)) => {
                    let state = self.shared.client.raw().job(JobId(job)).await?;
                    // The ends of a job that was submitted as a whole are not watched.
                    let was_open = state.openness() != wire::Openness::ClosedGraph;
                    was_open.then_some(None).ok_or(refused)
                }
                Err(error) => Err(error),
            }
        };
        let joined = self.shared.wait(py, joined)?;
        self.follow(JobId(job), joined, on_ends, on_lost)
    }

    /// The local ids and names of all tasks of a job.
    fn tasks(&self, py: Python<'_>, job: u64) -> PyResult<Vec<(u64, String)>> {
        let mut found = Vec::new();
        let see = |task: TaskInfo| found.push((task.id.0, task.name));
        self.shared.wait(py, self.shared.client.tasks(JobId(job), see))?;
        Ok(found)
    }

    fn kv_insert(&self, py: Python<'_>, key: &[u8], value: &[u8]) -> PyResult<()> {
        let kv = self.shared.client.kv();
        self.shared.wait(py, async { kv.insert(key, value).await.map(drop) })
    }

    fn kv_remove(&self, py: Python<'_>, key: &[u8]) -> PyResult<()> {
        let kv = self.shared.client.kv();
        self.shared.wait(py, async { kv.remove(key).await.map(drop) })
    }

    /// The bytes of the first output of a task, from the node that made it; `TimeoutError` if they
    /// do not come `within` this number of seconds.
    #[pyo3(signature = (job, local, attempt, node, within=None))]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        job: u64,
        local: u64,
        attempt: u64,
        node: u32,
        within: Option<f64>,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let task = TaskId::new(job, local);
        let object = ObjectId { task, attempt: Attempt(attempt), output: 0 };
        let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let within = within.map_or(Duration::MAX, seconds);
        let read = self.shared.client.read_object(NodeId(node), object);
        let read = async { tokio::time::timeout(within, read).await };
        let late = || PyTimeoutError::new_err(format!("n{node} has not sent the result"));
        let data = self.shared.interruptible(py, read)?.map_err(|_| late())?;
        Ok(PyByteArray::new(py, &data.map_err(|error| fetch_error(&error))?))
    }

    /// The text that the last attempt of a task printed on its node.
    fn printed<'py>(
        &self,
        py: Python<'py>,
        job: u64,
        local: u64,
        node: u32,
        stderr: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let filter =
            StreamFilter { tasks: vec![LocalId(local)], stderr, ..StreamFilter::default() };
        let mut attempts: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let see = |piece: StreamPiece| -> Result<(), ClientError> {
            attempts.entry(piece.attempt.0).or_default().extend_from_slice(&piece.data);
            Ok(())
        };
        self.shared.wait(py, self.shared.client.streams(NodeId(node), JobId(job), &filter, see))?;
        let last = attempts.pop_last().map(|(_, data)| data).unwrap_or_default();
        Ok(PyBytes::new(py, &last))
    }

    /// The sentences that explain a task's state.
    fn explain(&self, py: Python<'_>, job: u64, local: u64) -> PyResult<Vec<String>> {
        let explained = self.shared.client.explain(JobId(job), LocalId(local));
        Ok(self.shared.wait(py, explained)?.lines)
    }

    /// The present attempt of a task, and the live nodes that have its result.
    fn holders(&self, py: Python<'_>, job: u64, local: u64) -> PyResult<Option<(u64, Vec<u32>)>> {
        let explained = self.shared.client.explain(JobId(job), LocalId(local));
        let explained = self.shared.wait(py, explained)?;
        let holders = explained.holders.iter().map(|node| node.0).collect();
        Ok(explained.task.map(|task| (task.attempt.0, holders)))
    }

    /// The end of a task that has ended: whether it is done, its node, and the last sentence of
    /// its explanation.
    fn ended(&self, py: Python<'_>, job: u64, local: u64) -> PyResult<Option<(bool, u32, String)>> {
        let explained = self.shared.client.explain(JobId(job), LocalId(local));
        let mut explained = self.shared.wait(py, explained)?;
        let Some(task) = explained.task.filter(|task| task.phase.is_end()) else { return Ok(None) };
        let node = task.node.map_or(0, |node| node.0);
        let text = explained.lines.pop().unwrap_or_default();
        Ok(Some((task.phase == TaskPhase::Done, node, text)))
    }

    fn is_running(&self, py: Python<'_>, job: u64, local: u64) -> PyResult<bool> {
        let explained = self.shared.client.explain(JobId(job), LocalId(local));
        let explained = self.shared.wait(py, explained)?;
        let phase = explained.task.map(|task| task.phase);
        Ok(phase == Some(TaskPhase::Running))
    }

    /// Cancels tasks; returns how many have not ended before.
    fn cancel(&self, py: Python<'_>, job: u64, locals: Vec<u64>) -> PyResult<u64> {
        let locals: Vec<LocalId> = locals.iter().copied().map(LocalId).collect();
        Ok(self.shared.wait(py, self.shared.client.cancel(JobId(job), &locals))?.cancelled)
    }

    #[staticmethod]
    fn local_text(local: u64) -> String {
        LocalId(local).to_string()
    }

    /// Ends the connection and its threads. A repetition does nothing.
    fn close(&self, py: Python<'_>) {
        let threads = self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Threads { runtime, dispatchers }) = threads else { return };
        py.detach(|| {
            for dispatch in dispatchers {
                dispatch.end();
            }
            runtime.shutdown_background();
        });
    }
}
