//! Runs entries in batches, each a job, and keeps the slots busy.
//!
//! A batch has about a quarter of a second of work, so that fast commands cost little and the end
//! of a slow one is seen at once. No more entries are submitted than the slots need for a second.

use std::collections::HashMap;
use std::time::Duration;

use client::{Client, ClientError, SubmitOptions};
use proto::wire::{self, JobPhase, TaskPhase, TaskState};
use proto::{JobId, LocalId};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::Instant;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard};
use verb::output::say;
use verb::units::count;
use workloads::lists::{Halt, HaltKind};
use workloads::{CrashLimit, GraphBuilder, TaskInit};

use super::feed::Work;
use super::journal::Journal;
use super::printer::{EndedEntry, Printer, Style};
use super::record::{ListRecord, RunFacts};
use super::spawned::SpawnedTasks;
use crate::views::jobs;

/// The maximum number of entries of a list that are submitted and not ended.
const LIST_ENTRIES_AHEAD_MAX: usize = 8192;
/// The maximum number of ended entries that wait for the output of an earlier one.
const LIST_ENTRIES_HELD_MAX: usize = 1 << 16;

/// The interval at which the tasks of a batch that runs are listed.
const LIST_EVERY: Duration = Duration::from_millis(200);
/// The time over which the speed of a run is measured.
const SPEED_WINDOW: Duration = Duration::from_millis(500);
/// Bytes of commands in a batch.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// The fixed properties of a run.
pub(super) struct Setup {
    pub(super) spec: wire::Spec,
    pub(super) options: SubmitOptions,
    pub(super) slots: u32,
    pub(super) nodes: u32,
    pub(super) policy: &'static str,
    pub(super) crash_limit: Option<CrashLimit>,
    pub(super) halt: Option<Halt>,
    pub(super) style: Style,
}

/// News of a batch.
enum Event {
    /// Tasks that have ended since the last event, with the reasons of failures that have one
    /// beside the exit code.
    Tasks(JobId, Vec<(TaskState, Option<String>)>),
    /// The batch has ended; all of its tasks were announced.
    Ended(Box<wire::JobState>),
    Failed(ClientError),
}

/// A submitted batch.
struct Batch {
    entries: HashMap<LocalId, Work>,
    size: usize,
    printed: usize,
    has_ended: bool,
}

/// The report of a run as JSON.
#[derive(Serialize)]
struct Summary {
    schema: u32,
    state: &'static str,
    nodes: u32,
    slots: u32,
    policy: &'static str,
    tasks: Tasks,
    makespan_s: f64,
    throughput_per_s: f64,
    work_s: f64,
    utilization: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    halted: Option<bool>,
}

#[derive(Serialize)]
struct Tasks {
    total: u64,
    done: u64,
    failed: u64,
    cancelled: u64,
    skipped: u64,
    /// Of the total; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    spawned: Option<u64>,
}

impl Summary {
    fn counts(&self) -> lens::record::Tasks {
        let Tasks { total, done, failed, cancelled, skipped, .. } = self.tasks;
        lens::record::Tasks { total, done, failed, cancelled, skipped }
    }
}

pub(super) struct Driver<'c> {
    context: &'c Context,
    client: &'c Client,
    setup: Setup,
    printer: Printer<'c>,
    record: ListRecord,
    spawned: SpawnedTasks,
    batches: HashMap<JobId, Batch>,
    next_job: u64,
    /// Batches that have not ended: spawned tasks may run when all entries have ended.
    open_batches: usize,
    /// Entries that have not ended.
    in_flight: usize,
    /// Ended entries a second, lately.
    speed: f64,
    window: (Instant, u32),
    begun: Instant,
    work_ns: u64,
    cancelled: u64,
    is_halted: bool,
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
}

impl<'c> Driver<'c> {
    pub(super) fn new(
        context: &'c Context,
        client: &'c Client,
        setup: Setup,
        journal: Option<Journal>,
    ) -> Self {
        let (sender, events) = mpsc::channel(64);
        let printer = Printer::new(context, client, setup.style, journal);
        let record = ListRecord::new(setup.spec.cpus, &setup.spec.kind);
        Self {
            context,
            client,
            setup,
            printer,
            record,
            spawned: SpawnedTasks::default(),
            batches: HashMap::new(),
            next_job: 1,
            open_batches: 0,
            in_flight: 0,
            speed: 0.0,
            window: (Instant::now(), 0),
            begun: Instant::now(),
            work_ns: 0,
            cancelled: 0,
            is_halted: false,
            sender,
            events,
        }
    }

