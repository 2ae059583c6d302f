//! The records of the jobs homed on this node: commit, counts, end, and the clients that watch.

mod after;
mod forget;
pub(crate) mod open;
mod removal;
pub(crate) mod retention;
mod rounds;
mod silence;
mod spawned;
mod stall_detector;
mod sums;
mod tally_collection;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

use proto::event::End;
use proto::limits::WATCHERS_MAX;
use proto::wire::message::Body;
use proto::{ClientId, Event, JobId, NodeId, PartitionId, Time, wire};

use crate::Mutant;
use crate::home::requests::wrong_home;
use crate::output::{Answer, Out};
use crate::routing::partition_owners::Homes;
use spawned::check_limit;
use stall_detector::{StallDetector, StallRounds};
use sums::{add, subtract};
use tally_collection::Collection;
use variables::JobVariables;

#[derive(Debug)]
struct Job {
    state: wire::JobState,
    /// The latest report of each partition.
    counts: BTreeMap<u32, wire::PartitionCount>,
    /// Partitions with a latest report that knows of the job's cancellation.
    removed_at: BTreeSet<u32>,
    watchers: Vec<(ClientId, u64)>,
    /// The number of partitions that all watchers know.
    told_partitions: usize,
    stall_detector: StallDetector,
    /// The members' tallies of rounds that have no summary, by round.
    collections: BTreeMap<u32, Collection>,
    variables: JobVariables,
}

/// The result of a request to watch a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Watched {
    Answered,
    Unknown,
    TooMany,
    /// The job was forgotten; the text is the error for the client.
    Forgotten(String),
}

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    jobs: BTreeMap<JobId, Job>,
    /// Jobs with variables that have changed in this step.
    changed_variables: Vec<JobId>,
    mutant: Option<Mutant>,
    /// Present on a node that was home of a job.
    stall_rounds: Option<Box<StallRounds>>,
}

impl Jobs {
    pub(crate) fn new(mutant: Option<Mutant>) -> Self {
        Self { mutant, ..Self::default() }
    }

    /// Makes a submitted job visible. A repeated commit is a no-op; an error gives the reason of
    /// the refusal.
    pub(crate) fn commit(
        &mut self,
        now: Time,
        commit: wire::JobCommit,
        homes: &Homes,
        out: &mut Out,
    ) -> Result<(), String> {
        let job_id = JobId(commit.job);
        if let Some(job) = self.jobs.get(&job_id) {
            if job.is_forgotten() {
                return Err(job.forgotten_text());
            }
            if job.is_of_open_job() && commit.openness() == wire::Openness::Open {
                self.heard(now, job_id, out); // Its client repeats the opening.
                return Ok(());
            }
            if job.state.total == 0 && !job.is_of_open_job() {
                return Err(format!("job {} was cancelled before its commit", commit.job));
            }
            let same = job.state.partitions == commit.partitions;
            let other = || format!("job {} exists already and is another one", commit.job);
            return if same { Ok(()) } else { Err(other()) };
        }
        let totals = commit.partitions.iter();
        let total = totals.fold(0, |sum: u64, total| sum.saturating_add(total.tasks));
        let openness = commit.openness();
        if openness != wire::Openness::ClosedGraph {
            open::check_opening(&commit)?;
        } else if total == 0 {
            return Err(format!("job {} has no tasks", commit.job));
        }
        check_limit(&commit)?;
        proto::variable::check_all(&commit.variables)?;
        after::check(&commit)?;
        let variables = commit.variables.len() as u32;
        let mut seen = BTreeSet::new();
        if !commit.partitions.iter().all(|total| seen.insert(total.partition)) {
            return Err(format!("job {} names a partition twice", commit.job));
        }
        let known = |total: &wire::PartitionTotal| homes.owner(PartitionId(total.partition));
        if commit.partitions.iter().any(|total| known(total).is_none()) {
            return Err(format!("job {} names a partition the cluster does not have", commit.job));
        }
        let state = wire::JobState {
            job: commit.job,
            name: commit.name,
            phase: wire::JobPhase::Running as i32,
            total,
            edges: commit.edges,
            sum: Some(wire::PartitionCount::default()),
            submitted_ns: commit.submitted_ns,
            committed_ns: now.0,
            ended_ns: 0,
            settings: commit
                .settings
                .or_else(|| (variables > 0).then(wire::JobSettings::default))
                .map(|settings| wire::JobSettings { round: 0, variables, ..settings }),
            partitions: commit.partitions,
            openness: openness as i32,
            after: commit.after,
            ..Default::default()
        };
        let mut job = Job::new(state);
        job.variables = JobVariables::declare(commit.variables);
        job.record_all_variables(out);
        job.begin(homes, out);
        self.insert(job);
        Ok(())
    }

