//! Runs a problem under a global scheduler, event by event.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::estimate::Estimates;
use super::problem::{Maker, Problem, TaskSpec};
use super::view::{Assignment, Scheduler, Update, View};
use super::wires::{Transfer, Wires};
use super::worker::WorkerState;
use super::{Options, Ran, RunError, TaskRun};
use crate::SimRng;

#[derive(Clone, Debug)]
struct TaskState {
    /// The number of inputs that do not exist yet, plus one before its release.
    unmade: u32,
    /// The number of inputs that are not on its worker, plus one before its release.
    missing: u32,
    assigned: Option<Assignment>,
    started_ns: Option<u64>,
    ended_ns: Option<u64>,
    moved_bytes: u64,
}

/// The state of all tasks, objects and workers.
#[derive(Debug)]
pub(super) struct State {
    tasks: Vec<TaskState>,
    made: Vec<bool>,
    /// The machine that had the object first.
    source: Vec<u32>,
    workers: Vec<WorkerState>,
}

impl State {
    pub(super) fn has(&self, worker: usize, object: u32) -> bool {
        self.workers[worker].has[object as usize]
    }
    pub(super) fn is_made(&self, object: u32) -> bool {
        self.made[object as usize]
    }
    pub(super) fn worker_of(&self, task: u32) -> Option<u32> {
        self.tasks[task as usize].assigned.as_ref().map(|assigned| assigned.worker)
    }
}

pub(super) struct Executor<'p> {
    problem: &'p Problem,
    options: &'p Options,
    estimates: Estimates,
    now_ns: u64,
    sequence: u64,
    /// Ends of tasks.
    ends: BinaryHeap<Reverse<(u64, u64, u32)>>,
    releases: BinaryHeap<Reverse<(u64, u32)>>,
    wires: Wires,
    state: State,
    /// Workers that may start or fetch something.
    stirred: BTreeSet<u32>,
    update: Update,
    /// An event occurred for which the scheduler must be called.
    woken: bool,
    may_ask_ns: u64,
    /// The scheduler's last decisions, and the time at which they count.
    said: Option<(u64, Vec<Assignment>)>,
    unended: usize,
    /// Outputs in transfer to the origin.
    returning: usize,
    ran: Ran,
    dice: SimRng,
    wants_starts: bool,
}

impl<'p> Executor<'p> {
    pub(super) fn new(problem: &'p Problem, options: &'p Options) -> Self {
        let objects = problem.objects.len();
        let worker = |cores| WorkerState::new(cores, objects);
        let state = State {
            tasks: problem.tasks.iter().map(|task| unstarted(problem, task)).collect(),
            made: vec![false; objects],
            source: vec![u32::MAX; objects],
            workers: problem.workers.iter().map(|it| worker(it.cores)).collect(),
        };
        let mut executor = Self {
            problem,
            options,
            estimates: Estimates::new(problem, options.info),
            now_ns: 0,
            sequence: 0,
            ends: BinaryHeap::new(),
            releases: releases(problem),
            wires: Wires::new(&options.wiring, problem.workers.len() + 1),
            state,
            stirred: BTreeSet::new(),
            update: Update { first: true, ..Update::default() },
            woken: true,
            may_ask_ns: 0,
            said: None,
            unended: problem.tasks.len(),
            returning: 0,
            ran: Ran::default(),
            dice: SimRng::new(options.seed),
            wants_starts: false,
        };
        executor.place_what_exists();
        executor
    }

    fn place_what_exists(&mut self) {
        for object in 0..self.problem.objects.len() {
            let at = match self.problem.objects[object].maker {
                Maker::Task(_) => continue,
                Maker::Origin => self.problem.origin() as u32,
                Maker::Worker(worker) => {
                    self.state.workers[worker as usize].has[object] = true;
                    worker
                }
            };
            self.state.made[object] = true;
            self.state.source[object] = at;
        }
        let tasks = self.state.tasks.iter().enumerate();
        let ready = tasks.filter(|(_, task)| task.unmade == 0).map(|(at, _)| at as u32);
        self.update.ready = ready.collect();
    }

