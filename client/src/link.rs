//! One session with one node: many requests at once over a single stream.
//!
//! A request is encoded once, as a `Requests` frame that holds it alone. Protobuf lists join by
//! concatenation, so a frame of many requests is their bytes one after another, and a request that
//! must be repeated is the same bytes again.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use prost::Message;
use proto::{NodeId, limits, wire};
use security::Dialer;
pub(crate) use security::dial::explain;
use security::dial::{TO_NODE, describe};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};

use crate::error::DISTRUST;

/// Requests that wait to be framed, per link.
const OUTGOING_MAX: usize = 1024;
/// A frame is closed when it has this many bytes (a single request may be larger).
const FRAME_BYTES: usize = limits::CHUNK_BYTES_MAX;
const WINDOW_BYTES: u32 = 4 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// From the first packet to a session that answers.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// A node that says nothing at all is given up after two of these, though its machine is there.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The link broke, or never came to be; the text says why.
#[derive(Clone, Debug)]
pub(crate) struct LinkError(pub(crate) String);

impl LinkError {
    pub(crate) fn is_hopeless(&self) -> bool {
        self.0.contains(DISTRUST)
    }
}

/// Where the responses to one request go.
#[derive(Debug)]
enum Reply {
    One(oneshot::Sender<Result<wire::Response, LinkError>>),
    Many(mpsc::UnboundedSender<Result<wire::Response, LinkError>>),
}

#[derive(Debug, Default)]
struct Waiting {
    replies: HashMap<u64, Reply>,
    lost: Option<LinkError>,
}

#[derive(Clone, Debug)]
pub(crate) struct Link {
    outgoing: mpsc::Sender<Bytes>,
    waiting: Arc<Mutex<Waiting>>,
    pub(crate) channel: Channel,
    to: Option<NodeId>,
}

/// Encodes one request as a frame of its own.
pub(crate) fn encode(id: u64, body: wire::request::Body) -> Bytes {
    encode_and_keep(wire::Request { id, body: Some(body) }).0
}

/// The same of a request that is still wanted.
pub(crate) fn encode_and_keep(request: wire::Request) -> (Bytes, wire::Request) {
    let mut frame = wire::Requests { requests: vec![request] };
    let bytes = frame.encode_to_vec().into();
    (bytes, frame.requests.remove(0))
}

/// A call with what every call carries. Another node than the one that is meant refuses it.
pub(crate) fn call<T>(to: Option<NodeId>, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let version = MetadataValue::from(limits::CALL_VERSION);
    request.metadata_mut().insert("starling-version", version);
    if let Some(node) = to {
        request.metadata_mut().insert(TO_NODE, MetadataValue::from(node.0));
    }
    request
}

impl Link {
    /// Opens a session with a node, or with the one that answers at an address. Ends by itself when
    /// the last clone is dropped or the node goes away.
    pub(crate) async fn open(
        to: Option<NodeId>,
        address: &str,
        dialer: &Dialer,
    ) -> Result<Self, LinkError> {
        Self::open_within(OPEN_TIMEOUT, to, address, dialer).await
    }

    async fn open_within(
        limit: Duration,
        to: Option<NodeId>,
        address: &str,
        dialer: &Dialer,
    ) -> Result<Self, LinkError> {
        // Something that takes connections and then says nothing is not there either.
        let opened = tokio::time::timeout(limit, Self::begin(to, address, dialer)).await;
        opened.unwrap_or_else(|_| Err(LinkError("it does not answer".to_owned())))
    }

    async fn begin(to: Option<NodeId>, address: &str, dialer: &Dialer) -> Result<Self, LinkError> {
        let settings = |endpoint: Endpoint| {
            endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .initial_stream_window_size(WINDOW_BYTES)
                .initial_connection_window_size(WINDOW_BYTES)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE)
        };
        Self::begin_over(to, dialer.connect(address, settings).await.map_err(LinkError)?).await
    }

    /// Another session over the same connection: what is asked there ends with it.
    pub(crate) async fn another(&self) -> Result<Self, LinkError> {
        let opened = Self::begin_over(self.to, self.channel.clone());
        let opened = tokio::time::timeout(OPEN_TIMEOUT, opened);
        opened.await.unwrap_or_else(|_| Err(LinkError("it does not answer".to_owned())))
    }

    async fn begin_over(to: Option<NodeId>, channel: Channel) -> Result<Self, LinkError> {
        let (outgoing, frames) = mpsc::channel(OUTGOING_MAX);
        let frames = Frames { incoming: frames, batch: Vec::new(), queue: VecDeque::new() };
        let mut grpc = tonic::client::Grpc::new(channel.clone())
            .max_decoding_message_size(limits::FRAME_BYTES_MAX);
        grpc.ready().await.map_err(|error| LinkError(describe(&error)))?;
        let path = PathAndQuery::from_static("/starling.v1.Peer/Session");
        let answer = grpc.streaming(call(to, frames), path, SessionCodec).await;
        let responses = answer.map_err(|status| LinkError(explain(&status)))?.into_inner();
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        tokio::spawn(read(responses, Arc::clone(&waiting)));
        Ok(Self { outgoing, waiting, channel, to })
    }

    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.waiting).lost.is_some()
    }

    /// Sends a request; its one response comes through the receiver.
    pub(crate) async fn send(
        &self,
        id: u64,
        bytes: Bytes,
    ) -> Result<oneshot::Receiver<Result<wire::Response, LinkError>>, LinkError> {
        let (reply, receiver) = oneshot::channel();
        self.post(id, bytes, Reply::One(reply)).await?;
        Ok(receiver)
    }

    /// Sends a request that is answered any number of times.
    pub(crate) async fn watch(
        &self,
        id: u64,
        bytes: Bytes,
    ) -> Result<mpsc::UnboundedReceiver<Result<wire::Response, LinkError>>, LinkError> {
        let (reply, receiver) = mpsc::unbounded_channel();
        self.post(id, bytes, Reply::Many(reply)).await?;
        Ok(receiver)
    }

    async fn post(&self, id: u64, bytes: Bytes, reply: Reply) -> Result<(), LinkError> {
        {
            let mut waiting = lock(&self.waiting);
            if let Some(lost) = &waiting.lost {
                return Err(lost.clone());
            }
            waiting.replies.insert(id, reply);
        }
        let sent = self.outgoing.send(bytes).await;
        sent.map_err(|_| {
            let mut waiting = lock(&self.waiting);
            waiting.replies.remove(&id);
            waiting.lost.get_or_insert_with(|| LinkError("connection closed".to_owned())).clone()
        })
    }
}

