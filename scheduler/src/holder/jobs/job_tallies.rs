//! The tallies of this node for jobs. They are counted from the beginning of a job until its home
//! has stored the summary.

use std::collections::{BTreeMap, BTreeSet};

use proto::tally::Tally;
use proto::wire::TallyStage;
use proto::wire::message::Body;
use proto::{Attempt, Event, JobId, TaskId, Time, wire};

use crate::Scheduler;
use crate::holder::Holder;
use crate::home::ledger::Job;
use crate::output::Out;
use proto::Span;

/// The number of jobs with a tally on one node, until their homes have stored the summary.
const TALLIES_MAX: usize = 4096;
/// How long a tally keeps events if the node has not received the beginning of its job.
const TALLY_UNSTARTED_MAX: Span = Span::from_secs(3_600);

/// The resources that a node has used since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub cpu_ns: u64,
    pub peak_rss_bytes: u64,
    pub messages: u64,
}

/// The counters of the node when a job began.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    usage: Usage,
    steals_tried: u64,
    steals_won: u64,
    executions: u64,
    /// Whether tasks of other jobs ran.
    others_ran: bool,
}

/// The counts of one round of a job.
#[derive(Debug, Default)]
struct RoundTally {
    /// When this node first learned of the round.
    since: Time,
    tally: Tally,
    base: Option<Base>,
}

/// A request to forget a job, which is confirmed when the shell has removed the job's data.
#[derive(Debug)]
pub(crate) struct PendingErasure {
    pub(crate) ask: wire::TallyQuery,
    pub(crate) keeps: bool,
    /// The number of the last removal.
    pub(crate) number: u64,
}

#[derive(Debug, Default)]
pub(crate) struct JobTallies {
    /// By job and round.
    counted: BTreeMap<(JobId, u32), Box<RoundTally>>,
    /// Rounds with a known beginning that were dropped to make room for others.
    lost: BTreeSet<(JobId, u32)>,
    /// Questions that wait until the shell has measured the used resources.
    asked: Vec<wire::TallyQuery>,
    /// Jobs to be forgotten of which this node may still receive records.
    unconfirmed: BTreeMap<JobId, wire::TallyQuery>,
    /// Jobs with data that the shell is removing; and whether records with results stay.
    erasing: BTreeMap<JobId, PendingErasure>,
    /// The number of removals that the shell was asked for.
    erasures: u64,
    /// Attempts that have ended and are reported later, with the times of their ends.
    pub(in crate::holder) held_ends: BTreeMap<(TaskId, Attempt), Time>,
    /// Attempts that were stopped in this step; with the time of their end, if that was before.
    pub(in crate::holder) stopped: Vec<(TaskId, Attempt, Option<Time>)>,
    /// Attempts that ended here, of all jobs.
    executions: u64,
    /// When this incarnation started.
    started: Time,
}

impl JobTallies {
    /// The number of one more removal.
    pub(crate) fn next_erasure(&mut self) -> u64 {
        self.erasures += 1;
        self.erasures
    }
    /// The node may still receive records of the job: the request is handled again when the map
    /// changes or more partitions are served here.
    pub(crate) fn defer_confirmation(&mut self, ask: wire::TallyQuery) {
        self.erasing.remove(&JobId(ask.job));
        self.unconfirmed.insert(JobId(ask.job), ask);
    }
    pub(crate) fn take_unconfirmed(&mut self) -> impl Iterator<Item = wire::TallyQuery> + use<> {
        std::mem::take(&mut self.unconfirmed).into_values()
    }
    pub(crate) fn await_erasure(&mut self, erasure: PendingErasure) {
        self.erasing.insert(JobId(erasure.ask.job), erasure);
    }
    /// The shell has ended the removal with this number; `None` if it was not the job's last one.
    pub(crate) fn erased(&mut self, job: JobId, number: u64) -> Option<PendingErasure> {
        self.erasing.get(&job).filter(|erasing| erasing.number == number)?;
        self.erasing.remove(&job)
    }

    pub(crate) fn started(&mut self, now: Time) {
        self.started = now;
    }

    pub(crate) fn started_at(&self) -> Time {
        self.started
    }

