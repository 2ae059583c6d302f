//! Forgotten jobs at their homes. Of such a job a mark stays, so that it never returns: a member
//! that was away is asked to forget it when it is back.

use proto::marks::{Mark, mark};
use proto::wire::TallyStage;
use proto::wire::message::Body;
use proto::{JobId, NodeId, Time, wire};

use super::{Job, Jobs};
use crate::Mutant;
use crate::limits::{FORGOTTEN_PER_BATCH, HISTORY_MORE_INTERVAL};
use crate::output::Out;
use crate::routing::partition_owners::Homes;

impl Job {
    pub(super) fn is_forgotten(&self) -> bool {
        self.state.forgotten_ns != 0
    }

    pub(super) fn is_thinned(&self) -> bool {
        self.state.thinned_ns != 0
    }

    /// Tasks of the job keep outputs: a client needs the job's record to fetch them.
    pub(super) fn keeps_results(&self) -> bool {
        self.state.keeps_results()
    }

    /// The error for a client that asks for the job.
    pub(super) fn forgotten_text(&self) -> String {
        let day = &Time(self.state.forgotten_ns).utc()[..10];
        format!("job {} was forgotten on {day}", self.state.job)
    }

    fn forget_ask(&self, homes: &Homes) -> Body {
        Body::TallyQuery(wire::TallyQuery {
            job: self.state.job,
            round: self.round(),
            stage: if self.is_forgotten() { TallyStage::Forget } else { TallyStage::Thin } as i32,
            since_ns: 0,
            results: self.state.forgets_results,
            map_epoch: homes.map_epoch(),
        })
    }

    /// Sends the request to the members that may still have something of the job, if they are up.
    pub(super) fn ask_to_forget(&self, homes: &Homes, out: &mut Out) {
        let members = self.state.members.iter().map(|&node| NodeId(node));
        let there = members.filter(|&node| !homes.is_gone(node));
        out.reliable.extend(there.map(|node| (node, self.forget_ask(homes))));
    }
}

/// Members that may have data of a job. A failed member still has the data when it returns, and
/// must receive the request then. A failed member of a thinned job receives the job's records from
/// other nodes, in their thinned form.
pub(super) fn may_have(forgets: bool, homes: &Homes) -> Vec<u32> {
    let stays = |node: &NodeId| forgets || !homes.is_gone(*node);
    homes.not_removed().filter(stays).map(|node| node.0).collect()
}

