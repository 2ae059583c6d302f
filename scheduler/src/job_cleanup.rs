//! The end of a job at nodes that hold something of it: its home tells them, or is asked.

use std::collections::BTreeMap;

use proto::limits::{OBJECTS_PER_MESSAGE_MAX, UPLOADS_QUERIED_AFTER, UPLOADS_QUERIED_MAX};
use proto::wire::message::Body;
use proto::{JobId, NodeId, TaskId, Time, wire};

use crate::Scheduler;
use crate::output::Out;

/// Jobs of which tasks were staged or objects brought here, or stored before.
#[derive(Debug, Default)]
pub(crate) struct LocalJobs {
    /// Each with the latest round that is known of it.
    jobs: BTreeMap<JobId, u32>,
    /// Those whose home was asked whether they have ended, and of which nothing has come since:
    /// the last question.
    asked: BTreeMap<JobId, u64>,
    /// How many questions this incarnation has asked.
    questions: u64,
    files: Box<Files>,
}

/// Jobs of which nothing is here but files of their submitters: nobody tells of the end of one that
/// is never committed. Most nodes have none.
#[derive(Debug, Default)]
struct Files {
    /// When the last one came, or was asked about.
    jobs: BTreeMap<JobId, Time>,
    look_at: Option<Time>,
}

impl LocalJobs {
    pub(crate) fn record(&mut self, job: JobId, round: u32) {
        let known = self.jobs.entry(job).or_default();
        *known = round.max(*known);
        self.files.jobs.remove(&job); // It has been committed.
        self.record_activity(job);
    }
    /// Something of it has come.
    pub(crate) fn record_activity(&mut self, job: JobId) {
        self.asked.remove(&job);
    }
    /// False where nothing of it is here.
    pub(crate) fn forget(&mut self, job: JobId) -> bool {
        self.asked.remove(&job);
        self.files.jobs.remove(&job);
        self.jobs.remove(&job).is_some()
    }
    pub(crate) fn knows(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }
    pub(crate) fn round(&self, job: JobId) -> u32 {
        self.jobs.get(&job).copied().unwrap_or_default()
    }
    fn record_file(&mut self, now: Time, job: JobId) {
        let is_new = !self.jobs.contains_key(&job);
        if is_new || self.files.jobs.contains_key(&job) {
            self.jobs.entry(job).or_default();
            self.files.jobs.insert(job, now);
            self.files.look_at.get_or_insert(now + UPLOADS_QUERIED_AFTER);
        }
        self.record_activity(job);
    }
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.files.look_at
    }
    /// Jobs of whose submitters nothing has come for long.
    fn take_silent(&mut self, now: Time) -> Vec<JobId> {
        let Files { jobs, look_at } = &mut *self.files;
        if look_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let is_silent = |(_, last): &(&JobId, &mut Time)| **last + UPLOADS_QUERIED_AFTER <= now;
        let silent = jobs.iter_mut().filter(is_silent).take(UPLOADS_QUERIED_MAX);
        let silent = silent.map(|(&job, last)| {
            *last = now;
            job
        });
        let silent = silent.collect();
        *look_at = jobs.values().min().map(|&last| last + UPLOADS_QUERIED_AFTER);
        silent
    }
    pub(crate) fn has(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }
    /// Of the others the commit may be yet to come: that there is no such job says nothing.
    pub(crate) fn committed(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.keys().copied().filter(|job| !self.files.jobs.contains_key(job))
    }
}

impl Scheduler {
    /// Sends the reports that are due to the homes of the jobs.
    pub(crate) fn report(&mut self, now: Time, out: &mut Out) {
        for report in self.ledger.due_reports(now, &self.homes) {
            let home = self.homes.job_home(JobId(report.job));
            out.reliable.push((home, Body::JobCounts(report)));
        }
    }

    /// Asks a job's home whether it has ended. Only a node that is home of none of it may ask so
    /// early: a commit may have been lost in a power cut, and "no such job" would drop chunks that
    /// their client is about to commit again.
    pub(crate) fn ask_for_job_end(&mut self, job: JobId, out: &mut Out) {
        if self.ledger.jobs.contains_key(&job) {
            return;
        }
        let question = self.ask_job_home(job, out);
        self.data.local_jobs.asked.insert(job, question);
    }

