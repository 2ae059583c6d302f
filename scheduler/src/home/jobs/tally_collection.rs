//! Summaries of ended jobs at their homes: every member is asked for its tally, and the result is
//! stored with the job. A stored summary never changes.

use std::collections::BTreeSet;

use proto::busy::BusySeries;
use proto::limits::JOB_PARTS_TIMEOUT;
use proto::marks::{Mark, mark};
use proto::tally;
use proto::wire::TallyStage;
use proto::wire::message::Body;
use proto::{JobId, NodeId, Time, wire};

use super::{Job, Jobs};
use crate::Mutant;
use crate::output::Out;
use crate::routing::partition_owners::Homes;

/// The number of nodes with separate figures in a summary. The nodes that did least are added
/// together.
const PARTS_KEPT_MAX: usize = 64;
/// The number of buckets of busy time in a summary.
const BUSY_KEPT_MAX: usize = 64;
/// In a larger cluster nodes are not informed of a job's beginning, so figures of whole nodes are
/// missing from its summary.
const JOB_STARTS_NODES_MAX: usize = 1024;

/// A round that has ended, and has no summary yet.
#[derive(Clone, Debug)]
pub(super) struct Unrecorded {
    round: u32,
    /// When the round began.
    since_ns: u64,
    /// The members at its beginning.
    members: Vec<u32>,
}

/// The tallies that members have reported for such a round.
#[derive(Debug)]
pub(super) struct Collection {
    of: Unrecorded,
    /// A member that has not reported until then is listed as missing.
    until: Time,
    awaited: BTreeSet<NodeId>,
    told: BTreeSet<NodeId>,
    parts: Vec<wire::NodeTally>,
    /// The merged tallies of members that are not listed one by one.
    rest: wire::NodeTally,
    busy: BusySeries,
    missing: BTreeSet<u32>,
}

impl Collection {
    fn new(of: Unrecorded, until: Time, awaited: BTreeSet<NodeId>) -> Self {
        let away = |node: &&u32| !awaited.contains(&NodeId(**node));
        let missing = of.members.iter().filter(away).copied().collect();
        let (told, parts, rest) = (BTreeSet::new(), Vec::new(), wire::NodeTally::default());
        Self { of, until, awaited, told, parts, rest, busy: BusySeries::default(), missing }
    }

    fn hear(&mut self, part: wire::NodeTally) {
        let node = NodeId(part.node);
        if !self.told.insert(node) {
            return; // The member was asked twice.
        }
        self.awaited.remove(&node);
        if part.began_late && self.of.members.contains(&node.0) {
            self.missing.insert(node.0);
        }
        self.add(part);
    }

    /// Stops waiting for members that are gone or late. Returns whether no report is awaited any
    /// more.
    fn is_complete(&mut self, now: Time, homes: &Homes) -> bool {
        let Self { until, awaited, missing, .. } = self;
        awaited.retain(|&node| {
            let waits = !homes.is_gone(node) && now < *until;
            if !waits {
                mark(Mark::PartMissing);
                missing.insert(node.0);
            }
            waits
        });
        awaited.is_empty()
    }

    fn add(&mut self, mut part: wire::NodeTally) {
        let busy = part.busy.take();
        if let Some(series) = busy.and_then(|busy| BusySeries::from_wire(&busy)) {
            self.busy.merge(series);
        }
        self.parts.push(part);
        if self.parts.len() >= 2 * PARTS_KEPT_MAX {
            self.thin();
        }
    }

    /// Keeps the members that did most; the others are merged.
    fn thin(&mut self) {
        self.parts.sort_by_key(|part| (std::cmp::Reverse(part.busy_ns), part.node));
        for part in self.parts.drain(PARTS_KEPT_MAX.min(self.parts.len())..) {
            tally::merge(&mut self.rest, &part);
            self.rest.merged += 1;
        }
    }

