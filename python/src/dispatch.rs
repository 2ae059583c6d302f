//! The thread that hands the ends of tasks to Python.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use client::{Client, ClientError, EndsPosition, OpenJob, TaskEnd};
use proto::JobId;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

type Ends = Result<Vec<TaskEnd>, ClientError>;

/// One thread, and the tasks that feed it.
pub(crate) struct Dispatch {
    thread: JoinHandle<()>,
    feeders: Vec<AbortHandle>,
}

impl Dispatch {
    /// Ends the thread. Called from this thread, it does not wait.
    pub(crate) fn end(self) {
        for feeder in self.feeders {
            feeder.abort();
        }
        if self.thread.thread().id() != std::thread::current().id() {
            // A panic there was printed by its own thread.
            let _ = self.thread.join();
        }
    }
}

pub(crate) fn start(
    runtime: &Handle,
    client: Client,
    id: JobId,
    job: Option<OpenJob>,
    on_ends: Py<PyAny>,
    on_lost: Py<PyAny>,
) -> std::io::Result<Dispatch> {
    let (sender, queue) = channel();
    let watch = runtime.spawn(follow(client, id, sender.clone()));
    let check = job.map(|job| runtime.spawn(check_queue(job, sender)));
    let thread = std::thread::Builder::new().name("starling-ends".to_owned());
    let thread = thread.spawn(move || dispatch(&queue, &on_ends, &on_lost))?;
    let feeders = std::iter::once(watch).chain(check).map(|feeder| feeder.abort_handle());
    Ok(Dispatch { thread, feeders: feeders.collect() })
}

async fn follow(client: Client, job: JobId, sender: Sender<Ends>) {
    let mut watch = client.watch_ends(job, EndsPosition::default());
    loop {
        match watch.next().await {
            Ok(None) => {
                // The ends that have not come are not known any more.
                let text = format!("job {} has ended", job.0);
                let _ = sender.send(Err(ClientError::Refused(text)));
                return;
            }
            Ok(Some(ends)) => {
                if sender.send(Ok(ends)).is_err() {
                    return;
                }
            }
            Err(error) => {
                // The receiver may have ended.
                let _ = sender.send(Err(error));
                return;
            }
        }
    }
}

/// If appended tasks cannot be stored, their ends never come.
async fn check_queue(job: OpenJob, sender: Sender<Ends>) {
    // The receiver may have ended.
    let _ = sender.send(Err(job.failure().await));
}

fn dispatch(queue: &Receiver<Ends>, on_ends: &Py<PyAny>, on_lost: &Py<PyAny>) {
    while let Ok(ends) = queue.recv() {
        // All that has come meanwhile, so that the interpreter's lock is taken once.
        let mut all = vec![ends];
        all.extend(queue.try_iter());
        Python::attach(|py| {
            for ends in all {
                let called = match ends {
                    Ok(ends) => call_ends(py, on_ends, &ends),
                    Err(error) => on_lost.call1(py, (error.to_string(),)).map(drop),
                };
                if let Err(error) = called {
                    error.print(py);
                }
            }
        });
    }
}

fn call_ends(py: Python<'_>, on_ends: &Py<PyAny>, ends: &[TaskEnd]) -> PyResult<()> {
    let list = PyList::empty(py);
    for end in ends {
        let inline = (!end.inline.is_empty()).then(|| PyBytes::new(py, &end.inline));
        let size = end.output_sizes.first().copied().unwrap_or(0);
        let verdict = end.verdict as i32;
        let entry = (end.task.0, end.attempt.0, verdict, &end.error, size, end.node.0, inline);
        list.append(entry)?;
    }
    on_ends.call1(py, (list,)).map(drop)
}
