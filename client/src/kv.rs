//! The key-value store: bytes to bytes, straight to the primary of each key.

use bytes::Bytes;
use proto::wire::{self, KvKind, KvStatus, request, response};
use proto::{PartitionId, limits};

use crate::call::{Checked, Repeat, Retry, home_of};
use crate::{Client, ClientError, link};

/// The store of a cluster, through [`Client::kv`].
#[derive(Clone, Debug)]
pub struct Kv {
    client: Client,
}

/// What a key holds. Versions grow with every change of the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    pub bytes: Bytes,
    pub version: u64,
}

/// How a compare-and-swap ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cas {
    Swapped {
        version: u64,
    },
    /// The key held something else; nothing changed.
    Conflict {
        present: Option<Value>,
    },
}

impl Client {
    #[must_use]
    pub fn kv(&self) -> Kv {
        Kv { client: self.clone() }
    }
}

impl Kv {
    /// Sets a key; returns the version it has now.
    pub async fn insert(&self, key: &[u8], value: &[u8]) -> Result<u64, ClientError> {
        let result = self.one(operation(KvKind::Insert, key, value)).await?;
        Ok(result.version)
    }

    pub async fn lookup(&self, key: &[u8]) -> Result<Option<Value>, ClientError> {
        let result = self.one(operation(KvKind::Lookup, key, b"")).await?;
        Ok(present(result))
    }

    /// Removes a key; says whether it was there.
    pub async fn remove(&self, key: &[u8]) -> Result<bool, ClientError> {
        let result = self.one(operation(KvKind::Remove, key, b"")).await?;
        Ok(result.status() == KvStatus::Ok)
    }

    /// Adds to the end of a value (an absent one is empty); returns the version it has now.
    pub async fn append(&self, key: &[u8], value: &[u8]) -> Result<u64, ClientError> {
        let result = self.one(operation(KvKind::Append, key, value)).await?;
        Ok(result.version)
    }

