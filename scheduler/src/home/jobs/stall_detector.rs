//! Finds jobs without progress, at their homes.
//!
//! If the home of a job has seen no change for [`STALL_AFTER`], it asks the homes of the tasks
//! about their progress. These ask the holders of their tasks. While any node answers that
//! something of the job runs or is in transit, the job is not stalled, however long it takes.
//!
//! Otherwise the job is stalled. The cause is reported to the clients that watch the job, in the
//! event log and in the node's state. For a job that makes progress nothing is asked or stored.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::Stall;

use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{Event, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time, wire};

use super::after::Awaited;
use super::retention::Retention;
use super::silence::Silences;
use super::{Job, Jobs};
use crate::limits::{STALL_AFTER, STALL_JOBS_PER_LOOK_MAX, STALL_LOOK_INTERVAL};
use crate::output::Out;
use crate::routing::partition_owners::Homes;

/// A node that misses this number of queries in a row counts as silent.
const STALL_SILENT_ROUNDS: u32 = 2;

/// A job's progress as its home knows it.
#[derive(Debug, Default)]
pub(super) struct StallDetector {
    /// The time of the last known change.
    changed: Time,
    round: u64,
    /// Nodes asked in this round, each with a task that it is home or holder of.
    asked: BTreeMap<(NodeId, bool), wire::Stall>,
    heard: BTreeMap<(NodeId, bool), wire::ProgressReport>,
    /// The number of rounds in a row in which no node reported progress.
    silent_rounds: u32,
    stall: Option<wire::Stall>,
}

/// The periodic checks of the jobs homed here.
#[derive(Debug, Default)]
pub(super) struct StallRounds {
    /// A job has arrived that was never checked.
    pub(super) is_due: bool,
    at: Option<Time>,
    /// The next check begins with this job.
    from: JobId,
    /// Stalls since the start.
    stalls: u64,
    /// Jobs with members that are asked for their tallies.
    pub(super) collecting: BTreeSet<JobId>,
    /// The time of the next check of these jobs.
    pub(super) collect_at: Option<Time>,
    /// Forgotten jobs of which some member may still have something.
    pub(super) forgetting: BTreeSet<JobId>,
    /// The first job of the next portion of repeated requests to forget, and the time of that
    /// portion.
    pub(super) forgets_again: Option<(JobId, Time)>,
    pub(super) retention: Retention,
    /// Jobs for which jobs here wait.
    pub(super) awaited: Option<Box<Awaited>>,
    /// Present on a node that was home of a job with a client that sends life signs.
    pub(super) silences: Option<Box<Silences>>,
}

/// The result of one round of questions.
enum Found {
    /// The job makes progress. If it only waits for release times, a task starts by itself after
    /// this span at the latest.
    Alive(Span),
    Stalled(wire::Stall),
    /// Some node has not answered yet.
    Unclear,
}

impl StallDetector {
    pub(super) fn stall(&self) -> Option<&wire::Stall> {
        self.stall.as_ref()
    }

    /// The job has changed. Returns true if that ends a stall.
    pub(super) fn moved(&mut self, now: Time) -> bool {
        let was_stalled = self.stall.is_some();
        *self = Self { changed: now, round: self.round, ..Self::default() };
        was_stalled
    }

    /// Some of the nodes that were asked are no longer home: silence is counted from now on.
    pub(super) fn home_moved(&mut self) {
        self.silent_rounds = 0;
    }

    fn hear(&mut self, from: NodeId, report: wire::ProgressReport, nodes: usize) {
        if report.round != self.round {
            return; // An answer of an earlier round.
        }
        for asked in report.asked.iter().filter(|asked| (asked.holder as usize) < nodes) {
            self.asked.insert((NodeId(asked.holder), true), asked.clone());
        }
        self.heard.insert((from, report.holder), report);
    }

    fn conclude(&mut self) -> Found {
        if self.heard.values().any(|report| report.alive) {
            let rests = self.heard.values().map(|report| report.rests_ns).max();
            return Found::Alive(Span(rests.unwrap_or_default()));
        }
        // The less an answer depends on other nodes, the nearer it is to the cause.
        let rank = |stall: &wire::Stall| {
            let why = Stall::of_number(stall.why.into());
            // A parent may be a task that waits for an event.
            (why == Some(Stall::WaitsElsewhere) || why == Some(Stall::NotCounted), why)
        };
        let told = self.heard.values().filter_map(|report| report.stall.clone()).min_by_key(rank);
        let silent = self.asked.iter().filter(|(who, _)| !self.heard.contains_key(*who));
        let silent = silent.map(|(_, about)| about.clone()).min_by_key(rank);
        let sure = told.as_ref().is_some_and(|stall| rank(stall).1 < Some(Stall::HolderSilent));
        self.silent_rounds += 1;
        if !sure && self.silent_rounds < STALL_SILENT_ROUNDS {
            return Found::Unclear;
        }
        match told.into_iter().chain(silent).min_by_key(rank) {
            Some(stall) => Found::Stalled(stall),
            None => Found::Stalled(self.uncounted()),
        }
    }

    /// All nodes have answered, and have nothing to do.
    fn uncounted(&self) -> wire::Stall {
        let about = self.asked.values().next().cloned().unwrap_or_default();
        wire::Stall { why: Stall::NotCounted as u32, ..about }
    }
}

impl Jobs {
    pub(crate) fn next_stall_check(&self) -> Option<Time> {
        self.stall_rounds.as_ref()?.at
    }