    /// # Errors
    /// When the scheduler leaves a task unfinished, or makes an impossible assignment.
    pub(super) fn run(mut self, scheduler: &mut dyn Scheduler) -> Result<Ran, RunError> {
        self.wants_starts = scheduler.wants_starts();
        while self.unended > 0 || self.returning > 0 {
            if self.said.as_ref().is_some_and(|(at_ns, _)| *at_ns <= self.now_ns) {
                let (_, assignments) = self.said.take().expect("looked at above");
                self.apply(assignments)?;
                self.may_ask_ns = self.now_ns.saturating_add(self.options.msd.0);
            }
            self.stir();
            let next_ns = self.next_event_ns();
            if next_ns.is_some_and(|at_ns| at_ns <= self.now_ns) {
                self.happen();
                continue;
            }
            if self.said.is_none() && self.woken && self.now_ns >= self.may_ask_ns {
                self.ask(scheduler);
                continue;
            }
            let said_ns = self.said.as_ref().map(|(at_ns, _)| *at_ns);
            let ask_ns = (self.said.is_none() && self.woken).then_some(self.may_ask_ns);
            let next_ns = [next_ns, said_ns, ask_ns].into_iter().flatten().min();
            self.now_ns = next_ns.ok_or_else(|| self.stuck())?;
        }
        self.ran.makespan_ns = self.now_ns;
        self.ran.tasks = self.state.tasks.iter().map(finished).collect();
        Ok(self.ran)
    }

    fn stuck(&self) -> RunError {
        let unended = |(_, task): &(usize, &TaskState)| task.ended_ns.is_none();
        let first = self.state.tasks.iter().enumerate().find(unended).map_or(0, |(at, _)| at);
        RunError::Stuck {
            task: self.problem.tasks[first].name,
            left: self.unended,
            assigned: self.state.tasks[first].assigned.is_some(),
        }
    }

    fn next_event_ns(&mut self) -> Option<u64> {
        let end_ns = self.ends.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let release_ns = self.releases.peek().map(|Reverse((at_ns, _))| *at_ns);
        [end_ns, release_ns, self.wires.next_ns()].into_iter().flatten().min()
    }

    /// Handles all events that are due now.
    fn happen(&mut self) {
        while let Some(&Reverse((at_ns, _, task))) = self.ends.peek() {
            if at_ns > self.now_ns {
                break;
            }
            self.ends.pop();
            self.end(task as usize);
        }
        while let Some(&Reverse((at_ns, task))) = self.releases.peek() {
            if at_ns > self.now_ns {
                break;
            }
            self.releases.pop();
            self.release(task);
        }
        while self.wires.next_ns().is_some_and(|at_ns| at_ns <= self.now_ns) {
            // The due event may be only the end of a latency.
            if let Some(transfer) = self.wires.take_ended(self.now_ns) {
                self.arrive(transfer);
            }
        }
    }

    fn release(&mut self, task: u32) {
        let state = &mut self.state.tasks[task as usize];
        state.unmade -= 1;
        if state.unmade == 0 {
            self.update.ready.push(task);
            self.woken = true;
        }
        let Some(assigned) = &state.assigned else { return };
        state.missing -= 1;
        let worker = &mut self.state.workers[assigned.worker as usize];
        if state.missing == 0 && assigned.lanes.is_empty() {
            worker.prepare(task, assigned.priority, assigned.block);
        }
        self.stirred.insert(assigned.worker);
    }

    fn ask(&mut self, scheduler: &mut dyn Scheduler) {
        self.woken = false;
        let update = std::mem::take(&mut self.update);
        let view = View {
            problem: self.problem,
            estimates: &self.estimates,
            wiring: &self.options.wiring,
            now_ns: self.now_ns,
            state: &self.state,
        };
        let assignments = scheduler.schedule(&view, &update, &mut self.dice);
        self.ran.decisions += 1;
        self.said = Some((self.now_ns.saturating_add(self.options.decision.0), assignments));
    }

    fn apply(&mut self, mut assignments: Vec<Assignment>) -> Result<(), RunError> {
        assignments.sort_by(|a, b| b.priority.total_cmp(&a.priority));
        for assignment in assignments {
            let (task, worker) = (assignment.task as usize, assignment.worker as usize);
            let cores = self.problem.workers.get(worker).map_or(0, |worker| worker.cores);
            if self.problem.tasks[task].cores > cores {
                return Err(RunError::DoesNotFit { task: self.problem.tasks[task].name, worker });
            }
            let state = &self.state.tasks[task];
            if state.ended_ns.is_some() {
                continue;
            }
            match &state.assigned {
                Some(before) if before.worker == assignment.worker => continue,
                Some(_) if state.started_ns.is_some() => {
                    self.update.refused.push(task as u32);
                    continue;
                }
                Some(_) => self.retract(task),
                None => {}
            }
            self.assign(assignment);
        }
        Ok(())
    }