    /// Sets a key if it holds `expected` (`None`: if it is absent).
    pub async fn cas(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<Cas, ClientError> {
        let mut op = operation(KvKind::Cas, key, value);
        op.expect_absent = expected.is_none();
        op.expected = Bytes::copy_from_slice(expected.unwrap_or_default());
        let result = self.one(op).await?;
        if result.status() == KvStatus::Ok {
            return Ok(Cas::Swapped { version: result.version });
        }
        let (bytes, version) = (result.value, result.version);
        Ok(Cas::Conflict { present: (version > 0).then_some(Value { bytes, version }) })
    }

    async fn one(&self, op: wire::KvOp) -> Result<wire::KvResult, ClientError> {
        let mut results = self.batch(vec![op]).await?;
        results.pop().ok_or(ClientError::Protocol { node: 0, what: "no result" })
    }

    /// Operations that take effect together or not at all; their keys must share a partition.
    pub async fn batch(&self, ops: Vec<wire::KvOp>) -> Result<Vec<wire::KvResult>, ClientError> {
        let Some(first) = ops.first() else { return Ok(Vec::new()) };
        check_limits(&ops)?;
        let partitions = self.client.partitions();
        let partition = kvs::key_partition(&first.key, partitions);
        if ops.iter().any(|op| kvs::key_partition(&op.key, partitions) != partition) {
            let text = "the keys of one batch lie in different partitions";
            return Err(ClientError::Refused(text.to_owned()));
        }
        self.of_partition(partition, ops).await
    }

    /// Operations that need not happen together: grouped by partition, all groups at once.
    /// The results are in the order of the operations; those on one key happen in that order.
    pub async fn each(&self, ops: Vec<wire::KvOp>) -> Result<Vec<wire::KvResult>, ClientError> {
        check_limits(&ops)?;
        let partitions = self.client.partitions();
        let total = ops.len();
        let mut placed: Vec<_> = ops
            .into_iter()
            .enumerate()
            .map(|(at, op)| (kvs::key_partition(&op.key, partitions), at, op))
            .collect();
        placed.sort_by_key(|(partition, at, _)| (*partition, *at));
        let mut groups: Vec<(PartitionId, Vec<usize>, Vec<wire::KvOp>)> = Vec::new();
        for (partition, at, op) in placed {
            match groups.last_mut() {
                Some((of, places, ops)) if *of == partition => {
                    places.push(at);
                    ops.push(op);
                }
                _ => groups.push((partition, vec![at], vec![op])),
            }
        }
        let mut results = vec![wire::KvResult::default(); total];
        let mut asked = Vec::with_capacity(groups.len());
        for (partition, places, ops) in groups {
            asked.push((self.begin(partition, ops).await?, places));
        }
        for (begun, places) in asked {
            for (place, result) in places.into_iter().zip(self.finish(begun).await?) {
                results[place] = result;
            }
        }
        Ok(results)
    }

    /// Follows a key. `seen_version` is what the caller knows already; 0: that it is absent.
    #[must_use]
    pub fn watch(&self, key: &[u8], seen_version: u64) -> KeyWatch {
        let partition = kvs::key_partition(key, self.client.partitions());
        KeyWatch {
            client: self.client.clone(),
            partition,
            key: Bytes::copy_from_slice(key),
            seen_version,
            responses: None,
        }
    }

    async fn of_partition(
        &self,
        partition: PartitionId,
        ops: Vec<wire::KvOp>,
    ) -> Result<Vec<wire::KvResult>, ClientError> {
        let repeat = repeat_of(&ops);
        let route = |map: &wire::ClusterMap| {
            (home_of(map, partition), request::Body::Kv(kv_batch(map, partition, ops.clone())))
        };
        let answer = self.client.ask_routed(&route, repeat).await?;
        results_of(answer, ops.len(), self.client.home(partition).0)
    }

    /// Sends a group without waiting, so that all groups travel together.
    async fn begin(
        &self,
        partition: PartitionId,
        ops: Vec<wire::KvOp>,
    ) -> Result<Begun, ClientError> {
        let map = self.client.map();
        let node = home_of(&map, partition);
        let id = self.client.next_id();
        let body = request::Body::Kv(kv_batch(&map, partition, ops.clone()));
        let link = self.client.patient_link(node).await?;
        let answer = link.send(id, link::encode(id, body)).await.ok();
        Ok(Begun { partition, node, ops, answer })
    }

    async fn finish(&self, begun: Begun) -> Result<Vec<wire::KvResult>, ClientError> {
        let Begun { partition, node, ops, answer } = begun;
        let Some(answer) = answer else { return self.of_partition(partition, ops).await };
        match answer.await {
            Ok(Ok(response)) => match self.client.check(node, response) {
                Ok(Checked::Answer(response)) => results_of(*response, ops.len(), node),
                // Refused outright, so nothing happened yet: the slow path may try again.
                Ok(Checked::Busy { .. }) | Err(ClientError::Protocol { .. }) => {
                    self.of_partition(partition, ops).await
                }
                Err(error) => Err(error),
            },
            _ if repeat_of(&ops) == Repeat::Never => Err(ClientError::Uncertain { node }),
            _ => self.of_partition(partition, ops).await,
        }
    }
}

struct Begun {
    partition: PartitionId,
    node: u32,
    ops: Vec<wire::KvOp>,
    answer: Option<tokio::sync::oneshot::Receiver<Result<wire::Response, link::Lost>>>,
}

/// An operation of a batch.
#[must_use]
pub fn operation(kind: KvKind, key: &[u8], value: &[u8]) -> wire::KvOp {
    wire::KvOp {
        kind: kind.into(),
        key: Bytes::copy_from_slice(key),
        value: Bytes::copy_from_slice(value),
        expected: Bytes::new(),
        expect_absent: false,
    }
}

fn present(result: wire::KvResult) -> Option<Value> {
    (result.status() == KvStatus::Ok)
        .then_some(Value { bytes: result.value, version: result.version })
}

/// An append or a swap done twice is not the same as done once.
fn repeat_of(ops: &[wire::KvOp]) -> Repeat {
    match ops.iter().all(|op| !matches!(op.kind(), KvKind::Append | KvKind::Cas)) {
        true => Repeat::Safe,
        false => Repeat::Never,
    }
}

fn kv_batch(map: &wire::ClusterMap, partition: PartitionId, ops: Vec<wire::KvOp>) -> wire::KvBatch {
    let epoch = map.partitions[partition.0 as usize].epoch;
    wire::KvBatch { partition: partition.0, epoch, ops }
}

fn results_of(
    answer: wire::Response,
    expected: usize,
    node: u32,
) -> Result<Vec<wire::KvResult>, ClientError> {
    match answer.body {
        Some(response::Body::Kv(kv)) if kv.results.len() == expected => Ok(kv.results),
        _ => Err(ClientError::Protocol { node, what: "not one result for each operation" }),
    }
}

fn check_limits(ops: &[wire::KvOp]) -> Result<(), ClientError> {
    let refuse = |text: String| Err(ClientError::Refused(text));
    if ops.len() > limits::KV_OPS_MAX {
        return refuse(format!("{} operations at once; {} may be", ops.len(), limits::KV_OPS_MAX));
    }
    for op in ops {
        let (key, value) = (op.key.len(), op.value.len());
        if key == 0 {
            return refuse("the key is empty".to_owned());
        }
        if key > limits::KEY_BYTES_MAX {
            return refuse(format!("a key of {key} bytes; {} may be", limits::KEY_BYTES_MAX));
        }
        if value > limits::VALUE_BYTES_MAX {
            return refuse(format!("a value of {value} bytes; {} may be", limits::VALUE_BYTES_MAX));
        }
    }
    Ok(())
}

/// The changing value of one key. Survives restarts of the key's home.
#[derive(Debug)]
pub struct KeyWatch {
    client: Client,
    partition: PartitionId,
    key: Bytes,
    seen_version: u64,
    responses: Option<(u32, Responses)>,
}
type Responses = tokio::sync::mpsc::UnboundedReceiver<Result<wire::Response, link::Lost>>;

impl KeyWatch {
    /// Waits until the key differs from what was seen last: the value and its version, or `None`
    /// and 0 once it is absent. Changes in quick succession may come as one.
    pub async fn next(&mut self) -> Result<(Option<Value>, u64), ClientError> {
        let mut retry = Retry::new(self.client.patience());
        loop {
            let Some((node, responses)) = &mut self.responses else {
                if let Err((node, lost)) = self.open().await {
                    retry.pause(node, &lost).await?;
                }
                continue;
            };
            let node = *node;
            let Some(Ok(response)) = responses.recv().await else {
                self.responses = None;
                retry.pause(node, &link::Lost("connection closed".to_owned())).await?;
                continue;
            };
            match self.client.check(node, response)? {
                Checked::Busy { after, text } => {
                    self.responses = None;
                    retry.wait_busy(node, after, text).await?;
                }
                Checked::Answer(response) => {
                    if !response.more {
                        self.responses = None;
                    }
                    let result = results_of(*response, 1, node)?.pop();
                    let result = result.expect("just counted");
                    let version = result.version;
                    if version == self.seen_version {
                        continue; // What we saw before a reconnect.
                    }
                    self.seen_version = version;
                    return Ok((present(result), version));
                }
            }
        }
    }

    async fn open(&mut self) -> Result<(), (u32, link::Lost)> {
        let node = self.client.home(self.partition).0;
        let failed = |lost| (node, lost);
        let link = self.client.link(node).await.map_err(failed)?;
        let id = self.client.next_id();
        let watch = wire::KvWatch {
            partition: self.partition.0,
            key: self.key.clone(),
            after_version: self.seen_version,
        };
        let bytes = link::encode(id, request::Body::WatchKey(watch));
        self.responses = Some((node, link.watch(id, bytes).await.map_err(failed)?));
        Ok(())
    }
}
