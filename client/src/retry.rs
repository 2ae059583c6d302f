//! The target of a request, and the time for its repetition.

use std::time::Duration;

use proto::{PartitionId, wire};
use tokio::time::Instant;

use crate::ClientError;
use crate::link::LinkError;
use crate::map::home_of;

pub(crate) const BACKOFF_START: Duration = Duration::from_millis(20);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Homes move on their own, so a request that waits for one retries at this interval.
const HOME_BACKOFF_MAX: Duration = Duration::from_millis(100);

/// The target of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Node(u32),
    /// The home of the partition at the time of the try.
    Home(PartitionId),
}

impl Target {
    pub(crate) fn node(self, map: &wire::ClusterMap) -> u32 {
        match self {
            Self::Node(node) => node,
            Self::Home(partition) => home_of(map, partition),
        }
    }
}

/// The retry state of one request.
pub(crate) struct Retry {
    pub(crate) deadline: Instant,
    backoff: Duration,
    request_timeout: Duration,
}

impl Retry {
    pub(crate) fn new(request_timeout: Duration) -> Self {
        Self { deadline: Instant::now() + request_timeout, backoff: BACKOFF_START, request_timeout }
    }

    /// After a connection that lasted, the next one gets the full patience.
    pub(crate) fn rearm(&mut self, since: Instant) {
        if since.elapsed() > BACKOFF_MAX {
            *self = Self::new(self.request_timeout);
        }
    }

    /// Waits before the next try, or fails if there is none.
    pub(crate) async fn pause(
        &mut self,
        to: Target,
        node: u32,
        lost: &LinkError,
    ) -> Result<(), ClientError> {
        if Instant::now() + self.backoff > self.deadline || lost.is_hopeless() {
            let waited = self.request_timeout.as_secs_f64();
            let text = match waited >= 1.0 {
                true => format!("node n{node}: {} (tried for {waited:.0} s)", lost.0),
                false => format!("node n{node}: {}", lost.0),
            };
            return Err(ClientError::ClusterUnreachable(text));
        }
        tokio::time::sleep(self.backoff).await;
        let most = match to {
            Target::Node(_) => BACKOFF_MAX,
            Target::Home(_) => HOME_BACKOFF_MAX,
        };
        self.backoff = (self.backoff * 2).min(most);
        Ok(())
    }

    pub(crate) async fn wait_busy(
        &mut self,
        node: u32,
        after: Duration,
        text: String,
    ) -> Result<(), ClientError> {
        if Instant::now() + after > self.deadline {
            return Err(ClientError::Busy { node, text });
        }
        tokio::time::sleep(after).await;
        Ok(())
    }
}