    fn retract(&mut self, task: usize) {
        let assigned = self.state.tasks[task].assigned.take().expect("it was assigned");
        let worker = &mut self.state.workers[assigned.worker as usize];
        for &object in &self.problem.tasks[task].inputs {
            if !worker.has[object as usize] {
                worker.unwant(object);
            }
        }
        worker.unprepare(task as u32);
        for &lane in &assigned.lanes {
            worker.lanes[lane as usize].retain(|&other| other as usize != task);
        }
        self.stirred.insert(assigned.worker);
    }

    fn assign(&mut self, assignment: Assignment) {
        let (number, at) = (assignment.task, assignment.worker as usize);
        let task = &mut self.state.tasks[number as usize];
        let worker = &mut self.state.workers[at];
        let ready = task.unmade == 0;
        task.missing = u32::from(self.problem.tasks[number as usize].release_ns > self.now_ns);
        for &object in &self.problem.tasks[number as usize].inputs {
            if worker.has[object as usize] {
                continue;
            }
            let made = self.state.made[object as usize];
            if made && !self.problem.objects[object as usize].travels {
                continue;
            }
            task.missing += 1;
            if made {
                worker.want(object, number, assignment.priority, ready);
            }
        }
        for &lane in &assignment.lanes {
            worker.lanes[lane as usize].push_back(number);
        }
        if task.missing == 0 && assignment.lanes.is_empty() {
            worker.prepare(number, assignment.priority, assignment.block);
        }
        task.assigned = Some(assignment);
        self.stirred.insert(at as u32);
    }

    /// Makes workers start the tasks and transfers that they can.
    fn stir(&mut self) {
        while let Some(worker) = self.stirred.pop_first() {
            let at = worker as usize;
            let source = |object: u32| self.state.source[object as usize];
            while let Some((object, from)) =
                self.state.workers[at].next_fetch(self.options.downloads, source)
            {
                let bytes = self.problem.objects[object as usize].bytes;
                self.wires.start(self.now_ns, Transfer { object, from, to: worker }, bytes);
            }
            let cores = |task: u32| self.problem.tasks[task as usize].cores;
            while let Some(task) = self.state.workers[at].next_start(cores) {
                self.start(task);
            }
            self.start_planned(at);
        }
    }

    /// Starts planned tasks that are first on all their cores.
    fn start_planned(&mut self, at: usize) {
        let mut lane = 0;
        while lane < self.state.workers[at].lanes.len() {
            let head = self.state.workers[at].lanes[lane].front().copied();
            if let Some(task) = head.filter(|&task| self.may_start_planned(at, task)) {
                let assigned = self.state.tasks[task as usize].assigned.as_ref();
                let lanes = assigned.expect("it is planned").lanes.clone();
                let worker = &mut self.state.workers[at];
                for &lane in &lanes {
                    worker.lanes[lane as usize].pop_front();
                    worker.busy_lanes.insert(lane);
                }
                self.start(task);
            }
            lane += 1;
        }
    }

    fn may_start_planned(&self, at: usize, task: u32) -> bool {
        let worker = &self.state.workers[at];
        let state = &self.state.tasks[task as usize];
        let lanes = &state.assigned.as_ref().expect("it is planned").lanes;
        state.missing == 0
            && worker.free_cores >= self.problem.tasks[task as usize].cores
            && lanes.iter().all(|lane| {
                let first = worker.lanes[*lane as usize].front() == Some(&task);
                first && !worker.busy_lanes.contains(lane)
            })
    }

    fn start(&mut self, task: u32) {
        let state = &mut self.state.tasks[task as usize];
        state.started_ns = Some(self.now_ns);
        let worker = state.assigned.as_ref().expect("it starts where it is assigned").worker;
        self.state.workers[worker as usize].free_cores -= self.problem.tasks[task as usize].cores;
        let run_ns = self.problem.run_ns(task as usize, worker as usize);
        self.sequence += 1;
        let end_ns = self.now_ns.saturating_add(run_ns);
        self.ends.push(Reverse((end_ns, self.sequence, task)));
        if self.wants_starts {
            self.update.started.push(task);
            self.woken = true;
        }
    }

