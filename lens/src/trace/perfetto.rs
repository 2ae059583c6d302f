//! Perfetto's own form: packets of track events, with names written once.

use std::collections::BTreeMap;
use std::io::{self, Write};

use prost::Message;

use super::{busy, slices, slot_name};
use crate::record::Record;

/// The field numbers are those of Perfetto's `trace_packet.proto` and its parts.
#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    sequence: Option<u32>,
    #[prost(message, optional, tag = "11")]
    event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned: Option<Interned>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track: Option<Track>,
}

#[derive(Clone, PartialEq, Message)]
struct Track {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<Process>,
    #[prost(uint64, optional, tag = "5")]
    parent: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<Counter>,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Counter {}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    categories: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    annotations: Vec<Annotation>,
    #[prost(uint32, optional, tag = "9")]
    kind: Option<u32>,
    #[prost(uint64, optional, tag = "10")]
    name: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    track: Option<u64>,
    #[prost(int64, optional, tag = "30")]
    value: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(uint64, optional, tag = "1")]
    name: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    number: Option<u64>,
    #[prost(string, optional, tag = "6")]
    text: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Interned {
    #[prost(message, repeated, tag = "1")]
    categories: Vec<Name>,
    #[prost(message, repeated, tag = "2")]
    names: Vec<Name>,
    #[prost(message, repeated, tag = "3")]
    annotations: Vec<Name>,
}

#[derive(Clone, PartialEq, Message)]
struct Name {
    #[prost(uint64, optional, tag = "1")]
    id: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}

const SLICE_BEGIN: u32 = 1;
const SLICE_END: u32 = 2;
const COUNTER: u32 = 4;
/// The interned names begin here, or are used.
const STATE_CLEARED: u32 = 1;
const STATE_NEEDED: u32 = 2;
const SEQUENCE: u32 = 1;
const ARGUMENTS: [&str; 6] = ["task", "attempt", "end", "queued_us", "moved_bytes", "local_bytes"];

fn name(id: u64, name: &str) -> Name {
    Name { id: Some(id), name: Some(name.to_owned()) }
}

fn packet(packet: Packet) -> Vec<u8> {
    let flags = packet.sequence_flags.or(Some(STATE_NEEDED));
    let packet = Packet { sequence: Some(SEQUENCE), sequence_flags: flags, ..packet };
    Trace { packet: vec![packet] }.encode_to_vec()
}

/// A process has uuid `node + 1`; its slots have the uuids above its high half.
fn process_uuid(node: u32) -> u64 {
    u64::from(node) + 1
}
fn slot_uuid(node: u32, slot: u32) -> u64 {
    (process_uuid(node) << 32) | (u64::from(slot) + 1)
}
const COUNTER_UUID: u64 = u64::MAX;

/// Writes a record as packets for Perfetto.
///
/// # Errors
/// When `out` fails.
pub fn perfetto(record: &Record, out: &mut impl Write) -> io::Result<()> {
    let kinds = (1..).zip(&record.meta.kinds).map(|(id, kind)| name(id, kind));
    let interned = Interned {
        categories: kinds.collect(),
        names: Vec::new(),
        annotations: (1..).zip(ARGUMENTS).map(|(id, word)| name(id, word)).collect(),
    };
    let head = Packet {
        interned: Some(interned),
        sequence_flags: Some(STATE_CLEARED),
        ..Packet::default()
    };
    out.write_all(&packet(head))?;
    for node in &record.meta.nodes {
        let text = match node.host.as_str() {
            "" => format!("node {}", node.node),
            host => format!("node {} on {host}", node.node),
        };
        let process =
            Process { pid: i32::try_from(process_uuid(node.node)).ok(), name: Some(text) };
        out.write_all(&track(process_uuid(node.node), None, None, Some(process)))?;
    }
    let mut names = Names::default();
    let mut last = None;
    for slice in slices(record) {
        let (row, slot) = (slice.row, slice.slot);
        let uuid = slot_uuid(row.node, slot);
        if last != Some(uuid) {
            last = Some(uuid);
            let parent = Some(process_uuid(row.node));
            out.write_all(&track(uuid, Some(slot_name(slot)), parent, None))?;
        }
        let (id, interned) = names.of(record.task_name(row.task));
        let number = |name: u64, number: u64| Annotation {
            name: Some(name),
            number: Some(number),
            text: None,
        };
        let text = |name: u64, text: String| Annotation {
            name: Some(name),
            number: None,
            text: Some(text),
        };
        let begin = TrackEvent {
            categories: vec![u64::from(row.kind) + 1],
            annotations: vec![
                text(1, row.task.to_string()),
                number(2, row.number.into()),
                text(3, row.outcome.word().to_owned()),
                number(4, row.wait_us),
                number(5, row.moved_bytes),
                number(6, row.local_bytes),
            ],
            kind: Some(SLICE_BEGIN),
            name: Some(id),
            track: Some(uuid),
            ..TrackEvent::default()
        };
        out.write_all(&event(slice.start_us, begin, interned))?;
        let end = TrackEvent { kind: Some(SLICE_END), track: Some(uuid), ..TrackEvent::default() };
        out.write_all(&event(slice.end_us, end, None))?;
    }
    counters(record, out)
}

