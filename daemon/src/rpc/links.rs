/*!
Links: one stream of packets for each pair of nodes. The node with the lower id dials, the other
accepts.

A link is only a transport. The core repeats messages that are lost with a link or dropped at a full
queue, so a link keeps and counts nothing. The first frame of each side is its greeting.

A node that starts sends a probe greeting (a knock) to the lower nodes. They dial it at once instead
of at the end of their back-off. Every greeting contains the node's address, so a node with another
directory can be dialled too.
*/

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use proto::{Incarnation, NodeId, Span, limits, wire};
use security::dial::explain;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming};
use wire::link_frame::Body;

use crate::clock::duration;
use crate::event_loop::inbox::Incoming;
use crate::objects::data;
use crate::rpc::peers;
use crate::rpc::service::Shared;

/// Packets in the queue of one peer's stream. Further ones are dropped, and the link sends them
/// again.
const LINK_QUEUE_PACKETS: usize = 1024;

/// A link that breaks sooner is followed by a pause: the peer may accept and close it again.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

async fn in_time<T>(
    what: &str,
    future: impl Future<Output = Result<T, Status>>,
) -> Result<T, String> {
    match tokio::time::timeout(duration(limits::GREETING_TIMEOUT), future).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(status)) => Err(format!("{what}: {}", explain(&status))),
        Err(_) => Err(format!("{what}: no answer in time")),
    }
}

/// The outgoing frames of a link: the greeting, then those of the queue.
pub(crate) fn frames(
    hello: wire::LinkFrame,
    queue: mpsc::Receiver<wire::LinkFrame>,
) -> impl Stream<Item = wire::LinkFrame> + Send + 'static {
    tokio_stream::once(hello).chain(ReceiverStream::new(queue))
}

/// Asks the process at `address` for its greeting.
pub(crate) async fn probe(shared: &Shared, address: &str) -> Result<wire::Hello, String> {
    let mut client = peers::connect(None, address, &shared.tls.dialer()).await?;
    let outgoing = tokio_stream::once(shared.identity.hello(true));
    let response = in_time("greeting", client.link(outgoing)).await?;
    let mut incoming = response.into_inner();
    let hello = shared.identity.check(in_time("greeting", incoming.message()).await?)?;
    shared.addresses.hear_hello(&hello);
    Ok(hello)
}

/// Starts to keep the link to one higher node.
pub(crate) fn start(shared: &Arc<Shared>, peer: NodeId) {
    tokio::spawn(keep(Arc::clone(shared), peer));
}

/// Dials while this node lives and the other has not left the cluster.
async fn keep(shared: Arc<Shared>, peer: NodeId) {
    let dial_requests = shared.others.dial_requests(peer);
    let mut wait = limits::REDIAL_AFTER;
    while !shared.others.has_left(peer) {
        match dial(&shared, peer).await {
            Ok(lived) => {
                wait = limits::REDIAL_AFTER;
                if lived > SETTLED_AFTER {
                    continue; // The link was up and broke: the peer may be back already.
                }
            }
            Err(reason) => shared.log.refusal(&format!("no link to node {}: {reason}", peer.0)),
        }
        if tokio::time::timeout(duration(wait), dial_requests.notified()).await.is_err() {
            wait = Span(wait.doubled().0.min(limits::REDIAL_AFTER_MAX.0));
        }
    }
}

/// Runs one link that this node dials, and returns its duration. An error if it did not come up.
async fn dial(shared: &Arc<Shared>, peer: NodeId) -> Result<Duration, String> {
    let address = shared.addresses.read(peer).ok_or("it has not said where it listens")?;
    let mut client = peers::connect(Some(peer), &address.address, &shared.tls.dialer()).await?;
    let (queue, queued) = mpsc::channel(LINK_QUEUE_PACKETS);
    let outgoing = frames(shared.identity.hello(false), queued);
    let mut incoming = in_time("link", client.link(outgoing)).await?.into_inner();
    let hello = shared.identity.check(in_time("greeting", incoming.message()).await?)?;
    if hello.node != peer.0 {
        return Err(format!("node {} answers at its address", hello.node));
    }
    shared.addresses.hear_hello(&hello);
    let up = Instant::now();
    read(shared, &hello, queue, incoming).await;
    Ok(up.elapsed())
}