fn lock(waiting: &Mutex<Waiting>) -> std::sync::MutexGuard<'_, Waiting> {
    // Every critical section leaves the table whole, so a panic elsewhere does not spoil it.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands responses to whoever asked, until the stream ends; then tells all that still wait.
async fn read(mut responses: tonic::Streaming<wire::Responses>, waiting: Arc<Mutex<Waiting>>) {
    let lost = loop {
        match responses.message().await {
            Ok(Some(frame)) => {
                let mut waiting = lock(&waiting);
                for response in frame.responses {
                    waiting.deliver(response);
                }
            }
            Ok(None) => break LinkError("the node ended the session".to_owned()),
            Err(status) => break LinkError(explain(&status)),
        }
    };
    let mut waiting = lock(&waiting);
    waiting.lost = Some(lost.clone());
    for (_, reply) in waiting.replies.drain() {
        match reply {
            // A caller that went away has no use for the news.
            Reply::One(reply) => drop(reply.send(Err(lost.clone()))),
            Reply::Many(reply) => drop(reply.send(Err(lost.clone()))),
        }
    }
}

impl Waiting {
    fn deliver(&mut self, response: wire::Response) {
        let id = response.id;
        let more = response.more;
        match self.replies.remove(&id) {
            Some(Reply::One(reply)) => drop(reply.send(Ok(response))),
            Some(Reply::Many(reply)) => {
                let is_wanted = reply.send(Ok(response)).is_ok();
                if is_wanted && more {
                    self.replies.insert(id, Reply::Many(reply));
                }
            }
            // The answer to a request that was given up.
            None => {}
        }
    }
}

/// Joins whatever is waiting into frames.
struct Frames {
    incoming: mpsc::Receiver<Bytes>,
    batch: Vec<Bytes>,
    queue: VecDeque<Bytes>,
}

impl Stream for Frames {
    type Item = Vec<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Vec<Bytes>>> {
        let this = &mut *self;
        if this.queue.is_empty() {
            let got = ready!(this.incoming.poll_recv_many(context, &mut this.batch, OUTGOING_MAX));
            if got == 0 {
                return Poll::Ready(None);
            }
            this.queue.extend(this.batch.drain(..));
        }
        let mut frame = Vec::new();
        let mut size_bytes = 0;
        while let Some(next) = this.queue.front() {
            if size_bytes > 0 && size_bytes + next.len() > FRAME_BYTES {
                break;
            }
            size_bytes += next.len();
            frame.extend(this.queue.pop_front());
        }
        Poll::Ready(Some(frame))
    }
}

/// Requests go out as bytes that are already encoded; responses are decoded as usual.
struct SessionCodec;

impl Codec for SessionCodec {
    type Encode = Vec<Bytes>;
    type Decode = wire::Responses;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for SessionCodec {
    type Item = Vec<Bytes>;
    type Error = tonic::Status;
    fn encode(&mut self, parts: Vec<Bytes>, to: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        to.reserve(parts.iter().map(Bytes::len).sum());
        for part in parts {
            to.put(part);
        }
        Ok(())
    }
}

impl Decoder for SessionCodec {
    type Item = wire::Responses;
    type Error = tonic::Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, tonic::Status> {
        wire::Responses::decode(from)
            .map(Some)
            .map_err(|error| tonic::Status::internal(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_join_into_frames_of_bounded_size() {
        use tokio_stream::StreamExt;
        let (sender, incoming) = mpsc::channel(8);
        let mut frames = Frames { incoming, batch: Vec::new(), queue: VecDeque::new() };
        let query = || wire::request::Body::Map(wire::MapQuery {});
        sender.send(encode(1, query())).await.unwrap();
        sender.send(encode(2, query())).await.unwrap();
        sender.send(Bytes::from(vec![0; FRAME_BYTES])).await.unwrap();
        sender.send(encode(3, query())).await.unwrap();
        drop(sender);

        let first = frames.next().await.unwrap().concat();
        let decoded = wire::Requests::decode(&first[..]).unwrap();
        let ids: Vec<u64> = decoded.requests.iter().map(|request| request.id).collect();
        assert_eq!(ids, [1, 2]);
        assert_eq!(frames.next().await.unwrap().len(), 1, "a large request travels alone");
        assert_eq!(frames.next().await.unwrap().len(), 1);
        assert!(frames.next().await.is_none());
    }

    #[tokio::test]
    async fn a_refused_connection_has_a_plain_message() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let lost = Link::open(None, &address, &Dialer::insecure()).await.unwrap_err();
        assert_eq!(lost.0, "connection refused");
    }

    #[tokio::test]
    async fn a_silent_listener_times_out() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (limit, dialer) = (Duration::from_millis(20), Dialer::insecure());
        let lost = Link::open_within(limit, None, &address, &dialer).await.unwrap_err();
        assert_eq!(lost.0, "it does not answer");
    }
}