    pub(crate) fn forget(&mut self, job: JobId) {
        self.counted.retain(|&(of, _), _| of != job);
        self.lost.retain(|&(of, _)| of != job);
        self.asked.retain(|ask| ask.job != job.0);
    }

    /// For each round without a summary, the time since which this node counts it.
    pub(crate) fn open(&self, now: Time) -> impl Iterator<Item = Time> + '_ {
        // Tasks of an ended job may run again: no home announces a summary for these counts.
        let is_open = move |counted: &&RoundTally| {
            counted.base.is_some() || now.since(counted.since) < TALLY_UNSTARTED_MAX
        };
        self.counted.values().map(AsRef::as_ref).filter(is_open).map(|counted| counted.since)
    }

    fn of(&mut self, now: Time, job: JobId, round: u32) -> &mut RoundTally {
        let key = (job, round);
        if self.counted.len() >= TALLIES_MAX && !self.counted.contains_key(&key) {
            self.make_room();
        }
        let fresh = || Box::new(RoundTally { since: now, ..RoundTally::default() });
        self.counted.entry(key).or_insert_with(fresh)
    }

    /// Drops a round with an unknown beginning first: its counts are the least complete.
    fn make_room(&mut self) {
        let unbegun = self.counted.iter().find(|(_, counted)| counted.base.is_none());
        if let Some(key) = unbegun.map(|(&key, _)| key) {
            self.counted.remove(&key);
        } else if let Some((key, _)) = self.counted.pop_first() {
            if self.lost.len() >= TALLIES_MAX {
                self.lost.pop_first();
            }
            self.lost.insert(key);
        }
    }
}

fn job_of(event: &Event) -> Option<JobId> {
    match *event {
        Event::Started { task, .. }
        | Event::Widened { task, .. }
        | Event::PartBegan { task, .. }
        | Event::PartEnded { task, .. }
        | Event::Ended { task, .. }
        | Event::Fetched { task, .. }
        | Event::Stolen { task, .. }
        | Event::Pushed { task, .. }
        | Event::Committed { task, .. }
        | Event::Replaced { task, .. }
        | Event::Stale { task, .. }
        | Event::MissedWakeupRepaired { task, .. } => Some(task.job),
        _ => None,
    }
}

impl Holder {
    fn runs_others(&self, job: JobId) -> bool {
        let is_other = |(task, _): (&TaskId, _)| task.job != job;
        self.running.first_key_value().is_some_and(is_other)
            || self.running.last_key_value().is_some_and(is_other)
    }
}

impl Scheduler {
    /// Adds the events of a step to the tallies.
    pub fn count_events(&mut self, now: Time, events: &[Event]) {
        let held = std::mem::take(&mut self.holder.job_tallies.held_ends);
        let mut at = 0;
        while let Some(event) = events.get(at) {
            let Some(job) = job_of(event) else {
                at += 1;
                continue;
            };
            let mut counted = self.counted(now, job);
            let mut executions = 0;
            let is_of_it = |event: &&Event| job_of(event).is_none_or(|other| other == job);
            for event in events[at..].iter().take_while(is_of_it) {
                let mut came = now;
                if let Event::Ended { task, attempt, .. } = *event {
                    came = held.get(&(task, attempt)).copied().unwrap_or(now);
                    executions += 1;
                }
                if let Some(counted) = &mut counted {
                    counted.tally.push(came, event);
                }
                at += 1;
            }
            self.holder.job_tallies.executions += executions;
        }
        for (task, attempt, came) in std::mem::take(&mut self.holder.job_tallies.stopped) {
            if let Some(counted) = self.counted(now, task.job) {
                counted.tally.stop(came.unwrap_or(now), (task, attempt));
            }
        }
    }

    /// The counts of the present round of a job. They do not begin for a job that has ended, or
    /// that this node does not know: its home may have stored the summary.
    fn counted(&mut self, now: Time, job: JobId) -> Option<&mut RoundTally> {
        let (known, touched) = (self.home.ledger.job(job), &self.holder.local_jobs);
        let round = known.map_or(0, Job::round).max(touched.round(job));
        let is_open = known.map_or_else(|| touched.knows(job), |job| !job.has_ended());
        match is_open {
            true => Some(self.holder.job_tallies.of(now, job, round)),
            false => {
                self.holder.job_tallies.counted.get_mut(&(job, round)).map(|counted| &mut **counted)
            }
        }
    }