    fn insert(&mut self, job: Job) {
        self.add_waits(&job.state);
        self.listen_to(&job.state);
        self.stall_rounds.get_or_insert_default().is_due = true;
        self.jobs.insert(JobId(job.state.job), job);
    }

    pub(crate) fn load(&mut self, state: wire::JobState) {
        let job = Job::new(self.loaded(state));
        self.insert(job);
    }

    /// Repeats the commits after a recovery: homes may not have received them, and the reports of
    /// homes are no longer in memory.
    pub(crate) fn resume(&mut self, now: Time, homes: &Homes, out: &mut Out) {
        for job in self.jobs.values_mut().filter(|job| job.state.ended_ns == 0) {
            job.resume(homes, out);
            job.announce_variables(homes, out);
        }
        for job_id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.collect(now, job_id, homes, out);
            self.go_on_forgetting(job_id, homes);
        }
        self.go_on_forgetting_again(now, homes, out);
    }

    /// Loads the jobs that come with a partition. Open jobs are announced again, as after a
    /// recovery.
    pub(crate) fn take_over(
        &mut self,
        now: Time,
        states: Vec<wire::JobState>,
        variables: Vec<(JobId, wire::Variable)>,
        homes: &Homes,
        out: &mut Out,
    ) {
        let taken: Vec<JobId> = states.iter().map(|state| JobId(state.job)).collect();
        for state in states {
            let mut job = Job::new(self.loaded(state));
            if job.state.ended_ns == 0 {
                job.resume(homes, out);
            }
            self.insert(job);
        }
        for (job, variable) in variables {
            self.load_variable(job, variable);
        }
        for job_id in taken {
            if let Some(job) = self.jobs.get(&job_id).filter(|job| job.state.ended_ns == 0) {
                job.announce_variables(homes, out);
            }
            self.collect(now, job_id, homes, out);
            self.go_on_forgetting(job_id, homes);
        }
        self.go_on_forgetting_again(now, homes, out);
    }

    /// Another node has the records of these jobs from now on; watching clients must ask there.
    pub(crate) fn give_up(&mut self, partition: PartitionId, homes: &Homes, out: &mut Out) {
        self.jobs.retain(|&job_id, job| {
            let stays = homes.job_partition(job_id) != partition;
            if !stays {
                job.dismiss_watchers(partition, out);
            }
            stays
        });
        self.remove_ended_waits();
    }

    /// Partitions have new homes: those with tasks of a job receive its commit.
    pub(crate) fn notify_new_homes(
        &mut self,
        changed: &BTreeSet<PartitionId>,
        homes: &Homes,
        out: &mut Out,
    ) {
        let open = self.jobs.values_mut().filter(|job| job.has_begun() && job.state.ended_ns == 0);
        for job in open.filter(|job| homes.is_mine(homes.job_partition(JobId(job.state.job)))) {
            let concerned =
                |total: &&wire::PartitionTotal| changed.contains(&PartitionId(total.partition));
            let moved = job.state.partitions.iter().filter(concerned);
            let told: BTreeSet<NodeId> = moved
                .filter_map(|total| homes.active_owner(PartitionId(total.partition)))
                .collect();
            if !told.is_empty() {
                job.stall_detector.home_moved();
            }
            for home in told {
                job.notify_home(home, homes, out);
                job.cancel_again_at(home, out);
            }
        }
    }

    /// Absolute counts of some partitions: a later report replaces an earlier one.
    pub(crate) fn on_job_counts(
        &mut self,
        now: Time,
        from: NodeId,
        counts: wire::JobCounts,
        homes: &Homes,
        out: &mut Out,
    ) {
        let job_id = JobId(counts.job);
        let asks = counts.partitions.is_empty();
        let Some(job) = self.jobs.get_mut(&job_id) else {
            if asks {
                // Chunks are staged at the sender, but the job was never committed here.
                let end = wire::JobEnd { job: counts.job, unknown: true, ..Default::default() };
                out.reliable.push((from, answer(&counts, end)));
            }
            return;
        };
        if asks && job.state.ended_ns == 0 {
            if job.has_begun() && job.homes(homes).contains(&from) {
                job.notify_home(from, homes, out);
                job.cancel_again_at(from, out);
            }
            return;
        }
        if job.state.ended_ns != 0 {
            out.reliable.push((from, answer(&counts, job.end())));
            return self.forget_late(job_id, from, homes, out);
        }
        let round = job.round();
        for count in counts.partitions.into_iter().filter(|count| count.round == round) {
            job.fold(count, counts.removing, self.mutant);
        }
        job.count_submitted();
        job.stall_detector.moved(now);
        job.end_if_spawning_too_much(homes, out);
        job.end_if_failing_too_much(homes, out);
        job.end_if_complete(now, homes, self.mutant, out);
        if job.state.ended_ns == 0 && !counts.removing {
            job.cancel_again_at(from, out);
        }
        job.notify(out);
        self.collect(now, job_id, homes, out);
    }

    /// Cancels a whole job. `None`: the job is not known here.
    pub(crate) fn cancel(
        &mut self,
        now: Time,
        cancel: &wire::Cancel,
        homes: &Homes,
        out: &mut Out,
    ) -> Option<wire::Cancelled> {
        let job_id = JobId(cancel.job);
        let Some(job) = self.jobs.get_mut(&job_id) else {
            if !cancel.staged {
                return None;
            }
            self.forbid(now, job_id, &cancel.by, homes, out);
            return Some(wire::Cancelled::default());
        };
        let sum = job.state.sum.clone().unwrap_or_default();
        let ended = sum.done + sum.failed + sum.cancelled + sum.skipped;
        let total = job.total();
        let open = total.saturating_sub(ended);
        if job.state.ended_ns != 0 {
            return Some(wire::Cancelled { ended: total, ..Default::default() });
        }
        if job.state.phase() != wire::JobPhase::JobCancelled {
            let waited = !job.has_begun();
            job.state.set_phase(wire::JobPhase::JobCancelled);
            job.state.cancelled_by.clone_from(&cancel.by);
            if waited {
                job.begin(homes, out);
            }
            out.facts.jobs.insert(job_id, job.state.clone());
        }
        if job.state.openness() == wire::Openness::Open {
            job.begin_closing(homes, out);
        }
        job.cancel_everywhere(homes, out);
        if job.state.partitions.is_empty() {
            job.end_if_complete(now, homes, self.mutant, out);
            job.notify(out);
            self.collect(now, job_id, homes, out);
        }
        Some(wire::Cancelled { cancelled: open, ended, ..Default::default() })
    }

    /// Sends the cancellation of a cancelled job to a home that has just received its commit.
    pub(crate) fn cancel_again_at(&self, job: JobId, home: NodeId, out: &mut Out) {
        if let Some(job) = self.jobs.get(&job).filter(|job| job.state.ended_ns == 0) {
            job.cancel_again_at(home, out);
        }
    }

    /// Cancels a job that is staged on some node, so that it can no longer be committed.
    fn forbid(&mut self, now: Time, job_id: JobId, by: &str, homes: &Homes, out: &mut Out) {
        let state = wire::JobState {
            job: job_id.0,
            phase: wire::JobPhase::JobCancelled as i32,
            sum: Some(wire::PartitionCount::default()),
            submitted_ns: now.0,
            ended_ns: now.0.max(1),
            cancelled_by: by.to_owned(),
            summary: Some(wire::JobSummary { recorded_ns: now.0.max(1), ..Default::default() }),
            ..Default::default()
        };
        out.facts.jobs.insert(job_id, state.clone());
        out.events.push(Event::JobEnded { job: job_id, end: End::Cancelled });
        self.jobs.insert(job_id, Job::new(state));
        // Staged chunks are dropped on all nodes. A node that gets chunks later asks, and drops
        // them then.
        for member in homes.living_or_back() {
            let end = wire::JobEnd { job: job_id.0, ..Default::default() };
            out.reliable.push((member, Body::JobEnd(end)));
        }
    }

    /// Answers a query about a job. If the client is about to fetch results, this is recorded: from
    /// then on the tasks that produced them do not run again.
    pub(crate) fn ask(
        &mut self,
        query: wire::JobQuery,
        out: &mut Out,
    ) -> Option<Result<wire::JobState, String>> {
        let job_id = JobId(query.job);
        let job = self.jobs.get_mut(&job_id)?;
        if job.is_forgotten() {
            return Some(Err(job.forgotten_text()));
        }
        if query.fetches && !job.state.fetched {
            job.state.fetched = true;
            out.facts.jobs.insert(job_id, job.state.clone());
        }
        self.state(query)
    }
    /// Whether the results of the job are final: they were fetched, or the job has ended.
    pub(crate) fn is_fetched(&self, job_id: JobId) -> bool {
        self.jobs.get(&job_id).is_some_and(|job| job.state.fetched || job.state.ended_ns != 0)
    }
    /// All jobs, without the fields that only a query of one job needs.
    pub(crate) fn summaries(&self) -> impl Iterator<Item = wire::JobState> + '_ {
        self.jobs.values().filter(|job| !job.is_forgotten()).map(|job| {
            let sum = job
                .state
                .sum
                .as_ref()
                .map(|sum| wire::PartitionCount { failures: Vec::new(), ..sum.clone() });
            wire::JobState { partitions: Vec::new(), sum, summary: None, ..job.state_in_list() }
        })
    }

    /// Answers now, and again on each change until the job ends.
    pub(crate) fn watch(
        &mut self,
        job_id: JobId,
        client: ClientId,
        id: u64,
        out: &mut Out,
    ) -> Watched {
        let Some(job) = self.jobs.get_mut(&job_id) else { return Watched::Unknown };
        if job.is_forgotten() {
            return Watched::Forgotten(job.forgotten_text());
        }
        if job.state.ended_ns == 0 && !job.watchers.contains(&(client, id)) {
            if job.watchers.len() >= WATCHERS_MAX {
                return Watched::TooMany;
            }
            job.watchers.push((client, id));
        }
        job.answer(client, id, job.client_state(), out);
        Watched::Answered
    }
    pub(crate) fn forget_client(&mut self, client: ClientId) {
        for job in self.jobs.values_mut() {
            job.watchers.retain(|&(watcher, _)| watcher != client);
        }
    }
}

