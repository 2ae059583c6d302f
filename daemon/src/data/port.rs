//! The data port: who may come in, and how many.

use std::sync::Arc;
use std::time::Duration;

use proto::limits;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::stream;
use crate::service::Shared;

/// After an accept that failed (too many open files, say).
const BREATHE: Duration = Duration::from_millis(100);

/// Takes connections for as long as the node lives. Strangers cost a few bytes and a little time
/// each, and only so many are there at once; a thread is only for those who know the secret.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let strangers = Arc::new(Semaphore::new(limits::DATA_GREETINGS_MAX));
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(come) => come,
            Err(error) => {
                shared.log.refusal(&format!("cannot take a data connection: {error}"));
                tokio::time::sleep(BREATHE).await;
                continue;
            }
        };
        // One too many is not kept waiting: whoever means it comes again.
        let Ok(permit) = Arc::clone(&strangers).try_acquire_owned() else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            if let Err(reason) = greet(&shared, stream).await {
                shared.log.refusal(&format!("refused a data connection from {from}: {reason}"));
            }
            drop(permit);
        });
    }
}

async fn greet(shared: &Arc<Shared>, mut stream: TcpStream) -> Result<(), String> {
    let patience = Duration::from_nanos(limits::GREETING_TIMEOUT.0);
    let is_busy = shared.given.count() >= limits::DATA_CONNECTIONS_MAX;
    let greeting = stream::accept(&shared.identity, &mut stream, is_busy);
    let node = tokio::time::timeout(patience, greeting)
        .await
        .map_err(|_| "no greeting in time".to_owned())??;
    let stream = stream.into_std().map_err(|error| error.to_string())?;
    stream.set_nonblocking(false).map_err(|error| error.to_string())?;
    stream::fit_for_data(&stream).map_err(|error| error.to_string())?;
    let theirs = Arc::clone(shared);
    std::thread::Builder::new()
        .name(format!("{}-give", shared.identity.node))
        .spawn(move || super::serve::give_out(&theirs, node, &stream))
        .map_err(|error| format!("no thread: {error}"))?;
    Ok(())
}
