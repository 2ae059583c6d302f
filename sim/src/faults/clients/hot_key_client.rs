//! Clients that read a few keys all the time and sometimes append to one, while homes move. They
//! ask any node that believes to be the home. A node that was replaced unnoticed must not answer
//! from its old records.

use bytes::Bytes;
use proto::wire::{KvKind, KvStatus, request, response};
use proto::{PartitionId, Span, Time, wire};

use crate::faults::event_queue::{ExternalClient, SimEvent};
use crate::faults::world::World;
use crate::rng::SimRng;

/// The share of reads that go to the home in the newest map.
const KNOWING_PERMILLE: u64 = 300;
/// The largest number of appends of one client, to keep lists short.
const PARTS_MAX: u64 = 60;

/// The operations of such a client and their rates.
#[derive(Clone, Copy, Debug)]
pub struct HotKeyPlan {
    pub keys: u64,
    pub pace: Span,
    /// Per thousand operations.
    pub appends_permille: u64,
}

#[derive(Debug)]
struct OpenCall {
    id: u64,
    key: usize,
    called: Time,
    /// The appended value; `None` reads.
    part: Option<Bytes>,
}

#[derive(Debug)]
pub(crate) struct HotKeyClient {
    plan: HotKeyPlan,
    until: Time,
    dice: SimRng,
    parts: u64,
    open: Option<OpenCall>,
    /// Keys to read once more, each until it is answered.
    closing: Vec<usize>,
    is_over: bool,
}

impl HotKeyClient {
    pub(crate) fn is_over(&self) -> bool {
        self.is_over && self.closing.is_empty()
    }
}

impl World {
    /// Adds a client for `span`.
    pub fn add_hot_key_client(&mut self, plan: HotKeyPlan, span: Span) {
        let (until, dice) = (self.now + span, self.dice.fork());
        self.begin_hot_key_client(HotKeyClient {
            plan,
            until,
            dice,
            parts: 0,
            open: None,
            closing: Vec::new(),
            is_over: false,
        });
    }

    fn begin_hot_key_client(&mut self, hot_key_client: HotKeyClient) {
        let number = self.clients.hot_keys.len();
        self.clients.hot_keys.push(hot_key_client);
        self.schedule(self.now, SimEvent::Wake { who: ExternalClient::HotKeyClient(number) });
    }

    /// Adds a final client that reads every key.
    pub(crate) fn read_all_lists(&mut self) {
        if self.clients.lists.is_empty() {
            return;
        }
        let plan = HotKeyPlan { keys: 1, pace: Span::from_millis(1), appends_permille: 0 };
        let (closing, dice) = ((0..self.clients.lists.len()).collect(), self.dice.fork());
        let until = self.now;
        let (open, parts) = (None, 0);
        self.begin_hot_key_client(HotKeyClient {
            plan,
            until,
            dice,
            parts,
            open,
            closing,
            is_over: false,
        });
    }

    pub(crate) fn hot_key_wake(&mut self, index: usize) {
        let now = self.now;
        let hot_key_client = &mut self.clients.hot_keys[index];
        if hot_key_client.open.is_some() {
            return;
        }
        let closing = hot_key_client.closing.last().copied();
        if closing.is_none() && now >= hot_key_client.until {
            hot_key_client.is_over = true;
            return;
        }
        let key =
            closing.unwrap_or_else(|| hot_key_client.dice.below(hot_key_client.plan.keys) as usize);
        let appends = closing.is_none()
            && hot_key_client.parts < PARTS_MAX
            && hot_key_client.dice.chance(hot_key_client.plan.appends_permille);
        let part = appends.then(|| {
            hot_key_client.parts += 1;
            Bytes::from(format!("{index}.{};", hot_key_client.parts))
        });
        let name = Bytes::from(format!("list-{key}"));
        let partition = kvs::key_partition(&name, self.map.partitions.len() as u32);
        let knows = part.is_some() || closing.is_some();
        let node = self.choose_target(index, partition, knows);
        while self.clients.lists.len() <= key {
            self.clients.lists.push(crate::checkers::lists::List::default());
        }
        if let Some(part) = &part {
            self.clients.lists[key].appends(part.clone(), now);
        }
        let kind = if part.is_some() { KvKind::Append } else { KvKind::Lookup };
        let value = part.clone().unwrap_or_default();
        let op = wire::KvOp { kind: kind as i32, key: name, value, ..Default::default() };
        let epoch = self.epoch_at(node, partition);
        let batch = wire::KvBatch { partition: partition.0, epoch, ops: vec![op], number: None };
        let who = ExternalClient::HotKeyClient(index);
        let id = self.request(who, node, request::Body::Kv(batch));
        let hot_key_client = &mut self.clients.hot_keys[index];
        hot_key_client.open = Some(OpenCall { id, key, called: now, part });
        let patience = hot_key_client.dice.span(Span::from_millis(20), Span::from_millis(1_500));
        self.schedule(now + patience, SimEvent::Timeout { who, request: id });
    }

