//! The key-value store, from bytes to bytes, with requests directly to the primary of each key.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proto::wire::{self, request, response};
use proto::{PartitionId, limits};
use tokio::time::Instant;

use crate::call::{Checked, MOVED, Repeat};
use crate::kv::numbered::{Numbers, Writes};
use crate::kv::operation::{check_sizes, present};
use crate::kv::request_groups::{
    Group, RequestGroup, has_writes, kv_batch, repeat_of, request_groups,
};
use crate::kv::{Cas, KvNumber, KvOp, KvResult, KvStatus, Value};
use crate::link::{self, Link, LinkError};
use crate::retry::{Retry, Target};
use crate::{Client, ClientError};

/// The store of a cluster, through [`Client::kv`].
#[derive(Clone, Debug)]
pub struct Kv {
    client: Client,
    writes: Writes,
}

impl Client {
    /// The key-value store of the cluster. Keys and values are bytes; a key has at most 64 KiB and
    /// a value at most 8 MiB.
    #[must_use]
    pub fn kv(&self) -> Kv {
        Kv { client: self.clone(), writes: Writes::Plain }
    }
}

impl Kv {
    /// Makes every write happen at most once; each may return [`ClientError::Uncertain`]. By
    /// default an insert or a remove is repeated when its answer is lost, so it may happen twice,
    /// with writes of other clients in between.
    #[must_use]
    pub fn once(self) -> Self {
        Self { writes: Writes::Once, ..self }
    }

    /// Gives every write a number. A write without an answer is repeated, and happens once while
    /// the partition remembers its number. If it has forgotten the number of a repeated write, the
    /// result is [`ClientError::Uncertain`].
    ///
    /// # Errors
    /// The system provides no random number, which each client needs.
    pub fn numbered(self) -> Result<Self, ClientError> {
        Ok(Self { writes: Writes::Numbered(Arc::new(Numbers::new()?)), ..self })
    }

    /// Sends one batch under the caller's own number. The caller may repeat it itself, from any
    /// process. All its keys must share a partition. [`ClientError::Forgotten`] contains the ticket
    /// for a new number.
    #[must_use]
    pub fn with_number(self, number: KvNumber) -> Self {
        self.with_number_record(number.to_record())
    }
    pub(crate) fn with_number_record(self, number: wire::KvNumber) -> Self {
        Self { writes: Writes::Given(number), ..self }
    }

    /// Sets a key; returns its new version.
    pub async fn insert(&self, key: &[u8], value: &[u8]) -> Result<u64, ClientError> {
        let result = self.one(KvOp::insert(key, value)).await?;
        Ok(result.version)
    }

    /// The value of a key; `None` if it is absent.
    pub async fn lookup(&self, key: &[u8]) -> Result<Option<Value>, ClientError> {
        let result = self.one(KvOp::lookup(key)).await?;
        Ok(present(result))
    }

    /// Removes a key; returns whether it existed.
    pub async fn remove(&self, key: &[u8]) -> Result<bool, ClientError> {
        let result = self.one(KvOp::remove(key)).await?;
        Ok(result.status == KvStatus::Ok)
    }

    /// Appends to a value (an absent one is empty); returns its new version.
    pub async fn append(&self, key: &[u8], value: &[u8]) -> Result<u64, ClientError> {
        let result = self.one(KvOp::append(key, value)).await?;
        Ok(result.version)
    }

