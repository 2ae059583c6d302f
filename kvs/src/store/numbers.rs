//! The numbered batches that one partition remembers, so that each takes effect at most once.
//!
//! The partition remembers the answers of the last [`KV_NUMBERS_MAX`] batches of each client, for
//! up to [`KV_NUMBERED_CLIENTS_MAX`] most recent clients. A batch with a remembered number gets the
//! remembered answer. A batch with a forgotten number is refused.
//!
//! **New client or forgotten client?** The partition counts the clients that it has forgotten; this
//! count is the present ticket. It also keeps the largest ticket that each client has shown. When
//! it forgets a client, that ticket and all lower ones become invalid. An unknown client must show
//! a valid ticket. So a late batch of a forgotten client never passes as the batch of a new client.
//! A ticket above the count belongs to another partition and is refused.
//!
//! A refusal contains the present ticket. A client may use it once every attempt at its batch was
//! refused. The ticket becomes invalid only when the partition forgets a client that showed it or a
//! later one. That takes as many new clients as the partition remembers.
//!
//! **On disk** each remembered number is a record under [`crate::keys::number`]. The record of
//! client 0 holds the count. A batch and its number are written atomically.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use prost::Message;
use proto::limits::{KV_ANSWER_KEPT_BYTES, KV_NUMBERED_CLIENTS_MAX, KV_NUMBERS_MAX};
use proto::{PartitionId, wire};

use super::StoreError;
use crate::limits::KV_NUMBERED_SCARCE;
use crate::{Write, keys};

/// The memory cost of a remembered number besides its results.
const NUMBER_OVERHEAD_BYTES: u64 = 128;

/// The numbers of one partition.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    clients: HashMap<u64, Client, FixedState>,
    /// The number of forgotten clients, which is the present ticket.
    forgotten: u64,
    /// The first valid ticket: no forgotten client has shown this ticket or a higher one.
    unspent: u64,
    /// Counts the numbers that were recorded, for the order of last use.
    uses: u64,
}

#[derive(Debug, Default)]
struct Client {
    answers: BTreeMap<u64, Noted>,
    /// The largest number of this client that was dropped.
    dropped: u64,
    /// The first valid ticket when the client became known. Batches with an earlier ticket may be
    /// those of a client with the same number that was forgotten.
    since: u64,
    /// The largest ticket of this client's batches.
    shown: u64,
}

#[derive(Debug)]
struct Noted {
    place: u8,
    used: u64,
    /// `None` if the batch was refused, or its answer was too long to keep.
    results: Option<wire::KvResults>,
    bytes: u64,
}

/// The limits on remembered clients, on numbers per client, and on the size of a kept answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) clients: usize,
    pub(super) numbers: usize,
    pub(super) answer_bytes: usize,
}

impl Room {
    /// The limits while the numbers of all partitions exceed their share of memory. They still let
    /// a client without an answer retry its batch.
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
    /// The remembered answer of a batch; `None` if the batch is new.
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

    /// Records the answer of a new batch (`None`: it was refused). Returns the growth of the memory
    /// in use.
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

    /// Forgets the least recently used client. Returns the bytes that this freed.
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

    /// Loads a stored record. Returns the bytes that it takes in memory.
    pub(super) fn load(&mut self, key: &[u8], value: &[u8]) -> Result<u64, &'static str> {
        let (client, place) = keys::parse_number(key).ok_or("the key of a number is malformed")?;
        if client == 0 {
            let count = wire::KvForgottenRecord::decode(value);
            let count = count.map_err(|_| "the count of clients does not decode")?;
            self.forgotten = count.clients;
            self.unspent = count.unspent;
            if count.unspent == 0 {
                // A record without `unspent`: treat all earlier tickets as invalid.
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
