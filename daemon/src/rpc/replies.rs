//! The queue of answers to one client: bounded by bytes, sent in as few frames as possible.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use prost::Message;
use proto::{limits, wire};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

/// The size of a client's reply queue above which the node disconnects it.
const CLIENT_QUEUE_BYTES_MAX: usize = 64 << 20;
/// A frame of replies is sent when it has this many bytes.
const RESPONSES_BYTES: usize = 1 << 20;

/// The end of the run loop.
#[derive(Debug)]
pub(crate) struct ReplySender {
    queue: mpsc::UnboundedSender<SizedResponse>,
    queued_bytes: Arc<AtomicUsize>,
}

/// An answer and its encoded length, which takes time to compute.
type SizedResponse = (usize, wire::Response);

/// Another end, for requests that the run loop never sees. It does not keep the stream open.
#[derive(Debug)]
pub(crate) struct Refusals {
    queue: mpsc::WeakUnboundedSender<SizedResponse>,
    queued_bytes: Arc<AtomicUsize>,
}

impl Refusals {
    pub(crate) fn refuse(&self, id: u64, text: &str) {
        let Some(queue) = self.queue.upgrade() else { return };
        let code = wire::ErrorCode::Refused as i32;
        let error = wire::Error { code, text: text.to_owned(), ..Default::default() };
        let queued_bytes = Arc::clone(&self.queued_bytes);
        let response = wire::Response { id, error: Some(error), ..Default::default() };
        // If the queue is full, the run loop disconnects the client or sends it nothing more.
        ReplySender { queue, queued_bytes }.send(response);
    }
}

/// The end of the stream.
#[derive(Debug)]
pub(crate) struct ReplyStream {
    queue: mpsc::UnboundedReceiver<SizedResponse>,
    queued_bytes: Arc<AtomicUsize>,
}

pub(crate) fn reply_queue() -> (ReplySender, ReplyStream) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    let stream = ReplyStream { queue: receiver, queued_bytes: Arc::clone(&queued_bytes) };
    (ReplySender { queue: sender, queued_bytes }, stream)
}

impl ReplySender {
    pub(crate) fn for_refusals(&self) -> Refusals {
        let queued_bytes = Arc::clone(&self.queued_bytes);
        Refusals { queue: self.queue.downgrade(), queued_bytes }
    }

    /// False if the client is gone, or reads so slowly that it must be disconnected.
    pub(crate) fn send(&self, mut response: wire::Response) -> bool {
        let mut bytes = response.encoded_len();
        if bytes > limits::FRAME_BYTES_MAX - RESPONSES_BYTES {
            let text = format!("the answer has {bytes} bytes, a frame holds fewer: ask for less");
            let error =
                wire::Error { code: wire::ErrorCode::Refused as i32, text, ..Default::default() };
            response = wire::Response { id: response.id, error: Some(error), ..Default::default() };
            bytes = response.encoded_len();
        }
        let queued = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        queued <= CLIENT_QUEUE_BYTES_MAX && self.queue.send((bytes, response)).is_ok()
    }
}

impl Stream for ReplyStream {
    type Item = Result<wire::Responses, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut responses = Vec::new();
        let mut bytes = 0;
        while bytes < RESPONSES_BYTES {
            match self.queue.poll_recv(cx) {
                Poll::Ready(Some((of_one, response))) => {
                    bytes += of_one;
                    responses.push(response);
                }
                Poll::Ready(None) if responses.is_empty() => return Poll::Ready(None),
                Poll::Pending if responses.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Poll::Ready(Some(Ok(wire::Responses { responses })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt;

    fn answer(id: u64, bytes: usize) -> wire::Response {
        let result = wire::KvResult { value: vec![7; bytes].into(), ..Default::default() };
        let results = wire::KvResults { results: vec![result] };
        wire::Response { id, body: Some(wire::response::Body::Kv(results)), ..Default::default() }
    }

    #[tokio::test]
    async fn many_answers_share_a_frame_and_big_ones_do_not() {
        let (sender, mut stream) = reply_queue();
        for id in 0..100 {
            assert!(sender.send(answer(id, 10)));
        }
        assert!(sender.send(answer(100, RESPONSES_BYTES)));
        assert!(sender.send(answer(101, 10)));
        drop(sender);
        let first = stream.next().await.unwrap().unwrap();
        assert_eq!(first.responses.len(), 101);
        assert_eq!(stream.next().await.unwrap().unwrap().responses[0].id, 101);
        assert!(stream.next().await.is_none());
        assert_eq!(stream.queued_bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off() {
        let (sender, _stream) = reply_queue();
        let one = 1 << 20;
        let sent = (0..1000).take_while(|&id| sender.send(answer(id, one))).count();
        assert!(sent <= CLIENT_QUEUE_BYTES_MAX / one + 1, "{sent}");
    }

    #[tokio::test]
    async fn an_answer_larger_than_a_frame_becomes_an_error() {
        let (sender, mut stream) = reply_queue();
        assert!(sender.send(answer(5, limits::FRAME_BYTES_MAX)));
        let frame = stream.next().await.unwrap().unwrap();
        let error = frame.responses[0].error.as_ref().unwrap();
        assert_eq!((frame.responses[0].id, error.code()), (5, wire::ErrorCode::Refused));
    }
}
