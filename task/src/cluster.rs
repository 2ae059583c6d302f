//! The client: one open job, and the ends of its calls.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use client::{
    Client, ClientError, DeclaredVariable, EndsPosition, JobSettings, NewTask, OpenJob,
    OpenOptions, Parent, StreamFilter, StreamPiece, TaskEnd, TaskSpec, Variable, Verdict,
};
use proto::{JobId, LocalId, ObjectId, TaskId};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use crate::call::{Call, Entry, Options, Source};
use crate::local::LocalCluster;
use crate::pending::{Pending, Submitted};
use crate::program::{self, Program};
use crate::{Error, Result, json};

/// The descriptions of calls that a client remembers.
const SPECS_MAX: usize = 4096;
/// Values that no handle names are released in groups of this size.
const RELEASE_AT: usize = 256;

/// Nodes may refuse a call for its needs. It is stored alone, if none like it was in this time.
const TRIED_FOR: Duration = Duration::from_secs(5);

/// How to reach a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// The directory of a running cluster. Default: as [`Cluster::open`] finds it.
    pub dir: Option<PathBuf>,
    /// The name of the job in lists. Default: that of the program.
    pub name: Option<String>,
    /// Variables of the job, as `starling submit --var` takes them: `best=max:0`.
    pub variables: Vec<String>,
    /// Arguments by which nodes start the program, before those of this library. Only a program
    /// that calls [`crate::serve`] itself needs some.
    pub worker_arguments: Vec<String>,
}

/// A connection to a cluster, with one job for all calls of this program.
///
/// If it is dropped, the calls that are open are cancelled. If a signal such as Ctrl-C ends the
/// program, its job stays open in the cluster until `starling job cancel`; a local cluster ends.
#[derive(Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
    is_closed: bool,
    /// It ends after the connection.
    local: Option<LocalCluster>,
}