    /// Runs all entries. After an error of the list the running entries end first.
    pub(super) async fn run(mut self, mut feed: mpsc::Receiver<Result<Work, Failure>>) -> Done {
        let mut refused = None;
        let mut is_over = false;
        loop {
            let room = if is_over || self.is_halted { 0 } else { self.room() };
            if room == 0 && self.open_batches == 0 {
                break;
            }
            tokio::select! {
                biased;
                Some(event) = self.events.recv(), if self.open_batches > 0 => {
                    self.handle(event).await?;
                }
                work = feed.recv(), if room > 0 => {
                    let mut batch = Vec::new();
                    let mut next = work;
                    let mut bytes = 0;
                    loop {
                        match next {
                            None => is_over = true,
                            Some(Err(failure)) => (is_over, refused) = (true, Some(failure)),
                            Some(Ok(work)) => {
                                bytes += work.command.len();
                                batch.push(work);
                            }
                        }
                        if is_over || batch.len() >= room || bytes >= BATCH_BYTES_MAX {
                            break;
                        }
                        let Ok(work) = feed.try_recv() else { break };
                        next = Some(work);
                    }
                    if !batch.is_empty() {
                        self.submit(batch).await?;
                    }
                }
            }
        }
        self.end(refused)
    }

    /// The number of entries that may be submitted now; 0 until a batch is worth it.
    fn room(&self) -> usize {
        if self.printer.held() >= LIST_ENTRIES_HELD_MAX {
            return 0;
        }
        let slots = self.setup.slots.max(1) as usize;
        let ahead = (2 * slots).max(self.speed as usize).min(LIST_ENTRIES_AHEAD_MAX);
        let room = ahead.saturating_sub(self.in_flight);
        let is_worth_it = room * 4 >= ahead || self.in_flight < slots;
        if is_worth_it { room.min(ahead.div_ceil(4).max(slots)) } else { 0 }
    }

    async fn submit(&mut self, works: Vec<Work>) -> Result<(), Failure> {
        let job = JobId(self.next_job);
        self.next_job += 1;
        let mut builder = GraphBuilder::new(&self.setup.spec.kind);
        for work in &works {
            let mut spec = self.setup.spec.clone();
            let argv = work
                .argv
                .iter()
                .map(|word| proto::entry::literal_in_command(word, false))
                .collect();
            match &mut spec.body {
                Some(wire::spec::Body::Command(command)) => command.argv = argv,
                _ => unreachable!("a command"),
            }
            let number = builder.spec(spec);
            let name = format!("{}-{}", self.setup.spec.kind, work.number);
            builder.task(TaskInit { name: &name, ..TaskInit::of(number) });
        }
        let mut graph = builder.finish().map_err(|error| Failure::refused(error.to_string()))?;
        if let Some(limit) = self.setup.crash_limit {
            graph.set_crash_limit(limit);
        }
        let mut options = self.setup.options.clone();
        options.job = Some(job);
        options.name.clone_from(&self.setup.spec.kind);
        let plan = self.client.plan(&graph, &options).await?;
        self.client.submit_plan(&plan, &options).await?;
        let size = works.len();
        let mut entries = HashMap::with_capacity(size);
        for (task, work) in (0..).zip(works) {
            self.printer.expect(work.number);
            entries.insert(plan.local_id(task), work);
        }
        self.in_flight += size;
        self.open_batches += 1;
        self.batches.insert(job, Batch { entries, size, printed: 0, has_ended: false });
        let (client, sender) = (self.client.clone(), self.sender.clone());
        tokio::spawn(async move {
            if let Err(error) = follow(&client, job, size, &sender).await {
                let _ = sender.send(Event::Failed(error)).await;
            }
        });
        Ok(())
    }

