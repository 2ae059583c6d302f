//! Jobs that wait for the ends of other jobs.
//!
//! Such a job is recorded at its commit like any other, with the jobs for which it waits. Its tasks
//! stay at their homes as they were submitted: the homes get the commit when the wait is over.
//!
//! The home of a waiting job asks the home of each other job how that has ended, with the question
//! by which any node asks for the end of a job. Only an answer to its own question counts: an
//! announced end may be that of an earlier round. An announced end makes it ask, and it asks again
//! from time to time. Each answer that counts is recorded with the waiting job.
//!
//! If a job has ended with failures, the homes get the commit with the order to skip all tasks.

use std::collections::{BTreeMap, BTreeSet};

use proto::wire::JobOutcome;
use proto::{JobId, NodeId, Time, wire};

use super::{Job, Jobs};
use crate::home::ledger::Ledger;
use crate::limits::{AFTER_ASK_INTERVAL, AFTER_ASKED_PER_ROUND_MAX};
use crate::output::Out;
use crate::routing::partition_owners::Homes;
use crate::{Mutant, Scheduler};

/// The jobs for which jobs here wait.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Each awaited job with a job that waits for it here, and the first question since that has
    /// been committed or loaded; 0: none yet.
    pairs: BTreeMap<(JobId, JobId), u64>,
    /// Awaited jobs about which their homes are asked now.
    due: BTreeSet<JobId>,
    /// When all are asked again, and the first job of the next portion.
    again: Option<(Time, JobId)>,
}

impl Awaited {
    /// Awaited jobs to be asked about now.
    fn take_due(&mut self, now: Time) -> BTreeSet<JobId> {
        let mut due = std::mem::take(&mut self.due);
        let (at, from) = *self.again.get_or_insert((now + AFTER_ASK_INTERVAL, JobId(0)));
        if now >= at {
            let known = self.pairs.range((from, JobId(0))..).map(|(&(awaited, _), _)| awaited);
            let portion: Vec<JobId> = known.take(AFTER_ASKED_PER_ROUND_MAX).collect();
            let last = portion.get(AFTER_ASKED_PER_ROUND_MAX - 1);
            let next = last.map_or(JobId(0), |last| JobId(last.0.saturating_add(1)));
            due.extend(portion);
            self.again = Some((now + AFTER_ASK_INTERVAL, next));
        }
        due
    }

    fn waiters(&self, awaited: JobId) -> impl Iterator<Item = (JobId, u64)> + '_ {
        let range = (awaited, JobId(0))..=(awaited, JobId(u64::MAX));
        self.pairs.range(range).map(|(&(_, waiter), &question)| (waiter, question))
    }
}

/// Refuses a commit of a job that cannot wait for the jobs that it names.
pub(super) fn check(commit: &wire::JobCommit) -> Result<(), String> {
    proto::after::check(commit.job, &commit.after)?;
    match commit.openness() == wire::Openness::ClosedGraph || commit.after.is_empty() {
        true => Ok(()),
        false => Err(format!("job {} is open: an open job waits for no other job", commit.job)),
    }
}

impl Jobs {
    fn awaited(&mut self) -> Option<&mut Awaited> {
        self.stall_rounds.as_mut()?.awaited.as_deref_mut()
    }

    /// Notes for which jobs a job that is homed here waits.
    pub(super) fn add_waits(&mut self, state: &wire::JobState) {
        if !state.is_held_back() {
            return;
        }
        let rounds = self.stall_rounds.get_or_insert_default();
        let awaited = rounds.awaited.get_or_insert_default();
        for job in state.waits_for().map(JobId) {
            awaited.pairs.insert((job, JobId(state.job)), 0);
            awaited.due.insert(job);
        }
    }

    /// Jobs have moved to another home, or wait no more.
    pub(super) fn remove_ended_waits(&mut self) {
        let jobs = &self.jobs;
        let Some(rounds) = &mut self.stall_rounds else { return };
        let Some(awaited) = &mut rounds.awaited else { return };
        let waits = |waiter: &JobId| jobs.get(waiter).is_some_and(|job| job.state.is_held_back());
        awaited.pairs.retain(|(_, waiter), _| waits(waiter));
        if awaited.pairs.is_empty() {
            rounds.awaited = None;
        }
    }

    /// A loaded record of a job.
    pub(super) fn loaded(&self, mut state: wire::JobState) -> wire::JobState {
        if self.mutant == Some(Mutant::AfterForgottenOnTakeover) {
            state.after.clear();
        }
        state
    }

