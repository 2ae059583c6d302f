//! What one partition remembers of clients that number their batches.
//!
//! A numbered batch takes effect at most once. The partition remembers the answers of the last
//! [`KV_NUMBERS_MAX`] batches of up to [`KV_NUMBERED_CLIENTS_MAX`] clients, those that used it
//! last. It answers a remembered number again, and refuses one that it has forgotten.
//!
//! **A new client or a forgotten one?** The partition counts the clients it has forgotten: that
//! count is the present ticket. It keeps the largest ticket that each client has shown. When a
//! client is forgotten, that ticket and all below are spent. A client that is not known has to show
//! one that is not spent, so a late batch of a forgotten client never passes for the batch of a new
//! one. A ticket above the count is of another partition, and refused. The refusal tells the
//! present ticket. A client may use it when each copy of its batch was refused. It is not spent
//! before as many other clients have come as are remembered.
//!
//! **On disk** each remembered number is a record under [`crate::keys::number`], and the count is
//! the record of client 0. A batch and its number are written together.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use prost::Message;
use proto::limits::{
    KV_ANSWER_KEPT_BYTES, KV_NUMBERED_CLIENTS_MAX, KV_NUMBERED_SCARCE, KV_NUMBERS_MAX,
};
use proto::{PartitionId, wire};

use super::StoreError;
use crate::{Write, keys};

/// What a remembered number costs beside its results.
const NUMBER_OVERHEAD_BYTES: u64 = 128;

/// The numbers of one partition.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    clients: HashMap<u64, Client, FixedState>,
    /// How many clients were forgotten: the present ticket.
    forgotten: u64,
    /// Clients that are forgotten have shown no ticket from this one on.
    unspent: u64,
    /// How many numbers were noted.
    uses: u64,
}

#[derive(Debug, Default)]
struct Client {
    answers: BTreeMap<u64, Noted>,
    /// The largest number that was dropped.
    dropped: u64,
    /// The first ticket that was unspent when it came: it was forgotten before, maybe.
    since: u64,
    /// The largest ticket of its batches.
    shown: u64,
}

#[derive(Debug)]
struct Noted {
    place: u8,
    used: u64,
    /// Encoded; `None`: refused, or too long to keep.
    results: Option<wire::KvResults>,
    bytes: u64,
}

/// How many clients and numbers are remembered, and how long an answer may be that is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) clients: usize,
    pub(super) numbers: usize,
    pub(super) answer_bytes: usize,
}

impl Room {
    /// Where the numbers of all partitions take more than their share of the memory: enough that a
    /// client which was not answered may ask again.
    pub(super) fn scarce(self) -> Self {
        Self { clients: self.clients.div_ceil(KV_NUMBERED_SCARCE), answer_bytes: 0, ..self }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self {
            clients: KV_NUMBERED_CLIENTS_MAX,
            numbers: KV_NUMBERS_MAX,
            answer_bytes: KV_ANSWER_KEPT_BYTES,
        }
    }
}

impl Numbers {
    /// The answer of a batch that was here before; `None` when it is new.
    pub(super) fn answer(
        &self,
        number: &wire::KvNumber,
    ) -> Result<Option<Vec<wire::KvResult>>, StoreError> {
        if number.client == 0 || number.sequence == 0 {
            return Err(StoreError::NumberZero);
        }
        let forgotten = StoreError::Forgotten { sequence: number.sequence, ticket: self.forgotten };
        let client = self.clients.get(&number.client);
        match client.and_then(|client| client.answers.get(&number.sequence)) {
            Some(Noted { results: Some(results), .. }) => return Ok(Some(results.results.clone())),
            Some(_) => return Err(StoreError::AnswerUnkept { sequence: number.sequence }),
            None => {}
        }
        let since = client.map_or(self.unspent, |client| client.since);
        let is_dropped = client.is_some_and(|client| number.sequence <= client.dropped);
        match is_dropped || !(since..=self.forgotten).contains(&number.ticket) {
            true => Err(forgotten),
            false => Ok(None),
        }
    }

