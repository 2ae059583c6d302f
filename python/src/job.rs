//! One open job, and the specs of its calls.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use client::{ClientError, NewTask, OpenJob, Parent, TaskSpec};
use proto::{JobId, LocalId, wire};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use resources::Request;

use crate::connection::Shared;
use crate::failure::cluster_error;

/// The codecs of docs/worker-protocol.md.
const CODEC_RAW: u32 = 0;
const CODEC_PICKLE: u32 = 1;

#[pyclass(frozen)]
pub(crate) struct Job {
    shared: Arc<Shared>,
    id: JobId,
    /// `None`: the job is closed.
    job: Option<OpenJob>,
}

/// What all calls of one function with the same options have in common.
#[pyclass(frozen)]
pub(crate) struct Spec {
    spec: TaskSpec,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    kind: String,
    name: String,
    cpus: u32,
    memory_bytes: u64,
    /// What it asks for beside cpus and memory.
    resources: String,
    retries: u32,
    time_limit_ns: u64,
    priority: i32,
    replicas: u32,
}

/// The program of workers with its arguments, the modules that it loads, and its environment.
type RuntimeFields = (Vec<String>, Vec<String>, Vec<(String, String)>);

impl Job {
    pub(crate) fn new(shared: Arc<Shared>, id: JobId, job: Option<OpenJob>) -> Self {
        Self { shared, id, job }
    }

    fn open(&self) -> PyResult<&OpenJob> {
        let text = || format!("job {} is closed: no call can be added to it", self.id.0);
        self.job.as_ref().ok_or_else(|| cluster_error(&ClientError::Refused(text())))
    }
}

#[pymethods]
impl Job {
    #[getter]
    fn id(&self) -> u64 {
        self.id.0
    }

    /// `body` empty: the bytes of the function are in the key-value store.
    #[staticmethod]
    fn spec(
        options: Options,
        runtime: RuntimeFields,
        function: &[u8],
        body: &[u8],
        inputs: usize,
    ) -> PyResult<Spec> {
        let Options { cpus, memory_bytes, resources, .. } = &options;
        let request = Request::of_call(*cpus, *memory_bytes, resources)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let (argv, preload, env) = runtime;
        let env = env.into_iter().map(|(name, value)| wire::Env { name, value }).collect();
        let runtime = wire::Runtime { argv, env, preload, ..Default::default() };
        let call = wire::Call {
            runtime: Some(runtime),
            function: function.to_vec().into(),
            body: body.to_vec().into(),
            body_codec: CODEC_RAW,
            codec: CODEC_PICKLE,
            ..Default::default()
        };
        let input =
            |k: usize| wire::Input { key: format!("{k}"), value: true, ..Default::default() };
        let spec = wire::Spec {
            kind: options.kind,
            name: options.name,
            cpus: options.cpus,
            memory_bytes: options.memory_bytes,
            retries: options.retries,
            time_limit_ns: options.time_limit_ns,
            priority: options.priority,
            request,
            body: Some(wire::spec::Body::Call(call)),
            inputs: (0..inputs).map(input).collect(),
            outputs: vec![wire::Output {
                key: "result".to_owned(),
                replicas: options.replicas,
                ..Default::default()
            }],
            ..Default::default()
        };
        Ok(Spec { spec: client::raw::task_spec(Arc::new(spec)) })
    }

    /// A task that reads one value: see [`client::raw::reader_spec`].
    #[staticmethod]
    fn reader(name: String) -> Spec {
        Spec { spec: client::raw::task_spec(Arc::new(client::raw::reader_spec(name))) }
    }

    /// Adds a call and returns its local id. `parents`: the task and output of each input.
    fn append(&self, spec: &Spec, payload: &[u8], parents: Vec<(u64, u32)>) -> PyResult<u64> {
        let parent = |(task, output)| Parent { task: LocalId(task), output: Some(output) };
        let task = NewTask {
            payload: payload.to_vec().into(),
            parents: parents.into_iter().map(parent).collect(),
            ..NewTask::default()
        };
        let local = self.open()?.append(&spec.spec, task).map_err(|error| cluster_error(&error))?;
        Ok(local.0)
    }

    /// Waits while too many calls are not stored yet.
    fn room(&self, py: Python<'_>) -> PyResult<()> {
        let mut room = pin!(self.open()?.room());
        match room.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.map_err(|error| cluster_error(&error)),
            Poll::Pending => self.shared.wait(py, room),
        }
    }

    /// Waits until all calls that were added before are stored.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        match &self.job {
            Some(job) => self.shared.wait(py, job.flush()),
            None => Ok(()),
        }
    }

    /// The results of these calls are not held any longer. Returns at once.
    fn release(&self, locals: Vec<u64>) -> PyResult<()> {
        // The close has ended all holds.
        let Some(job) = self.job.clone() else { return Ok(()) };
        self.shared.handle()?.spawn(async move {
            let locals: Vec<LocalId> = locals.into_iter().map(LocalId).collect();
            // If it fails, the results stay until the job is closed.
            let _ = job.release(&locals).await;
        });
        Ok(())
    }

    /// The job stays open without a client, after all calls are stored.
    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        match &self.job {
            Some(job) => self.shared.wait(py, job.detach()),
            None => Ok(()),
        }
    }

    /// No more calls are added.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match &self.job {
            Some(job) => self.shared.wait(py, job.close()),
            None => Ok(()),
        }
    }
}
