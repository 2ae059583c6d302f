//! The requests of a client, in wire form.

use proto::wire::request;
use proto::{Time, wire};

use super::{Ask, JobClient, open};
use crate::faults::kinds::silence;

impl JobClient {
    pub(super) fn body_of(&self, ask: &Ask, index: usize, now: Time) -> request::Body {
        let job = self.job;
        match ask {
            &Ask::Chunk(at) => request::Body::Submit(self.submission.chunks[at].clone()),
            Ask::Commit => {
                let mut commit = self.submission.commit.clone();
                commit.submitted_ns = self.started.unwrap_or(now).0;
                if self.plan.open.is_some() {
                    commit = open::opening(&commit);
                }
                request::Body::Commit(commit)
            }
            Ask::Close => open::close(job),
            Ask::Sign | Ask::Detach => silence::sign(job, *ask == Ask::Detach),
            Ask::Release(tasks) => open::release(job, tasks),
            Ask::Watch => {
                request::Body::WatchJob(wire::JobQuery { job: job.0, ..Default::default() })
            }
            Ask::Query => request::Body::Job(wire::JobQuery { job: job.0, ..Default::default() }),
            Ask::Fetch => {
                let query = wire::JobQuery { job: job.0, fetches: true, ..Default::default() };
                request::Body::Job(query)
            }
            Ask::Cancel | Ask::Forbid => {
                let by = format!("client-{index}");
                let staged = *ask == Ask::Forbid;
                let cancel = wire::Cancel { job: job.0, by, staged, ..Default::default() };
                request::Body::Cancel(cancel)
            }
            Ask::CancelTasks(named) => {
                let locals = named.iter().map(|local| local.0).collect();
                let by = format!("client-{index}");
                let round = self.round;
                let cancel = wire::Cancel { job: job.0, locals, by, round, ..Default::default() };
                request::Body::Cancel(cancel)
            }
            &Ask::Retry(round) => {
                let by = format!("client-{index}");
                let locals = Vec::new();
                request::Body::Retry(wire::JobRetry { job: job.0, round, locals, by })
            }
            Ask::Forget => request::Body::Forget(wire::JobForget { job: job.0, results: false }),
        }
    }
}
