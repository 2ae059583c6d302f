//! Retention: the home of jobs thins the oldest ended ones when their history exceeds the limits.
//! The record of a thinned job stays with its summary; later it is removed too.

use proto::limits::{HISTORY_JOBS_AGE_FACTOR, HISTORY_LOOK_INTERVAL, HISTORY_RECORDS_SHARE};
use proto::marks::{Mark, mark};
use proto::{JobId, Span, Time, wire};

use super::forget::may_have;
use super::{Job, Jobs};
use crate::Tuning;
use crate::limits::HISTORY_MORE_INTERVAL;
use crate::output::Out;
use crate::routing::partition_owners::Homes;

/// The records of jobs may fill one part in this many of the history.
const HISTORY_JOBS_SHARE: u64 = 8;

/// The maximum number of jobs that one look thins or drops.
const HISTORY_JOBS_PER_LOOK: usize = 50;

/// The assumed sizes, on disk and in memory, of the record of a task, of a job, and of a part of a
/// summary.
const HISTORY_TASK_BYTES: u64 = 160;
const HISTORY_JOB_BYTES: u64 = 1024;
const HISTORY_PART_BYTES: u64 = 96;

/// The jobs of one home take on all nodes as much as the jobs of all homes take on one node. Jobs
/// are spread evenly over the homes, and so are the tasks of each job.
#[derive(Clone, Copy, Debug)]
struct Spread {
    nodes: u64,
    copies: u64,
}

impl Spread {
    fn of(homes: &Homes) -> Self {
        let nodes = homes.living().count().max(1) as u64;
        Self { nodes, copies: u64::from(homes.copies()).clamp(1, nodes) }
    }
}

/// When the history of the jobs homed here is checked.
#[derive(Debug, Default)]
pub(super) struct Retention {
    /// This node has recorded the summary of a job, or received a job that has one.
    pub(super) is_due: bool,
    /// No check is due before.
    rests_until: Time,
    /// When the next job exceeds its age.
    at: Option<Time>,
}

/// An ended job that may lose its history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Old {
    ended: Time,
    job: JobId,
    is_thinned: bool,
    /// Only this record of the job is left.
    is_bare: bool,
    /// Bytes that thinning frees, on all nodes.
    tasks_bytes: u64,
    /// Task records that stay with their results.
    kept_bytes: u64,
    job_bytes: u64,
}

/// The removals of one check, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Goes {
    thinned: Vec<JobId>,
    dropped: Vec<JobId>,
    /// When a job that stays exceeds its age.
    at: Option<Time>,
    /// More must be removed than one check may remove.
    is_more: bool,
}

fn choose(now: Time, mut old: Vec<Old>, nodes: u64, tuning: &Tuning) -> Goes {
    old.sort_unstable();
    // One job may exceed the limit of a node. The newest job stays if its share of one node fits.
    if let Some(last) = old.last_mut() {
        last.tasks_bytes /= nodes;
    }
    let sum = |of: fn(&Old) -> u64| old.iter().map(of).fold(0, u64::saturating_add);
    let mut jobs_bytes = sum(|it| it.job_bytes);
    let tasks = sum(|it| if it.is_thinned { 0 } else { it.tasks_bytes });
    let all_max = tuning.history_bytes / HISTORY_RECORDS_SHARE;
    // Kept records cannot be removed. They take half of the limit at most; other jobs have the
    // rest.
    let kept = sum(|it| it.kept_bytes).min(all_max / 2);
    let mut all_bytes = jobs_bytes.saturating_add(tasks).saturating_add(kept);
    let jobs_max = tuning.history_bytes / HISTORY_JOBS_SHARE;
    let age = tuning.history_age.0;
    let bare_age = age.saturating_mul(HISTORY_JOBS_AGE_FACTOR);
    let dies = |it: &Old, age: u64| Time(it.ended.0.saturating_add(age));
    let mut goes = Goes::default();
    for it in &old {
        if goes.thinned.len() + goes.dropped.len() >= HISTORY_JOBS_PER_LOOK {
            goes.is_more = true;
            break;
        }
        let (dies, is_over) = match it.is_thinned {
            true => (dies(it, bare_age), jobs_bytes > jobs_max),
            // Thinning a job without removable records frees nothing.
            false => (dies(it, age), all_bytes > all_max && it.tasks_bytes > 0),
        };
        if !is_over && dies > now {
            goes.at = Some(goes.at.map_or(dies, |at| at.min(dies)));
        } else if !it.is_thinned {
            all_bytes = all_bytes.saturating_sub(it.tasks_bytes);
            goes.thinned.push(it.job);
        } else if it.is_bare {
            all_bytes = all_bytes.saturating_sub(it.job_bytes);
            jobs_bytes = jobs_bytes.saturating_sub(it.job_bytes);
            goes.dropped.push(it.job);
        }
    }
    goes.at = goes.at.filter(|&at| at.0 < u64::MAX);
    goes
}

