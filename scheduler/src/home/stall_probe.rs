//! The answers about a job that may be stalled, from the homes of its tasks and from the holders.
//! The conclusions are in `jobs/watch.rs`.

use std::ops::RangeInclusive;

use proto::event::Stall;

use proto::wire::message::Body;
use proto::{Attempt, JobId, LocalId, NodeId, TaskId, Time, wire};

use crate::Scheduler;
use crate::home::Home;
use crate::home::ledger::State;
use crate::limits::STALL_AFTER;
use crate::output::{Out, task_attempt};

/// The maximum numbers of records that a home examines for one answer, of parents that it looks up,
/// and of tasks in its query to each holder.
const STALL_SCAN_MAX: usize = 1 << 18;
const STALL_PARENTS_SCAN_MAX: usize = 64;
const STALL_ASKED_PER_HOLDER_MAX: usize = 8;

/// The result of a scan of one home's tasks of a job.
struct Scanned {
    alive: bool,
    stall: Option<wire::Stall>,
}

impl Home {
    fn stall_of(
        &self,
        task: TaskId,
        why: Stall,
        home: NodeId,
        holder: NodeId,
        event: String,
    ) -> wire::Stall {
        wire::Stall {
            local: task.local.0,
            why: why as u32,
            home: home.0,
            holder: holder.0,
            event,
            since_ns: 0,
            name: self.ledger.name(task),
        }
    }
}

impl Scheduler {
    pub(crate) fn on_progress_query(
        &mut self,
        now: Time,
        ask: &wire::ProgressQuery,
        out: &mut Out,
    ) {
        let reply_to = NodeId(ask.reply_to);
        if reply_to.0 as usize >= self.routing.homes().nodes() {
            return;
        }
        // About a job that it does not know this node does not answer. It is about to become home
        // of the tasks, or is no longer. The answer would mean that it has nothing left to do.
        let report = match self.home.ledger.knows_job(JobId(ask.job)) {
            _ if !ask.tasks.is_empty() => self.progress_of_holder(now, ask),
            true => self.progress_of_home(now, ask, out),
            false => return,
        };
        out.best_effort.push((reply_to, Body::ProgressReport(report)));
    }

    fn progress_of_holder(&self, now: Time, ask: &wire::ProgressQuery) -> wire::ProgressReport {
        let mut report = wire::ProgressReport {
            job: ask.job,
            round: ask.round,
            holder: true,
            ..Default::default()
        };
        for asked in &ask.tasks {
            let (task, attempt) = (TaskId::new(ask.job, asked.local), Attempt(asked.attempt));
            match self.task_progress(now, task, attempt) {
                Ok(()) => report.alive = true,
                Err(why) if report.stall.is_none() => {
                    let home = self.routing.homes().owner(task.partition()).unwrap_or_default();
                    let event = format!("attempt {attempt} came to node {}", self.options.me);
                    report.stall =
                        Some(self.home.stall_of(task, why, home, self.options.me, event));
                }
                Err(_) => {}
            }
        }
        report
    }

    fn progress_of_home(
        &mut self,
        now: Time,
        ask: &wire::ProgressQuery,
        out: &mut Out,
    ) -> wire::ProgressReport {
        let job = JobId(ask.job);
        let mut report =
            wire::ProgressReport { job: ask.job, round: ask.round, ..Default::default() };
        let known = self.home.ledger.job(job).filter(|job| job.is_under_way());
        let Some(known) = known else { return report };
        report.open = known.open_tasks();
        // Counts, ends and credits that are still to be sent, or tasks that end in the next steps.
        let release = self.home.ledger.next_release_of(job);
        let timeout = self.home.ledger.next_timeout_of(job);
        let release = release.into_iter().chain(timeout).min();
        report.rests_ns = release.map_or(0, |at| at.since(now).0);
        report.alive = known.is_report_due()
            || self.home.ledger.has_work()
            || self.home.ledger.sends_letters_of(job)
            || release.is_some();
        report.asked = self.ask_holders(ask, out);
        let all = TaskId { job, local: LocalId(0) }..=TaskId { job, local: LocalId(u64::MAX) };
        let (here, stall) = self.progress_of_own_tasks(now, all);
        report.alive |= here;
        report.stall = stall;
        if !report.alive && report.stall.is_none() && report.open > 0 {
            let scanned = self.scan(now, job);
            report.alive = scanned.alive;
            report.stall = scanned.stall;
        }
        report
    }