impl Job {
    fn new(state: wire::JobState) -> Self {
        Self {
            state,
            counts: BTreeMap::new(),
            removed_at: BTreeSet::new(),
            watchers: Vec::new(),
            told_partitions: 0,
            stall_detector: StallDetector::default(),
            collections: BTreeMap::new(),
            variables: JobVariables::default(),
        }
    }

    fn homes(&self, homes: &Homes) -> BTreeSet<NodeId> {
        let partitions = self.state.partitions.iter();
        partitions.filter_map(|total| homes.owner(PartitionId(total.partition))).collect()
    }

    fn notify_homes(&self, homes: &Homes, out: &mut Out) {
        let mut by_home: BTreeMap<NodeId, Vec<wire::PartitionTotal>> = BTreeMap::new();
        for total in &self.state.partitions {
            if let Some(home) = homes.owner(PartitionId(total.partition)) {
                by_home.entry(home).or_default().push(*total);
            }
        }
        for (home, partitions) in by_home {
            out.reliable.push((home, self.visible(partitions)));
        }
    }

    /// Sends one home its part of the commit.
    fn notify_home(&self, home: NodeId, homes: &Homes, out: &mut Out) {
        let mine =
            |total: &&wire::PartitionTotal| homes.owner(PartitionId(total.partition)) == Some(home);
        let partitions = self.state.partitions.iter().filter(mine).copied().collect();
        out.reliable.push((home, self.visible(partitions)));
    }

