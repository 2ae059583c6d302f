/*!
Schedulers that see everything, to measure ours against: a small executor of its own, the textbook's
list schedulers, and those of a study (Beránek, Böhm, et al., "Analysis of workflow schedulers in
simulated distributed environments", J. Supercomputing 78, 2022; its simulator is *Estee*).

Nothing here runs on a node. A global scheduler knows the whole graph, where every object lies and
what every worker does, at once and for nothing; that is the most any cluster could know.

The executor ([`run`]): workers with cores, tasks that take some of them, outputs with sizes, a
network ([`Wiring`]). It asks the scheduler whenever something happened, though not more often than
the minimal scheduling delay says; what it is told counts after the decision time. What is assumed,
and where it differs from the simulators it is compared with, is in
`docs/design/015-global-schedulers.md`.
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

/// How a problem is run.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    pub wiring: Wiring,
    pub downloads: Downloads,
    pub info: Info,
    /// The scheduler is asked no sooner than this after its last decision counted.
    pub msd: Span,
    /// What it decides counts after this.
    pub decision: Span,
    pub seed: u64,
}

impl Options {
    /// Everything known, no delay, any number of transfers at a time.
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

/// How one task went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskRun {
    pub worker: u32,
    pub started_ns: u64,
    pub ended_ns: u64,
    /// Bytes of its inputs that were fetched for it and not for another task before.
    pub moved_bytes: u64,
}

/// What came of a problem.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ran {
    pub makespan_ns: u64,
    /// In the order of [`Problem::tasks`].
    pub tasks: Vec<TaskRun>,
    pub transfers: u64,
    pub moved_bytes: u64,
    /// How often the scheduler was asked.
    pub decisions: u64,
}

/// What a scheduler did wrong. Tasks have the numbers of their graph.
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
/// When a task is wider than every worker; [`Problem::check`] says so beforehand.
pub fn run(
    problem: &Problem,
    options: &Options,
    scheduler: &mut dyn Scheduler,
) -> Result<Ran, RunError> {
    problem.check().expect("every task fits some worker");
    executor::Executor::new(problem, options).run(scheduler)
}
