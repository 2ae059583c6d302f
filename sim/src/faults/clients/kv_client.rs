//! Clients of the key-value store: one operation after another on a few shared keys. Clients with
//! numbered batches repeat a request until it is answered. The others never repeat one, so an
//! unanswered operation stays open in the history.

use bytes::Bytes;
use proto::wire::{KvKind, request, response};
use proto::{PartitionId, Span, Time, wire};

use crate::faults::clients::stale_map_client::RequestRoute;
use crate::faults::event_queue::{ExternalClient, SimEvent};
use crate::faults::world::World;

#[derive(Debug)]
struct OpenCall {
    id: u64,
    /// The operation's place in the history.
    at: (Bytes, usize),
    op: wire::KvOp,
    number: Option<wire::KvNumber>,
    journey: RequestRoute,
}

#[derive(Debug)]
pub(crate) struct KvClient {
    keys: u64,
    operations_left: u32,
    pace: Span,
    open: Option<OpenCall>,
    /// The last batch number, if the client numbers its batches.
    numbers: Option<u64>,
    /// Keys to read once, each until it is answered.
    closing: Vec<Bytes>,
    counter: u64,
    /// The only keys that the client writes. The time of each operation is recorded.
    metered: Vec<Bytes>,
    /// The first home of these keys.
    home: usize,
    /// The time of the first request of the open operation.
    waits_since: Option<Time>,
}

/// The waiting time of a client for one operation.
#[derive(Clone, Copy, Debug)]
pub struct KvWait {
    pub since: Time,
    pub took: Span,
    /// The home of its keys when the client was added.
    pub home: usize,
}

/// The pause before a metered client repeats a request. Its waiting time counts from the first
/// request.
const METERED_TIMEOUT: Span = Span::from_secs(5);

impl KvClient {
    pub(crate) fn is_over(&self) -> bool {
        self.operations_left == 0 && self.open.is_none() && self.closing.is_empty()
    }
}

impl World {
    pub fn add_kv_client(&mut self, keys: u64, operations: u32, pace: Span) {
        let client = self.clients.kv.len();
        self.clients.kv.push(KvClient {
            keys,
            operations_left: operations,
            pace,
            open: None,
            numbers: None,
            closing: Vec::new(),
            counter: 0,
            metered: Vec::new(),
            home: 0,
            waits_since: None,
        });
        self.schedule(self.now, SimEvent::Wake { who: ExternalClient::Kv(client) });
    }

    /// Makes the last added client number its batches.
    pub(crate) fn number_batches(&mut self) {
        self.clients.kv.last_mut().expect("a client was made").numbers = Some(0);
    }

    /// Adds a client of keys that are homed on this node now. Its waiting times are recorded.
    pub fn add_kv_meter(&mut self, node: usize, keys: usize, operations: u32, pace: Span) {
        let partitions = self.map.partitions.len() as u32;
        let number = self.clients.kv.len();
        let all = (0..).map(|key| Bytes::from(format!("meter-{number}-{key}")));
        let here = all.filter(|key| self.home(kvs::key_partition(key, partitions).0) == node);
        let metered: Vec<Bytes> = here.take(keys).collect();
        self.add_kv_client(1, operations, pace);
        let client = self.clients.kv.last_mut().expect("just added");
        (client.metered, client.home) = (metered, node);
    }

    /// The waiting times of metered clients that began in this range, with those still waiting.
    #[must_use]
    pub fn kv_waits(&self, from: Time, until: Time) -> Vec<KvWait> {
        let wait = |client: &KvClient| {
            let since = client.waits_since?;
            Some(KvWait { since, took: self.now.since(since), home: client.home })
        };
        let open = self.clients.kv.iter().filter_map(wait);
        let all = self.clients.kv_waits.iter().copied().chain(open);
        all.filter(|wait| (from..until).contains(&wait.since)).collect()
    }

    /// Adds a final client that reads every written key.
    pub(crate) fn read_all_keys(&mut self) {
        self.add_kv_client(1, 0, Span::from_millis(1));
        let closing = self.clients.history.keys.keys().cloned().collect();
        self.clients.kv.last_mut().expect("just added").closing = closing;
    }