    /// Sets a key if its value is `expected` (`None`: if it is absent).
    pub async fn cas(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<Cas, ClientError> {
        let result = self.one(KvOp::cas(key, expected, value)).await?;
        if result.status == KvStatus::Ok {
            return Ok(Cas::Swapped { version: result.version });
        }
        let (bytes, version) = (result.value, result.version);
        Ok(Cas::Conflict { present: (version > 0).then_some(Value { bytes, version }) })
    }

    async fn one(&self, op: KvOp) -> Result<KvResult, ClientError> {
        let mut results = self.batch(vec![op]).await?;
        results.pop().ok_or(ClientError::Protocol { node: 0, what: "no result" })
    }

    /// Operations that take effect together or not at all; their keys must share a partition.
    pub async fn batch(&self, ops: Vec<KvOp>) -> Result<Vec<KvResult>, ClientError> {
        let ops: Vec<wire::KvOp> = ops.into_iter().map(KvOp::into_record).collect();
        let Some(first) = ops.first() else { return Ok(Vec::new()) };
        check_limits(&ops)?;
        let partitions = self.client.partitions();
        let partition = kvs::key_partition(&first.key, partitions);
        if ops.iter().any(|op| kvs::key_partition(&op.key, partitions) != partition) {
            let text = "the keys of one batch lie in different partitions";
            return Err(ClientError::Refused(text.to_owned()));
        }
        let number = self.number(partition, &ops);
        let results = self.of_group(Group { partition, first: 0, ops, number }, false).await?;
        Ok(results.into_iter().map(KvResult::of_record).collect())
    }

    /// Operations without atomicity: grouped by partition, all groups at once. The results are in
    /// the order of the operations. Operations on one key happen in that order.
    pub async fn each(&self, ops: Vec<KvOp>) -> Result<Vec<KvResult>, ClientError> {
        let results = self.each_record(ops.into_iter().map(KvOp::into_record).collect()).await?;
        Ok(results.into_iter().map(KvResult::of_record).collect())
    }

    pub(crate) async fn each_record(
        &self,
        mut ops: Vec<wire::KvOp>,
    ) -> Result<Vec<wire::KvResult>, ClientError> {
        check_limits(&ops)?;
        let partitions = self.client.partitions();
        let total = ops.len();
        let place = |(at, op): (usize, &wire::KvOp)| (kvs::key_partition(&op.key, partitions), at);
        let mut placed: Vec<_> = ops.iter().enumerate().map(place).collect();
        placed.sort_unstable();
        let mut groups: Vec<Group> = Vec::with_capacity(total);
        for (first, &(partition, at)) in placed.iter().enumerate() {
            let op = std::mem::take(&mut ops[at]);
            match groups.last_mut() {
                Some(group) if group.partition == partition => group.ops.push(op),
                _ => groups.push(Group { partition, first, ops: vec![op], number: None }),
            }
        }
        for group in &mut groups {
            group.number = self.number(group.partition, &group.ops);
        }
        if matches!(self.writes, Writes::Given(_)) && groups.len() > 1 {
            let text = "the keys of one numbered batch lie in different partitions";
            return Err(ClientError::Refused(text.to_owned()));
        }
        let mut results = vec![wire::KvResult::default(); total];
        let mut asked = Vec::new();
        for parcel in request_groups(&self.client.map(), groups, &self.writes) {
            asked.push(self.begin(parcel).await);
        }
        for begun in asked {
            let results = &mut |at: usize, result| results[placed[at].1] = result;
            self.finish(begun, results).await?;
        }
        Ok(results)
    }

    /// Follows a key. `seen_version` is the version that the caller knows already; 0: the key is
    /// absent.
    #[must_use]
    pub fn watch(&self, key: &[u8], seen_version: u64) -> KeyWatch {
        let partition = kvs::key_partition(key, self.client.partitions());
        KeyWatch {
            client: self.client.clone(),
            partition,
            key: Bytes::copy_from_slice(key),
            seen_version,
            responses: None,
            session: None,
        }
    }

    /// The number of a batch with writes, if this client numbers them.
    fn number(&self, partition: PartitionId, ops: &[wire::KvOp]) -> Option<wire::KvNumber> {
        match &self.writes {
            Writes::Numbered(numbers) if has_writes(ops) => Some(numbers.draw(partition)),
            Writes::Given(number) => Some(*number),
            _ => None,
        }
    }

    /// Sends one group until there is an answer. If a numbered group never happened although its
    /// number is forgotten, it gets another number. If its ticket was spent, that follows a pause.
    async fn of_group(
        &self,
        mut group: Group,
        in_doubt: bool,
    ) -> Result<Vec<wire::KvResult>, ClientError> {
        let mut retry = Retry::new(self.client.request_timeout());
        loop {
            let encode = |map: &wire::ClusterMap| {
                let id = self.client.next_id();
                (id, link::encode(id, request::Body::Kv(kv_batch(map, &group))))
            };
            let repeat = match repeat_of(&group, &self.writes) {
                Repeat::Numbered { .. } => Repeat::Numbered { in_doubt },
                other => other,
            };
            let to = Target::Home(group.partition);
            match (self.client.ask_until(to, repeat, &encode).await, &self.writes) {
                (Err(ClientError::Forgotten { node, ticket, .. }), Writes::Numbered(numbers)) => {
                    let is_spent = group.number.is_some_and(|number| number.ticket > 0);
                    if is_spent {
                        retry.wait_busy(node, TICKET_PAUSE, NO_TICKET.to_owned()).await?;
                    }
                    group.number = Some(numbers.draw_with(group.partition, ticket));
                }
                (answer, _) => {
                    let (node, answer) = answer?;
                    return results_of(answer, group.ops.len(), node);
                }
            }
        }
    }

    /// Sends a parcel without waiting, so that all parcels are sent concurrently.
    async fn begin(&self, mut parcel: RequestGroup) -> OpenCall {
        let id = self.client.next_id();
        let bytes = parcel.encode(&self.client.map(), id);
        // The later request for each group waits for an unreachable node, with its own patience.
        let answer = match self.client.link(parcel.node).await {
            Ok(link) => link.send(id, bytes).await.ok(),
            Err(_) => None,
        };
        OpenCall { parcel, answer }
    }

    /// Puts the results in their places. Groups without an answer are requested one by one.
    async fn finish(
        &self,
        begun: OpenCall,
        put: &mut (dyn FnMut(usize, wire::KvResult) + Send),
    ) -> Result<(), ClientError> {
        let OpenCall { parcel: RequestGroup { node, groups, .. }, answer } = begun;
        let mut repeat = groups.iter().map(|group| repeat_of(group, &self.writes));
        let never = repeat.any(|repeat| repeat == Repeat::Never);
        let mut in_doubt = answer.is_some();
        // A refused request of several groups may have happened in part.
        assert!(!never || groups.len() == 1, "what must not happen twice travels alone");
        let answered = match answer {
            None => None,
            Some(answer) => match answer.await {
                Ok(Ok(response)) => match self.client.check(response) {
                    Ok(Checked::Answer(response)) => {
                        let total = groups.iter().map(|group| group.ops.len()).sum();
                        Some(results_of(*response, total, node)?)
                    }
                    // Refused, or safe to repeat: the slow path may try.
                    Ok(Checked::Busy { .. } | Checked::Moved | Checked::Forgotten { .. }) => {
                        in_doubt = false;
                        None
                    }
                    Err(error) => return Err(error),
                },
                _ if never => return Err(ClientError::Uncertain { node }),
                _ => None,
            },
        };
        let mut answered = answered.map(Vec::into_iter);
        for group in groups {
            let (first, ops) = (group.first, group.ops.len());
            match &mut answered {
                Some(answered) => {
                    (first..first + ops).zip(answered).for_each(|(at, it)| put(at, it))
                }
                None => {
                    let of_group = self.of_group(group, in_doubt).await?;
                    (first..).zip(of_group).for_each(|(at, it)| put(at, it));
                }
            }
        }
        Ok(())
    }
}

struct OpenCall {
    parcel: RequestGroup,
    answer: Option<tokio::sync::oneshot::Receiver<Result<wire::Response, LinkError>>>,
}

/// The pause before another number, if the ticket was spent on arrival.
const TICKET_PAUSE: Duration = Duration::from_millis(20);
const NO_TICKET: &str =
    "nothing was written: more clients number their writes at once than a partition remembers";

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
    if ops.len() > limits::KV_OPS_MAX {
        let text = format!("{} operations at once; {} may be", ops.len(), limits::KV_OPS_MAX);
        return Err(ClientError::Refused(text));
    }
    ops.iter().try_for_each(|op| check_sizes(&op.key, &op.value))
}

