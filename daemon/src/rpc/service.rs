//! The service `Peer`: the calls of other nodes and of clients.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use executor::Executor;
use proto::{ClientId, limits, wire};
use security::Role;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};
use tower_layer::{Identity, Stack};

use crate::door::Door;
use crate::event_loop::background::in_background;
use crate::event_loop::inbox::Incoming;
use crate::events::{EventChunks, Filter, Reader};
use crate::log::NodeLog;
use crate::objects::data::{DataConnectionPool, Registry, SmallObjectChannel};
use crate::rpc::ConnectionLimits;
use crate::rpc::addresses::AddressBook;
use crate::rpc::authorization::{AuthorizationLayer, least_role_of_request};
use crate::rpc::kv_server::KvServer;
use crate::rpc::kv_service::KvService;
use crate::rpc::links;
use crate::rpc::peer_server::{Peer, PeerServer};
use crate::rpc::peers;
use crate::rpc::replies::{ReplyStream, reply_queue};
use crate::rpc::rsh::Parts;
use crate::rpc::tls_context::{Caller, TlsContext};

/// The timeout for sending a stop request to each other node.
const TELL_TIMEOUT: Duration = Duration::from_secs(2);

/// The state that all streams of a node share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) identity: peers::Identity,
    pub(crate) others: peers::PeerTable,
    pub(crate) tls: Arc<TlsContext>,
    pub(crate) addresses: Arc<AddressBook>,
    pub(crate) inbox: mpsc::Sender<Incoming>,
    pub(crate) executor: Arc<Executor>,
    pub(crate) door: Arc<Door>,
    /// The parts of gangs on this node.
    pub(crate) parts: Parts,
    pub(crate) log: NodeLog,
    pub(crate) events_dir: std::path::PathBuf,
    /// The objects that are being fetched.
    pub(crate) lines: DataConnectionPool,
    pub(crate) small_objects: SmallObjectChannel,
    /// Limits the concurrent uploads of files.
    pub(crate) uploading: Semaphore,
    /// Limits the concurrent searches for such files.
    pub(crate) hunting: Semaphore,
    /// The limits on connections.
    pub(crate) connection_limits: ConnectionLimits,
    /// The data connections that send objects, and the permits for them.
    pub(crate) given: Registry,
    pub(crate) data_permits: Arc<Semaphore>,
    /// Numbers clients and links.
    pub(crate) next_number: AtomicU64,
    pub(crate) stop: watch::Sender<bool>,
    /// The number of replicas of each partition, by the newest map.
    pub(crate) copies: AtomicU32,
    /// The stop of the whole cluster was sent to the others.
    pub(crate) told: AtomicBool,
}

/// The services of a node, behind the rules.
pub(crate) type Router = tonic::transport::server::Router<Stack<AuthorizationLayer, Identity>>;

pub(crate) fn routes(shared: Arc<Shared>) -> Router {
    let (log, rules) = (Arc::clone(&shared), AuthorizationLayer(Arc::clone(&shared)));
    let service = PeerServer::new(PeerService { shared: Arc::clone(&shared) })
        .max_decoding_message_size(limits::FRAME_BYTES_MAX)
        .max_encoding_message_size(limits::FRAME_BYTES_MAX);
    let guarded = tonic::service::interceptor::InterceptedService::new(
        service,
        move |request: Request<()>| check(&log, request),
    );
    let kv = KvServer::new(KvService::new(Arc::clone(&shared)))
        .max_decoding_message_size(limits::FRAME_BYTES_MAX)
        .max_encoding_message_size(limits::FRAME_BYTES_MAX);
    let describe = || {
        let builder = tonic_reflection::server::Builder::configure();
        builder.register_encoded_file_descriptor_set(crate::DESCRIPTORS)
    };
    let sound = "the build has made the descriptors";
    peers::server()
        .layer(rules)
        .add_service(guarded)
        .add_service(kv)
        .add_service(describe().build_v1().expect(sound))
        .add_service(describe().build_v1alpha().expect(sound))
}

