//! Waiting for a job, up to a deadline.

use std::time::Duration;

use client::Client;
use proto::JobId;
use proto::wire::JobState;
use tokio::time::Instant;
use verb::Context;
use verb::errors::{Exit, Failure};
use verb::units::Timespan;

use crate::views::progress::Progress;

pub(crate) fn timed_out(limit: Duration) -> Failure {
    let limit = workloads::quantity::format_duration_ns(limit.as_nanos() as u64);
    Failure::new(Exit::TimedOut, format!("not ended within {limit}"))
        .hint("give a longer --timeout")
}

/// The deadline of a verb that waits.
#[derive(Debug)]
pub(crate) struct Deadline {
    limit: Duration,
    /// `None`: forever.
    at: Option<Instant>,
}

impl Deadline {
    /// The time begins now.
    pub(crate) fn after(timeout: Option<Timespan>) -> Self {
        let limit = timeout.map_or(Duration::MAX, |timeout| timeout.0);
        Self { limit, at: Instant::now().checked_add(limit) }
    }

    pub(crate) async fn cut<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        match self.at {
            None => Ok(work.await),
            Some(at) => tokio::time::timeout_at(at, work).await.map_err(|_| timed_out(self.limit)),
        }
    }
}

/// Waits for the end of a job, or until no task is open and the client of the job is silent.
pub(crate) async fn wait_or_silence(
    context: &Context,
    client: &Client,
    job: JobId,
    deadline: &Deadline,
) -> Result<JobState, Failure> {
    let progress = Progress::start(&context.output, client, 0);
    let end_or_silence = async {
        let mut watch = client.raw().watch_job(job);
        let mut last = None;
        while let Some(state) = watch.next().await? {
            progress.show(&state);
            if state.silent_since_ns().is_some() {
                return Box::pin(client.raw().wait_submitted(job)).await.map(Some);
            }
            last = Some(state);
        }
        Ok(last)
    };
    let state = deadline.cut(end_or_silence).await??;
    progress.end();
    state.ok_or_else(|| Failure::lost(format!("job {}: its home ended the watch", job.0)))
}

/// Waits for the end of a job.
pub(crate) async fn wait(
    context: &Context,
    client: &Client,
    job: JobId,
    total: u64,
    deadline: &Deadline,
) -> Result<JobState, Failure> {
    let progress = Progress::start(&context.output, client, total);
    let state = deadline.cut(client.raw().wait_job(job, |state| progress.show(state))).await??;
    progress.end();
    Ok(state)
}