    /// Files of submitters lie here: they go when their jobs do.
    pub fn on_files(&mut self, now: Time, tasks: &[TaskId]) {
        tasks.iter().for_each(|task| self.data.local_jobs.record_file(now, task.job));
        self.share_uploads(now, tasks);
    }

    /// Whether there are such jobs, of whose submitters files have long been here.
    pub(crate) fn ask_about_files(&mut self, now: Time, out: &mut Out) {
        for job in self.data.local_jobs.take_silent(now) {
            self.ask_for_job_end(job, out);
        }
    }

    /// An empty report is a question. The answer repeats its number, as several may be under way:
    /// a home that moves is asked under its new epoch and once it is active. An earlier incarnation
    /// has asked with other numbers.
    pub(crate) fn ask_job_home(&mut self, job: JobId, out: &mut Out) -> u64 {
        self.data.local_jobs.questions += 1;
        let question = u64::from(self.options.incarnation.0) << 32 | self.data.local_jobs.questions;
        let counts = wire::JobCounts { job: job.0, question, ..Default::default() };
        out.reliable.push((self.homes.job_home(job), Body::JobCounts(counts)));
        question
    }

    /// The job is over everywhere: what it holds in memory may go when there is need of room. Or
    /// its home knew of no such job.
    pub(crate) fn on_job_end(&mut self, from: NodeId, end: wire::JobEnd, out: &mut Out) {
        let job_id = JobId(end.job);
        if end.unknown && !self.is_still_unknown(from, end, out) {
            return;
        }
        if end.round < self.round_here(job_id) {
            return; // More of it runs since.
        }
        self.forget_data(job_id, end.kept, out);
        let Some(job) = self.ledger.jobs.get_mut(&job_id) else { return };
        if job.round() != end.round {
            return;
        }
        if job.ended {
            if !end.kept {
                self.ledger.keep_no_more(job_id, out);
            }
            return;
        }
        if !job.visible {
            self.ledger.expire(job_id, out);
            return;
        }
        job.ended = true;
        self.ledger.live.remove(&job_id);
        let mut retired = Vec::new();
        for (&partition, part) in &mut job.parts {
            part.keeps = end.kept;
            retired.push((partition, part.take_ended()));
        }
        for (partition, record) in job.visible_records() {
            out.facts.visible.insert((partition, job_id), record);
        }
        if end.kept {
            self.free_unread_outputs(job_id, out);
        }
        for (partition, chunks) in retired {
            self.ledger.retire(job_id, partition, &chunks);
        }
        self.ledger.forget_releases(job_id);
    }

    /// Tasks of the job may be run again: of what others have made only that stays which some task
    /// reads.
    fn free_unread_outputs(&mut self, job: JobId, out: &mut Out) {
        for (node, objects) in self.ledger.unread_outputs(job) {
            for piece in objects.chunks(OBJECTS_PER_MESSAGE_MAX) {
                let body = Body::FreeObjects(wire::FreeObjects { objects: piece.to_vec() });
                out.reliable.push((node, body));
            }
        }
    }

    /// The latest round of a job of which anything is here.
    pub(crate) fn round_here(&self, job: JobId) -> u32 {
        let home = self.ledger.jobs.get(&job).map_or(0, |job| job.round());
        let remote_tasks =
            self.remote_tasks.of_job(job).filter_map(|(task, _)| self.remote_tasks.get(&task));
        let remote_tasks =
            remote_tasks.map(|remote| remote.work.settings.round).max().unwrap_or_default();
        home.max(remote_tasks).max(self.data.local_jobs.round(job))
    }

    /// That there is no such job was true when it was said. It counts as the answer of the job's
    /// present home to the last question since something of it has come. Where nothing was asked
    /// since, the home is asked once more; a job that waits for its commit here is asked about in
    /// its time.
    fn is_still_unknown(&mut self, from: NodeId, end: wire::JobEnd, out: &mut Out) -> bool {
        let job_id = JobId(end.job);
        let asked = match self.ledger.jobs.get(&job_id) {
            Some(job) if job.visible => return false,
            Some(job) => Some(job.question).filter(|&question| question != 0),
            None => self.data.local_jobs.asked.get(&job_id).copied(),
        };
        let Some(asked) = asked else {
            self.ask_for_job_end(job_id, out);
            return false;
        };
        // An older peer does not say what it answers.
        let is_last = end.question == asked || end.question == 0;
        is_last && from == self.homes.job_home(job_id)
    }
}