/// The changing value of one key. The watch survives restarts and moves of the key's home.
#[derive(Debug)]
pub struct KeyWatch {
    client: Client,
    partition: PartitionId,
    key: Bytes,
    seen_version: u64,
    responses: Option<(u32, Instant, Responses)>,
    /// A node ends a watch only with its session, so this watch has its own.
    session: Option<Link>,
}
type Responses = tokio::sync::mpsc::UnboundedReceiver<Result<wire::Response, LinkError>>;

impl KeyWatch {
    /// Waits until the key differs from the last returned state. Returns the value and its version,
    /// or `None` and 0 if it is absent. Changes in quick succession may be merged.
    pub async fn next(&mut self) -> Result<(Option<Value>, u64), ClientError> {
        let mut retry = Retry::new(self.client.request_timeout());
        loop {
            let map = self.client.map();
            let Some((node, opened, responses)) = &mut self.responses else {
                if let Err((node, lost)) = self.open().await {
                    self.look_again(&mut retry, &map, node, &lost).await?;
                }
                continue;
            };
            let (node, opened) = (*node, *opened);
            let Some(Ok(response)) = responses.recv().await else {
                retry.rearm(opened);
                let lost = LinkError("connection closed".to_owned());
                self.look_again(&mut retry, &map, node, &lost).await?;
                continue;
            };
            match self.client.check(response)? {
                Checked::Busy { after, text } => {
                    self.responses = None;
                    let waited = retry.wait_busy(node, after, text).await;
                    self.client.or_away(waited).await?;
                }
                Checked::Moved => {
                    retry.rearm(opened);
                    self.look_again(&mut retry, &map, node, &LinkError(MOVED.to_owned())).await?;
                }
                Checked::Forgotten { .. } => {
                    return Err(ClientError::Protocol { node, what: "a watch has no number" });
                }
                Checked::Answer(response) => {
                    if !response.more {
                        self.responses = None;
                    }
                    let result = results_of(*response, 1, node)?.pop();
                    let result = result.expect("just counted");
                    let version = result.version;
                    if version == self.seen_version {
                        continue; // The state before a reconnect.
                    }
                    self.seen_version = version;
                    return Ok((present(KvResult::of_record(result)), version));
                }
            }
        }
    }

    /// Ends the present watch; the next one may be at another node.
    async fn look_again(
        &mut self,
        retry: &mut Retry,
        map: &Arc<wire::ClusterMap>,
        node: u32,
        lost: &LinkError,
    ) -> Result<(), ClientError> {
        self.responses = None;
        let paused = retry.pause(Target::Home(self.partition), node, lost).await;
        self.client.or_away(paused).await?;
        self.client.refresh(map).await;
        Ok(())
    }

    async fn open(&mut self) -> Result<(), (u32, LinkError)> {
        let node = self.client.home(self.partition).0;
        let failed = |lost| (node, lost);
        let link = self.client.link(node).await.map_err(failed)?;
        let session = self.session.insert(link.another().await.map_err(failed)?);
        let id = self.client.next_id();
        let watch = wire::KvWatch {
            partition: self.partition.0,
            key: self.key.clone(),
            after_version: self.seen_version,
        };
        let bytes = link::encode(id, request::Body::WatchKey(watch));
        let responses = session.watch(id, bytes).await.map_err(failed)?;
        self.responses = Some((node, Instant::now(), responses));
        Ok(())
    }
}
