//! Life signs of the client of an open job, to the job's home.

use std::sync::{Arc, Weak};
use std::time::Duration;

use proto::wire::open_request::What;
use proto::{JobId, wire};

use super::{OpenJob, Shared};
use crate::{Client, ClientError};

/// A client sends this number of life signs in the time after which it counts as silent.
const SIGNS_PER_SILENCE: u32 = 6;
/// The shortest time between two life signs.
const SIGN_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// The consequence if the client of an open job dies, or cannot reach the job's home.
///
/// A client with this setting sends life signs as long as a handle to its job exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// The client is silent if no life sign has come for this time.
    pub after: Duration,
    /// What happens then.
    pub action: SilenceAction,
}

/// What the home of an open job does with the job of a silent client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SilenceAction {
    /// The job runs on and stays open, for this time at most. Then it is closed. A client that
    /// attaches ends the silence.
    CloseAfter(Duration),
    /// The job is cancelled.
    Cancel,
}

impl Silence {
    pub(crate) fn to_record(self) -> wire::Silence {
        let (cancels, close) = match self.action {
            SilenceAction::CloseAfter(close) => (false, close),
            SilenceAction::Cancel => (true, Duration::ZERO),
        };
        let (after_ns, close_ns) = (span_ns(self.after), span_ns(close));
        wire::Silence { after_ns, cancels, close_ns }
    }
}

fn span_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Client {
    /// As [`Self::join_job`], for the client of the job in the place of one that has died or has
    /// called [`OpenJob::detach`]. It sends life signs if the job asks for them.
    pub async fn attach_job(&self, job: JobId) -> Result<OpenJob, ClientError> {
        let job = self.join_job(job).await?;
        job.shared.send_signs().await?;
        Ok(job)
    }
}

impl OpenJob {
    /// [`Self::flush`], and the end of life signs: the job stays open without a client until
    /// [`Client::attach_job`] or [`Client::close_job`].
    pub async fn detach(&self) -> Result<(), ClientError> {
        self.flush().await?;
        self.shared.sign(true).await
    }
}

impl Shared {
    /// Sends a life sign, and further ones as long as the handle exists.
    pub(super) async fn send_signs(self: &Arc<Self>) -> Result<(), ClientError> {
        let Some(silence) = self.silence else { return Ok(()) };
        self.sign(false).await?;
        let interval = (silence / SIGNS_PER_SILENCE).max(SIGN_INTERVAL_MIN);
        tokio::spawn(send_signs(Arc::downgrade(self), interval));
        Ok(())
    }

    /// The home ignores a sign that comes after some client has detached from the job.
    async fn sign(&self, detaches: bool) -> Result<(), ClientError> {
        let what = What::Sign(wire::LifeSign { attachment: self.attachment, detaches });
        let at = self.client.partition_of(self.job);
        self.client.ask_open(self.job, at, what).await.map(drop)
    }
}

async fn send_signs(handle: Weak<Shared>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(shared) = handle.upgrade() else { return };
        let heard = shared.sign(false).await;
        // After other errors the next sign may reach the home.
        if let Err(ClientError::Refused(_) | ClientError::UnknownJob(_)) = heard {
            return;
        }
    }
}