    /// The part of the commit that concerns these partitions.
    fn visible(&self, partitions: Vec<wire::PartitionTotal>) -> Body {
        let commit = wire::JobCommit {
            job: self.state.job,
            submitted_ns: self.state.submitted_ns,
            settings: self.state.settings,
            partitions,
            openness: self.state.openness,
            ..Default::default()
        };
        Body::Visible(wire::Visible { commit: Some(commit), retried: self.state.retried.clone() })
    }

    fn resume(&mut self, homes: &Homes, out: &mut Out) {
        self.state.sum = Some(wire::PartitionCount::default());
        if !self.has_begun() {
            return;
        }
        self.notify_homes(homes, out);
        if self.state.phase() == wire::JobPhase::JobCancelled {
            self.cancel_everywhere(homes, out);
        }
    }

    fn dismiss_watchers(&mut self, partition: PartitionId, out: &mut Out) {
        for (client, id) in self.watchers.drain(..) {
            let error = Some(wrong_home(partition.0));
            out.answers.push(Answer {
                client,
                response: wire::Response { id, error, ..Default::default() },
            });
        }
    }

    fn fold(&mut self, count: wire::PartitionCount, removing: bool, mutant: Option<Mutant>) {
        let sum = self.state.sum.get_or_insert_default();
        let known = self.counts.entry(count.partition).or_default();
        if known.version >= count.version {
            return;
        }
        if mutant != Some(Mutant::RelativeCounts) {
            subtract(sum, known);
        }
        add(sum, &count);
        let partition = count.partition;
        *known = count;
        self.note_removal(partition, removing);
    }

