//! The input and output of a global scheduler.

use super::estimate::Estimates;
use super::executor::State;
use super::problem::{Maker, Problem};
use super::wires::Wiring;
use crate::SimRng;

/// The assignment of a task to a worker.
#[derive(Clone, PartialEq, Debug)]
pub struct Assignment {
    pub task: u32,
    pub worker: u32,
    /// Tasks of higher priority start and fetch first, then by age.
    pub priority: f64,
    /// While this task lacks cores, only tasks of at least this priority may start before it.
    pub block: f64,
    /// The cores in the plan, in order; empty: any free cores.
    pub lanes: Vec<u32>,
}

impl Assignment {
    #[must_use]
    pub fn new(task: usize, worker: usize) -> Self {
        let (task, worker) = (task as u32, worker as u32);
        Self { task, worker, priority: 0.0, block: 0.0, lanes: Vec::new() }
    }
}

/// The events since the last call of the scheduler.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Update {
    /// This is the first call.
    pub first: bool,
    /// All parents have ended.
    pub ready: Vec<u32>,
    pub started: Vec<u32>,
    pub finished: Vec<u32>,
    /// Tasks that could not move to another worker, because they had started.
    pub refused: Vec<u32>,
}

/// The scheduler's view of the whole cluster, without delay.
#[derive(Debug)]
pub struct View<'v> {
    pub problem: &'v Problem,
    pub estimates: &'v Estimates,
    pub wiring: &'v Wiring,
    pub now_ns: u64,
    pub(super) state: &'v State,
}

impl View<'_> {
    /// True if the worker has the object.
    #[must_use]
    pub fn has(&self, worker: usize, object: u32) -> bool {
        !self.problem.objects[object as usize].travels || self.state.has(worker, object)
    }

    /// The worker of an assigned task.
    #[must_use]
    pub fn worker_of(&self, task: u32) -> Option<u32> {
        self.state.worker_of(task)
    }

    /// The size of an existing object; the estimate before.
    #[must_use]
    pub fn bytes(&self, object: u32) -> f64 {
        let spec = &self.problem.objects[object as usize];
        match spec.maker {
            Maker::Task(_) if !self.state.is_made(object) => self.estimates.bytes(object),
            Maker::Task(_) | Maker::Worker(_) | Maker::Origin => spec.bytes as f64,
        }
    }
}

/// Assigns tasks to workers, with a complete view.
pub trait Scheduler {
    /// True if the scheduler needs the starts of tasks.
    fn wants_starts(&self) -> bool {
        false
    }
    /// Returns the next assignments. The first call precedes all events.
    fn schedule(&mut self, view: &View<'_>, update: &Update, dice: &mut SimRng) -> Vec<Assignment>;
}
