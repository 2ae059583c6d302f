//! Packets and requests as lines of a story.

use prost::Message as _;
use proto::wire;

/// A packet in one line.
pub(crate) fn packet_line(packet: &wire::Packet) -> String {
    let name = |message: &wire::Message| {
        let text = format!("{:?}", message.body);
        text.chars().take(200).collect::<String>()
    };
    let decode = |bytes: &bytes::Bytes| {
        wire::Message::decode(bytes.clone()).map_or_else(|e| e.to_string(), |m| name(&m))
    };
    let reliable: Vec<String> = packet.reliable.iter().map(decode).collect();
    let best_effort: Vec<String> = packet.best_effort.iter().map(name).collect();
    if !packet.membership.is_empty() {
        let text = format!("i{} {:?}", packet.from_incarnation, packet.membership);
        return text.chars().take(300).collect();
    }
    format!(
        "i{}>i{} seq {} ack {} reliable {reliable:?} loose {best_effort:?}",
        packet.from_incarnation, packet.to_incarnation, packet.first_seq, packet.ack
    )
}

/// A request in one line.
pub(crate) fn request_line(request: &wire::Request) -> String {
    format!("{request:?}").chars().take(150).collect()
}
