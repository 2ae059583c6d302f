//! The port for calls: accepts connections, within the limits on their number.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use security::Role;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::rpc::service::Shared;
use crate::rpc::tls_context::{Caller, Stream};
use crate::rpc::unauthenticated::UnauthenticatedConnections;

/// The pause after a failed accept, for example because too many files are open.
pub(crate) const ACCEPT_RETRY_AFTER: Duration = Duration::from_millis(100);
/// The maximum of accepted connections that the server has not taken yet.
const LET_IN_MAX: usize = 16;

/// An accepted and authenticated connection.
pub(crate) struct Connection {
    stream: Stream,
    caller: Caller,
    /// The permits of the connection: one of all served connections, and one of those by callers
    /// that are no nodes.
    _places: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

/// Accepts connections until the server stops. A connection above the limit waits in the kernel's
/// queue at no cost here. It is accepted in its turn, because unauthenticated connections are
/// closed to make room for it.
pub(crate) fn listen(
    shared: Arc<Shared>,
    listener: TcpListener,
) -> ReceiverStream<std::io::Result<Connection>> {
    let (let_in, connections) = mpsc::channel(LET_IN_MAX);
    tokio::spawn(async move {
        let connection_limits = Arc::new(Semaphore::new(shared.connection_limits.connections));
        let client_connections =
            Arc::new(Semaphore::new(shared.connection_limits.client_connections));
        let strangers = UnauthenticatedConnections::default();
        loop {
            let place = Arc::clone(&connection_limits).acquire_owned().await;
            let place = place.expect("this semaphore is never closed");
            let come = tokio::select! {
                come = listener.accept() => come,
                () = let_in.closed() => return,
            };
            let (stream, from) = match come {
                Ok(come) => come,
                Err(error) => {
                    shared.log.refusal(&format!("cannot take a connection: {error}"));
                    tokio::time::sleep(ACCEPT_RETRY_AFTER).await;
                    continue;
                }
            };
            if strangers.room().await {
                shared
                    .log
                    .refusal("closed an unauthenticated connection: connection limit reached");
            }
            let (shared, let_in) = (Arc::clone(&shared), let_in.clone());
            let client_connections = Arc::clone(&client_connections);
            strangers.greet(|stranger| async move {
                let known = shared.tls.accept_caller(stream, from).await;
                drop(stranger);
                match known.and_then(|known| client_permit(known, client_connections)) {
                    Ok(Some((stream, caller, client_permit))) => {
                        let connection =
                            Connection { stream, caller, _places: (place, client_permit) };
                        // Fails only if the server has stopped.
                        let _ = let_in.send(Ok(connection)).await;
                    }
                    Ok(None) => shared.log.line(&format!("gave the keys to {from}")),
                    Err(reason) => {
                        shared.log.refusal(&format!("refused a connection from {from}: {reason}"));
                    }
                }
            });
        }
    });
    ReceiverStream::new(connections)
}

type ClientPermit = Option<OwnedSemaphorePermit>;

/// Takes a permit of the callers that are no nodes, if the caller is one of them.
fn client_permit(
    known: Option<(Stream, Caller)>,
    client_connections: Arc<Semaphore>,
) -> Result<Option<(Stream, Caller, ClientPermit)>, String> {
    let Some((stream, caller)) = known else { return Ok(None) };
    let client_permit = match caller.role {
        Role::Node => None,
        role => match client_connections.try_acquire_owned() {
            Ok(client_permit) => Some(client_permit),
            Err(_) => return Err(format!("connection limit reached for a {role}")),
        },
    };
    Ok(Some((stream, caller, client_permit)))
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