    fn end_if_complete(&mut self, now: Time, homes: &Homes, mutant: Option<Mutant>, out: &mut Out) {
        let sum = self.state.sum.get_or_insert_default();
        let ended = sum.done + sum.failed + sum.cancelled + sum.skipped;
        let (lost, failed) = (!sum.lost.is_empty(), sum.failed + sum.skipped > 0);
        let total = match mutant == Some(Mutant::EndsAtSubmittedTotal) {
            true => self.state.total,
            false => self.state.total + sum.spawned,
        };
        if (ended < total || self.may_grow()) && !lost {
            return;
        }
        if !lost && self.is_cancelled() && !self.is_removed_everywhere() {
            return;
        }
        let end = match self.state.phase() {
            wire::JobPhase::JobCancelled => End::Cancelled,
            _ if lost => {
                self.state.set_phase(wire::JobPhase::Lost);
                End::Failed
            }
            _ => {
                self.state.set_phase(wire::JobPhase::Finished);
                if failed { End::Failed } else { End::Done }
            }
        };
        self.state.ended_ns = now.0;
        // A lost job may still be open.
        if self.is_of_open_job() {
            self.state.set_openness(wire::Openness::Closing);
        }
        let job = JobId(self.state.job);
        out.facts.jobs.insert(job, self.state.clone());
        out.events.push(Event::JobEnded { job, end });
        self.counts.clear();
        self.removed_at.clear();
        if lost {
            self.cancel_everywhere(homes, out);
        }
        // Nodes that are home of no part of the job may have run its tasks and hold objects.
        for member in homes.living_or_back() {
            out.reliable.push((member, Body::JobEnd(self.end())));
        }
    }

    /// The announcement of the job's end to nodes.
    fn end(&self) -> wire::JobEnd {
        // An open job is not retried.
        let may_go_on = self.left() > 0 && !self.is_of_open_job();
        let kept = self.state.phase() == wire::JobPhase::Finished && may_go_on;
        let (job, round, outcome) = (self.state.job, self.round(), self.state.outcome() as i32);
        wire::JobEnd { job, round, kept, outcome, ..Default::default() }
    }

    fn answer(&self, client: ClientId, id: u64, state: wire::JobState, out: &mut Out) {
        let response = wire::Response {
            id,
            more: state.ended_ns == 0,
            body: Some(wire::response::Body::Job(state)),
            ..Default::default()
        };
        out.answers.push(Answer { client, response });
    }

    /// Informs the clients that watch. The fields that never change were in their first answer: the
    /// partitions of a job on all nodes of a large cluster take megabytes.
    fn notify(&mut self, out: &mut Out) {
        // An open job gets further ones: then all are sent again.
        let known = std::mem::replace(&mut self.told_partitions, self.state.partitions.len());
        let partitions = match self.is_of_open_job() && self.state.partitions.len() > known {
            true => self.state.partitions.clone(),
            false => std::mem::take(&mut self.state.partitions),
        };
        let rounds = std::mem::take(&mut self.state.rounds);
        let members = std::mem::take(&mut self.state.members);
        for &(client, id) in &self.watchers {
            self.answer(client, id, self.watched_state(), out);
        }
        (self.state.partitions, self.state.rounds) = (partitions, rounds);
        self.state.members = members;
        if self.state.ended_ns != 0 {
            self.watchers.clear();
        }
    }
}

/// The answer to a node that asks about a job, or reports on an ended one.
fn answer(counts: &wire::JobCounts, end: wire::JobEnd) -> Body {
    Body::JobEnd(wire::JobEnd { question: counts.question, ..end })
}
