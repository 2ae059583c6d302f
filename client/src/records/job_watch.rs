//! The changing state of one job.

use std::sync::Arc;

use proto::JobId;
use proto::wire::{self, request, response};

use super::job::is_ended;
use crate::call::{Checked, MOVED, name_unknown};
use crate::retry::{Retry, Target};
use crate::watch_stream::WatchStream;
use crate::{Client, ClientError, link};

/// The changing state of one job. The watch survives restarts and moves of the job's home.
#[derive(Debug)]
pub struct JobRecords {
    client: Client,
    job: JobId,
    watch: Option<WatchStream>,
    ended: bool,
}

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
            let node = watch.node;
            let response = match watch.next(&retry).await {
                Ok(response) => response,
                Err(lost) => {
                    watch.rearm(&mut retry);
                    self.look_again(&mut retry, &map, node, &lost).await?;
                    continue;
                }
            };
            let checked = self.client.check(response);
            match checked.map_err(|e| name_unknown(e, self.job, None))? {
                Checked::Busy { after, text } => {
                    self.watch = None;
                    self.client.or_away(retry.wait_busy(node, after, text).await).await?;
                }
                Checked::Moved => {
                    watch.rearm(&mut retry);
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
                        Some(watch) if more => watch.note_answer(),
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
        self.client.or_away(retry.pause(home, node, lost).await).await?;
        self.client.refresh(map).await;
        Ok(())
    }

    async fn open(&mut self) -> Result<(), (u32, link::LinkError)> {
        let node = self.client.home(self.client.job_partition(self.job)).0;
        let failed = |lost| (node, lost);
        let link = self.client.link(node).await.map_err(failed)?;
        let id = self.client.next_id();
        let query = wire::JobQuery { job: self.job.0, ..Default::default() };
        let query = request::Body::WatchJob(query);
        let stream = WatchStream::open(node, &link, id, link::encode(id, query));
        self.watch = Some(stream.await.map_err(failed)?);
        Ok(())
    }
}