impl Job {
    fn old(&self, spread: Spread) -> Option<Old> {
        let state = &self.state;
        let is_thinned = state.thinned_ns != 0 || self.is_forgotten();
        let has_ended = state.ended_ns != 0
            && (state.summary.is_some() || is_thinned || self.began_before_summaries());
        let parts = state.summary.iter().chain(state.rounds.iter().flat_map(|it| &it.summary));
        let parts = parts.map(|it| it.parts.len() as u64).sum::<u64>();
        let printed = state.sum.as_ref().map_or(0, |sum| sum.captured_bytes);
        let printed = printed.saturating_mul(spread.copies);
        let records = self.total().saturating_mul(HISTORY_TASK_BYTES).saturating_mul(spread.copies);
        let (goes, stays) = if self.keeps_results() { (0, records) } else { (records, 0) };
        let pieces = parts + state.partitions.len() as u64 / 8;
        has_ended.then(|| Old {
            ended: Time(state.ended_ns),
            job: JobId(state.job),
            is_thinned,
            is_bare: is_thinned && state.members.is_empty() && !self.keeps_results(),
            tasks_bytes: goes.saturating_add(printed),
            kept_bytes: stays,
            job_bytes: HISTORY_JOB_BYTES + pieces.saturating_mul(HISTORY_PART_BYTES),
        })
    }

    /// For an ended job: whether no summary of it will be stored.
    fn began_before_summaries(&self) -> bool {
        self.state.summary.is_none() && self.state.members.is_empty()
    }

    fn thin(&mut self, now: Time, homes: &Homes, out: &mut Out) {
        mark(Mark::JobThinned);
        self.state.thinned_ns = now.0.max(1);
        self.state.members = may_have(false, homes);
        out.facts.jobs.insert(JobId(self.state.job), self.state.clone());
    }
}

impl Jobs {
    /// Removes the oldest history while the limits are exceeded.
    pub(crate) fn retain(&mut self, now: Time, tuning: &Tuning, homes: &Homes, out: &mut Out) {
        let Some(stall_rounds) = &mut self.stall_rounds else { return };
        let retention = &mut stall_rounds.retention;
        let too_old = retention.at.is_some_and(|at| at <= now);
        let rested = retention.rests_until <= now;
        let is_time = too_old || (retention.is_due && rested);
        if !is_time {
            return;
        }
        let spread = Spread::of(homes);
        let old = self.jobs.values().filter_map(|job| job.old(spread)).collect();
        let goes = choose(now, old, spread.nodes, tuning);
        let rest = if goes.is_more { HISTORY_MORE_INTERVAL } else { HISTORY_LOOK_INTERVAL };
        (retention.is_due, retention.at) = (goes.is_more, goes.at);
        retention.rests_until = now + rest;
        for job_id in goes.thinned {
            let Some(job) = self.jobs.get_mut(&job_id) else { continue };
            job.thin(now, homes, out);
            stall_rounds.forgetting.insert(job_id);
            job.ask_to_forget(homes, out);
            stall_rounds.retention.is_due = true; // The record may have to go too.
        }
        for job_id in goes.dropped {
            mark(Mark::JobDropped);
            if let Some(mut job) = self.jobs.remove(&job_id) {
                job.drop_variables(out);
            }
            out.facts.dropped_jobs.push(job_id);
        }
    }

