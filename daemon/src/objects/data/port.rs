//! The data port: accepts connections, within the limits on their number.

use std::sync::Arc;
use std::time::Duration;

use proto::limits;
use tokio::net::{TcpListener, TcpStream};

use super::stream;
use crate::rpc::listener::ACCEPT_RETRY_AFTER;
use crate::rpc::service::Shared;
use crate::rpc::unauthenticated::UnauthenticatedConnections;

/// Accepts connections until the node stops. An unauthenticated connection costs a few buffers and
/// limited time, and their number is limited. Only nodes get a thread.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let strangers = UnauthenticatedConnections::default();
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(come) => come,
            Err(error) => {
                shared.log.refusal(&format!("cannot take a data connection: {error}"));
                tokio::time::sleep(ACCEPT_RETRY_AFTER).await;
                continue;
            }
        };
        if strangers.room().await {
            shared
                .log
                .refusal("closed an unauthenticated data connection: connection limit reached");
        }
        let shared = Arc::clone(&shared);
        strangers.greet(|stranger| async move {
            if let Err(reason) = greet(&shared, stream).await {
                shared.log.refusal(&format!("refused a data connection from {from}: {reason}"));
            }
            drop(stranger);
        });
    }
}

async fn greet(shared: &Arc<Shared>, socket: TcpStream) -> Result<(), String> {
    let timeout_for = Duration::from_nanos(limits::GREETING_TIMEOUT.0);
    let accepted = stream::accept(shared, socket);
    let (node, wire, place) = tokio::time::timeout(timeout_for, accepted)
        .await
        .map_err(|_| "no greeting in time".to_owned())??;
    let theirs = Arc::clone(shared);
    std::thread::Builder::new()
        .name(format!("{}-give", shared.identity.node))
        .spawn(move || {
            super::serve::give_out(&theirs, node, wire);
            drop(place);
        })
        .map_err(|error| format!("no thread: {error}"))?;
    Ok(())
}
