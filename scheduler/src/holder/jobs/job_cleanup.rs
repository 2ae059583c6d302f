//! The end of a job at the nodes that hold something of it: its home announces it, or is asked.

use std::collections::BTreeMap;

use proto::wire::message::Body;
use proto::{JobId, NodeId, TaskId, Time, wire};

use crate::Scheduler;
use crate::home::ledger::Job;
use crate::limits::{OBJECTS_PER_MESSAGE_MAX, UPLOADS_QUERIED_AFTER};
use crate::output::Out;

/// The maximum number of jobs with uploads that a node asks about in a step.
const UPLOADS_QUERIED_MAX: usize = 64;

/// Jobs of which tasks were staged here, or objects fetched or stored.
#[derive(Debug, Default)]
pub(crate) struct LocalJobs {
    /// Each job with the latest round known here.
    jobs: BTreeMap<JobId, u32>,
    /// Jobs about which their homes were asked, without activity here since. The value is the last
    /// question.
    asked: BTreeMap<JobId, u64>,
    /// The number of questions that this incarnation has asked.
    questions: u64,
    files: Box<Files>,
}

/// Jobs of which only uploaded files are here: if such a job is never committed, no node announces
/// its end. Boxed, because most nodes have none.
#[derive(Debug, Default)]
struct Files {
    /// When the last file arrived, or the job was last asked about.
    jobs: BTreeMap<JobId, Time>,
    look_at: Option<Time>,
}

impl LocalJobs {
    pub(crate) fn record(&mut self, job: JobId, round: u32) {
        let known = self.jobs.entry(job).or_default();
        *known = round.max(*known);
        self.files.jobs.remove(&job); // The job has been committed.
        self.record_activity(job);
    }
    /// Something of the job has arrived: an earlier question no longer counts.
    pub(crate) fn record_activity(&mut self, job: JobId) {
        self.asked.remove(&job);
    }
    /// Returns false if nothing of the job was here.
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
    /// Jobs without anything from their submitters for `UPLOADS_QUERIED_AFTER`.
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
    /// Jobs of which more than uploaded files is here. The commit of the others may still arrive,
    /// so the answer that there is no such job proves nothing.
    pub(crate) fn committed(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.keys().copied().filter(|job| !self.files.jobs.contains_key(job))
    }
}

impl Scheduler {
    /// Sends the progress reports that are due to the jobs' homes.
    pub(crate) fn report(&mut self, now: Time, out: &mut Out) {
        for report in self.home.ledger.due_reports(now, self.routing.homes()) {
            let home = self.routing.homes().job_home(JobId(report.job));
            out.reliable.push((home, Body::JobCounts(report)));
        }
    }

    /// Asks a job's home whether the job has ended. Only a node that is home of no part of the job
    /// may ask so early. A power cut may have lost a commit; the answer "no such job" would then
    /// drop chunks that their client is about to commit again.
    pub(crate) fn ask_for_job_end(&mut self, job: JobId, out: &mut Out) {
        if self.home.ledger.knows_job(job) {
            return;
        }
        let question = self.ask_job_home(job, out);
        self.holder.local_jobs.asked.insert(job, question);
    }

    /// Asks how a job has ended for which another job waits. Its data here, if there is any, stays
    /// as it is: the answer may be that there is no such job.
    pub(crate) fn ask_for_end_of(&mut self, job: JobId, out: &mut Out) -> u64 {
        let question = self.ask_job_home(job, out);
        if !self.home.ledger.knows_job(job) {
            self.holder.local_jobs.asked.insert(job, question);
        }
        question
    }

    /// Uploaded files are stored here; they are deleted with their jobs.
    pub fn on_files(&mut self, now: Time, tasks: &[TaskId]) {
        tasks.iter().for_each(|task| self.holder.local_jobs.record_file(now, task.job));
        self.share_uploads(now, tasks);
    }

    /// Asks whether the jobs exist that have had uploaded files here for long.
    pub(crate) fn ask_about_files(&mut self, now: Time, out: &mut Out) {
        for job in self.holder.local_jobs.take_silent(now) {
            self.ask_for_job_end(job, out);
        }
    }

    /// Sends an empty report, which is a question. The answer repeats its number, since several
    /// questions may be open: a home that moves is asked under its new epoch and once it is active.
    /// The numbers of different incarnations differ.
    pub(crate) fn ask_job_home(&mut self, job: JobId, out: &mut Out) -> u64 {
        self.holder.local_jobs.questions += 1;
        let question =
            u64::from(self.options.incarnation.0) << 32 | self.holder.local_jobs.questions;
        let counts = wire::JobCounts { job: job.0, question, ..Default::default() };
        out.reliable.push((self.routing.homes().job_home(job), Body::JobCounts(counts)));
        question
    }

    /// The job has ended on all nodes, or its home does not know it. Frees the memory that this
    /// node uses for the job.
    pub(crate) fn on_job_end(&mut self, from: NodeId, end: wire::JobEnd, out: &mut Out) {
        let job_id = JobId(end.job);
        if end.unknown && !self.is_still_unknown(from, end, out) {
            return;
        }
        if end.round < self.round_here(job_id) {
            return; // A later round of the job runs here.
        }
        self.forget_data(job_id, end.kept, out);
        // Tasks of the job may be retried. Outputs of done tasks are freed if no task reads them.
        for (node, objects) in self.home.ledger.end_job(job_id, end.round, end.kept, out) {
            for piece in objects.chunks(OBJECTS_PER_MESSAGE_MAX) {
                let body = Body::FreeObjects(wire::FreeObjects { objects: piece.to_vec() });
                out.reliable.push((node, body));
            }
        }
    }

    /// The latest round of a job of which anything is here.
    pub(crate) fn round_here(&self, job: JobId) -> u32 {
        let home = self.home.ledger.job(job).map_or(0, Job::round);
        let remote_tasks = self
            .holder
            .remote_tasks
            .of_job(job)
            .filter_map(|(task, _)| self.holder.remote_tasks.get(&task));
        let remote_tasks =
            remote_tasks.map(|remote| remote.work.settings.round).max().unwrap_or_default();
        home.max(remote_tasks).max(self.holder.local_jobs.round(job))
    }

    /// Whether the answer "no such job" is still true. An answer counts if the job's
    /// present home sent it, and if it answers the last question since the last activity here. If
    /// this node has asked nothing since that activity, it asks the home again. For a job that
    /// waits for its commit here, this node asks at the planned time.
    fn is_still_unknown(&mut self, from: NodeId, end: wire::JobEnd, out: &mut Out) -> bool {
        let job_id = JobId(end.job);
        let asked = match self.home.ledger.job(job_id) {
            Some(job) if job.is_visible() => return false,
            Some(job) => job.open_question(),
            None => self.holder.local_jobs.asked.get(&job_id).copied(),
        };
        let Some(asked) = asked else {
            self.ask_for_job_end(job_id, out);
            return false;
        };
        // An older peer does not repeat the number of the question.
        let is_last = end.question == asked || end.question == 0;
        is_last && from == self.routing.homes().job_home(job_id)
    }
}
