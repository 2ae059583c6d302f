//! Clients' requests to the key-value store, and their watches.

use kvs::{Store, StoreError, Write};
use proto::limits::WATCHERS_MAX;
use proto::wire::{ErrorCode, response};
use proto::{ClientId, PartitionId, wire};

/// A client that wants to hear of each change of a key.
#[derive(Debug)]
pub(crate) struct Watch {
    client: ClientId,
    id: u64,
    partition: PartitionId,
    key: bytes::Bytes,
    seen_version: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Watches {
    watches: Vec<Watch>,
}

impl Watches {
    /// Registers a watch; it answers at once when the key differs from what the client saw.
    pub(crate) fn add(
        &mut self,
        client: ClientId,
        id: u64,
        watch: wire::KvWatch,
    ) -> Result<(), wire::Error> {
        if self.watches.len() >= WATCHERS_MAX {
            let text = format!("this node has {WATCHERS_MAX} watches already");
            return Err(wire::Error {
                code: ErrorCode::Busy as i32,
                text,
                retry_after_ns: 1 << 30,
            });
        }
        self.watches.push(Watch {
            client,
            id,
            partition: PartitionId(watch.partition),
            key: watch.key,
            seen_version: watch.after_version,
        });
        Ok(())
    }
    pub(crate) fn forget_client(&mut self, client: ClientId) {
        self.watches.retain(|watch| watch.client != client);
    }

    /// Answers of watches whose key has changed.
    pub(crate) fn changed(&mut self, store: &Store) -> Vec<(ClientId, wire::Response)> {
        let mut answers = Vec::new();
        for watch in &mut self.watches {
            if let Some(result) =
                store.changed_since(watch.partition, &watch.key, watch.seen_version)
            {
                watch.seen_version = store.version(watch.partition, &watch.key);
                let results = wire::KvResults { results: vec![result] };
                let body = Some(response::Body::Kv(results));
                let response =
                    wire::Response { id: watch.id, more: true, body, ..Default::default() };
                answers.push((watch.client, response));
            }
        }
        answers
    }
}

pub(crate) fn apply(
    store: &mut Store,
    batch: &wire::KvBatch,
    writes: &mut Vec<Write>,
) -> Result<response::Body, wire::Error> {
    match store.apply(batch, writes) {
        Ok(results) => Ok(response::Body::Kv(wire::KvResults { results })),
        Err(error) => Err(wire::Error {
            code: code(&error) as i32,
            text: error.to_string(),
            retry_after_ns: 0,
        }),
    }
}

fn code(error: &StoreError) -> ErrorCode {
    match error {
        StoreError::WrongEpoch { .. } | StoreError::NotHome { .. } => ErrorCode::WrongEpoch,
        _ => ErrorCode::Refused,
    }
}
