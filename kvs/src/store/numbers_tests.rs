//! Tests of numbered batches that arrive late, twice, after a restart, or from too many clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use prost::Message;
use proto::limits::KV_ANSWER_KEPT_BYTES;
use proto::wire::{ErrorCode, KvBatch, KvKind, KvNumber, KvOp, KvResult, KvStatus};
use proto::{NodeId, PartitionId, wire};

use super::Room;
use crate::limits::{KV_NODE_BYTES_MAX, KV_NUMBERS_SHARE};
use crate::{Record, Store, StoreError, Write, make_map};

const ROOM: Room = Room { clients: 3, numbers: 2, answer_bytes: KV_ANSWER_KEPT_BYTES };
const CLIENTS: u64 = 5;

fn op(kind: KvKind, value: &str) -> KvOp {
    let value = value.to_owned().into();
    KvOp { kind: kind as i32, key: "k".into(), value, ..KvOp::default() }
}

fn batch(client: u64, sequence: u64, ticket: u64, ops: Vec<KvOp>) -> KvBatch {
    let number = Some(KvNumber { client, sequence, ticket });
    KvBatch { partition: 0, epoch: 1, ops, number }
}

#[derive(Default)]
struct Disk(BTreeMap<Vec<u8>, Vec<u8>>);

impl Disk {
    fn write(&mut self, writes: Vec<Write>) {
        for write in writes {
            match write.value {
                Some(value) => drop(self.0.insert(write.key, value)),
                None => drop(self.0.remove(&write.key)),
            }
        }
    }
    fn store(&self, room: Room) -> Store {
        let partition = PartitionId(0);
        let records = self.0.clone().into_iter();
        let mut store = Store::new(NodeId(0), Arc::new(make_map(1, 1, 1))).with_room(room);
        for (key, value) in records {
            store.load(&Record { partition, key, value }).unwrap();
        }
        store
    }
}

/// A client's knowledge about its numbers.
#[derive(Default, Clone)]
struct Client {
    ticket: u64,
    last: u64,
    /// Sent batches with their tickets. Each can arrive again at any time.
    sent: Vec<KvBatch>,
}