    /// Asks the holders of the job's tasks on behalf of the job's home. Returns one task per
    /// holder.
    fn ask_holders(&self, ask: &wire::ProgressQuery, out: &mut Out) -> Vec<wire::Stall> {
        let job = JobId(ask.job);
        let all = TaskId { job, local: LocalId(0) }..=TaskId { job, local: LocalId(u64::MAX) };
        let mut asked = Vec::new();
        for (holder, tasks) in self.home.ledger.given_away() {
            let tasks = tasks.range(all.clone()).take(STALL_ASKED_PER_HOLDER_MAX);
            let cell = |task: &TaskId| {
                let cell = self.home.ledger.cell(*task)?;
                (!self.home.ledger.awaits_recall(*task, cell.attempt())).then_some((*task, cell))
            };
            let tasks: Vec<_> = tasks.filter_map(cell).collect();
            let Some(&(task, cell)) = tasks.first() else { continue };
            let event = format!(
                "attempt {} went to node {holder} (incarnation {})",
                cell.attempt(),
                cell.holder_incarnation().0
            );
            asked.push(self.home.stall_of(
                task,
                Stall::HolderSilent,
                self.options.me,
                holder,
                event,
            ));
            let tasks = tasks.iter().map(|(task, cell)| task_attempt(*task, cell.attempt()));
            let ask = wire::ProgressQuery { tasks: tasks.collect(), ..ask.clone() };
            out.best_effort.push((holder, Body::ProgressQuery(ask)));
        }
        asked
    }

    /// Examines the tasks of this home that it holds itself and that have left their queues.
    fn progress_of_own_tasks(
        &self,
        now: Time,
        all: RangeInclusive<TaskId>,
    ) -> (bool, Option<wire::Stall>) {
        let mine = |task: &TaskId| self.routing.homes().is_home_of(*task);
        if self.holder.running().range(all.clone()).any(|(task, _)| mine(task)) {
            return (true, None);
        }
        let mut stall = None;
        for (&task, staged) in self.holder.staging().range(all).filter(|(task, _)| mine(task)) {
            match self.task_progress(now, task, staged.attempt()) {
                Ok(()) => return (true, None),
                Err(why) => {
                    let me = self.options.me;
                    stall = Some(self.home.stall_of(task, why, me, me, self.last_event(task)));
                }
            }
        }
        (false, stall)
    }

    /// Whether a task that this node should hold makes progress; otherwise the cause.
    fn task_progress(&self, now: Time, task: TaskId, attempt: Attempt) -> Result<(), Stall> {
        if self.holder.running().get(&task).is_some_and(|running| running.attempt() == attempt) {
            return Ok(());
        }
        let staged = self.holder.staging().get(&task).filter(|staged| staged.attempt() == attempt);
        let Some(staged) = staged else { return self.progress_of_queued(task, attempt) };
        let fresh = now < staged.since() + STALL_AFTER;
        let moves = |object| self.objects.is_fetch_progressing(object);
        match staged {
            _ if fresh || !self.holder.running().is_empty() => Ok(()),
            staged if staged.awaits_permission() => Err(Stall::NotAllowed),
            staged if staged.missing().any(moves) => Ok(()),
            staged if staged.missing().len() > 0 => Err(Stall::NotFetched),
            _ => Err(Stall::NotStarted),
        }
    }

    fn progress_of_queued(&self, task: TaskId, attempt: Attempt) -> Result<(), Stall> {
        let remote =
            self.holder.remote_tasks().get(&task).is_some_and(|remote| remote.attempt == attempt);
        let held = remote || self.home.ledger.is_held_here(task, attempt);
        let passed_on = self.stealing.is_in_transit(task, attempt);
        if passed_on
            || (held && !(self.holder.running().is_empty() && self.holder.staging().is_empty()))
        {
            return Ok(()); // Other tasks are before it.
        }
        let queued =
            self.holder.local().all().chain(self.holder.shared().all()).take(STALL_SCAN_MAX);
        let queued = queued.into_iter().any(|ready| (ready.task, ready.attempt) == (task, attempt));
        Err(if held && queued { Stall::NotStarted } else { Stall::NotHere })
    }

