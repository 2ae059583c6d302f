//! The handle of a running node.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use proto::{Incarnation, NodeId};
use tokio::sync::watch;

use crate::error::{NodeError, StartError};

/// A node that was started. Dropping the handle stops the node and waits for it.
#[derive(Debug)]
pub struct NodeHandle {
    pub(crate) node: NodeId,
    pub(crate) address: SocketAddr,
    pub(crate) listens_on: String,
    pub(crate) incarnation: Incarnation,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) thread: Option<JoinHandle<Result<(), NodeError>>>,
}

/// The progress of the start.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    phase: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) enum Phase {
    #[default]
    Starting,
    Ready,
    /// The error, until a caller takes it.
    Failed(Option<StartError>),
}

impl Progress {
    pub(crate) fn set(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        self.changed.notify_all();
    }

    /// Wakes the callers that still wait for the start, with a failure: no progress follows.
    pub(crate) fn end(&self) {
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*phase, Phase::Starting) {
            *phase = Phase::Failed(None);
            self.changed.notify_all();
        }
    }

    fn wait(&self) -> Result<(), StartError> {
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let mut phase = self
            .changed
            .wait_while(phase, |phase| matches!(phase, Phase::Starting))
            .unwrap_or_else(PoisonError::into_inner);
        match &mut *phase {
            Phase::Failed(error) => Err(error.take().unwrap_or(StartError::Stopped)),
            Phase::Ready | Phase::Starting => Ok(()),
        }
    }

    fn take_error(&self) -> Option<StartError> {
        match &mut *self.phase.lock().unwrap_or_else(PoisonError::into_inner) {
            Phase::Failed(error) => error.take(),
            Phase::Ready | Phase::Starting => None,
        }
    }
}

/// Stops a node, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl NodeHandle {
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }
    /// The address at which the node listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// As [`Self::address`], for people: all addresses that count.
    #[must_use]
    pub fn listens_on(&self) -> &str {
        &self.listens_on
    }
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Blocks until all nodes of the cluster have found each other. After [`StartError::Stopped`]
    /// the result of [`Self::join`] has the reason if the node ended by itself.
    pub fn wait_ready(&self) -> Result<(), StartError> {
        self.progress.wait()
    }

    pub fn request_stop(&self) {
        self.stop.send_replace(true);
    }
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }
    /// True if the node has ended, by itself or by a stop request.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Blocks until the node has ended after a stop request or an error.
    pub fn join(mut self) -> Result<(), NodeError> {
        self.join_thread()
    }

    fn join_thread(&mut self) -> Result<(), NodeError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        match thread.join() {
            Ok(result) => result?,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                let what = text.unwrap_or_else(|| "unknown".to_owned());
                return Err(NodeError::Panicked { node: self.node, what });
            }
        }
        self.progress.take_error().map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.request_stop();
        let _ = self.join_thread();
    }
}