    fn finish(mut self, now: Time) -> wire::JobSummary {
        self.thin();
        self.parts.sort_by_key(|part| part.node);
        // Most nodes have the same tuning: it is listed where it changes.
        let mut known = None;
        for part in &mut self.parts {
            if known.as_ref() == Some(&part.tuning) {
                part.tuning = None;
            } else {
                known = Some(part.tuning.clone());
            }
        }
        if self.rest.merged > 0 {
            self.parts.push(self.rest);
        }
        wire::JobSummary {
            recorded_ns: now.0.max(1),
            parts: self.parts,
            missing: self.missing.into_iter().collect(),
            busy: self.busy.to_wire(BUSY_KEPT_MAX),
        }
    }
}

impl Job {
    /// Asks every member to count its work for the present round from now on.
    pub(super) fn begin_parts(&mut self, homes: &Homes, out: &mut Out) {
        let members: Vec<NodeId> = homes.living().collect();
        self.state.members = members.iter().map(|node| node.0).collect();
        if members.len() > JOB_STARTS_NODES_MAX {
            return;
        }
        let ask = self.tally_query(self.round(), self.since_ns(), TallyStage::Begins);
        out.reliable.extend(members.into_iter().map(|node| (node, ask.clone())));
    }

    /// When the present round began.
    fn since_ns(&self) -> u64 {
        if self.round() > 0 { self.state.opened_ns } else { self.state.submitted_ns }
    }

    fn tally_query(&self, round: u32, since_ns: u64, stage: TallyStage) -> Body {
        let stage = stage as i32;
        Body::TallyQuery(wire::TallyQuery {
            job: self.state.job,
            round,
            stage,
            since_ns,
            ..Default::default()
        })
    }

    /// Ended rounds without a summary. A round that began before summaries existed has no members,
    /// and gets none.
    fn unrecorded(&self, mutant: Option<Mutant>) -> Vec<Unrecorded> {
        // A job that ended before summaries existed is thinned without one; then its `members` are
        // those that have to confirm.
        if self.is_forgotten() || self.is_thinned() && self.state.summary.is_none() {
            return Vec::new();
        }
        let of_mutant = mutant == Some(Mutant::SummaryMadeAgain);
        let wants = |summary: Option<&wire::JobSummary>, members: &[u32]| match summary {
            Some(_) => of_mutant,
            None => !members.is_empty(),
        };
        let past = (0..).zip(&self.state.rounds);
        let past = past.filter(|(_, it)| wants(it.summary.as_ref(), &it.members));
        let mut found: Vec<_> = past
            .map(|(round, it)| {
                let since_ns = if round == 0 { self.state.submitted_ns } else { it.opened_ns };
                Unrecorded { round, since_ns, members: it.members.clone() }
            })
            .collect();
        if self.state.ended_ns != 0 && wants(self.state.summary.as_ref(), &self.state.members) {
            let (since_ns, members) = (self.since_ns(), self.state.members.clone());
            found.push(Unrecorded { round: self.round(), since_ns, members });
        }
        found.retain(|it| !self.collections.contains_key(&it.round));
        found
    }

    fn record(&mut self, now: Time, collection: Collection, homes: &Homes, out: &mut Out) {
        mark(Mark::JobRecorded);
        let (round, since_ns) = (collection.of.round, collection.of.since_ns);
        let summary = Some(collection.finish(now));
        if round == self.round() {
            self.state.members.clear();
            self.state.summary = summary;
        } else if let Some(past) = self.state.rounds.get_mut(round as usize) {
            past.members.clear();
            past.summary = summary;
        }
        out.facts.jobs.insert(JobId(self.state.job), self.state.clone());
        let ask = self.tally_query(round, since_ns, TallyStage::Recorded);
        out.reliable.extend(homes.living_or_back().map(|node| (node, ask.clone())));
    }
}