    /// Scans records of the job for the cause: `STALL_SCAN_MAX` records, continued by the next
    /// call. Until all have been seen nothing is concluded.
    fn scan(&mut self, now: Time, job_id: JobId) -> Scanned {
        let Some(job) = self.home.ledger.job(job_id) else {
            return Scanned { alive: false, stall: None };
        };
        let (mut left, mut parents_left) = (STALL_SCAN_MAX, STALL_PARENTS_SCAN_MAX);
        let (mut waits, mut next) = (None, LocalId(0));
        let mut found = None;
        for local in job.tasks_to_search() {
            let task = TaskId { job: job_id, local };
            if left == 0 {
                next = local;
                break;
            }
            left -= 1;
            let Some(cell) = self.home.ledger.cell(task) else { continue };
            let verdict = match cell.state() {
                State::Ready if self.home.ledger.awaits_recall(task, cell.attempt()) => {
                    Some(Stall::HomeSilent)
                }
                State::Ready if cell.holder() == self.options.me => {
                    self.task_progress(now, task, cell.attempt()).map_or_else(Some, |()| None)
                }
                // Tasks of the job that are placed are examined.
                State::Waiting if self.home.ledger.throttled_by(task).is_some() => continue,
                State::Waiting if cell.missing().0 == 0 => Some(Stall::NotPlaced),
                State::Waiting if parents_left > 0 => {
                    parents_left -= 1;
                    waits = waits.or_else(|| self.waits_for(task));
                    continue;
                }
                _ => continue,
            };
            let Some(why) = verdict else {
                return Scanned { alive: true, stall: None };
            };
            found = Some((task, why));
            break;
        }
        let me = self.options.me;
        let stall =
            found.map(|(task, why)| self.home.stall_of(task, why, me, me, self.last_event(task)));
        let unfinished = next != LocalId(0);
        self.home.ledger.search_on_from(job_id, next);
        Scanned { alive: stall.is_none() && unfinished, stall: stall.or(waits) }
    }

    /// A parent or an awaited task for which the task waits: one that has ended here, or one of
    /// another home.
    fn waits_for(&self, task: TaskId) -> Option<wire::Stall> {
        if self.home.ledger.suspended(task).is_some() {
            let (me, event) = (self.options.me, self.last_event(task));
            return Some(self.home.stall_of(task, Stall::NoEvent, me, me, event));
        }
        let parents = self.home.ledger.awaited(task).chain(self.home.ledger.open_awaited(task));
        for local in parents.take(STALL_PARENTS_SCAN_MAX) {
            let parent = TaskId { job: task.job, local };
            let home = self.routing.homes().owner(local.partition()).unwrap_or_default();
            let why = match self.home.ledger.state(parent) {
                Some(State::Ended(_)) => Stall::NotTold,
                Some(_) => continue, // The parent itself is examined.
                None => Stall::WaitsElsewhere,
            };
            let event = format!("it waits for {local} of node {home}");
            return Some(self.home.stall_of(task, why, self.options.me, home, event));
        }
        None
    }

    /// The last event of the task that its home knows.
    fn last_event(&self, task: TaskId) -> String {
        let Some(cell) = self.home.ledger.cell(task) else { return String::new() };
        let waits = self.home.ledger.explain_wait(task);
        if let Some(wait) = waits.or_else(|| self.home.ledger.explain_mail_wait(task)) {
            return wait;
        }
        if self.home.awaiting_wide_node.contains(&task) {
            return self.explain_awaiting_wide_node(task);
        }
        if let Some(why) = self.explain_request_of(task) {
            return why;
        }
        match cell.state() {
            State::Ready if self.home.ledger.awaits_recall(task, cell.attempt()) => format!(
                "attempt {} made other bytes than the one before; homes of readers are asked",
                cell.attempt()
            ),
            State::Ready => {
                format!("attempt {} was placed on node {}", cell.attempt(), cell.holder())
            }
            State::Waiting if cell.attempt() != Attempt::default() => {
                format!("attempt {} was taken back", cell.attempt())
            }
            _ => {
                let (missing, all) = cell.missing();
                format!("{} of its {all} dependencies are met", all - missing)
            }
        }
    }
}