pub(crate) struct Shared {
    runtime: Option<Runtime>,
    client: Client,
    job: OpenJob,
    program: Program,
    worker_arguments: Vec<String>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Function, options, number of values of other calls.
type Key = (&'static str, Options, usize);

#[derive(Default)]
struct State {
    /// Calls without an end that a handle names.
    open: HashSet<LocalId>,
    ended: HashMap<LocalId, TaskEnd>,
    /// No more ends come.
    lost: Option<ClientError>,
    released: Vec<LocalId>,
    specs: HashMap<Key, TaskSpec>,
    /// When a call of this kind was stored, if nodes may refuse its needs.
    tried: HashMap<Key, Instant>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("job", &self.job()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Connects to the cluster of a directory.
    ///
    /// # Errors
    /// There is no cluster, it does not answer, or nodes could not start this program.
    pub fn connect(dir: &Path) -> Result<Self> {
        Self::open(ClusterOptions { dir: Some(dir.to_owned()), ..ClusterOptions::default() })
    }

    /// Connects as these options say. Without a directory it is the cluster of `STARLING_DIR`, else
    /// that of the default directory. If no cluster is there, a local one starts, which ends with
    /// the program.
    ///
    /// # Errors
    /// As [`Self::connect`], and an option that is wrong.
    pub fn open(options: ClusterOptions) -> Result<Self> {
        if let Some(dir) = options.dir.clone() {
            return Self::open_in(&dir, options, None);
        }
        let (dir, is_named) = program::default_dir();
        match Self::open_in(&dir, options.clone(), None) {
            Err(Error::Cluster(ClientError::NoInstance { .. })) if !is_named => {
                Self::open_local(LocalCluster::start(1, None)?, options)
            }
            found => found,
        }
    }

    /// Starts nodes on this machine with this number of slots each, or with all its cpus. They end
    /// with the cluster, and with the process.
    ///
    /// # Errors
    /// The program `starling` is not found, or does not start the nodes.
    pub fn local(nodes: u32, slots: Option<u32>) -> Result<Self> {
        Self::open_local(LocalCluster::start(nodes, slots)?, ClusterOptions::default())
    }

    fn open_local(local: LocalCluster, options: ClusterOptions) -> Result<Self> {
        let dir = local.dir();
        Self::open_in(&dir, options, Some(local))
    }

    fn open_in(dir: &Path, options: ClusterOptions, local: Option<LocalCluster>) -> Result<Self> {
        let program = Program::of_this_process()?;
        let variables = options.variables.iter().map(|text| text.parse::<DeclaredVariable>());
        let variables = variables.collect::<Result<Vec<_>, _>>().map_err(Error::Program)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("starling-task")
            .enable_all()
            .build()
            .map_err(|error| Error::Program(format!("no thread for the connection: {error}")))?;
        let name = options.name.unwrap_or_else(|| program.name());
        let (client, job) = runtime.block_on(async {
            let client = Client::connect(dir).await?;
            // The values of calls are bytes that nodes send each other.
            let settings = JobSettings { real_data: true, ..JobSettings::default() };
            let open = OpenOptions { name, settings, variables, ..OpenOptions::default() };
            let job = client.open_job(open).await?;
            Ok::<_, ClientError>((client, job))
        })?;
        let shared = Arc::new(Shared {
            runtime: Some(runtime),
            client,
            job,
            program,
            worker_arguments: options.worker_arguments,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        shared.follow();
        Ok(Self { shared, is_closed: false, local })
    }

    /// Submits a call, and returns at once. It runs when all values that it takes are there.
    ///
    /// # Errors
    /// An argument is no JSON, is too large, or is of another cluster; no node has the cpus or the
    /// memory of the call; or the cluster does not take calls any more.
    pub fn submit<R>(&self, call: Call<R>) -> Result<Pending<R>> {
        self.shared.submit(call)
    }

    /// Submits a call, and waits for its value.
    ///
    /// # Errors
    /// As [`Self::submit`] and [`Pending::get`].
    pub fn run<R: DeserializeOwned>(&self, call: Call<R>) -> Result<R> {
        self.submit(call)?.get()
    }

    /// Waits until one of these calls has ended, and returns its place in the list; `None`: the
    /// list is empty.
    ///
    /// # Errors
    /// No more ends come from the cluster, or a call is of another one.
    pub fn wait_any<T>(&self, calls: &[Pending<T>]) -> Result<Option<usize>> {
        let is_ours = |call: &Pending<T>| Arc::ptr_eq(&call.submitted.shared, &self.shared);
        if !calls.iter().all(is_ours) {
            return Err(Error::Foreign("a call is of another cluster or job"));
        }
        let mut state = self.shared.lock();
        loop {
            let is_ended = |call: &Pending<T>| state.ended.contains_key(&call.submitted.local);
            if let Some(place) = calls.iter().position(is_ended) {
                return Ok(Some(place));
            }
            match &state.lost {
                _ if calls.is_empty() => return Ok(None),
                Some(lost) => return Err(lost.clone().into()),
                None => {}
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The number of the job, for the command line.
    #[must_use]
    pub fn job(&self) -> u64 {
        self.shared.job()
    }

    /// A variable of the job with its present value and witness.
    ///
    /// # Errors
    /// There is no such variable, or the cluster does not answer.
    pub fn variable(&self, name: &str) -> Result<Variable> {
        let all = self.shared.wait_for(self.shared.client.variables(JobId(self.job())))?;
        let found = all.into_iter().find(|variable| variable.name == name);
        found.ok_or_else(|| Error::Program(format!("the job has no variable '{name}'")))
    }

    /// Ends the job: calls that are open run to their ends, and their values are lost. With a local
    /// cluster, which ends then, it waits for these ends.
    ///
    /// # Errors
    /// The cluster does not answer, or could not store a call. If the job could not be closed, the
    /// calls that are open are cancelled.
    pub fn close(mut self) -> Result<()> {
        self.shared.wait_for(self.shared.job.close())?;
        self.is_closed = true;
        if self.local.is_none() {
            return Ok(());
        }
        let job = JobId(self.job());
        self.shared.wait_for(self.shared.client.wait_job(job, |_| {})).map(drop)
    }

    /// Cancels all calls that are open, and ends the job.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub fn cancel(mut self) -> Result<()> {
        self.shared.cancel_all()?;
        self.is_closed = true;
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.is_closed {
            // Without an answer the job stays open, until it is cancelled by hand.
            let _ = self.shared.cancel_all();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn job(&self) -> u64 {
        self.job.id().0
    }

    fn wait_for<T>(&self, future: impl Future<Output = Result<T, ClientError>>) -> Result<T> {
        match &self.runtime {
            Some(runtime) => Ok(runtime.block_on(future)?),
            None => Err(Error::Interrupted),
        }
    }

    fn submit<R>(self: &Arc<Self>, call: Call<R>) -> Result<Pending<R>> {
        let title = call.title();
        let Call { entry, arguments, options, .. } = call;
        let (payload, sources) = arguments.payload(self.job(), &title)?;
        if sources.iter().any(|source| source.job != self.job()) {
            return Err(Error::Foreign("an argument is a call of another cluster or job"));
        }
        if let Some(lost) = &self.lock().lost {
            return Err(lost.clone().into());
        }
        let key = (entry.name, options, sources.len());
        let spec = self.spec(entry, &key)?;
        let parent = |source: Source| Parent { task: source.local, output: Some(0) };
        let parents = sources.into_iter().map(parent).collect();
        let task = NewTask { payload: payload.into(), parents, ..NewTask::default() };
        let local = if key.1.may_be_refused() && !self.was_tried(&key) {
            let local = self.store_alone(&spec, task)?;
            self.lock().tried.insert(key, Instant::now());
            local
        } else {
            self.wait_for(self.job.room())?;
            self.append(&self.job, &spec, task)?
        };
        Ok(Pending::new(Arc::new(Submitted { shared: Arc::clone(self), local, title })))
    }

    fn spec(&self, entry: &Entry, key: &Key) -> Result<TaskSpec> {
        let known = self.lock().specs.get(key).cloned();
        if let Some(spec) = known {
            return Ok(spec);
        }
        let (_, options, inputs) = key;
        let spec = self.program.spec((entry, options), *inputs, &self.worker_arguments)?;
        let spec = client::raw::task_spec(Arc::new(spec));
        let mut state = self.lock();
        if state.specs.len() >= SPECS_MAX {
            state.specs.clear();
            state.tried.clear();
        }
        state.specs.insert(key.clone(), spec.clone());
        Ok(spec)
    }

    fn was_tried(&self, key: &Key) -> bool {
        self.lock().tried.get(key).is_some_and(|at| at.elapsed() < TRIED_FOR)
    }

    /// Stores a call by a handle of its own: a refusal is final for its handle, and so concerns no
    /// other call.
    fn store_alone(&self, spec: &TaskSpec, task: NewTask) -> Result<LocalId> {
        let takes_values = !task.parents.is_empty();
        let handle = self.wait_for(async {
            if takes_values {
                self.job.flush().await?;
            }
            self.client.join_job_for(self.job.id(), 1).await
        })?;
        let local = self.append(&handle, spec, task)?;
        if let Err(error) = self.wait_for(handle.flush()) {
            let mut state = self.lock();
            state.open.remove(&local);
            state.ended.remove(&local);
            return Err(error);
        }
        Ok(local)
    }

    fn append(&self, handle: &OpenJob, spec: &TaskSpec, task: NewTask) -> Result<LocalId> {
        // Its end finds it among the open calls.
        let mut state = self.lock();
        let local = handle.append(spec, task)?;
        state.open.insert(local);
        Ok(local)
    }

    /// Starts the tasks that bring ends.
    fn follow(self: &Arc<Self>) {
        let Some(runtime) = &self.runtime else { return };
        let (job, client) = (self.job.id(), self.client.clone());
        let theirs = Arc::downgrade(self);
        runtime.spawn(async move {
            let mut watch = client.watch_ends(job, EndsPosition::default());
            loop {
                let ends = watch.next().await;
                let Some(shared) = theirs.upgrade() else { return };
                match ends {
                    Ok(Some(ends)) => shared.ended(ends),
                    Ok(None) => {
                        let text = format!("job {} has ended", job.0);
                        return shared.lose(ClientError::Refused(text));
                    }
                    Err(error) => return shared.lose(error),
                }
            }
        });
        // If calls cannot be stored, their ends never come.
        let (queue, theirs) = (self.job.clone(), Arc::downgrade(self));
        runtime.spawn(async move {
            let error = queue.failure().await;
            if let Some(shared) = Weak::upgrade(&theirs) {
                shared.lose(error);
            }
        });
    }

    fn ended(&self, ends: Vec<TaskEnd>) {
        let mut state = self.lock();
        for end in ends {
            if state.open.remove(&end.task) {
                state.ended.insert(end.task, end);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn lose(&self, error: ClientError) {
        self.lock().lost.get_or_insert(error);
        self.changed.notify_all();
    }

    pub(crate) fn has_ended(&self, local: LocalId) -> bool {
        self.lock().ended.contains_key(&local)
    }

    /// Waits for the end of a call; `None`: not until then.
    pub(crate) fn wait(&self, local: LocalId, until: Option<Instant>) -> Result<Option<TaskEnd>> {
        let mut state = self.lock();
        loop {
            if let Some(end) = state.ended.get(&local) {
                return Ok(Some(end.clone()));
            }
            if let Some(lost) = &state.lost {
                return Err(lost.clone().into());
            }
            state = match until {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The value of a call that has ended.
    pub(crate) fn value<T: DeserializeOwned>(&self, end: &TaskEnd, title: &str) -> Result<T> {
        match end.verdict {
            Verdict::Done => {}
            Verdict::Cancelled => return Err(Error::Cancelled(title.to_owned())),
            Verdict::Skipped => return Err(Error::Skipped(title.to_owned())),
            _ => {
                let text = match end.error.is_empty() {
                    false => end.error.clone(),
                    true => self.reason(end.task),
                };
                return Err(Error::Failed { call: title.to_owned(), text });
            }
        }
        let decoded = match end.inline.is_empty() {
            false => json::decode(&end.inline),
            true => {
                let (job, local) = (self.job.id(), end.task);
                let task = TaskId { job, local };
                let object = ObjectId { task, attempt: end.attempt, output: 0 };
                let bytes = self.wait_for(async {
                    match self.client.read_object(end.node, object).await {
                        Ok(bytes) => Ok(bytes),
                        // Another node may have made the value again.
                        Err(_) => self.client.read_output(job, local, 0).await,
                    }
                })?;
                json::decode(&bytes)
            }
        };
        decoded.map_err(|text| Error::Value { what: format!("the value of {title}"), text })
    }

    /// The reason of a failure that its home keeps with the task.
    fn reason(&self, local: LocalId) -> String {
        match self.wait_for(self.client.explain(self.job.id(), local)) {
            Ok(explained) => explained.lines.join("; "),
            Err(error) => format!("no node tells the reason: {error}"),
        }
    }

    fn cancel_all(&self) -> Result<()> {
        self.wait_for(self.client.cancel(self.job.id(), &[])).map(drop)
    }

    pub(crate) fn cancel(&self, locals: &[LocalId]) -> Result<bool> {
        self.wait_for(async {
            self.job.flush().await?;
            Ok(self.client.cancel(self.job.id(), locals).await?.cancelled > 0)
        })
    }

    pub(crate) fn printed(&self, local: LocalId) -> Result<String> {
        let node = self.lock().ended.get(&local).map(|end| end.node);
        let node = node.ok_or(Error::Foreign("the call has not ended"))?;
        let filter = StreamFilter { tasks: vec![local], ..StreamFilter::default() };
        let mut attempts: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let see = |piece: StreamPiece| -> Result<(), ClientError> {
            attempts.entry(piece.attempt.0).or_default().extend_from_slice(&piece.data);
            Ok(())
        };
        self.wait_for(self.client.streams(node, self.job.id(), &filter, see))?;
        let last = attempts.pop_last().map(|(_, data)| data).unwrap_or_default();
        Ok(String::from_utf8_lossy(&last).into_owned())
    }

    /// No handle names this call any more.
    pub(crate) fn forget(&self, local: LocalId) {
        let mut state = self.lock();
        state.open.remove(&local);
        state.ended.remove(&local);
        state.released.push(local);
        if state.released.len() < RELEASE_AT {
            return;
        }
        let released = std::mem::take(&mut state.released);
        drop(state);
        let job = self.job.clone();
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move {
                // If it fails, the values stay until the job is closed.
                let _ = job.release(&released).await;
            });
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The last owner may be a task of the runtime itself.
            runtime.shutdown_background();
        }
    }
}