    pub(crate) fn next_ask_for_ends(&self, now: Time) -> Option<Time> {
        let awaited = self.stall_rounds.as_ref()?.awaited.as_ref()?;
        let again = awaited.again.map_or(now, |(at, _)| at);
        Some(if awaited.due.is_empty() { again } else { now })
    }

    /// A job has ended: jobs here that wait for it ask its home.
    fn end_announced(&mut self, job: JobId) {
        if let Some(awaited) = self.awaited()
            && awaited.waiters(job).next().is_some()
        {
            awaited.due.insert(job);
        }
    }

    /// An answer about the end of a job, by its home.
    fn on_end_of_awaited(&mut self, now: Time, end: &wire::JobEnd, homes: &Homes, out: &mut Out) {
        let mut outcome = if end.unknown { JobOutcome::Gone } else { end.outcome() };
        if self.mutant == Some(Mutant::AfterIgnoresFailures) && outcome != JobOutcome::NotEnded {
            outcome = JobOutcome::Clean;
        }
        let Some(awaited) = self.awaited() else { return };
        let has_asked = |&(_, first): &(JobId, u64)| first != 0 && end.question >= first;
        let waiters: Vec<JobId> =
            awaited.waiters(JobId(end.job)).filter(has_asked).map(|(waiter, _)| waiter).collect();
        if outcome == JobOutcome::NotEnded || waiters.is_empty() {
            return;
        }
        for waiter in waiters {
            if let Some(job) = self.jobs.get_mut(&waiter) {
                job.other_ended(now, end.job, outcome, homes, out);
            }
            if let Some(awaited) = self.awaited() {
                awaited.pairs.remove(&(JobId(end.job), waiter));
            }
        }
        self.remove_ended_waits();
    }
}

impl Job {
    /// Whether the homes of its tasks have got the commit.
    pub(super) fn has_begun(&self) -> bool {
        !self.state.is_held_back()
    }

    /// Records the job, and sends the commit to the homes of its tasks unless it waits.
    pub(super) fn begin(&mut self, homes: &Homes, out: &mut Out) {
        if self.has_begun() {
            self.begin_parts(homes, out);
            self.notify_homes(homes, out);
        }
        out.facts.jobs.insert(JobId(self.state.job), self.state.clone());
    }

    /// A job for which this one waits has ended.
    fn other_ended(
        &mut self,
        now: Time,
        other: u64,
        outcome: JobOutcome,
        homes: &Homes,
        out: &mut Out,
    ) {
        if self.has_begun() {
            return;
        }
        let Some(after) = self.state.after.iter_mut().find(|after| after.job == other) else {
            return;
        };
        after.set_end(outcome);
        if after.is_broken() {
            self.state.settings.get_or_insert_default().skipped_for = other;
        }
        self.stall_detector.moved(now);
        self.begin(homes, out);
        self.notify(out);
    }
}

impl Ledger {
    /// The job for which all tasks of this one are skipped.
    pub(crate) fn skipped_for(&self, job: JobId) -> Option<u64> {
        self.job(job).map(|job| job.settings().skipped_for).filter(|&other| other != 0)
    }
}

impl Scheduler {
    /// Asks the homes of awaited jobs how these have ended.
    pub(crate) fn ask_for_ends_of_awaited(&mut self, now: Time, out: &mut Out) {
        if self.home.jobs.next_ask_for_ends(now).is_none_or(|at| now < at) {
            return;
        }
        self.home.jobs.remove_ended_waits();
        let Some(awaited) = self.home.jobs.awaited() else { return };
        for job in awaited.take_due(now) {
            let question = self.ask_for_end_of(job, out);
            let Some(awaited) = self.home.jobs.awaited() else { return };
            let range = (job, JobId(0))..=(job, JobId(u64::MAX));
            for (_, first) in awaited.pairs.range_mut(range).filter(|(_, first)| **first == 0) {
                *first = question;
            }
        }
    }

    /// The end of a job was announced, or is the answer to a question.
    pub(crate) fn note_end(&mut self, now: Time, from: NodeId, end: &wire::JobEnd, out: &mut Out) {
        let homes = self.routing.homes();
        let jobs = &mut self.home.jobs;
        match end.question {
            0 => jobs.end_announced(JobId(end.job)),
            // Only the present home knows that there is no such job.
            _ if end.unknown && from != homes.job_home(JobId(end.job)) => {}
            _ => jobs.on_end_of_awaited(now, end, homes, out),
        }
    }
}