    pub(crate) fn next_retention(&self) -> Option<Time> {
        let retention = &self.stall_rounds.as_ref()?.retention;
        let due = retention.is_due.then_some(retention.rests_until);
        due.into_iter().chain(retention.at).min()
    }

    /// The limits have changed.
    pub(crate) fn retain_soon(&mut self) {
        if let Some(stall_rounds) = &mut self.stall_rounds {
            stall_rounds.retention.is_due = true;
        }
    }

    /// The commit time of the oldest job homed here that has no summary.
    pub(crate) fn oldest_open(&self) -> Option<Time> {
        let open = self.jobs.values().filter(|job| {
            let state = &job.state;
            let ended_before = state.ended_ns != 0 && job.began_before_summaries();
            !job.is_forgotten() && !job.is_thinned() && state.summary.is_none() && !ended_before
        });
        // Clocks of clients may be wrong.
        let since = |state: &wire::JobState| match state.committed_ns {
            0 => state.submitted_ns,
            committed => committed,
        };
        open.map(|job| Time(since(&job.state))).min()
    }
}

/// The time before which no event belongs to an open job.
pub(crate) fn floor(open: impl Iterator<Item = Time>, now: Time, margin: Span) -> Time {
    let oldest = open.min().unwrap_or(now).min(now);
    Time(oldest.0.saturating_sub(margin.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::test_nodes;

    const S: u64 = 1_000_000_000;

    fn old(job: u64, is_thinned: bool) -> Old {
        let ended = Time(job * S);
        let is_bare = is_thinned;
        let (tasks_bytes, kept_bytes, job_bytes) = (100, 0, 10);
        Old { ended, job: JobId(job), is_thinned, is_bare, tasks_bytes, kept_bytes, job_bytes }
    }

    fn choose(now: Time, old: Vec<Old>, tuning: &Tuning) -> Goes {
        super::choose(now, old, 1, tuning)
    }

    fn ended(job: u64, sum: wire::PartitionCount, keeps_results: bool) -> Job {
        Job::new(wire::JobState {
            job,
            total: 1000,
            ended_ns: job * S,
            thinned_ns: 1,
            sum: Some(sum),
            settings: Some(wire::JobSettings { keeps_results, ..Default::default() }),
            ..Default::default()
        })
    }

    /// Each node keeps the history that lies on it, whatever the number of nodes and replicas.
    #[test]
    fn the_jobs_of_one_home_stand_for_the_jobs_of_a_node() {
        let members = (0..4).map(test_nodes::member).collect();
        let spread = Spread::of(&test_nodes::homes(0, members, &[0, 1, 2, 3]));
        let (homes, copies, printed) = (4, 2, 7_000);
        let sum = wire::PartitionCount { captured_bytes: printed, ..Default::default() };
        let jobs: Vec<Job> = (1..=40).map(|job| ended(job, sum.clone(), false)).collect();
        let on_all_nodes: u64 = 40 * (1000 * HISTORY_TASK_BYTES + printed) * copies;
        for home in 0..homes {
            let here = jobs.iter().filter(|job| job.state.job % homes == home);
            let bytes = here.map(|job| job.old(spread).expect("it has ended").tasks_bytes);
            assert_eq!(bytes.sum::<u64>(), on_all_nodes / homes);
        }
    }

    #[test]
    fn the_last_job_stays_if_its_share_of_a_node_does() {
        let huge = Old { tasks_bytes: 1000, ..old(9, false) };
        let choose = |nodes, jobs| super::choose(Time(9 * S), jobs, nodes, &tuning(2 * 400, 0));
        assert_eq!(choose(8, vec![old(1, false), huge]), Goes::default());
        assert_eq!(choose(2, vec![old(1, false), huge]).thinned, [JobId(1), JobId(9)]);
        let after = old(10, false);
        assert_eq!(choose(8, vec![huge, after]).thinned, [JobId(9)], "it is not the last");
    }

    #[test]
    fn records_that_stay_with_results_count_up_to_half_of_the_room() {
        let job = ended(1, wire::PartitionCount::default(), true);
        let of_kept = job.old(Spread { nodes: 1, copies: 2 }).expect("it has ended");
        assert_eq!((of_kept.tasks_bytes, of_kept.kept_bytes), (0, 2000 * HISTORY_TASK_BYTES));
        let kept = Old { kept_bytes: 200, tasks_bytes: 0, is_bare: false, ..old(1, true) };
        let jobs = || vec![kept, old(2, false), old(3, false)];
        // 30 bytes of jobs, 200 of tasks, 200 that stay.
        assert_eq!(choose(Time(9 * S), jobs(), &tuning(2 * 430, 0)), Goes::default());
        assert_eq!(choose(Time(9 * S), jobs(), &tuning(2 * 400, 0)).thinned, [JobId(2)]);
        let many = Old { kept_bytes: u64::MAX, ..kept };
        let jobs = vec![many, old(2, false), old(3, false)];
        assert_eq!(choose(Time(9 * S), jobs, &tuning(2 * 460, 0)), Goes::default());
    }

    fn tuning(history_bytes: u64, age_s: u64) -> Tuning {
        let history_age = if age_s == 0 { Span(u64::MAX) } else { Span(age_s * S) };
        Tuning { history_bytes, history_age, ..Tuning::default() }
    }

    #[test]
    fn the_oldest_tasks_go_first_and_no_more_than_is_needed() {
        let jobs = || (1..=5).rev().map(|job| old(job, false)).collect();
        // 550 bytes of records; half of the limit is for records.
        let goes = choose(Time(9 * S), jobs(), &tuning(2 * 350, 0));
        assert_eq!(goes.thinned, [JobId(1), JobId(2)]);
        assert_eq!((goes.dropped, goes.at, goes.is_more), (vec![], None, false));
        assert_eq!(choose(Time(9 * S), jobs(), &tuning(2 * 550, 0)), Goes::default());
    }

    #[test]
    fn records_of_jobs_go_when_they_alone_are_too_many_and_no_member_has_more_of_them() {
        let mut jobs: Vec<Old> = (1..=4).map(|job| old(job, true)).collect();
        jobs[0].is_bare = false;
        let goes = choose(Time(9 * S), jobs, &tuning(8 * 25, 0));
        assert_eq!(goes.dropped, [JobId(2), JobId(3)]);
    }

    #[test]
    fn what_is_too_old_goes_and_the_rest_when_it_is() {
        let jobs = vec![old(1, true), old(2, false), old(5, false)];
        let goes = choose(Time(9 * S), jobs.clone(), &tuning(u64::MAX, 4));
        assert_eq!((goes.thinned, goes.dropped), (vec![JobId(2), JobId(5)], vec![]));
        assert_eq!(goes.at, Some(Time(41 * S)), "the record of a job stays ten times as long");
        let goes = choose(Time(41 * S), jobs, &tuning(u64::MAX, 4));
        assert_eq!(goes.dropped, [JobId(1)]);
    }

    #[test]
    fn events_are_of_no_open_job_when_they_are_older_than_each() {
        let open = [Time(50 * S), Time(70 * S)];
        assert_eq!(floor(open.into_iter(), Time(90 * S), Span(S)), Time(49 * S));
        assert_eq!(floor(std::iter::empty(), Time(90 * S), Span(S)), Time(89 * S));
    }
}
