//! Golden bytes: the formats on the wire and on disk do not change by accident.
//!
//! For each kind of message a sample with all its fields is built from the `.proto` file itself. A
//! field's value follows from its *name*, so that renumbered or swapped fields are found. The real
//! types must decode the sample and encode the same bytes. Events are written out by hand.
//!
//! For an intended change of the protocol: `STARLING_BLESS=1 cargo test -p starling-tests --test
//! golden`. Then read the difference: lines may be added, and existing ones should only grow.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value,
};
use proto::event::{Decoder, Encoder, End, Reason, RetryReason, Spared, Stall, Turned};
use proto::{Attempt, Event, JobId, NodeId, PartitionId, Span, TaskId, Time, wire};
use security::to_hex;

#[test]
fn messages_keep_their_bytes() {
    let samples = samples();
    for (name, bytes) in &samples {
        let back = through_the_real_type(name, bytes);
        assert_eq!(to_hex(&back), to_hex(bytes), "{name} does not survive decode and encode");
    }
    compare("wire.hex", &samples);
}

#[test]
fn every_kind_of_the_closed_sets_has_a_sample() {
    let samples = samples();
    let pool = pool();
    for set in SETS {
        let message = descriptor(&pool, set);
        let oneof = message.oneofs().next().expect("a closed set is a oneof");
        assert!(oneof.fields().len() > 1);
        for field in oneof.fields() {
            assert!(samples.contains_key(&format!("{set}.{}", field.name())));
        }
    }
}

#[test]
fn events_keep_their_bytes() {
    let mut samples = BTreeMap::new();
    for event in events() {
        let mut encoder = Encoder::default();
        encoder.push(Time(1_000_000), &event);
        let bytes = encoder.take();
        let back: Vec<_> = Decoder::new(&bytes).collect();
        assert_eq!(back, [Ok((Time(1_000_000), event))]);
        let name = format!("{event:?}");
        let name = name.split(' ').next().expect("split yields at least one").to_owned();
        samples.insert(name, bytes);
    }
    assert_eq!(samples.len(), EVENT_KINDS, "a kind of event has no sample");
    compare("events.hex", &samples);
}

/// Noise and truncated messages are refused, and never cause a panic.
#[test]
fn damaged_messages_are_refused_or_read_never_a_crash() {
    let mut refused = 0;
    for (name, bytes) in samples() {
        for cut in 0..bytes.len() {
            refused += u32::from(try_real_type(&name, &bytes[..cut]).is_none());
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            refused += u32::from(try_real_type(&name, &damaged).is_none());
        }
    }
    assert!(refused > 1000, "only {refused} damaged messages were refused");
}

const SETS: [&str; 7] = [
    "Message",
    "Request",
    "Response",
    "LinkFrame",
    "MapCommand",
    "GroupMessage",
    "MembershipMessage",
];
const WHOLE: [&str; 13] = [
    "Packet",
    "Chunk",
    "JobCommit",
    "EndRecord",
    "CreditRecord",
    "KvNumberRecord",
    "KvForgottenRecord",
    "HolderRecord",
    "StartRecord",
    "VisibleRecord",
    "TurnRecord",
    "GroupEntry",
    "HardState",
];

/// The name and bytes of a sample of each kind.
fn samples() -> BTreeMap<String, Vec<u8>> {
    let pool = pool();
    let mut samples = BTreeMap::new();
    for set in SETS {
        let message = descriptor(&pool, set);
        let oneof = message.oneofs().next().expect("a closed set is a oneof");
        for field in oneof.fields() {
            let sample = sample(&message, Some(&field));
            samples.insert(format!("{set}.{}", field.name()), sample.encode_to_vec());
        }
    }
    for name in WHOLE {
        samples.insert(name.to_owned(), sample(&descriptor(&pool, name), None).encode_to_vec());
    }
    samples
}

fn pool() -> DescriptorPool {
    let folder = repository().join("proto/proto");
    let files = protox::compile([folder.join("starling.proto")], [folder]);
    let files = files.expect("the protocol compiles");
    DescriptorPool::from_file_descriptor_set(files).expect("compiled files make a pool")
}

fn descriptor(pool: &DescriptorPool, name: &str) -> MessageDescriptor {
    pool.get_message_by_name(&format!("starling.v1.{name}")).expect("the message is in the file")
}

/// A message with all its fields set; of a oneof, `chosen` or else the first.
fn sample(descriptor: &MessageDescriptor, chosen: Option<&FieldDescriptor>) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        if let Some(oneof) = field.containing_oneof() {
            let first = oneof.fields().next().expect("a oneof has fields");
            let wanted = chosen.unwrap_or(&first).number();
            if field.number() != wanted {
                continue;
            }
        }
        let value = value(&field);
        let value = if field.is_list() { Value::List(vec![value.clone(), value]) } else { value };
        message.set_field(&field, value);
    }
    message
}

fn value(field: &FieldDescriptor) -> Value {
    let name = field.name();
    // Different names, different numbers: FNV-1a, cut to two bytes of varint.
    let hash = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let number = 1 + hash % 16_000;
    match field.kind() {
        Kind::Double => Value::F64(f64::from(number)),
        Kind::Float => Value::F32(number as f32),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(-(number as i32)),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(-i64::from(number)),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(number),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(u64::from(number)),
        Kind::Bool => Value::Bool(true),
        Kind::String => Value::String(name.to_owned()),
        Kind::Bytes => Value::Bytes(name.as_bytes().to_vec().into()),
        Kind::Message(inner) => Value::Message(sample(&inner, None)),
        Kind::Enum(_) => Value::EnumNumber(1),
    }
}