    /// The home, or any node that believes to be the home.
    fn choose_target(&mut self, index: usize, partition: PartitionId, knows: bool) -> usize {
        let home = self.home(partition.0);
        if knows || self.clients.hot_keys[index].dice.chance(KNOWING_PERMILLE) {
            return home;
        }
        let serves = |node: &usize| {
            let node = self.machines[*node].node.as_ref();
            node.is_some_and(|node| node.serves(partition).is_some())
        };
        let all: Vec<usize> = (0..self.machines.len()).filter(serves).collect();
        if all.is_empty() { home } else { self.clients.hot_keys[index].dice.pick(&all) }
    }

    /// The epoch under which the node serves the partition, or would serve it.
    fn epoch_at(&self, node: usize, partition: PartitionId) -> u64 {
        let served = self.machines[node].node.as_ref().and_then(|node| node.serves(partition));
        served.unwrap_or(self.map.partitions[partition.0 as usize].epoch)
    }

    pub(crate) fn hot_key_response(&mut self, index: usize, response: wire::Response) {
        let now = self.now;
        let hot_key_client = &mut self.clients.hot_keys[index];
        let Some(open) = hot_key_client.open.take_if(|open| open.id == response.id) else { return };
        if let Some(response::Body::Kv(results)) = response.body
            && let Some(result) = results.results.into_iter().next()
        {
            hot_key_client.closing.pop();
            let is_known = matches!(result.status(), KvStatus::Ok | KvStatus::Absent);
            let list = &mut self.clients.lists[open.key];
            match &open.part {
                Some(part) if is_known => list.appended(part, now),
                None if is_known => list.read(open.called, now, result.value),
                _ => {}
            }
        }
        self.hot_key_next(index);
    }

    pub(crate) fn hot_key_timed_out(&mut self, index: usize, request: u64) {
        if self.clients.hot_keys[index].open.take_if(|open| open.id == request).is_some() {
            self.hot_key_next(index);
        }
    }

    fn hot_key_next(&mut self, index: usize) {
        let hot_key_client = &mut self.clients.hot_keys[index];
        let pause = hot_key_client.dice.around(hot_key_client.plan.pace);
        self.schedule(
            self.now + pause,
            SimEvent::Wake { who: ExternalClient::HotKeyClient(index) },
        );
    }

    /// True unless this read may return an old value from a replaced home. A node that still served
    /// the partition after the request may answer late.
    pub(crate) fn is_still_home(
        &self,
        index: usize,
        who: ExternalClient,
        response: &wire::Response,
    ) -> bool {
        let ExternalClient::HotKeyClient(hot_key_client) = who else { return true };
        let Some(open) = &self.clients.hot_keys[hot_key_client].open else { return true };
        let is_read = open.id == response.id && open.part.is_none();
        if !is_read || !matches!(response.body, Some(response::Body::Kv(_))) {
            return true;
        }
        let name = format!("list-{}", open.key);
        let partition = kvs::key_partition(name.as_bytes(), self.map.partitions.len() as u32);
        let entry = &self.map.partitions[partition.0 as usize];
        let until = self.agreed.served_until(partition, index);
        !self.homes_move()
            || !entry.active
            || entry.replicas[0] as usize == index
            || until.is_some_and(|until| open.called <= until)
    }
}
