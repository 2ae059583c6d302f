/*!
Schedulers with a complete view, as baselines for Starling. The module has a small executor, the
textbook's list schedulers, and those of a study (Beránek, Böhm, et al., "Analysis of workflow
schedulers in simulated distributed environments", J. Supercomputing 78, 2022; its simulator is
*Estee*).

Nothing here runs on a node. A global scheduler knows the whole graph, the place of every object
and the state of every worker, at once and without cost. No real scheduler can know more.

The executor ([`run`]) has workers with cores, tasks that use some of them, outputs with sizes and
a network ([`Wiring`]). It calls the scheduler after every event, but not more often than the
minimal scheduling delay allows. Decisions count after the decision time.
`docs/design/015-global-schedulers.md` lists the assumptions, and the differences from other
simulators.
*/

mod estimate;
mod executor;
mod levels;
mod plan;
mod problem;
mod report;
mod routes;
mod schedulers;
mod timeline;
mod view;
mod wires;
mod worker;

use proto::Span;

pub use estimate::{Estimates, Info};
pub use levels::{b_levels, t_levels};
pub use problem::{Loads, Maker, ObjectSpec, Problem, ProblemError, TaskSpec, WorkerSpec};
pub use report::{GlobalError, GlobalRun, simulate_global};
pub use routes::Routes;
pub use schedulers::{Dls, Heft, MinMin, Reading, SchedulerName};
pub use view::{Assignment, Scheduler, Update, View};
pub use wires::Wiring;
pub use worker::Downloads;

/// The options of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    pub wiring: Wiring,
    pub downloads: Downloads,
    pub info: Info,
    /// The minimal scheduling delay: the shortest time between a decision that counts and the next
    /// call.
    pub msd: Span,
    /// The time until a decision counts.
    pub decision: Span,
    pub seed: u64,
}

impl Options {
    /// Exact knowledge, no delay, any number of simultaneous transfers.
    #[must_use]
    pub fn new(wiring: Wiring) -> Self {
        Self {
            wiring,
            downloads: Downloads::UNLIMITED,
            info: Info::Exact,
            msd: Span::ZERO,
            decision: Span::ZERO,
            seed: 1,
        }
    }
}

/// The run of one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskRun {
    pub worker: u32,
    pub started_ns: u64,
    pub ended_ns: u64,
    /// The bytes of inputs that were fetched first for this task.
    pub moved_bytes: u64,
}

/// The results of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ran {
    pub makespan_ns: u64,
    /// In the order of [`Problem::tasks`].
    pub tasks: Vec<TaskRun>,
    pub transfers: u64,
    pub moved_bytes: u64,
    /// The number of calls of the scheduler.
    pub decisions: u64,
}

/// An error of a scheduler. Tasks have the numbers of their graph.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    #[error(
        "{left} tasks never end, the first of them task {task} ({}): the scheduler left them",
        if *assigned { "assigned" } else { "not assigned" }
    )]
    Stuck { task: u32, left: usize, assigned: bool },
    #[error("task {task} was assigned to worker {worker}, which has too few cores or is not there")]
    DoesNotFit { task: u32, worker: usize },
}

/// Runs a problem to its end.
///
/// # Errors
/// When the scheduler makes that impossible.
///
/// # Panics
/// When a task is wider than every worker. [`Problem::check`] reports that beforehand.
pub fn run(
    problem: &Problem,
    options: &Options,
    scheduler: &mut dyn Scheduler,
) -> Result<Ran, RunError> {
    problem.check().expect("every task fits some worker");
    executor::Executor::new(problem, options).run(scheduler)
}
