//! Requests of clients to the key-value store, and their watches.

use crate::limits::STEPS_HELD_RETRY;
use kvs::{Store, StoreError, Write};
use proto::limits::{KV_OPS_MAX, KV_REPLY_BYTES_MAX, WATCHERS_MAX};
use proto::wire::{ErrorCode, response};
use proto::{ClientId, PartitionId, wire};

/// A client that is informed of each change of a key.
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
    /// Registers a watch; it answers at once if the key has changed since the client's version.
    pub(crate) fn add(
        &mut self,
        client: ClientId,
        id: u64,
        watch: wire::KvWatch,
        store: &Store,
    ) -> Result<(), wire::Error> {
        let checked = store.check_watch(PartitionId(watch.partition), &watch.key);
        checked.map_err(|error| told(&error))?;
        if self.watches.len() >= WATCHERS_MAX {
            let text = format!("this node has {WATCHERS_MAX} watches already");
            return Err(wire::Error {
                code: ErrorCode::Busy as i32,
                text,
                retry_after_ns: 1 << 30,
                ..Default::default()
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
    /// This node is no longer home of the partition: the watching clients must go to the new home.
    pub(crate) fn give_up(&mut self, partition: PartitionId) -> Vec<(ClientId, wire::Response)> {
        let gone = self.watches.extract_if(.., |watch| watch.partition == partition);
        gone.map(|watch| {
            let text = format!("{partition} has another home: take the newer map and watch there");
            let code = ErrorCode::WrongEpoch as i32;
            let error = Some(wire::Error { code, text, ..Default::default() });
            (watch.client, wire::Response { id: watch.id, error, ..Default::default() })
        })
        .collect()
    }

    pub(crate) fn forget_client(&mut self, client: ClientId) {
        self.watches.retain(|watch| watch.client != client);
    }

    /// The answers of watches with changed keys.
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
        Err(error) => Err(told(&error)),
    }
}

/// Applies batches of several partitions, each by itself, up to the first that fails.
pub(crate) fn apply_many(
    store: &mut Store,
    many: &wire::KvBatches,
    writes: &mut Vec<Write>,
) -> Result<response::Body, wire::Error> {
    let ops: usize = many.batches.iter().map(|batch| batch.ops.len()).sum();
    if ops > KV_OPS_MAX {
        let text = format!("{ops} operations at once; {KV_OPS_MAX} may be");
        return Err(wire::Error { code: ErrorCode::Refused as i32, text, ..Default::default() });
    }
    store.look_ahead(&many.batches);
    let mut results = Vec::with_capacity(ops);
    let mut value_bytes = 0;
    for batch in &many.batches {
        let before = results.len();
        store.apply_into(batch, writes, &mut results).map_err(|error| told(&error))?;
        let new = &results[before..];
        value_bytes += new.iter().map(|result| result.value.len()).sum::<usize>();
        if value_bytes > KV_REPLY_BYTES_MAX {
            // Not refused: if the client asks partition by partition, each answer has a message of
            // its own.
            let text = "the values are too large for one answer".to_owned();
            return Err(wire::Error { code: ErrorCode::Busy as i32, text, ..Default::default() });
        }
    }
    Ok(response::Body::Kv(wire::KvResults { results }))
}

fn told(error: &StoreError) -> wire::Error {
    let code = error.code();
    let retry_after_ns = if code == ErrorCode::Busy { STEPS_HELD_RETRY.0 } else { 0 };
    wire::Error {
        code: code as i32,
        text: error.to_string(),
        retry_after_ns,
        ticket: error.ticket(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kvs::make_map;
    use proto::NodeId;
    use proto::wire::{KvKind, KvStatus};

    use super::*;

    fn batch(partition: u32, kind: KvKind, value: &'static [u8]) -> wire::KvBatch {
        // The store checks that a key lies in its partition: find one that does.
        let key = (0_u32..)
            .map(|n| format!("k{n}").into_bytes())
            .find(|key| kvs::key_partition(key, 8).0 == partition)
            .expect("some key lies in every partition");
        let (key, value) = (key.into(), value.into());
        let op = wire::KvOp { kind: kind as i32, key, value, ..Default::default() };
        wire::KvBatch { partition, epoch: 1, ops: vec![op], ..Default::default() }
    }

    fn store() -> Store {
        Store::new(NodeId(0), Arc::new(make_map(1, 1, 8)))
    }

    #[test]
    fn results_of_many_partitions_come_in_their_order() {
        let (mut store, mut writes) = (store(), Vec::new());
        let batches = vec![
            batch(5, KvKind::Insert, b"five"),
            batch(2, KvKind::Insert, b"two"),
            batch(5, KvKind::Lookup, b""),
            batch(2, KvKind::Lookup, b""),
        ];
        let many = wire::KvBatches { batches };
        let answer = apply_many(&mut store, &many, &mut writes).unwrap();
        let response::Body::Kv(answer) = answer else { panic!("{answer:?}") };
        let values: Vec<_> = answer.results.iter().map(|result| &result.value[..]).collect();
        assert_eq!(values, [b"", b"", &b"five"[..], b"two"]);
        assert!(answer.results.iter().all(|result| result.status() == KvStatus::Ok));
        assert_eq!(writes.len(), 2);
    }

    #[test]
    fn a_watch_where_its_key_never_changes_is_refused() {
        // This is one of two nodes.
        let map = make_map(1, 2, 8);
        let store = Store::new(NodeId(0), Arc::new(map.clone()));
        let mut watches = Watches::default();
        let mut code = |partition: u32, key_of: u32| {
            let key = batch(key_of, KvKind::Lookup, b"").ops.remove(0).key;
            let watch = wire::KvWatch { partition, key, after_version: 0 };
            watches.add(ClientId(1), 1, watch, &store).map_err(|error| error.code())
        };
        let here = |partition: &u32| kvs::home(&map, PartitionId(*partition)) == Some(NodeId(0));
        let (mine, other): (Vec<u32>, Vec<u32>) = (0..8).partition(here);
        assert_eq!(code(mine[0], mine[0]), Ok(()));
        assert_eq!(code(other[0], other[0]), Err(ErrorCode::WrongEpoch));
        assert_eq!(code(mine[0], mine[1]), Err(ErrorCode::Refused));
        assert_eq!(code(99, mine[0]), Err(ErrorCode::Refused));
    }

    #[test]
    fn the_first_wrong_batch_is_the_error_and_too_many_are_refused() {
        let (mut store, mut writes) = (store(), Vec::new());
        let stale = wire::KvBatch { epoch: 9, ..batch(3, KvKind::Insert, b"x") };
        let many = wire::KvBatches { batches: vec![batch(1, KvKind::Insert, b"x"), stale] };
        let error = apply_many(&mut store, &many, &mut writes).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongEpoch);

        let op = batch(1, KvKind::Lookup, b"").ops.remove(0);
        let half = wire::KvBatch {
            partition: 1,
            epoch: 1,
            ops: vec![op; KV_OPS_MAX / 2 + 1],
            ..Default::default()
        };
        let many = wire::KvBatches { batches: vec![half.clone(), half] };
        let error = apply_many(&mut store, &many, &mut writes).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Refused);
    }
}