#[derive(Clone, Debug)]
enum Step {
    Send {
        client: u64,
        kind: KvKind,
        /// A ticket that this partition did not issue.
        stray: Option<u64>,
    },
    /// A batch that was sent before arrives once more, unchanged.
    Late {
        client: u64,
        which: usize,
    },
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![Just(KvKind::Append), Just(KvKind::Remove), Just(KvKind::Cas)];
    let step = prop_oneof![
        5 => (1..=CLIENTS, kind, prop_oneof![4 => Just(None), 1 => (0..9u64).prop_map(Some)])
            .prop_map(|(client, kind, stray)| Step::Send { client, kind, stray }),
        5 => (1..=CLIENTS, 0..9usize).prop_map(|(client, which)| Step::Late { client, which }),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None,
        ..ProptestConfig::default() })]
    /// The value of the key lists the batches that took effect since the key was last removed.
    #[test]
    fn a_number_takes_effect_at_most_once(steps in steps()) {
        let mut disk = Disk::default();
        let mut store = disk.store(ROOM);
        let mut clients = vec![Client::default(); CLIENTS as usize + 1];
        let mut answers: BTreeMap<(u64, u64), Vec<KvResult>> = BTreeMap::new();
        let mut happened = BTreeSet::new();
        for step in steps {
            let (request, is_first) = match step {
                Step::Restart => {
                    let used = store.used_bytes();
                    store = disk.store(ROOM);
                    prop_assert_eq!(store.used_bytes(), used);
                    continue;
                }
                Step::Send { client, kind, stray } => {
                    let known = &mut clients[client as usize];
                    known.last += 1;
                    let mut change = op(kind, &format!("{client}.{};", known.last));
                    change.expect_absent = true;
                    let ticket = stray.unwrap_or(known.ticket);
                    let request = batch(client, known.last, ticket, vec![change]);
                    known.sent.push(request.clone());
                    (request, true)
                }
                Step::Late { client, which } => {
                    let sent = &clients[client as usize].sent;
                    let Some(at) = sent.len().checked_sub(1 + which) else { continue };
                    (sent[at].clone(), false)
                }
            };
            let number = request.number.unwrap();
            let id = (number.client, number.sequence);
            let before = store.lookup(PartitionId(0), b"k");
            let mut writes = Vec::new();
            let outcome = store.apply(&request, &mut writes);
            let changed = store.lookup(PartitionId(0), b"k") != before;
            disk.write(writes);
            match outcome {
                Ok(results) => {
                    let first = answers.entry(id).or_insert_with(|| results.clone());
                    prop_assert_eq!(&results, first, "the same answer again");
                    prop_assert!(!changed || happened.insert(id), "{:?} happened twice", id);
                }
                Err(StoreError::Forgotten { ticket, .. }) => {
                    prop_assert!(!changed);
                    let known = &mut clients[id.0 as usize];
                    // The client is known now only if its batch was answered or was refused for its
                    // ticket.
                    if is_first {
                        known.ticket = ticket;
                    }
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}

#[test]
fn a_first_try_is_refused_for_its_ticket_alone() {
    let mut store = Disk::default().store(ROOM);
    let mut send = |client, sequence, ticket| {
        let request = batch(client, sequence, ticket, vec![op(KvKind::Append, "x")]);
        store.apply(&request, &mut Vec::new()).map(|results| results[0].version)
    };
    for client in 1..=4 {
        assert_eq!(send(client, 1, 0), Ok(client));
    }
    // Client 1 was forgotten. The store refuses it and any unknown client with an old ticket.
    let forgotten = |sequence| Err(StoreError::Forgotten { sequence, ticket: 1 });
    assert_eq!(send(1, 1, 0), forgotten(1));
    assert_eq!(send(5, 1, 0), forgotten(1));
    // A ticket of another partition is refused, for a known client too.
    assert_eq!(send(5, 2, 2), forgotten(2));
    assert_eq!(send(4, 2, u64::MAX), forgotten(2));
    assert_eq!(send(5, 2, 1), Ok(5));
    assert_eq!(send(5, 2, 1), Ok(5), "again");
    // Client 2 was forgotten in favour of client 5. The store remembers the last two numbers of
    // client 5.
    assert_eq!(send(5, 3, 1), Ok(6));
    assert_eq!(send(5, 4, 1), Ok(7));
    assert_eq!(send(5, 2, 1), Err(StoreError::Forgotten { sequence: 2, ticket: 2 }));
    assert_eq!(StoreError::Forgotten { sequence: 2, ticket: 2 }.code(), ErrorCode::Forgotten);
    assert_eq!(send(0, 1, 9), Err(StoreError::NumberZero));
    assert_eq!(send(5, 0, 9), Err(StoreError::NumberZero));
}

/// All clients learn the same ticket before the first of them uses it.
#[test]
fn many_newcomers_at_once_need_one_ticket_each() {
    let room = Room::default();
    let mut disk = Disk::default();
    let mut store = disk.store(room);
    let mut send = |client: u64, sequence, ticket| {
        let mut writes = Vec::new();
        let request = batch(client, sequence, ticket, vec![op(KvKind::Append, "x")]);
        let outcome = store.apply(&request, &mut writes).map(|_| ());
        disk.write(writes);
        store = disk.store(room);
        outcome
    };
    for client in 0..=room.clients as u64 {
        send(1000 + client, 1, 0).unwrap();
    }
    let newcomers = room.clients as u64;
    for client in 1..=newcomers {
        let refused = send(client, 1, 0);
        assert_eq!(refused, Err(StoreError::Forgotten { sequence: 1, ticket: 1 }));
    }
    for client in 1..=newcomers {
        assert_eq!(send(client, 2, 1), Ok(()), "newcomer {client}");
    }
    // One client more: the first one is forgotten, and its ticket becomes invalid.
    assert_eq!(send(200, 1, 1), Ok(()));
    let ticket = newcomers + 2;
    assert_eq!(send(1, 2, 1), Err(StoreError::Forgotten { sequence: 2, ticket }));
    assert_eq!(send(201, 1, 1), Err(StoreError::Forgotten { sequence: 1, ticket }));
}

#[test]
fn tickets_of_a_version_that_did_not_tell_which_are_spent_are_spent() {
    let mut disk = Disk::default();
    let count = wire::KvForgottenRecord { clients: 7, unspent: 0 };
    disk.0.insert(crate::keys::number(0, 0), count.encode_to_vec());
    let mut store = disk.store(ROOM);
    let mut send = |ticket| {
        let request = batch(1, 1, ticket, vec![op(KvKind::Append, "x")]);
        store.apply(&request, &mut Vec::new()).map(|_| ())
    };
    let forgotten = Err(StoreError::Forgotten { sequence: 1, ticket: 8 });
    assert_eq!([send(0), send(7)], [forgotten.clone(), forgotten]);
    assert_eq!(send(8), Ok(()));
}

#[test]
fn refused_and_long_answers_are_remembered_without_their_results() {
    let mut disk = Disk::default();
    let mut writes = Vec::new();
    let mut store = disk.store(ROOM).with_budget(2_000);
    let long = "x".repeat(KV_ANSWER_KEPT_BYTES);
    let full = batch(1, 1, 0, vec![op(KvKind::Insert, &long)]);
    assert!(matches!(store.apply(&full, &mut writes), Err(StoreError::Full { .. })));
    disk.write(std::mem::take(&mut writes));
    // There is space now, but the client got the answer that there is none.
    let mut store = disk.store(ROOM).with_budget(KV_NODE_BYTES_MAX);
    let again = store.apply(&full, &mut writes);
    assert_eq!(again, Err(StoreError::AnswerUnkept { sequence: 1 }));
    assert!(writes.is_empty() && store.is_empty());

    let insert = batch(1, 2, 0, vec![op(KvKind::Insert, &long), op(KvKind::Lookup, "")]);
    assert_eq!(store.apply(&insert, &mut writes).unwrap().len(), 2);
    let again = store.apply(&insert, &mut writes);
    assert_eq!(again, Err(StoreError::AnswerUnkept { sequence: 2 }));

    let swap = batch(1, 3, 0, vec![KvOp { expect_absent: true, ..op(KvKind::Cas, "y") }]);
    let told = store.apply(&swap, &mut writes).unwrap();
    assert_eq!(told[0].status(), KvStatus::Conflict);
    assert_eq!(store.apply(&swap, &mut writes), Err(StoreError::AnswerUnkept { sequence: 3 }));
}

#[test]
fn numbers_never_take_much_more_than_their_share_of_the_memory() {
    let budget_bytes = 1 << 20;
    let share = budget_bytes / KV_NUMBERS_SHARE;
    let mut store = Disk::default().store(Room::default()).with_budget(budget_bytes);
    let long = "x".repeat(KV_ANSWER_KEPT_BYTES / 2);
    let insert = KvBatch { number: None, ..batch(1, 1, 0, vec![op(KvKind::Insert, &long)]) };
    store.apply(&insert, &mut Vec::new()).unwrap();
    let before = store.used_bytes();
    let mut ticket = 0;
    for client in 1..=500 {
        for sequence in 1..=20 {
            let mut writes = Vec::new();
            let lookup = batch(client, sequence, ticket, vec![op(KvKind::Lookup, "")]);
            match store.apply(&lookup, &mut writes) {
                Ok(_) => {}
                Err(StoreError::Forgotten { ticket: told, .. }) => ticket = told,
                Err(other) => panic!("{other}"),
            }
            let used = store.used_bytes() - before;
            // One number with an answer, and all that are remembered without one.
            assert!(used <= share + (3 << 10) + 16 * 16 * 128, "client {client}: {used}");
        }
    }
    // A number without results is still known, so a repeated batch takes effect once.
    let append = batch(500, 21, ticket, vec![op(KvKind::Append, "y")]);
    let first = store.apply(&append, &mut Vec::new());
    assert!(matches!(&first, Ok(results) if results.len() == 1), "{first:?}");
    let again = store.apply(&append, &mut Vec::new());
    let is_known = match &again {
        Ok(results) => results.len() == 1,
        Err(error) => matches!(error, StoreError::AnswerUnkept { .. }),
    };
    assert!(is_known, "{again:?}");
    let look = KvBatch { number: None, ..batch(1, 1, 0, vec![op(KvKind::Lookup, "")]) };
    let found = store.apply(&look, &mut Vec::new()).unwrap();
    assert_eq!(found[0].value.len(), long.len() + 1, "appended once");
    store.forget(PartitionId(0));
    assert_eq!(store.used_bytes(), 0);
}

#[test]
fn a_partition_that_is_forgotten_takes_its_numbers_along() {
    let mut store = Disk::default().store(ROOM);
    let insert = batch(1, 1, 0, vec![op(KvKind::Insert, "x")]);
    store.apply(&insert, &mut Vec::new()).unwrap();
    assert!(store.used_bytes() > 0);
    store.forget(PartitionId(0));
    assert_eq!(store.used_bytes(), 0);
}
