//! Clients of the key-value store: one operation after another on a few shared keys. They never
//! repeat an operation, so an unanswered one stays open in the history.

use bytes::Bytes;
use proto::wire::{KvKind, request, response};
use proto::{Span, wire};

use crate::queue::{Happening, Who};
use crate::world::World;

#[derive(Debug)]
pub(crate) struct KvClient {
    keys: u64,
    operations_left: u32,
    pace: Span,
    open: Option<(u64, (Bytes, usize))>,
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
        let partitions = self.map.partitions.len() as u32;
        let partition = kvs::key_partition(&op.key, partitions).0;
        let epoch = self.map.partitions[partition as usize].epoch;
        let at = self.history.called(op.clone(), self.now);
        let batch = wire::KvBatch { partition, epoch, ops: vec![op] };
        let id = self.request(Who::Kv(index), self.home(partition), request::Body::Kv(batch));
        self.kv_clients[index].open = Some((id, at));
        let patience = self.dice.span(Span::from_millis(30), Span::from_millis(400));
        let what = Happening::Timeout { who: Who::Kv(index), request: id };
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

    pub(crate) fn kv_response(&mut self, index: usize, response: wire::Response) {
        let client = &mut self.kv_clients[index];
        let Some((_, at)) = client.open.take_if(|(id, _)| *id == response.id) else { return };
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
        if client.open.take_if(|(id, _)| *id == request).is_some() {
            self.kv_next(index);
        }
    }

    fn kv_next(&mut self, index: usize) {
        let pause = self.dice.around(self.kv_clients[index].pace);
        self.schedule(self.now + pause, Happening::Wake { who: Who::Kv(index) });
    }
}