    fn end(&mut self, task: usize) {
        let spec = &self.problem.tasks[task];
        let state = &mut self.state.tasks[task];
        state.ended_ns = Some(self.now_ns);
        let assigned = state.assigned.as_ref().expect("it ran somewhere");
        let at = assigned.worker;
        let worker = &mut self.state.workers[at as usize];
        worker.free_cores += spec.cores;
        for lane in &assigned.lanes {
            worker.busy_lanes.remove(lane);
        }
        self.stirred.insert(at);
        self.unended -= 1;
        self.update.finished.push(task as u32);
        self.woken = true;
        for &object in &spec.outputs {
            self.make(object, at);
        }
    }

    /// An object is created on a worker.
    fn make(&mut self, object: u32, at: u32) {
        let spec = &self.problem.objects[object as usize];
        self.state.made[object as usize] = true;
        self.state.source[object as usize] = at;
        for &reader in &spec.readers {
            let task = &mut self.state.tasks[reader as usize];
            task.unmade -= 1;
            if task.unmade == 0 {
                self.update.ready.push(reader);
            }
        }
        if !spec.travels_at_home {
            self.add(object, at);
        }
        for &reader in &spec.readers {
            let task = &self.state.tasks[reader as usize];
            let missing = |worker: u32| worker != at || spec.travels_at_home;
            let Some(assigned) = task.assigned.as_ref().filter(|it| missing(it.worker)) else {
                continue;
            };
            let (worker, ready) = (assigned.worker, task.unmade == 0);
            if spec.travels {
                let priority = assigned.priority;
                self.state.workers[worker as usize].want(object, reader, priority, ready);
                self.stirred.insert(worker);
            } else if !self.state.has(worker as usize, object) {
                self.add(object, worker);
            }
        }
        let wanted = spec.readers.is_empty() && spec.travels && self.problem.returns_outputs;
        if wanted {
            let to = self.problem.origin() as u32;
            self.returning += 1;
            self.wires.start(self.now_ns, Transfer { object, from: at, to }, spec.bytes);
        }
    }

    /// A worker gets an object.
    fn add(&mut self, object: u32, at: u32) {
        let worker = &mut self.state.workers[at as usize];
        worker.has[object as usize] = true;
        self.stirred.insert(at);
        for &reader in &self.problem.objects[object as usize].readers {
            let task = &mut self.state.tasks[reader as usize];
            let Some(assigned) = task.assigned.as_ref().filter(|it| it.worker == at) else {
                continue;
            };
            task.missing -= 1;
            if task.missing == 0 && assigned.lanes.is_empty() {
                worker.prepare(reader, assigned.priority, assigned.block);
            }
        }
    }

    fn arrive(&mut self, transfer: Transfer) {
        let bytes = self.problem.objects[transfer.object as usize].bytes;
        self.ran.transfers += 1;
        self.ran.moved_bytes += bytes;
        if transfer.to as usize == self.problem.origin() {
            self.returning -= 1;
            return;
        }
        let worker = &mut self.state.workers[transfer.to as usize];
        let task = worker.fetched(transfer.object, transfer.from);
        self.state.tasks[task as usize].moved_bytes += bytes;
        self.add(transfer.object, transfer.to);
        self.woken = true;
    }
}

fn releases(problem: &Problem) -> BinaryHeap<Reverse<(u64, u32)>> {
    let tasks = problem.tasks.iter().enumerate().filter(|(_, task)| task.release_ns > 0);
    tasks.map(|(at, task)| Reverse((task.release_ns, at as u32))).collect()
}

fn unstarted(problem: &Problem, task: &TaskSpec) -> TaskState {
    let made = |object: &&u32| matches!(problem.objects[**object as usize].maker, Maker::Task(_));
    let unmade = task.inputs.iter().filter(made).count() as u32 + u32::from(task.release_ns > 0);
    TaskState {
        unmade,
        missing: 0,
        assigned: None,
        started_ns: None,
        ended_ns: None,
        moved_bytes: 0,
    }
}

fn finished(task: &TaskState) -> TaskRun {
    const ENDED: &str = "the run goes on until every task has ended";
    TaskRun {
        worker: task.assigned.as_ref().expect(ENDED).worker,
        started_ns: task.started_ns.expect(ENDED),
        ended_ns: task.ended_ns.expect(ENDED),
        moved_bytes: task.moved_bytes,
    }
}