fn check(shared: &Shared, request: Request<()>) -> Result<Request<()>, Status> {
    let checked = peers::check_version(request.metadata())
        .and_then(|()| peers::check_target(request.metadata(), shared.identity.node));
    checked.inspect_err(|status| {
        let caller = request.extensions().get::<Caller>();
        let from = caller.map_or_else(String::new, |caller| caller.address.to_string());
        shared.log.refusal(&format!("refused a call from {from}: {}", status.message()));
    })?;
    Ok(request)
}

/// The reason why a request is refused before it reaches the core.
fn refusal(role: Role, body: Option<&wire::request::Body>) -> Option<String> {
    if role < least_role_of_request(body) {
        return Some(format!("the role {role} may not do this"));
    }
    // A node of another version could not work in this cluster.
    let Some(wire::request::Body::Propose(command)) = body else { return None };
    let Some(wire::map_command::Body::Join(join)) = &command.body else { return None };
    peers::check_peer_version(join.speaks.max(1)).err()
}

type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>>;

#[derive(Debug)]
struct PeerService {
    shared: Arc<Shared>,
}

#[tonic::async_trait]
impl Peer for PeerService {
    type LinkStream = BoxStream<wire::LinkFrame>;
    type SessionStream = ReplyStream;
    type FetchStream = BoxStream<wire::Piece>;
    type EventsStream = BoxStream<wire::Piece>;
    type StreamsStream = BoxStream<wire::TaskStream>;
    type RshStream = BoxStream<wire::RshOutput>;