    /// Remembers how a new batch was answered (`None`: it was refused). Returns by how much the
    /// memory in use has grown.
    pub(super) fn note(
        &mut self,
        partition: PartitionId,
        number: &wire::KvNumber,
        results: Option<&[wire::KvResult]>,
        room: Room,
        writes: &mut Vec<Write>,
    ) -> i64 {
        let mut grown = 0;
        let since = self.unspent;
        while !self.clients.contains_key(&number.client) && self.clients.len() >= room.clients {
            grown -= self.forget_oldest(partition, writes) as i64;
        }
        self.uses += 1;
        let came = || Client { since, ..Client::default() };
        let client = self.clients.entry(number.client).or_insert_with(came);
        client.shown = client.shown.max(number.ticket);
        let mut place = client.answers.len() as u8;
        if client.answers.len() >= room.numbers
            && let Some((sequence, noted)) = client.answers.pop_first()
        {
            client.dropped = client.dropped.max(sequence);
            place = noted.place;
            grown -= noted.bytes as i64;
        }
        let results = results.map(|results| wire::KvResults { results: results.to_vec() });
        let results = results.filter(|kept| kept.encoded_len() <= room.answer_bytes);
        let record = wire::KvNumberRecord {
            sequence: number.sequence,
            dropped: client.dropped,
            r#use: self.uses,
            unkept: results.is_none(),
            since: client.since,
            results,
            shown: client.shown,
        };
        let key = keys::number(number.client, place);
        writes.push(Write { partition, key, value: Some(record.encode_to_vec()) });
        grown + client.put(place, record) as i64
    }

    /// The client whose last number is the oldest goes; returns the bytes that were freed.
    fn forget_oldest(&mut self, partition: PartitionId, writes: &mut Vec<Write>) -> u64 {
        let last_use = |client: &Client| client.answers.values().map(|noted| noted.used).max();
        let oldest = self.clients.iter().min_by_key(|(_, client)| last_use(client));
        let Some((&number, _)) = oldest else { return 0 };
        let client = self.clients.remove(&number).expect("just found");
        self.unspent = self.unspent.max(client.shown + 1);
        self.forgotten += 1;
        let count = wire::KvForgottenRecord { clients: self.forgotten, unspent: self.unspent };
        writes.push(Write {
            partition,
            key: keys::number(0, 0),
            value: Some(count.encode_to_vec()),
        });
        writes.extend(client.answers.values().map(|noted| Write {
            partition,
            key: keys::number(number, noted.place),
            value: None,
        }));
        client.answers.values().map(|noted| noted.bytes).sum()
    }

    /// Takes a record back in; returns the bytes it takes.
    pub(super) fn load(&mut self, key: &[u8], value: &[u8]) -> Result<u64, &'static str> {
        let (client, place) = keys::parse_number(key).ok_or("the key of a number is malformed")?;
        if client == 0 {
            let count = wire::KvForgottenRecord::decode(value);
            let count = count.map_err(|_| "the count of clients does not decode")?;
            self.forgotten = count.clients;
            self.unspent = count.unspent;
            if count.unspent == 0 {
                // Of a version that did not tell: all tickets of its time are spent.
                self.forgotten += 1;
                self.unspent = self.forgotten;
            }
            return Ok(0);
        }
        let record = wire::KvNumberRecord::decode(value);
        let record = record.map_err(|_| "a remembered number does not decode")?;
        self.uses = self.uses.max(record.r#use);
        let client = self.clients.entry(client).or_default();
        client.dropped = client.dropped.max(record.dropped);
        client.since = client.since.max(record.since);
        client.shown = client.shown.max(record.shown);
        Ok(client.put(place, record))
    }

    pub(super) fn bytes(&self) -> u64 {
        let noted = self.clients.values().flat_map(|client| client.answers.values());
        noted.map(|noted| noted.bytes).sum()
    }
}

impl Client {
    fn put(&mut self, place: u8, record: wire::KvNumberRecord) -> u64 {
        let bytes = NUMBER_OVERHEAD_BYTES
            + record.results.as_ref().map_or(0, |results| results.encoded_len() as u64);
        let used = record.r#use;
        let results = if record.unkept { None } else { Some(record.results.unwrap_or_default()) };
        self.answers.insert(record.sequence, Noted { place, used, results, bytes });
        bytes
    }
}
