//! The answers to one request that watches something, from one node.

use bytes::Bytes;
use proto::wire;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::link::{Link, LinkError};
use crate::retry::Retry;

/// Answers to a watch. The node answers at once, and again on each change.
#[derive(Debug)]
pub(crate) struct WatchStream {
    pub(crate) node: u32,
    /// When the first answer came.
    answered: Option<Instant>,
    responses: UnboundedReceiver<Result<wire::Response, LinkError>>,
}

impl WatchStream {
    pub(crate) async fn open(
        node: u32,
        link: &Link,
        id: u64,
        request: Bytes,
    ) -> Result<Self, LinkError> {
        Ok(Self { node, answered: None, responses: link.watch(id, request).await? })
    }

    /// The next response. The first one must come within the time of the retries.
    pub(crate) async fn next(&mut self, retry: &Retry) -> Result<wire::Response, LinkError> {
        let lost = |text: &str| LinkError(text.to_owned());
        let next = self.responses.recv();
        let next = match self.answered {
            Some(_) => next.await,
            None => {
                let first = tokio::time::timeout_at(retry.deadline, next).await;
                first.map_err(|_| lost("it does not answer"))?
            }
        };
        next.unwrap_or_else(|| Err(lost("connection closed")))
    }

    /// The node has answered the watch.
    pub(crate) fn note_answer(&mut self) {
        self.answered.get_or_insert_with(Instant::now);
    }

    /// The stream has ended. If its node answered for some time, the next stream gets the full time
    /// of retries.
    pub(crate) fn rearm(&self, retry: &mut Retry) {
        if let Some(since) = self.answered {
            retry.rearm(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn only_the_first_answer_must_come_in_time() {
        let (sender, responses) = tokio::sync::mpsc::unbounded_channel();
        let mut stream = WatchStream { node: 3, answered: None, responses };
        let retry = Retry::new(Duration::from_millis(20));
        assert_eq!(stream.next(&retry).await.unwrap_err().0, "it does not answer");
        stream.note_answer();
        let later = async {
            tokio::time::sleep(Duration::from_millis(40)).await;
            sender.send(Ok(wire::Response { id: 7, ..Default::default() })).unwrap();
        };
        let (next, ()) = tokio::join!(stream.next(&retry), later);
        assert_eq!(next.unwrap().id, 7);
        drop(sender);
        assert_eq!(stream.next(&retry).await.unwrap_err().0, "connection closed");
    }
}