impl Jobs {
    /// Whether other homes must have nothing of this job.
    pub(crate) fn has_gone(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.is_forgotten() || job.is_thinned())
    }

    /// Removes all records of an ended job. `None`: there is no such job. An error gives the reason
    /// of the refusal.
    pub(crate) fn forget(
        &mut self,
        now: Time,
        forget: wire::JobForget,
        homes: &Homes,
        out: &mut Out,
    ) -> Option<Result<(), String>> {
        let job_id = JobId(forget.job);
        let job = self.jobs.get_mut(&job_id)?;
        if job.state.ended_ns == 0 {
            let text = "has not ended: only an ended job can be forgotten";
            return Some(Err(format!("job {} {text}", forget.job)));
        }
        let results = forget.results || job.state.forgets_results;
        if job.is_forgotten() && results == job.state.forgets_results {
            return Some(Ok(()));
        }
        if job.keeps_results() && !results {
            let text = "keeps results: it is forgotten with them, or not at all";
            return Some(Err(format!("job {} {text}", forget.job)));
        }
        mark(Mark::JobForgotten);
        let round = job.round();
        job.state = wire::JobState {
            job: forget.job,
            phase: wire::JobPhase::Finished as i32,
            ended_ns: job.state.ended_ns,
            settings: Some(wire::JobSettings { round, ..Default::default() }),
            forgotten_ns: if job.is_forgotten() { job.state.forgotten_ns } else { now.0.max(1) },
            forgets_results: results,
            members: may_have(true, homes),
            ..Default::default()
        };
        job.drop_variables(out);
        job.collections.clear();
        job.counts.clear();
        out.facts.jobs.insert(job_id, job.state.clone());
        job.ask_to_forget(homes, out);
        self.stall_rounds.get_or_insert_default().forgetting.insert(job_id);
        Some(Ok(()))
    }

    /// A member reports that it has nothing of a job any more.
    pub(super) fn on_forgotten(
        &mut self,
        report: &wire::TallyReport,
        node: u32,
        homes: &Homes,
        out: &mut Out,
    ) {
        let job_id = JobId(report.job);
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        if !job.is_forgotten() && !job.is_thinned() {
            return;
        }
        if report.map_epoch < homes.map_epoch() {
            return; // It was asked again: since then it may have received records.
        }
        if report.keeps && !job.is_forgotten() {
            job.state.settings.get_or_insert_default().keeps_results = true;
        }
        let before = job.state.members.len();
        job.state.members.retain(|&member| member != node);
        if before > 0 && job.state.members.is_empty() {
            out.facts.jobs.insert(job_id, job.state.clone());
            if let Some(stall_rounds) = &mut self.stall_rounds {
                stall_rounds.forgetting.remove(&job_id);
                stall_rounds.retention.is_due = true;
            }
        }
    }

    /// The records of a job were loaded here: if it is forgotten, all members are asked again.
    pub(super) fn go_on_forgetting(&mut self, job_id: JobId, homes: &Homes) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let stall_rounds = self.stall_rounds.get_or_insert_default();
        stall_rounds.retention.is_due |= job.state.ended_ns != 0;
        if !job.is_forgotten() && !job.is_thinned() {
            return;
        }
        if !job.state.members.is_empty() && self.mutant != Some(Mutant::ForgottenReturns) {
            job.state.members = may_have(job.is_forgotten(), homes);
            stall_rounds.forgetting.insert(job_id);
            stall_rounds.forgets_again = Some((JobId(0), Time::ZERO));
        }
    }

    /// The map has changed. A node that is home of a partition now may have received records of a
    /// job that other nodes have confirmed as removed.
    pub(crate) fn forget_again(&mut self, now: Time, homes: &Homes, out: &mut Out) {
        let Some(stall_rounds) = &self.stall_rounds else { return };
        for job_id in &stall_rounds.forgetting {
            let Some(job) = self.jobs.get_mut(job_id) else { continue };
            job.state.members = may_have(job.is_forgotten(), homes);
        }
        if self.mutant != Some(Mutant::ForgottenReturns) {
            self.forget_from_the_first(now, homes, out);
        }
    }

    /// A node that reports on a forgotten job has received something of it since, such as a late
    /// commit.
    pub(super) fn forget_late(
        &mut self,
        job_id: JobId,
        from: NodeId,
        homes: &Homes,
        out: &mut Out,
    ) {
        let forgotten = self.jobs.get_mut(&job_id).filter(|job| job.is_forgotten());
        let Some(job) = forgotten else { return };
        if self.mutant == Some(Mutant::ForgottenReturns) {
            return;
        }
        if !job.state.members.contains(&from.0) {
            job.state.members.push(from.0);
            out.facts.jobs.insert(job_id, job.state.clone());
            self.stall_rounds.get_or_insert_default().forgetting.insert(job_id);
        }
        out.reliable.push((from, job.forget_ask(homes)));
    }

    /// A member is back: all members that have not confirmed are asked again.
    pub(crate) fn forget_again_at(
        &mut self,
        now: Time,
        peer: NodeId,
        homes: &Homes,
        out: &mut Out,
    ) {
        let Some(stall_rounds) = &self.stall_rounds else { return };
        let lacks = |job: &Job| job.state.members.contains(&peer.0);
        let mut forgetting =
            stall_rounds.forgetting.iter().filter_map(|job_id| self.jobs.get(job_id));
        if forgetting.any(lacks) {
            self.forget_from_the_first(now, homes, out);
        }
    }

    fn forget_from_the_first(&mut self, now: Time, homes: &Homes, out: &mut Out) {
        if let Some(stall_rounds) = &mut self.stall_rounds {
            stall_rounds.forgets_again = Some((JobId(0), now));
        }
        self.go_on_forgetting_again(now, homes, out);
    }

    /// Sends the next portion of repeated requests: there may be very many.
    pub(crate) fn go_on_forgetting_again(&mut self, now: Time, homes: &Homes, out: &mut Out) {
        let Some(stall_rounds) = &mut self.stall_rounds else { return };
        let Some((from, _)) = stall_rounds.forgets_again.filter(|(_, at)| *at <= now) else {
            return;
        };
        let mut left = stall_rounds.forgetting.range(from..);
        for job in left.by_ref().take(FORGOTTEN_PER_BATCH) {
            if let Some(job) = self.jobs.get(job) {
                job.ask_to_forget(homes, out);
            }
        }
        stall_rounds.forgets_again = left.next().map(|&next| (next, now + HISTORY_MORE_INTERVAL));
    }

    pub(crate) fn next_forgetting(&self) -> Option<Time> {
        self.stall_rounds.as_ref()?.forgets_again.map(|(_, at)| at)
    }
}