/// The accepting side, called with the first frame. The returned queue is sent on the stream.
pub(crate) fn accept(
    shared: &Arc<Shared>,
    hello: wire::Hello,
    incoming: Streaming<wire::LinkFrame>,
) -> Result<mpsc::Receiver<wire::LinkFrame>, Status> {
    shared.addresses.hear_hello(&hello);
    let (queue, packets) = mpsc::channel(LINK_QUEUE_PACKETS);
    if hello.probe {
        if hello.node > shared.identity.node.0 {
            shared.others.request_dial(NodeId(hello.node));
        }
        return Ok(packets);
    }
    if hello.node > shared.identity.node.0 {
        return Err(Status::failed_precondition("the node with the lower id dials"));
    }
    let shared = Arc::clone(shared);
    tokio::spawn(async move { read(&shared, &hello, queue, incoming).await });
    Ok(packets)
}

/// Passes a link's packets to the run loop, and its small objects to their requesters, until it
/// ends.
async fn read(
    shared: &Arc<Shared>,
    hello: &wire::Hello,
    queue: mpsc::Sender<wire::LinkFrame>,
    mut incoming: Streaming<wire::LinkFrame>,
) {
    let peer = NodeId(hello.node);
    let incarnation = Incarnation(hello.incarnation);
    let link = shared.next_number.fetch_add(1, Ordering::Relaxed);
    // The link ends when the run loop drops its queue, even if requests are open.
    let answers = queue.downgrade();
    shared.log.peer(&format!("link to node {} up, its incarnation {}", peer.0, incarnation.0));
    if shared.inbox.send(Incoming::LinkUp { peer, incarnation, link, queue }).await.is_err() {
        return; // The node stops.
    }
    let reason = loop {
        let body = match incoming.message().await {
            Ok(Some(frame)) => frame.body,
            Ok(None) => break "it closed the link".to_owned(),
            Err(status) => break status.message().to_owned(),
        };
        match body {
            Some(Body::Packet(packet)) if packet.from == peer.0 => {
                if shared.inbox.send(Incoming::Packet(Box::new(packet))).await.is_err() {
                    return;
                }
            }
            Some(Body::SmallObjectRequests(asks)) => answer(shared, asks, &answers).await,
            Some(Body::SmallObjects(gives)) => take(shared, peer, gives).await,
            _ => break "it sent a frame that does not belong on its link".to_owned(),
        }
    };
    shared.log.peer(&format!("link to node {} down: {reason}", peer.0));
    let _ = shared.inbox.send(Incoming::LinkDown { peer, link }).await;
}

/// Up to this number of small objects the run loop's own thread reads or writes them: that is
/// cheaper than a change of threads.
const INLINE_OBJECTS: usize = 4;

/// Answers a request for small objects. If the queue is full the answer is dropped, and the
/// requester uses a data connection.
async fn answer(
    shared: &Arc<Shared>,
    asks: wire::SmallObjectRequests,
    answers: &mpsc::WeakSender<wire::LinkFrame>,
) {
    let store = shared.executor.objects().clone();
    let frames = if asks.objects.len() <= INLINE_OBJECTS {
        data::give(&store, &asks)
    } else {
        let read = tokio::task::spawn_blocking(move || data::give(&store, &asks));
        let Ok(frames) = read.await else { return };
        frames
    };
    let Some(queue) = answers.upgrade() else { return };
    for gives in frames {
        let _ = queue.try_send(wire::LinkFrame { body: Some(Body::SmallObjects(gives)) });
    }
}

async fn take(shared: &Arc<Shared>, peer: NodeId, gives: wire::SmallObjects) {
    if gives.objects.len() <= INLINE_OBJECTS {
        return data::take(shared, peer, gives);
    }
    let shared = Arc::clone(shared);
    // After a panic the objects time out, and the requester fetches them over a data connection.
    let _ = tokio::task::spawn_blocking(move || data::take(&shared, peer, gives)).await;
}
