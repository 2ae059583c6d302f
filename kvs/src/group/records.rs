//! How a voter's state lies in the store of its node: one promise, one snapshot, and the log.

use std::collections::BTreeMap;

use prost::Message;
use proto::wire;

use super::DamagedGroup;
use crate::{Record, Write, keys};

/// After [`keys::META`]: the group's own.
const GROUP: u8 = b'g';
const HARD_STATE: u8 = b'p';
const SNAPSHOT: u8 = b's';
const ENTRY: u8 = b'e';

/// What was found in the store.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) any: bool,
    pub(super) hard_state: wire::HardState,
    pub(super) snapshot: Option<wire::GroupSnapshot>,
    pub(super) entries: BTreeMap<u64, wire::GroupEntry>,
}

/// Whether a record of a node's store belongs to the group.
#[must_use]
pub fn is_record(record: &Record) -> bool {
    record.partition == keys::META_PARTITION && record.key.starts_with(&[keys::META, GROUP])
}

fn entry_key(index: u64) -> Vec<u8> {
    let mut key = vec![keys::META, GROUP, ENTRY];
    key.extend_from_slice(&index.to_be_bytes());
    key
}

fn write(key: Vec<u8>, value: Option<Vec<u8>>) -> Write {
    Write { partition: keys::META_PARTITION, key, value }
}

pub(super) fn hard_state(hard_state: &wire::HardState) -> Write {
    write(vec![keys::META, GROUP, HARD_STATE], Some(hard_state.encode_to_vec()))
}

pub(super) fn snapshot(snapshot: &wire::GroupSnapshot) -> Write {
    write(vec![keys::META, GROUP, SNAPSHOT], Some(snapshot.encode_to_vec()))
}

pub(super) fn entry(entry: &wire::GroupEntry) -> Write {
    write(entry_key(entry.index), Some(entry.encode_to_vec()))
}

pub(super) fn no_entry(index: u64) -> Write {
    write(entry_key(index), None)
}

pub(super) fn read(records: impl IntoIterator<Item = Record>) -> Result<Found, DamagedGroup> {
    let mut found = Found::default();
    let damaged = |what: &str, error: prost::DecodeError| {
        DamagedGroup(format!("{what} does not decode: {error}"))
    };
    for record in records.into_iter().filter(is_record) {
        found.any = true;
        let value = record.value.as_slice();
        match record.key[2..] {
            [HARD_STATE] => {
                let hard_state = wire::HardState::decode(value);
                found.hard_state = hard_state.map_err(|error| damaged("the promise", error))?;
            }
            [SNAPSHOT] => {
                let snapshot = wire::GroupSnapshot::decode(value);
                let snapshot = snapshot.map_err(|error| damaged("the snapshot", error))?;
                let map = snapshot.map.as_ref();
                let map = map.ok_or_else(|| DamagedGroup("the snapshot has no map".into()))?;
                crate::check_map(map).map_err(|error| DamagedGroup(error.to_string()))?;
                found.snapshot = Some(snapshot);
            }
            [ENTRY, ..] => {
                let entry = wire::GroupEntry::decode(value);
                let entry = entry.map_err(|error| damaged("an entry", error))?;
                if record.key != entry_key(entry.index) {
                    return Err(DamagedGroup(format!("entry {} lies elsewhere", entry.index)));
                }
                found.entries.insert(entry.index, entry);
            }
            _ => return Err(DamagedGroup(format!("a record has the key {:?}", record.key))),
        }
    }
    Ok(found)
}