fn through_the_real_type(name: &str, bytes: &[u8]) -> Vec<u8> {
    try_real_type(name, bytes).unwrap_or_else(|| panic!("{name} is not read by its own type"))
}

fn try_real_type(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    fn again<M: Message + Default>(bytes: &[u8]) -> Option<Vec<u8>> {
        M::decode(bytes).ok().map(|message| message.encode_to_vec())
    }
    match name.split('.').next().expect("split yields at least one") {
        "Message" => again::<wire::Message>(bytes),
        "Request" => again::<wire::Request>(bytes),
        "Response" => again::<wire::Response>(bytes),
        "LinkFrame" => again::<wire::LinkFrame>(bytes),
        "MapCommand" => again::<wire::MapCommand>(bytes),
        "GroupMessage" => again::<wire::GroupMessage>(bytes),
        "MembershipMessage" => again::<wire::MembershipMessage>(bytes),
        "GroupEntry" => again::<wire::GroupEntry>(bytes),
        "HardState" => again::<wire::HardState>(bytes),
        "Packet" => again::<wire::Packet>(bytes),
        "Chunk" => again::<wire::Chunk>(bytes),
        "JobCommit" => again::<wire::JobCommit>(bytes),
        "EndRecord" => again::<wire::EndRecord>(bytes),
        "CreditRecord" => again::<wire::CreditRecord>(bytes),
        "KvNumberRecord" => again::<wire::KvNumberRecord>(bytes),
        "KvForgottenRecord" => again::<wire::KvForgottenRecord>(bytes),
        "HolderRecord" => again::<wire::HolderRecord>(bytes),
        "StartRecord" => again::<wire::StartRecord>(bytes),
        "TurnRecord" => again::<wire::TurnRecord>(bytes),
        "VisibleRecord" => again::<wire::VisibleRecord>(bytes),
        other => panic!("{other} is not in this table"),
    }
}

const EVENT_KINDS: usize = 28;

fn events() -> [Event; EVENT_KINDS] {
    let task = TaskId::new(0x0102_0304, 5 << 40 | 6);
    let attempt = Attempt::new(7, 8);
    let job = JobId(0x0102_0304);
    let node = NodeId(2);
    [
        Event::NodeStarted { node, incarnation: 7, slots: 4 },
        Event::Staged { job, partition: PartitionId(5), first: 0, tasks: 4096 },
        Event::Visible { job },
        Event::Queued {
            task,
            attempt,
            local_queue: true,
            reason: Reason::BigHere,
            input_bytes: 12_000_000,
        },
        Event::Pushed { task, attempt, to: node, reason: Reason::BigElsewhere, input_bytes: 9 },
        Event::Stolen { task, attempt, from: node },
        Event::Fetched { task, attempt, from: node, bytes: 4096, took: Span(77_000) },
        Event::Started { task, attempt, slot: 3 },
        Event::Ended {
            task,
            attempt,
            end: End::Done,
            started: Time(900_000),
            moved_bytes: 4096,
            local_bytes: 17,
        },
        Event::Committed { task, attempt, end: End::Failed, node, output_bytes: 5_000_000 },
        Event::Replaced { task, attempt, why: RetryReason::HolderRestarted },
        Event::Turned { task, attempt, seq: 3, turn: Turned::Wait, first: 70_000, spawned: 12 },
        Event::Stale { task, attempt },
        Event::MissedWakeupRepaired { task },
        Event::Widened { task, attempt, slot: 5 },
        Event::PartBegan { task, attempt, slot: 6 },
        Event::PartEnded { task, attempt },
        Event::JobEnded { job, end: End::Done },
        Event::Dismissed { task, attempt },
        Event::Shifted { tasks: 2_000, wait_max: Span(20_000_000_000) },
        Event::PolicyChanged { from: 3, to: 1 },
        Event::Retuned {
            from: 1,
            to: 0,
            threshold: 0.5,
            wait_max: Span(10_000_000_000),
            steal: [Span(1_000_000), Span(1_024_000_000)],
        },
        Event::Removing { job },
        Event::TakenOver { task, attempt, from: node },
        Event::Moved { task, attempt, from: node },
        Event::CrashCounted { task, attempt, node, incarnation: 3, count: 2 },
        Event::Spared { task, attempt, node, incarnation: 3, why: Spared::Apart },
        Event::Stalled {
            task,
            stall: Stall::HolderSilent,
            home: node,
            holder: node,
            quiet: Span(31_000_000_000),
        },
    ]
}

/// Compares with the file under `tests/golden`, or rewrites it for `STARLING_BLESS`.
fn compare(file: &str, samples: &BTreeMap<String, Vec<u8>>) {
    let path = repository().join("tests/golden").join(file);
    let mut text = String::new();
    for (name, bytes) in samples {
        writeln!(text, "{name} {}", to_hex(bytes)).expect("a string takes all");
    }
    if std::env::var_os("STARLING_BLESS").is_some() {
        std::fs::write(&path, &text).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    for (now, then) in text.lines().zip(golden.lines()) {
        assert_eq!(now, then, "the bytes changed; see the head of tests/tests/golden.rs");
    }
    assert_eq!(text.lines().count(), golden.lines().count(), "kinds came or went in {file}");
}

fn repository() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
