/*!
The service `Kv`: the store for other programs, in any language that has gRPC.

Any node answers. It uses a client ([`client::Client`]) to ask the node that holds the key, which
may be itself. So linearizable operations of the client are linearizable here. A numbered call, an
insert and a remove are repeated after a loss. A write with an unknown result is reported as
`UNKNOWN`.
*/

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Client, ClientError, ClientOptions};
use proto::wire::{self, KvKind};
use tokio::sync::{Mutex, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request, Response, Status};

use crate::rpc::kv_server::Kv;
use crate::rpc::service::{Shared, stopping};

/// The maximum wait of a call for an unreachable node.
const PATIENCE: Duration = Duration::from_secs(10);
/// The metadata key with the ticket of a new number.
const TICKET: &str = "starling-ticket";
/// The queue of changes that a watcher has not read.
const CHANGES_AHEAD: usize = 1;

#[derive(Debug)]
pub(crate) struct KvService {
    shared: Arc<Shared>,
    /// Made with the first call, and made again after a call that reached no node: addresses may
    /// have changed.
    client: Mutex<Option<Client>>,
}

impl KvService {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, client: Mutex::new(None) }
    }

    async fn client(&self) -> Result<Client, Status> {
        let mut known = self.client.lock().await;
        if let Some(client) = &*known {
            return Ok(client.clone());
        }
        let (address, dialer) = (&self.shared.identity.address, self.shared.tls.dialer());
        let options = ClientOptions { request_timeout: PATIENCE };
        let client = Client::connect_address_with(address, dialer, options).await;
        let client = client.map_err(|error| status(&error))?;
        Ok(known.insert(client).clone())
    }

    async fn run(
        &self,
        ops: Vec<wire::KvOp>,
        number: Option<wire::KvNumber>,
    ) -> Result<Vec<wire::KvResult>, Status> {
        match self.client().await?.raw().kv_each(ops, number).await {
            Ok(results) => Ok(results),
            Err(error) => {
                if matches!(error, ClientError::ClusterUnreachable(_)) {
                    *self.client.lock().await = None;
                }
                Err(status(&error))
            }
        }
    }

    async fn one(
        &self,
        op: wire::KvOp,
        number: Option<wire::KvNumber>,
    ) -> Result<Response<wire::KvResult>, Status> {
        let mut results = self.run(vec![op], number).await?;
        results.pop().map(Response::new).ok_or_else(|| Status::internal("no result"))
    }
}

fn operation(kind: KvKind, key: Bytes, value: Bytes) -> wire::KvOp {
    wire::KvOp { kind: kind.into(), key, value, ..Default::default() }
}

/// The gRPC status of an error.
fn status(error: &ClientError) -> Status {
    let text = error.to_string();
    match error {
        ClientError::Refused(_) => Status::invalid_argument(text),
        ClientError::Busy { .. } => Status::resource_exhausted(text),
        ClientError::Uncertain { .. } | ClientError::AnswerUnkept(_) => Status::unknown(text),
        ClientError::Forgotten { ticket, .. } => {
            let mut metadata = MetadataMap::new();
            metadata.insert(TICKET, MetadataValue::from(*ticket));
            Status::with_metadata(Code::Unknown, text, metadata)
        }
        ClientError::ClusterUnreachable(_) => Status::unavailable(text),
        _ => Status::internal(text),
    }
}

/// Converts a change of a watched key.
fn result((value, version): (Option<client::Value>, u64)) -> wire::KvResult {
    match value {
        Some(value) => wire::KvResult { value: value.bytes, version, ..Default::default() },
        None => {
            let status = wire::KvStatus::Absent.into();
            wire::KvResult { status, version, ..Default::default() }
        }
    }
}

#[tonic::async_trait]
impl Kv for KvService {
    type WatchStream = ReceiverStream<Result<wire::KvResult, Status>>;

    async fn insert(
        &self,
        request: Request<wire::KvPair>,
    ) -> Result<Response<wire::KvResult>, Status> {
        let wire::KvPair { key, value, number } = request.into_inner();
        self.one(operation(KvKind::Insert, key, value), number).await
    }

    async fn lookup(
        &self,
        request: Request<wire::KvKey>,
    ) -> Result<Response<wire::KvResult>, Status> {
        let wire::KvKey { key, .. } = request.into_inner();
        self.one(operation(KvKind::Lookup, key, Bytes::new()), None).await
    }

    async fn remove(
        &self,
        request: Request<wire::KvKey>,
    ) -> Result<Response<wire::KvResult>, Status> {
        let wire::KvKey { key, number } = request.into_inner();
        self.one(operation(KvKind::Remove, key, Bytes::new()), number).await
    }

    async fn append(
        &self,
        request: Request<wire::KvPair>,
    ) -> Result<Response<wire::KvResult>, Status> {
        let wire::KvPair { key, value, number } = request.into_inner();
        self.one(operation(KvKind::Append, key, value), number).await
    }

    async fn cas(
        &self,
        request: Request<wire::KvSwap>,
    ) -> Result<Response<wire::KvResult>, Status> {
        let wire::KvSwap { key, value, expected, expect_absent, number } = request.into_inner();
        let op = operation(KvKind::Cas, key, value);
        self.one(wire::KvOp { expected, expect_absent, ..op }, number).await
    }

    async fn batch(
        &self,
        request: Request<wire::KvOps>,
    ) -> Result<Response<wire::KvResults>, Status> {
        let wire::KvOps { ops, number } = request.into_inner();
        let results = self.run(ops, number).await?;
        Ok(Response::new(wire::KvResults { results }))
    }

    async fn watch(
        &self,
        request: Request<wire::KvFollow>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let wire::KvFollow { key, after_version } = request.into_inner();
        if key.is_empty() || key.len() > proto::limits::KEY_BYTES_MAX {
            return Err(Status::invalid_argument("a key has 1 to 65536 bytes"));
        }
        let mut follow = self.client().await?.kv().watch(&key, after_version);
        // For a slow reader only the newest change is kept.
        let (newest, mut change) = watch::channel(None);
        tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    next = follow.next() => next,
                    () = newest.closed() => return,
                };
                let is_over = next.is_err();
                newest.send_replace(Some(next.map_err(|error| status(&error)).map(result)));
                if is_over {
                    return;
                }
            }
        });
        let (changes, stream) = mpsc::channel(CHANGES_AHEAD);
        let mut stop = self.shared.stop.subscribe();
        tokio::spawn(async move {
            loop {
                let told = tokio::select! {
                    changed = change.changed() => match changed {
                        Ok(()) => change.borrow_and_update().clone(),
                        Err(_) => return, // All changes were sent.
                    },
                    () = changes.closed() => return,
                    () = async { drop(stop.wait_for(|stop| *stop).await) } => Some(Err(stopping())),
                };
                let Some(told) = told else { continue };
                let is_over = told.is_err();
                if changes.send(told).await.is_err() || is_over {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}
