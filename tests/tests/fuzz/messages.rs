//! Fuzzing of messages and event logs.

use analysis::{Merged, NodeLog};
use prost::Message;
use proto::event::Decoder;
use proto::{NodeId, wire};

use crate::{fuzz, golden};

/// A decoded message is encoded and decoded again without change: forwarding does not alter it.
fn settles<M: Message + Default>(bytes: &[u8]) {
    let Ok(message) = M::decode(bytes) else { return };
    let written = message.encode_to_vec();
    let again = M::decode(written.as_slice()).expect("what was written is read");
    assert_eq!(again.encode_to_vec(), written, "a message changed when it was decoded and encoded");
}

#[test]
fn messages_are_refused_or_settle() {
    let (names, samples): (Vec<String>, Vec<Vec<u8>>) = golden("wire.hex").into_iter().unzip();
    fuzz(&samples, |sample, bytes| {
        match names[sample].split('.').next().expect("split yields at least one") {
            "Message" => settles::<wire::Message>(bytes),
            "Request" => settles::<wire::Request>(bytes),
            "Response" => settles::<wire::Response>(bytes),
            "LinkFrame" => settles::<wire::LinkFrame>(bytes),
            "MapCommand" => settles::<wire::MapCommand>(bytes),
            "Packet" => settles::<wire::Packet>(bytes),
            "Chunk" => settles::<wire::Chunk>(bytes),
            "JobCommit" => settles::<wire::JobCommit>(bytes),
            "EndRecord" => settles::<wire::EndRecord>(bytes),
            "CreditRecord" => settles::<wire::CreditRecord>(bytes),
            "KvNumberRecord" => settles::<wire::KvNumberRecord>(bytes),
            "KvForgottenRecord" => settles::<wire::KvForgottenRecord>(bytes),
            "HolderRecord" => settles::<wire::HolderRecord>(bytes),
            "StartRecord" => settles::<wire::StartRecord>(bytes),
            "TurnRecord" => settles::<wire::TurnRecord>(bytes),
            "VisibleRecord" => settles::<wire::VisibleRecord>(bytes),
            "GroupMessage" => settles::<wire::GroupMessage>(bytes),
            "MembershipMessage" => settles::<wire::MembershipMessage>(bytes),
            "GroupEntry" => settles::<wire::GroupEntry>(bytes),
            "HardState" => settles::<wire::HardState>(bytes),
            other => panic!("{other} has golden bytes and no target"),
        }
    });
}

/// All golden events in one block, and in frames of a log.
fn blocks() -> Vec<u8> {
    golden("events.hex").into_values().flatten().collect()
}

#[test]
fn event_blocks_end() {
    fuzz(&[blocks()], |_, bytes| {
        let mut decoder = Decoder::new(bytes);
        // Each event takes at least one byte, and no event follows an error.
        let events = decoder.by_ref().take(bytes.len() + 1).count();
        assert!(events <= bytes.len(), "more events than bytes");
        assert!(decoder.next().is_none(), "a block ends");
    });
}

#[test]
fn event_logs_end_and_merge() {
    let frames: Vec<u8> = golden("events.hex")
        .into_values()
        .chain([blocks()])
        .flat_map(|block| [(block.len() as u32).to_le_bytes().to_vec(), block].concat())
        .collect();
    fuzz(&[frames], |_, bytes| {
        let entries = NodeLog::new(NodeId(1), bytes).take(bytes.len() + 2).count();
        assert!(entries <= bytes.len() + 1, "more entries than bytes");
        let good = NodeLog::new(NodeId(1), bytes).filter(Result::is_ok).count();
        let mut merged = Merged::new([(NodeId(1), bytes), (NodeId(2), bytes)]);
        assert_eq!(merged.by_ref().count(), 2 * good, "merging neither drops nor invents");
    });
}
