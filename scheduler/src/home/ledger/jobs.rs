//! The jobs of this home as wholes: whether they live, what is due for them, and their end.

use std::collections::BTreeMap;

use proto::{JobId, LocalId, NodeId, PartitionId, Span, Time, wire};

use super::{Job, Ledger};
use crate::output::Out;

impl Ledger {
    pub(super) fn open_job(&mut self, now: Time, job_id: JobId) -> &mut Job {
        let live = &mut self.live;
        self.jobs.entry(job_id).or_insert_with(|| {
            live.insert(job_id);
            Box::new(Job::new(now))
        })
    }
    /// Present if anything of the job is stored here.
    #[inline]
    pub(crate) fn job(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(&job).map(AsRef::as_ref)
    }
    pub(crate) fn knows_job(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }
    pub(crate) fn live_jobs(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.live.iter().filter_map(|&job_id| Some((job_id, self.jobs.get(&job_id)?.as_ref())))
    }
    /// The open tasks and all tasks of one part.
    pub(crate) fn tasks_of_part(&self, job: JobId, partition: PartitionId) -> (u64, u64) {
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(partition));
        part.map_or((0, 0), |part| (part.open, part.tasks))
    }

    /// The longest time between an end and its report to the home of the job.
    pub(crate) fn report_every(&mut self, interval: Span) {
        self.report_interval = interval;
    }
    /// The homes of these jobs may have lost the counts: everything is reported again.
    pub(crate) fn report_again(&mut self, now: Time, is_concerned: impl Fn(JobId) -> bool) {
        for (&job_id, job) in &mut self.jobs {
            if is_concerned(job_id) && job.is_under_way() {
                job.report_everything(now);
            }
        }
    }
    pub(crate) fn report_at_once(&mut self, now: Time, job: JobId) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.report_at = Some(now);
        }
    }

    /// Staged jobs with submitters that have been silent for this long.
    pub(crate) fn silent_jobs(&self, now: Time, ttl: Span) -> Vec<JobId> {
        let staged = self.live_jobs().filter(|(_, job)| job.may_expire());
        let silent = staged.filter(|(_, job)| job.touched + ttl <= now);
        silent.map(|(job_id, _)| job_id).collect()
    }
    /// When a staged job will have been silent for this long.
    pub(crate) fn next_silence(&self, ttl: Span) -> Option<Time> {
        let staged = self.live_jobs().filter(|(_, job)| job.may_expire());
        staged.map(|(_, job)| job.touched + ttl).min()
    }
    /// The home of a silent job was asked whether it knows the job.
    pub(crate) fn note_question(&mut self, now: Time, job: JobId, question: u64) {
        if let Some(job) = self.jobs.get_mut(&job) {
            (job.touched, job.question) = (now, question);
        }
    }
    /// Drops a job's staged chunks: its submitter is silent, and its home does not know the job.
    fn expire(&mut self, job_id: JobId, out: &mut Out) {
        if !self.jobs.get(&job_id).is_some_and(|job| job.may_expire()) {
            return;
        }
        let Some(job) = self.jobs.remove(&job_id) else { return };
        self.live.remove(&job_id);
        self.waiting -= job.open;
        for (partition, part) in job.parts.iter() {
            let numbers = part.chunk_numbers().map(|number| ((partition, job_id), number));
            out.facts.dropped_chunks.extend(numbers);
        }
    }

    /// The next search for the blocking task of the job begins here.
    pub(crate) fn search_on_from(&mut self, job: JobId, next: LocalId) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.looked_to = next;
        }
    }

    /// The round of the job has ended on all nodes, or its home does not know the job. `kept`: the
    /// inputs of tasks that are not done are kept. Returns the outputs that no task reads, by node.
    pub(crate) fn end_job(
        &mut self,
        job_id: JobId,
        round: u32,
        kept: bool,
        out: &mut Out,
    ) -> BTreeMap<NodeId, Vec<wire::Object>> {
        let mut unread = BTreeMap::new();
        let Some(job) = self.jobs.get_mut(&job_id).filter(|job| job.round() == round) else {
            return unread;
        };
        if job.ended {
            if !kept {
                self.keep_no_more(job_id, out);
            }
            return unread;
        }
        if !job.visible {
            self.expire(job_id, out);
            return unread;
        }
        job.ended = true;
        self.live.remove(&job_id);
        let mut retired = Vec::new();
        for (partition, part) in job.parts.iter_mut() {
            part.keeps = kept;
            retired.push((partition, part.take_ended()));
        }
        for (partition, record) in job.visible_records() {
            out.facts.visible.insert((partition, job_id), record);
        }
        if kept {
            unread = self.unread_outputs(job_id);
        }
        for (partition, chunks) in retired {
            self.retire(job_id, partition, &chunks);
        }
        self.forget_releases(job_id);
        unread
    }
}