impl Jobs {
    /// Asks the members for their tallies of each ended round without a summary.
    pub(super) fn collect(&mut self, now: Time, job_id: JobId, homes: &Homes, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        for of in job.unrecorded(self.mutant) {
            let awaited: BTreeSet<NodeId> = homes.living_or_back().collect();
            let ask = job.tally_query(of.round, of.since_ns, TallyStage::Ends);
            out.reliable.extend(awaited.iter().map(|&node| (node, ask.clone())));
            let until = now + JOB_PARTS_TIMEOUT;
            job.collections.insert(of.round, Collection::new(of, until, awaited));
            let stall_rounds = self.stall_rounds.get_or_insert_default();
            stall_rounds.collecting.insert(job_id);
            stall_rounds.collect_at =
                Some(stall_rounds.collect_at.map_or(until, |at| at.min(until)));
        }
    }

    pub(crate) fn on_part(
        &mut self,
        now: Time,
        report: wire::TallyReport,
        homes: &Homes,
        out: &mut Out,
    ) {
        if let (true, Some(part)) = (report.forgotten, &report.part) {
            return self.on_forgotten(&report, part.node, homes, out);
        }
        let job_id = JobId(report.job);
        let job = self.jobs.get_mut(&job_id);
        let collection = job.and_then(|job| job.collections.get_mut(&report.round));
        if let (Some(collection), Some(part)) = (collection, report.part) {
            collection.hear(*part);
            self.tend_collection(now, job_id, homes, out);
        }
    }

    /// Stores the summaries of a job that are complete or have waited long enough.
    fn tend_collection(&mut self, now: Time, job_id: JobId, homes: &Homes, out: &mut Out) {
        let Some(stall_rounds) = &mut self.stall_rounds else { return };
        let Some(job) = self.jobs.get_mut(&job_id) else {
            stall_rounds.collecting.remove(&job_id);
            return;
        };
        for (round, mut collection) in std::mem::take(&mut job.collections) {
            if collection.is_complete(now, homes) {
                job.record(now, collection, homes, out);
                stall_rounds.retention.is_due = true;
            } else {
                job.collections.insert(round, collection);
            }
        }
        if job.collections.is_empty() {
            stall_rounds.collecting.remove(&job_id);
        }
    }

    /// Checks all collections when the first has waited long enough, or members are gone.
    pub(crate) fn tend_collections(&mut self, now: Time, homes: &Homes, out: &mut Out) {
        let Some(stall_rounds) = &mut self.stall_rounds else { return };
        if stall_rounds.collect_at.is_none_or(|at| now < at) {
            return;
        }
        for job_id in stall_rounds.collecting.iter().copied().collect::<Vec<_>>() {
            self.tend_collection(now, job_id, homes, out);
        }
        let next = self.collections().map(|(_, collection)| collection.until).min();
        self.stall_rounds.get_or_insert_default().collect_at = next;
    }

    /// The map has changed: awaited members may be gone.
    pub(crate) fn tend_collections_soon(&mut self) {
        if let Some(stall_rounds) =
            self.stall_rounds.as_mut().filter(|stall_rounds| !stall_rounds.collecting.is_empty())
        {
            stall_rounds.collect_at = Some(Time::ZERO);
        }
    }

    fn collections(&self) -> impl Iterator<Item = (&Job, &Collection)> {
        let collecting = self.stall_rounds.iter().flat_map(|stall_rounds| &stall_rounds.collecting);
        let jobs = collecting.filter_map(|job| self.jobs.get(job));
        jobs.flat_map(|job| job.collections.values().map(move |it| (job, it)))
    }

    pub(crate) fn next_collection(&self) -> Option<Time> {
        self.stall_rounds.as_ref()?.collect_at
    }

    /// A member has restarted and has lost the questions: it is asked again.
    pub(crate) fn ask_parts_again(&self, peer: NodeId, out: &mut Out) {
        let awaiting = self.collections().filter(|(_, it)| it.awaited.contains(&peer));
        for (job, Collection { of, .. }) in awaiting {
            out.reliable.push((peer, job.tally_query(of.round, of.since_ns, TallyStage::Ends)));
        }
    }
}