    /// The home of a job asks for the tally, or announces a beginning or a stored summary.
    pub(crate) fn on_tally_query(&mut self, ask: wire::TallyQuery, out: &mut Out) {
        let job = JobId(ask.job);
        if matches!(ask.stage(), TallyStage::Forget | TallyStage::Thin) {
            return self.on_forget(&ask, out);
        }
        if ask.stage() == TallyStage::Recorded {
            self.holder.job_tallies.counted.remove(&(job, ask.round));
            self.holder.job_tallies.lost.remove(&(job, ask.round));
            return;
        }
        if !self.holder.job_tallies.asked.contains(&ask) {
            self.holder.job_tallies.asked.push(ask);
        }
        out.measure = true;
    }

    /// The shell has measured the resources that this node has used.
    pub fn on_measured(&mut self, now: Time, usage: Usage, out: &mut Out) {
        for ask in std::mem::take(&mut self.holder.job_tallies.asked) {
            let job = JobId(ask.job);
            let base = Base {
                usage,
                steals_tried: self.stats.steals_tried,
                steals_won: self.stats.steals_won,
                executions: self.holder.job_tallies.executions,
                others_ran: self.holder.runs_others(job),
            };
            if ask.stage() == TallyStage::Begins {
                self.holder.job_tallies.of(now, job, ask.round).base.get_or_insert(base);
                continue;
            }
            let part = Some(Box::new(self.part(&ask, &base)));
            let tell =
                wire::TallyReport { job: ask.job, round: ask.round, part, ..Default::default() };
            out.reliable.push((self.routing.homes().job_home(job), Body::TallyReport(tell)));
        }
    }

    fn part(&self, ask: &wire::TallyQuery, now: &Base) -> wire::NodeTally {
        let counted = self.holder.job_tallies.counted.get(&(JobId(ask.job), ask.round));
        let known = counted.and_then(|counted| counted.base);
        // Work before this incarnation was counted by an earlier one, and these counts are lost.
        let began_late = known.is_none() && self.holder.job_tallies.started.0 >= ask.since_ns;
        let base = known.or_else(|| began_late.then(Base::default));
        let mut part = counted.map(|counted| counted.tally.part()).unwrap_or_default();
        part.node = self.options.me.0;
        part.incarnation = self.options.incarnation.0;
        part.slots = self.options.slots;
        part.policy = self.policy_text();
        part.tuning = Some(self.options.tuning.to_wire());
        part.began_late =
            began_late || self.holder.job_tallies.lost.contains(&(JobId(ask.job), ask.round));
        part.unmeasured = base.is_none();
        part.peak_rss_bytes = now.usage.peak_rss_bytes;
        let Some(base) = base else { return part };
        part.cpu_ns = now.usage.cpu_ns.saturating_sub(base.usage.cpu_ns);
        part.messages = now.usage.messages.saturating_sub(base.usage.messages);
        part.steals_tried = now.steals_tried - base.steals_tried;
        part.steals_won = now.steals_won - base.steals_won;
        let others = (now.executions - base.executions) > part.executions;
        part.others_ran = others || base.others_ran || now.others_ran;
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_of_unknown_beginning_are_dropped_first_then_the_oldest() {
        let mut parts = JobTallies::default();
        let begun = |parts: &mut JobTallies, job: u64| {
            parts.of(Time(1), JobId(job), 0).base = Some(Base::default());
        };
        begun(&mut parts, 1);
        parts.of(Time(1), JobId(2), 0);
        (3..=TALLIES_MAX as u64).for_each(|job| begun(&mut parts, job));
        begun(&mut parts, 9_000);
        assert!(!parts.counted.contains_key(&(JobId(2), 0)) && parts.lost.is_empty());
        begun(&mut parts, 9_001);
        assert_eq!(parts.lost, BTreeSet::from([(JobId(1), 0)]));
        assert_eq!(parts.counted.len(), TALLIES_MAX);
        parts.forget(JobId(1));
        assert!(parts.lost.is_empty());
    }
}