    pub(crate) fn kv_wake(&mut self, index: usize) {
        let client = &mut self.clients.kv[index];
        if client.open.is_some() {
            return;
        }
        let op = if let Some(key) = client.closing.last() {
            wire::KvOp { kind: KvKind::Lookup as i32, key: key.clone(), ..Default::default() }
        } else if client.operations_left > 0 {
            client.operations_left -= 1;
            self.random_op(index)
        } else {
            return;
        };
        let partition = kvs::key_partition(&op.key, self.map.partitions.len() as u32);
        let at = self.clients.history.called(op.clone(), self.now);
        let journey = self.journey(partition);
        let client = index as u64 + 1;
        let number = self.clients.kv[index].numbers.as_mut().map(|last| {
            *last += 1;
            wire::KvNumber { client, sequence: *last, ticket: 0 }
        });
        self.kv_ask(index, partition, OpenCall { id: 0, at, op, number, journey });
    }

    fn kv_ask(&mut self, index: usize, partition: PartitionId, open: OpenCall) {
        let who = ExternalClient::Kv(index);
        let (home, epoch) = self.home_known_to(who, partition);
        let ops = vec![open.op.clone()];
        let number = open.number;
        let batch = wire::KvBatch { partition: partition.0, epoch, ops, number };
        let id = self.request(who, home, request::Body::Kv(batch));
        self.clients.kv[index].open = Some(OpenCall { id, ..open });
        let mut patience = self.dice.span(Span::from_millis(30), Span::from_millis(400));
        let client = &mut self.clients.kv[index];
        if !client.metered.is_empty() {
            patience = METERED_TIMEOUT;
            client.waits_since.get_or_insert(self.now);
        }
        let what = SimEvent::Timeout { who, request: id };
        self.schedule(self.now + patience, what);
    }

    fn random_op(&mut self, index: usize) -> wire::KvOp {
        let keys = self.clients.kv[index].keys;
        let client = &mut self.clients.kv[index];
        client.counter += 1;
        let value = format!("{index}.{};", client.counter);
        let mut key = Bytes::from(format!("key-{}", self.dice.below(keys)));
        let metered = &self.clients.kv[index].metered;
        if !metered.is_empty() {
            key = metered[self.dice.index(metered.len())].clone();
        }
        let kind = self.dice.pick(&[
            KvKind::Insert,
            KvKind::Lookup,
            KvKind::Lookup,
            KvKind::Append,
            KvKind::Append,
            KvKind::Cas,
            KvKind::Remove,
        ]);
        // Half of the swaps expect the last value that some client wrote.
        let written = self
            .clients
            .history
            .keys
            .get(&key)
            .and_then(|list| list.iter().rev().find(|o| o.op.kind == KvKind::Insert as i32));
        let expected = written.map(|o| o.op.value.clone()).unwrap_or_default();
        wire::KvOp {
            kind: kind as i32,
            key,
            value: value.into_bytes().into(),
            expect_absent: kind == KvKind::Cas && self.dice.chance(400),
            expected: if kind == KvKind::Cas { expected } else { Bytes::new() },
        }
    }

    pub(crate) fn kv_response(&mut self, index: usize, from: usize, response: wire::Response) {
        let client = &mut self.clients.kv[index];
        let Some(mut open) = client.open.take_if(|open| open.id == response.id) else { return };
        if self.sent_on(ExternalClient::Kv(index), from, &response, Some(&mut open.journey)) {
            // A node that redirects an operation has not carried it out.
            let partition = kvs::key_partition(&open.op.key, self.map.partitions.len() as u32);
            return self.kv_ask(index, partition, open);
        }
        let client = &mut self.clients.kv[index];
        let at = open.at;
        if let Some(response::Body::Kv(results)) = response.body
            && let Some(result) = results.results.into_iter().next()
        {
            client.closing.pop();
            if let Some(since) = client.waits_since.take() {
                let (took, home) = (self.now.since(since), client.home);
                self.clients.kv_waits.push(KvWait { since, took, home });
            }
            self.clients.history.answered(&at, self.now, result);
        }
        self.kv_next(index);
    }

    pub(crate) fn kv_timed_out(&mut self, index: usize, request: u64) {
        let client = &mut self.clients.kv[index];
        let Some(open) = client.open.take_if(|open| open.id == request) else { return };
        self.ask_for_newer_map(ExternalClient::Kv(index));
        if open.number.is_some() {
            let partition = kvs::key_partition(&open.op.key, self.map.partitions.len() as u32);
            return self.kv_ask(index, partition, open);
        }
        self.kv_next(index);
    }

    fn kv_next(&mut self, index: usize) {
        let pause = self.dice.around(self.clients.kv[index].pace);
        self.schedule(self.now + pause, SimEvent::Wake { who: ExternalClient::Kv(index) });
    }
}
