//! Sends the chunks of an open job to their homes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use proto::wire::request;
use proto::{PartitionId, limits};
use tokio::sync::Semaphore;

use super::Shared;
use crate::call::name_unknown;
use crate::limits::OPEN_CHUNK_PAUSE;
use crate::link;
use crate::retry::Target;

/// Sends the chunks of a handle until it is dropped.
pub(super) async fn send(handle: Weak<Shared>) {
    let window = Arc::new(Semaphore::new(limits::CHUNKS_IN_FLIGHT_MAX));
    loop {
        let Some(shared) = handle.upgrade() else { return };
        let (idle, needs_ids, has_some) = {
            let state = shared.lock();
            let under_way = window.available_permits() < limits::CHUNKS_IN_FLIGHT_MAX;
            let has_some = state.filling.is_some() || !state.full.is_empty();
            (!under_way, state.needs_ids(), has_some)
        };
        if needs_ids {
            shared.reserve_more().await;
        }
        if has_some {
            if !idle {
                tokio::time::sleep(Duration::from_nanos(OPEN_CHUNK_PAUSE.0)).await;
            }
            send_chunks(&shared, &window).await;
        }
        // The handle may be dropped while this waits.
        let wake = Arc::clone(&shared.wake);
        drop(shared);
        wake.notified().await;
    }
}

async fn send_chunks(shared: &Arc<Shared>, window: &Arc<Semaphore>) {
    loop {
        let Ok(permit) = Arc::clone(window).acquire_owned().await else { return };
        let (order, chunk) = {
            let mut state = shared.lock();
            if state.failed.is_some() {
                return;
            }
            if state.full.is_empty() {
                state.finish_chunk();
            }
            let Some(next) = state.full.pop_front() else { return };
            next
        };
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            let (home, id) = (PartitionId(chunk.partition), shared.client.next_id());
            let bytes = link::encode(id, request::Body::Submit(chunk));
            let answer = shared.client.ask_bytes(Target::Home(home), id, bytes).await;
            let job = shared.job;
            drop(permit);
            shared.stored(order, answer.map(drop).map_err(|e| name_unknown(e, job, None)));
        });
    }
}