    async fn handle(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Failed(error) => return Err(error.into()),
            Event::Tasks(job, tasks) => self.see_tasks(job, tasks),
            Event::Ended(state) => self.see_end(&state)?,
        }
        for (job, printed) in self.printer.print().await? {
            if let Some(batch) = self.batches.get_mut(&job) {
                batch.printed += printed;
            }
        }
        self.forget_printed();
        match self.setup.halt {
            Some(halt) if !self.is_halted && halt.is_reached(self.printer.tally) => {
                self.is_halted = true;
                self.halt(halt.kind).await
            }
            _ => Ok(()),
        }
    }

    fn see_tasks(&mut self, job: JobId, tasks: Vec<(TaskState, Option<String>)>) {
        let Some(batch) = self.batches.get_mut(&job) else { return };
        for (task, error) in tasks {
            let local = LocalId(task.local);
            self.work_ns += task.ended_ns.saturating_sub(task.started_ns);
            let Some(work) = batch.entries.remove(&local) else {
                self.spawned.add(job, &task);
                self.record.add_spawned(&task, error.as_deref());
                continue;
            };
            self.in_flight -= 1;
            self.window.1 += 1;
            self.record.add(work.number, &task, error.as_deref());
            match task.phase() {
                TaskPhase::TaskDone | TaskPhase::TaskFailed => {
                    self.printer.push(EndedEntry { work, job, task, error });
                }
                _ => {
                    self.cancelled += 1;
                    batch.size -= 1;
                    self.printer.give_up(work.number);
                }
            }
        }
        let took = self.window.0.elapsed();
        if took >= SPEED_WINDOW {
            let now = f64::from(self.window.1) / took.as_secs_f64();
            self.speed = if self.speed == 0.0 { now } else { (self.speed + now) / 2.0 };
            self.window = (Instant::now(), 0);
        }
    }

    fn see_end(&mut self, state: &wire::JobState) -> Result<(), Failure> {
        if state.phase() == JobPhase::Lost {
            let why = jobs::counts(state).lost;
            return Err(Failure::lost(format!("entries are lost: {why}"))
                .hint("--joblog and --resume run the rest of a list"));
        }
        let job = JobId(state.job);
        let Some(batch) = self.batches.get_mut(&job) else { return Ok(()) };
        batch.has_ended = true;
        self.open_batches -= 1;
        self.spawned.tell(state, self.context.output.verbose);
        let left: Vec<Work> = batch.entries.drain().map(|(_, work)| work).collect();
        batch.size -= left.len();
        self.in_flight -= left.len();
        self.cancelled += left.len() as u64;
        left.iter().for_each(|work| self.printer.give_up(work.number));
        Ok(())
    }

    /// Removes ended batches from the nodes, so that a long list takes no more room than a short.
    fn forget_printed(&mut self) {
        let client = self.client;
        self.batches.retain(|&job, batch| {
            let is_over = batch.has_ended && batch.printed == batch.size;
            if is_over {
                let client = client.clone();
                // Records that stay cost room, and nothing else.
                tokio::spawn(async move { client.forget(job, true).await });
            }
            !is_over
        });
    }

    /// Ends the entries that have not started; `Now`: the running ones and spawned tasks as well.
    async fn halt(&mut self, kind: HaltKind) -> Result<(), Failure> {
        let jobs: Vec<JobId> =
            self.batches.iter().filter(|it| !it.1.has_ended).map(|it| *it.0).collect();
        for job in jobs {
            let mut waiting = Vec::new();
            if kind == HaltKind::Soon {
                let batch = &self.batches[&job];
                let see = |task: TaskState| {
                    let local = LocalId(task.local);
                    let waits = matches!(task.phase(), TaskPhase::Waiting | TaskPhase::Ready);
                    if waits && batch.entries.contains_key(&local) {
                        waiting.push(local);
                    }
                };
                self.client.raw().tasks(job, see).await?;
                if waiting.is_empty() {
                    continue;
                }
            }
            // The job may have ended meanwhile.
            match self.client.cancel(job, &waiting).await {
                Ok(_) | Err(ClientError::Refused(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn summary(&self, has_failed: bool, makespan_s: f64) -> Summary {
        let (tally, spawned) = (self.printer.tally, self.spawned.counts);
        let slots = self.setup.slots;
        let (done, failed) = (tally.done + spawned.done, tally.failed + spawned.failed);
        let work_s = self.work_ns as f64 / 1e9;
        Summary {
            schema: 1,
            state: if has_failed { "failed" } else { "finished" },
            nodes: self.setup.nodes,
            slots,
            policy: self.setup.policy,
            tasks: Tasks {
                total: tally.done + tally.failed + self.cancelled + spawned.total,
                done,
                failed,
                cancelled: self.cancelled + spawned.cancelled,
                skipped: spawned.skipped,
                spawned: Some(spawned.total).filter(|&total| total > 0),
            },
            makespan_s,
            throughput_per_s: (done + failed) as f64 / makespan_s,
            work_s,
            utilization: work_s / (makespan_s * f64::from(slots)),
            halted: self.setup.halt.map(|_| self.is_halted),
        }
    }

    fn end(self, refused: Option<Failure>) -> Done {
        let tally = self.printer.tally;
        let makespan_s = self.begun.elapsed().as_secs_f64();
        let has_succeeded = self.is_halted && self.setup.halt.is_some_and(|halt| halt.is_success());
        let did_not_run = self.cancelled > 0;
        let are_done = tally.failed == 0 && self.spawned.are_done() && !did_not_run;
        let has_failed = (!are_done || self.is_halted) && !has_succeeded;
        let summary = self.summary(has_failed, makespan_s);
        if self.context.output.json {
            heard(self.context.output.json_with_schema(&summary))?;
        }
        if let Some(line) = self.printer.failures() {
            say(&format!("error: {line}"));
        }
        if let Some(line) = self.spawned.line(self.is_halted) {
            say(&format!("error: {line}"));
        }
        if did_not_run && !self.is_halted {
            let entries = if self.cancelled == 1 { "entry" } else { "entries" };
            say(&format!("error: {} {entries} did not run", count(self.cancelled)));
        }
        if self.is_halted {
            self.context.output.note("note: the run has ended before the end of the list");
        }
        self.record.leave(
            self.context,
            RunFacts {
                program: self.setup.spec.kind,
                policy: self.setup.policy,
                nodes: self.setup.nodes,
                slots: self.setup.slots,
                tasks: summary.counts(),
                has_failed,
                json: serde_json::to_string(&summary).expect("numbers and strings serialise"),
            },
        );
        match refused {
            Some(failure) => Err(failure),
            None if has_failed => Ok(Exit::Failed),
            None => Ok(Exit::Ok),
        }
    }
}

/// Announces the ends of a batch's tasks, and its own.
async fn follow(
    client: &Client,
    job: JobId,
    size: usize,
    sender: &mpsc::Sender<Event>,
) -> Result<(), ClientError> {
    let mut watch = client.raw().watch_job(job);
    let mut seen = std::collections::HashSet::with_capacity(size);
    let mut listed = Instant::now();
    let mut has_news = false;
    loop {
        let next = match has_news {
            false => Ok(watch.next().await),
            true => tokio::time::timeout_at(listed + LIST_EVERY, watch.next()).await,
        };
        let ended = match next {
            Ok(state) => {
                let state = state?;
                // A single task ends with its batch.
                has_news = size > 1;
                state.filter(client::raw::is_ended)
            }
            Err(_) => None,
        };
        let is_due = has_news && listed.elapsed() >= LIST_EVERY;
        if ended.is_none() && !is_due {
            continue;
        }
        let mut tasks = Vec::new();
        let see = |task: TaskState| {
            let has_ended = !matches!(
                task.phase(),
                TaskPhase::Waiting | TaskPhase::Ready | TaskPhase::RunningTask
            );
            if has_ended && seen.insert(task.local) {
                tasks.push(task);
            }
        };
        client.raw().tasks(job, see).await?;
        (listed, has_news) = (Instant::now(), false);
        let tasks = with_errors(client, job, ended.as_ref(), tasks).await?;
        if !tasks.is_empty() && sender.send(Event::Tasks(job, tasks)).await.is_err() {
            return Ok(());
        }
        if let Some(state) = ended {
            let _ = sender.send(Event::Ended(Box::new(state))).await;
            return Ok(());
        }
    }
}

/// Adds the reasons of failures, which the home of a batch keeps.
async fn with_errors(
    client: &Client,
    job: JobId,
    ended: Option<&wire::JobState>,
    tasks: Vec<TaskState>,
) -> Result<Vec<(TaskState, Option<String>)>, ClientError> {
    if !tasks.iter().any(|task| task.phase() == TaskPhase::TaskFailed) {
        return Ok(tasks.into_iter().map(|task| (task, None)).collect());
    }
    let counts = match ended {
        Some(state) => jobs::counts(state),
        None => jobs::counts(&client.raw().job(job).await?),
    };
    let has_reason = |failure: &wire::Failure| {
        !failure.error.is_empty()
            && failure.error != format!("exited with code {}", failure.exit_code)
    };
    let failures = counts.failures.into_iter().filter(has_reason);
    let mut errors: HashMap<u64, String> =
        failures.map(|failure| (failure.local, failure.error)).collect();
    Ok(tasks
        .into_iter()
        .map(|task| {
            let error = errors.remove(&task.local);
            (task, error)
        })
        .collect())
}