fn counters(record: &Record, out: &mut impl Write) -> io::Result<()> {
    let descriptor = Track {
        uuid: Some(COUNTER_UUID),
        name: Some("busy slots".to_owned()),
        counter: Some(Counter {}),
        ..Track::default()
    };
    out.write_all(&packet(Packet { track: Some(descriptor), ..Packet::default() }))?;
    for (at_us, slots) in busy(record) {
        let value = i64::try_from(slots).ok();
        let track = Some(COUNTER_UUID);
        let counter = TrackEvent { kind: Some(COUNTER), track, value, ..TrackEvent::default() };
        out.write_all(&event(at_us, counter, None))?;
    }
    Ok(())
}

fn track(
    uuid: u64,
    name: Option<String>,
    parent: Option<u64>,
    process: Option<Process>,
) -> Vec<u8> {
    let track = Track { uuid: Some(uuid), name, process, parent, counter: None };
    packet(Packet { track: Some(track), ..Packet::default() })
}

fn event(at_us: u64, event: TrackEvent, interned: Option<Interned>) -> Vec<u8> {
    let timestamp = Some(at_us.saturating_mul(1_000));
    packet(Packet { timestamp, event: Some(event), interned, ..Packet::default() })
}

/// The numbers of the names so far.
#[derive(Default)]
struct Names {
    known: BTreeMap<String, u64>,
}

impl Names {
    /// The number of a name, and what introduces it if it is new.
    fn of(&mut self, text: String) -> (u64, Option<Interned>) {
        if let Some(&id) = self.known.get(&text) {
            return (id, None);
        }
        let id = self.known.len() as u64 + 1;
        let interned = Interned { names: vec![name(id, &text)], ..Interned::default() };
        self.known.insert(text, id);
        (id, Some(interned))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The (track, time, is begin) of all slices.
    pub(in crate::trace) fn slices_of(bytes: &[u8]) -> Vec<(u64, u64, bool)> {
        let trace = Trace::decode(bytes).unwrap();
        let events = trace.packet.iter().filter_map(|packet| {
            let event = packet.event.as_ref()?;
            let is_begin = event.kind == Some(SLICE_BEGIN);
            (event.kind != Some(COUNTER)).then_some((event.track?, packet.timestamp?, is_begin))
        });
        events.collect()
    }

    #[test]
    fn each_track_and_name_is_introduced_once() {
        let record = crate::record::tests::large(800);
        let mut bytes = Vec::new();
        perfetto(&record, &mut bytes).unwrap();
        let trace = Trace::decode(&bytes[..]).unwrap();
        let tracks: Vec<u64> =
            trace.packet.iter().filter_map(|it| it.track.as_ref()?.uuid).collect();
        assert_eq!(tracks.len(), 8 + 64 + 1);
        let mut unique = tracks.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), tracks.len());
        let interned = trace.packet.iter().filter_map(|it| it.interned.as_ref());
        assert_eq!(interned.flat_map(|it| &it.names).count(), 800);
    }
}