    /// Checks jobs without recent changes, when it is time.
    pub(crate) fn check_stalls(&mut self, now: Time, homes: &Homes, out: &mut Out) {
        let Some(stall_rounds) = &mut self.stall_rounds else { return };
        if stall_rounds.at.is_none() && std::mem::take(&mut stall_rounds.is_due) {
            stall_rounds.at = Some(now + STALL_LOOK_INTERVAL);
        }
        if stall_rounds.at.is_none_or(|at| now < at) {
            return;
        }
        let from = std::mem::take(&mut stall_rounds.from);
        let (mut left, mut fresh, mut next) = (STALL_JOBS_PER_LOOK_MAX, 0, None);
        let open = |job: &&mut Job| job.state.ended_ns == 0;
        let later = |job: &&mut Job| JobId(job.state.job) >= from;
        let mut any = false;
        for job in self.jobs.values_mut().filter(open) {
            any = true;
            if !later(&job) || !job.is_quiet(now) {
                continue;
            }
            if left == 0 {
                next = Some(JobId(job.state.job)); // The next check begins here.
                break;
            }
            left -= 1;
            fresh += u64::from(job.check_stalls(now, homes, out));
        }
        let stall_rounds = self.stall_rounds.get_or_insert_default();
        stall_rounds.stalls += fresh;
        stall_rounds.from = next.unwrap_or_default();
        stall_rounds.at = any.then_some(now + STALL_LOOK_INTERVAL);
    }

    pub(crate) fn on_progress_report(
        &mut self,
        from: NodeId,
        report: wire::ProgressReport,
        nodes: usize,
    ) {
        if let Some(job) = self.jobs.get_mut(&JobId(report.job)) {
            job.stall_detector.hear(from, report, nodes);
        }
    }

    /// The cause that blocks a stalled job.
    pub(crate) fn blocker_of(&self, job: JobId) -> Option<&wire::Stall> {
        self.jobs.get(&job)?.stall_detector.stall()
    }

    /// The number of stalls since the start, and the number of jobs that are stalled now.
    pub(crate) fn stalls(&self) -> (u64, u64) {
        let stalled = self.jobs.values().filter(|job| job.stall_detector.stall.is_some()).count();
        (self.stall_rounds.as_ref().map_or(0, |stall_rounds| stall_rounds.stalls), stalled as u64)
    }
}

impl Job {
    fn is_quiet(&mut self, now: Time) -> bool {
        if self.stall_detector.changed == Time::ZERO
            || self.waits_for_clients()
            || !self.has_begun()
        {
            self.stall_detector.changed = now;
        }
        now >= self.stall_detector.changed + STALL_AFTER
    }

    /// Evaluates the answers and asks again. Returns true if the job has just stalled.
    fn check_stalls(&mut self, now: Time, homes: &Homes, out: &mut Out) -> bool {
        let found = if self.stall_detector.asked.is_empty() {
            Found::Unclear
        } else {
            self.stall_detector.conclude()
        };
        let mut fresh = false;
        match found {
            Found::Alive(rests) => {
                if self.stall_detector.moved(now + rests) {
                    self.notify(out);
                }
                return false;
            }
            Found::Stalled(stall) => fresh = self.stalled(now, stall, out),
            Found::Unclear => {}
        }
        self.ask_homes(homes, out);
        fresh
    }

    fn stalled(&mut self, now: Time, stall: wire::Stall, out: &mut Out) -> bool {
        let since_ns = self.stall_detector.changed.0;
        let stall = wire::Stall { since_ns, ..stall };
        let fresh = self.stall_detector.stall.is_none();
        let other =
            self.stall_detector.stall.as_ref().is_none_or(|known| known.local != stall.local);
        if other {
            mark(Mark::StallNamed);
            out.events.push(Event::Stalled {
                task: TaskId { job: JobId(self.state.job), local: LocalId(stall.local) },
                stall: Stall::of_number(stall.why.into()).unwrap_or(Stall::NotCounted),
                home: NodeId(stall.home),
                holder: NodeId(stall.holder),
                quiet: now.since(self.stall_detector.changed),
            });
        }
        self.stall_detector.stall = Some(stall);
        if other {
            self.notify(out);
        }
        fresh
    }

    /// Asks the homes at which some tasks of the job have not ended.
    fn ask_homes(&mut self, homes: &Homes, out: &mut Out) {
        self.stall_detector.round += 1;
        self.stall_detector.asked.clear();
        self.stall_detector.heard.clear();
        let ended = |partition: u32| {
            let count = self.counts.get(&partition);
            count.map_or(0, |c| c.done + c.failed + c.cancelled + c.skipped)
        };
        let open =
            self.state.partitions.iter().filter(|part| ended(part.partition) < self.tasks_in(part));
        let mut concerned: BTreeSet<(NodeId, u32)> = BTreeSet::new();
        for part in open {
            let home = homes.owner(PartitionId(part.partition));
            concerned.extend(home.map(|home| (home, part.partition)));
        }
        for (home, partition) in concerned {
            let about = wire::Stall {
                local: LocalId::new(PartitionId(partition), 0).0,
                why: Stall::HomeSilent as u32,
                home: home.0,
                holder: home.0,
                ..Default::default()
            };
            if self.stall_detector.asked.insert((home, false), about).is_none() {
                let (job, round) = (self.state.job, self.stall_detector.round);
                let ask =
                    wire::ProgressQuery { job, round, reply_to: homes.me.0, ..Default::default() };
                out.best_effort.push((home, Body::ProgressQuery(ask)));
            }
        }
    }
}
