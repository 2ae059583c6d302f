//! The changing state of one job.

use std::sync::Arc;

use proto::JobId;
use proto::wire::{self, request, response};
use tokio::time::Instant;

use super::job::is_ended;
use crate::call::{Checked, MOVED, name_unknown};
use crate::retry::{Retry, Target};
use crate::{Client, ClientError, link};

/// The changing state of one job. The watch survives restarts and moves of the job's home.
#[derive(Debug)]
pub struct JobRecords {
    client: Client,
    job: JobId,
    watch: Option<Watch>,
    ended: bool,
}

/// A watch at one node.
#[derive(Debug)]
struct Watch {
    node: u32,
    /// When the first answer came. A home answers at once; a node without a majority may not.
    answered: Option<Instant>,
    responses: Responses,
}

type Responses = tokio::sync::mpsc::UnboundedReceiver<Result<wire::Response, link::LinkError>>;

impl JobRecords {
    pub(super) fn of(client: Client, job: JobId) -> Self {
        Self { client, job, watch: None, ended: false }
    }

    /// The next state; `None` after the last. May be dropped and called again at any point.
    pub async fn next(&mut self) -> Result<Option<wire::JobState>, ClientError> {
        let mut retry = Retry::new(self.client.request_timeout());
        while !self.ended {
            let map = self.client.map();
            let Some(watch) = &mut self.watch else {
                if let Err((node, lost)) = self.open().await {
                    self.look_again(&mut retry, &map, node, &lost).await?;
                }
                continue;
            };
            let (node, answered) = (watch.node, watch.answered);
            let response = match watch.next(retry.deadline).await {
                Ok(response) => response,
                Err(lost) => {
                    if let Some(since) = answered {
                        retry.rearm(since);
                    }
                    self.look_again(&mut retry, &map, node, &lost).await?;
                    continue;
                }
            };
            let checked = self.client.check(response);
            match checked.map_err(|e| name_unknown(e, self.job, None))? {
                Checked::Busy { after, text } => {
                    self.watch = None;
                    let waited = retry.wait_busy(node, after, text).await;
                    self.or_away(waited).await?;
                }
                Checked::Moved => {
                    if let Some(since) = answered {
                        retry.rearm(since);
                    }
                    let lost = link::LinkError(MOVED.to_owned());
                    self.look_again(&mut retry, &map, node, &lost).await?;
                }
                Checked::Forgotten { .. } => {
                    return Err(ClientError::Protocol { node, what: "this has no number" });
                }
                Checked::Answer(response) => {
                    let more = response.more;
                    let Some(response::Body::Job(state)) = response.body else {
                        return Err(ClientError::Protocol { node, what: "no job state" });
                    };
                    self.ended = is_ended(&state);
                    match &mut self.watch {
                        Some(watch) if more => _ = watch.answered.get_or_insert_with(Instant::now),
                        watch => *watch = None,
                    }
                    return Ok(Some(state));
                }
            }
        }
        Ok(None)
    }

    /// Ends the present watch; the next one may be at another node.
    async fn look_again(
        &mut self,
        retry: &mut Retry,
        map: &Arc<wire::ClusterMap>,
        node: u32,
        lost: &link::LinkError,
    ) -> Result<(), ClientError> {
        self.watch = None;
        let home = Target::Home(self.client.job_partition(self.job));
        let paused = retry.pause(home, node, lost).await;
        self.or_away(paused).await?;
        self.client.refresh(map).await;
        Ok(())
    }

    async fn or_away(&self, tried: Result<(), ClientError>) -> Result<(), ClientError> {
        match tried {
            Ok(()) => Ok(()),
            Err(error) => Err(self.client.name_away(error).await),
        }
    }

    async fn open(&mut self) -> Result<(), (u32, link::LinkError)> {
        let node = self.client.home(self.client.job_partition(self.job)).0;
        let failed = |lost| (node, lost);
        let link = self.client.link(node).await.map_err(failed)?;
        let id = self.client.next_id();
        let query = wire::JobQuery { job: self.job.0, ..Default::default() };
        let query = request::Body::WatchJob(query);
        let responses = link.watch(id, link::encode(id, query)).await.map_err(failed)?;
        self.watch = Some(Watch { node, answered: None, responses });
        Ok(())
    }
}

impl Watch {
    /// The next response; the first one must come until this time.
    async fn next(&mut self, deadline: Instant) -> Result<wire::Response, link::LinkError> {
        let lost = |text: &str| link::LinkError(text.to_owned());
        let next = self.responses.recv();
        let next = match self.answered {
            Some(_) => next.await,
            None => {
                let first = tokio::time::timeout_at(deadline, next).await;
                first.map_err(|_| lost("it does not answer"))?
            }
        };
        next.unwrap_or_else(|| Err(lost("connection closed")))
    }
}
