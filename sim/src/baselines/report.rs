//! The report of a run of a global scheduler, in the form of a real run's report.

use analysis::{Entry, Fold, Kinds, RunFacts, RunReport};
use proto::event::{End, Event};
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time};
use workloads::Graph;

use super::problem::{Problem, ProblemError};
use super::{Options, Ran, RunError, SchedulerName};

const JOB: JobId = JobId(1);
/// The begin of virtual time.
const BEGIN: Time = Time(1_000_000_000_000);

/// The results of a run.
#[derive(Clone, Debug)]
pub struct GlobalRun {
    pub makespan: Span,
    pub ran: Ran,
    fold: Fold,
    /// The caller adds bounds, CPU time and memory.
    pub facts: RunFacts,
}

impl GlobalRun {
    /// The same report as that of `run --json` for a real run.
    #[must_use]
    pub fn report(&self) -> RunReport {
        RunReport::new(&self.fold, &self.facts)
    }
}

/// The reason why a run is impossible.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GlobalError {
    #[error(transparent)]
    Problem(#[from] ProblemError),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Runs a graph's problem under a scheduler and records the events.
///
/// # Errors
/// When a task fits no worker, or when the scheduler leaves a task unfinished (a bug of the
/// scheduler).
pub fn simulate_global(
    graph: &Graph,
    problem: &Problem,
    options: &Options,
    name: SchedulerName,
) -> Result<GlobalRun, GlobalError> {
    problem.check()?;
    let ran = super::run(problem, options, name.make().as_mut())?;
    let kinds = Kinds::of(graph);
    let mut fold = Fold::of_job(JOB);
    for (at, worker) in problem.workers.iter().enumerate() {
        let node = NodeId(at as u32);
        let event = Event::NodeStarted { node, incarnation: 1, slots: worker.cores };
        fold.push(&Entry { node, time: BEGIN, event });
    }
    for &load in &problem.loads {
        commit(&mut fold, graph, load, NodeId(0), BEGIN);
    }
    for (spec, run) in problem.tasks.iter().zip(&ran.tasks) {
        let node = NodeId(run.worker);
        let at = |ns: u64| Time(BEGIN.0 + ns);
        let input_bytes: u64 =
            spec.inputs.iter().map(|&object| problem.objects[object as usize].bytes).sum();
        let event = Event::Ended {
            task: task_id(spec.name),
            attempt: Attempt(0),
            end: End::Done,
            started: at(run.started_ns),
            moved_bytes: run.moved_bytes,
            local_bytes: input_bytes - run.moved_bytes,
        };
        let entry = Entry { node, time: at(run.ended_ns), event };
        fold.push_task(&entry, spec.cores, Some(kinds.of_task(graph, spec.name)));
        commit(&mut fold, graph, spec.name, node, at(run.ended_ns));
    }
    let data_edges = graph.indices().flat_map(|child| {
        graph.parents(child).filter(|edge| edge.output > 0).map(move |edge| {
            (local(edge.task), local(child), graph.edge_bytes(edge.task, edge.output))
        })
    });
    let facts = RunFacts {
        job: JOB.to_string(),
        state: "finished".to_owned(),
        policy: name.name().to_owned(),
        nodes: problem.workers.len() as u32,
        slots: problem.workers.iter().map(|worker| worker.cores).sum(),
        tasks: graph.len() as u64,
        edges: graph.edge_pairs(),
        submitted: Some(BEGIN),
        accepted: Some(BEGIN),
        ended: Some(Time(BEGIN.0 + ran.makespan_ns)),
        one_process: true,
        remote_bytes: Some(fold.remote_bytes(JOB, data_edges)),
        kinds,
        ..RunFacts::default()
    };
    Ok(GlobalRun { makespan: Span(ran.makespan_ns), ran, fold, facts })
}

fn commit(fold: &mut Fold, graph: &Graph, task: u32, node: NodeId, time: Time) {
    let outputs = 0..graph.task(task).spec.outputs.len();
    let output_bytes = outputs.map(|output| graph.output_bytes(task, output)).sum();
    let (end, attempt, task) = (End::Done, Attempt(0), task_id(task));
    let event = Event::Committed { task, attempt, end, node, output_bytes };
    fold.push(&Entry { node, time, event });
}

fn local(task: u32) -> LocalId {
    LocalId::new(PartitionId(0), u64::from(task))
}

fn task_id(task: u32) -> TaskId {
    TaskId { job: JOB, local: local(task) }
}
