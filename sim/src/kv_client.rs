//! Clients of the key-value store: one operation after another on a few shared keys. They never
//! repeat an operation, so an unanswered one stays open in the history.

use bytes::Bytes;
use proto::wire::{KvKind, request, response};
use proto::{PartitionId, Span, wire};

use crate::queue::{Happening, Who};
use crate::stale::Journey;
use crate::world::World;

#[derive(Debug)]
struct Open {
    id: u64,
    /// Of the history.
    at: (Bytes, usize),
    op: wire::KvOp,
    journey: Journey,
}

#[derive(Debug)]
pub(crate) struct KvClient {
    keys: u64,
    operations_left: u32,
    pace: Span,
    open: Option<Open>,
    /// Looks up every key once and asks until it is answered.
    closing: Vec<Bytes>,
    counter: u64,
}

impl KvClient {
    pub(crate) fn is_over(&self) -> bool {
        self.operations_left == 0 && self.open.is_none() && self.closing.is_empty()
    }
}

impl World {
    pub fn add_kv_client(&mut self, keys: u64, operations: u32, pace: Span) {
        let client = self.kv_clients.len();
        self.kv_clients.push(KvClient {
            keys,
            operations_left: operations,
            pace,
            open: None,
            closing: Vec::new(),
            counter: 0,
        });
        self.schedule(self.now, Happening::Wake { who: Who::Kv(client) });
    }

    /// A last client that reads every key anybody wrote.
    pub(crate) fn read_all_keys(&mut self) {
        self.add_kv_client(1, 0, Span::from_millis(1));
        let closing = self.history.keys.keys().cloned().collect();
        self.kv_clients.last_mut().expect("just added").closing = closing;
    }

    pub(crate) fn kv_wake(&mut self, index: usize) {
        let client = &mut self.kv_clients[index];
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
        let at = self.history.called(op.clone(), self.now);
        let journey = self.journey(partition);
        self.kv_ask(index, partition, Open { id: 0, at, op, journey });
    }

    fn kv_ask(&mut self, index: usize, partition: PartitionId, open: Open) {
        let who = Who::Kv(index);
        let (home, epoch) = self.home_known_to(who, partition);
        let ops = vec![open.op.clone()];
        let batch = wire::KvBatch { partition: partition.0, epoch, ops };
        let id = self.request(who, home, request::Body::Kv(batch));
        self.kv_clients[index].open = Some(Open { id, ..open });
        let patience = self.dice.span(Span::from_millis(30), Span::from_millis(400));
        let what = Happening::Timeout { who, request: id };
        self.schedule(self.now + patience, what);
    }

    fn random_op(&mut self, index: usize) -> wire::KvOp {
        let keys = self.kv_clients[index].keys;
        let client = &mut self.kv_clients[index];
        client.counter += 1;
        let value = format!("{index}.{};", client.counter);
        let key = format!("key-{}", self.dice.below(keys));
        let kind = self.dice.pick(&[
            KvKind::Insert,
            KvKind::Lookup,
            KvKind::Lookup,
            KvKind::Append,
            KvKind::Append,
            KvKind::Cas,
            KvKind::Remove,
        ]);
        // Half of the swaps expect what some client wrote last.
        let written = self
            .history
            .keys
            .get(key.as_bytes())
            .and_then(|list| list.iter().rev().find(|o| o.op.kind == KvKind::Insert as i32));
        let expected = written.map(|o| o.op.value.clone()).unwrap_or_default();
        wire::KvOp {
            kind: kind as i32,
            key: key.into_bytes().into(),
            value: value.into_bytes().into(),
            expect_absent: kind == KvKind::Cas && self.dice.chance(400),
            expected: if kind == KvKind::Cas { expected } else { Bytes::new() },
        }
    }

    pub(crate) fn kv_response(&mut self, index: usize, from: usize, response: wire::Response) {
        let client = &mut self.kv_clients[index];
        let Some(mut open) = client.open.take_if(|open| open.id == response.id) else { return };
        if self.sent_on(Who::Kv(index), from, &response, Some(&mut open.journey)) {
            // Whoever sends it on has not carried it out.
            let partition = kvs::key_partition(&open.op.key, self.map.partitions.len() as u32);
            return self.kv_ask(index, partition, open);
        }
        let client = &mut self.kv_clients[index];
        let at = open.at;
        if let Some(response::Body::Kv(results)) = response.body
            && let Some(result) = results.results.into_iter().next()
        {
            client.closing.pop();
            self.history.answered(&at, self.now, result);
        }
        self.kv_next(index);
    }

    pub(crate) fn kv_timed_out(&mut self, index: usize, request: u64) {
        let client = &mut self.kv_clients[index];
        if client.open.take_if(|open| open.id == request).is_some() {
            self.ask_for_newer_map(Who::Kv(index));
            self.kv_next(index);
        }
    }

    fn kv_next(&mut self, index: usize) {
        let pause = self.dice.around(self.kv_clients[index].pace);
        self.schedule(self.now + pause, Happening::Wake { who: Who::Kv(index) });
    }
}