    async fn link(
        &self,
        request: Request<Streaming<wire::LinkFrame>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let mut incoming = request.into_inner();
        let limit = Duration::from_nanos(limits::GREETING_TIMEOUT.0);
        let first = tokio::time::timeout(limit, incoming.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no greeting in time"))??;
        let hello = self.shared.identity.check(first).map_err(|reason| {
            self.shared.log.refusal(&format!("refused a link: {reason}"));
            Status::failed_precondition(reason)
        })?;
        let packets = links::accept(&self.shared, hello, incoming)?;
        let frames = links::frames(self.shared.identity.hello(false), packets);
        Ok(Response::new(Box::pin(frames.map(Ok))))
    }

    async fn session(
        &self,
        request: Request<Streaming<wire::Requests>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let client = ClientId(self.shared.next_number.fetch_add(1, Ordering::Relaxed));
        let (replies, stream) = reply_queue();
        let role =
            request.extensions().get::<Caller>().map_or(Role::Observer, |caller| caller.role);
        let refusals = replies.for_refusals();
        let inbox = self.shared.inbox.clone();
        inbox.send(Incoming::ClientUp { client, replies }).await.map_err(|_| stopping())?;
        let mut incoming = request.into_inner();
        tokio::spawn(async move {
            // An error (the client is gone, or a frame is damaged or too long) ends this stream
            // only.
            while let Ok(Some(wire::Requests { mut requests })) = incoming.message().await {
                requests.retain(|request| {
                    let refused = refusal(role, request.body.as_ref());
                    refused.iter().for_each(|reason| refusals.refuse(request.id, reason));
                    refused.is_none()
                });
                if inbox.send(Incoming::Requests { client, requests }).await.is_err() {
                    return;
                }
            }
            let _ = inbox.send(Incoming::ClientDown { client }).await;
        });
        Ok(Response::new(stream))
    }

    async fn fetch(
        &self,
        request: Request<wire::ObjectRequest>,
    ) -> Result<Response<Self::FetchStream>, Status> {
        let object = crate::objects::data::object_of(request.get_ref());
        let role =
            request.extensions().get::<Caller>().map_or(Role::Observer, |caller| caller.role);
        if crate::objects::transfer::is_file(object) && role < Role::Node {
            return Err(Status::permission_denied("files of submitters are for nodes alone"));
        }
        let pieces = crate::objects::transfer::read(&self.shared.executor, object)?;
        Ok(Response::new(Box::pin(ReceiverStream::new(pieces))))
    }

    async fn put(
        &self,
        request: Request<Streaming<wire::UploadPart>>,
    ) -> Result<Response<wire::UploadReply>, Status> {
        crate::objects::upload::take(&self.shared, request.into_inner()).await?;
        Ok(Response::new(wire::UploadReply {}))
    }

    async fn bring(
        &self,
        request: Request<wire::BringRequest>,
    ) -> Result<Response<wire::BringReply>, Status> {
        crate::objects::transfer::bring(&self.shared, request.get_ref()).await.map(Response::new)
    }

    async fn events(
        &self,
        request: Request<wire::EventsRequest>,
    ) -> Result<Response<Self::EventsStream>, Status> {
        let (flushed, wait) = oneshot::channel();
        let flush = Incoming::FlushEvents(flushed);
        self.shared.inbox.send(flush).await.map_err(|_| stopping())?;
        wait.await.map_err(|_| stopping())?;
        let reader = Reader::open(&self.shared.events_dir, Filter::of(request.get_ref()))?;
        let pieces = in_background(EventChunks(reader).map(|piece| {
            let data = bytes::Bytes::from(piece?);
            Ok(wire::Piece { data, total_bytes: 0, executable: false })
        }));
        Ok(Response::new(Box::pin(ReceiverStream::new(pieces))))
    }

    async fn streams(
        &self,
        request: Request<wire::StreamsRequest>,
    ) -> Result<Response<Self::StreamsStream>, Status> {
        let records = crate::objects::transfer::streams(&self.shared.executor, request.get_ref());
        Ok(Response::new(Box::pin(ReceiverStream::new(in_background(records)))))
    }

    async fn keep(
        &self,
        request: Request<wire::PackPart>,
    ) -> Result<Response<wire::PackKept>, Status> {
        let kept = crate::objects::captured::keep(&self.shared, request.into_inner()).await?;
        Ok(Response::new(kept))
    }

    async fn rsh(
        &self,
        request: Request<Streaming<wire::RshInput>>,
    ) -> Result<Response<Self::RshStream>, Status> {
        let outputs = crate::rpc::rsh::serve(&self.shared, request.into_inner()).await?;
        let outputs = ReceiverStream::new(outputs);
        Ok(Response::new(Box::pin(outputs.map(|body| Ok(wire::RshOutput { body: Some(body) })))))
    }

    async fn stop(
        &self,
        request: Request<wire::StopRequest>,
    ) -> Result<Response<wire::StopReply>, Status> {
        self.shared.log.line("stop requested");
        let &wire::StopRequest { all, told } = request.get_ref();
        if told {
            self.shared.told.store(true, Ordering::Relaxed);
        } else if all {
            tell_all(&self.shared).await;
        }
        self.shared.stop.send_replace(true);
        Ok(Response::new(wire::StopReply {}))
    }
}

pub(crate) fn stopping() -> Status {
    Status::unavailable("the node stops")
}

/// Sends a stop request to every other node, concurrently and with a timeout. Does so once.
async fn tell_all(shared: &Arc<Shared>) {
    if shared.told.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut told = tokio::task::JoinSet::new();
    for other in shared.others.all() {
        let Some(file) = shared.addresses.read(other) else { continue };
        let shared = Arc::clone(shared);
        told.spawn(tokio::time::timeout(TELL_TIMEOUT, async move {
            let stopped = match peers::connect(Some(other), &file.address, &shared.tls.dialer())
                .await
            {
                Ok(mut client) => {
                    let request = wire::StopRequest { all: false, told: true };
                    client.stop(request).await.map(|_| ()).map_err(|e| security::dial::explain(&e))
                }
                Err(reason) => Err(reason),
            };
            if let Err(reason) = stopped {
                shared
                    .log
                    .line(&format!("node {} did not get the request to stop: {reason}", other.0));
            }
        }));
    }
    while told.join_next().await.is_some() {}
}
