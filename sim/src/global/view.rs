//! What a global scheduler sees, and what it says.

use super::estimate::Estimates;
use super::executor::State;
use super::problem::{Maker, Problem};
use super::wires::Wiring;
use crate::SimRng;

/// A task shall run on a worker.
#[derive(Clone, PartialEq, Debug)]
pub struct Assignment {
    pub task: u32,
    pub worker: u32,
    /// Tasks of higher priority start and fetch first; of equal ones those that came first.
    pub priority: f64,
    /// While this task lacks cores, only tasks of at least this priority may start before it.
    pub block: f64,
    /// The very cores it is planned for, in the order of the plan; empty: any that are free.
    pub lanes: Vec<u32>,
}

impl Assignment {
    #[must_use]
    pub fn new(task: usize, worker: usize) -> Self {
        let (task, worker) = (task as u32, worker as u32);
        Self { task, worker, priority: 0.0, block: 0.0, lanes: Vec::new() }
    }
}

/// What happened since the scheduler was asked last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Update {
    /// Nothing was asked before.
    pub first: bool,
    /// All parents have ended.
    pub ready: Vec<u32>,
    pub started: Vec<u32>,
    pub finished: Vec<u32>,
    /// They were to move to another worker, but run already.
    pub refused: Vec<u32>,
}

/// The cluster, as the scheduler sees it: all of it, without delay.
#[derive(Debug)]
pub struct View<'v> {
    pub problem: &'v Problem,
    pub estimates: &'v Estimates,
    pub wiring: &'v Wiring,
    pub now_ns: u64,
    pub(super) state: &'v State,
}

impl View<'_> {
    /// Whether the worker has the object.
    #[must_use]
    pub fn has(&self, worker: usize, object: u32) -> bool {
        !self.problem.objects[object as usize].travels || self.state.has(worker, object)
    }

    /// Where a task was assigned to, if it was.
    #[must_use]
    pub fn worker_of(&self, task: u32) -> Option<u32> {
        self.state.worker_of(task)
    }

    /// The size, where the object exists; what is believed of it before.
    #[must_use]
    pub fn bytes(&self, object: u32) -> f64 {
        let spec = &self.problem.objects[object as usize];
        match spec.maker {
            Maker::Task(_) if !self.state.is_made(object) => self.estimates.bytes(object),
            Maker::Task(_) | Maker::Worker(_) | Maker::Origin => spec.bytes as f64,
        }
    }
}

/// Decides where tasks run, seeing everything.
pub trait Scheduler {
    /// Whether it wants to be told when tasks start.
    fn wants_starts(&self) -> bool {
        false
    }
    /// Says what is to run where. Called first when nothing has happened yet.
    fn schedule(&mut self, view: &View<'_>, update: &Update, dice: &mut SimRng) -> Vec<Assignment>;
}
