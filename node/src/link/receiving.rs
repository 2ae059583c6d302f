//! Accepts the messages of a packet: in order, once, and large messages as a whole.

use bytes::Bytes;
use prost::Message as _;
use proto::limits::MESSAGE_BYTES_MAX;
use proto::marks::{Mark, mark};
use proto::wire;
use proto::wire::message::Body;

use super::Link;
use crate::link::limits::{LINK_REORDER_MESSAGES_MAX, LINK_WINDOW_MESSAGES};

pub(super) fn take_messages(
    link: &mut Link,
    first: u64,
    reliable: Vec<Bytes>,
    copies: bool,
    bodies: &mut Vec<Body>,
) {
    let horizon = link.expected + LINK_WINDOW_MESSAGES as u64;
    for (offset, bytes) in (0..).zip(reliable) {
        if link.is_garbled {
            return;
        }
        let seq = first.saturating_add(offset);
        if seq > horizon {
            return; // No peer that respects the window sends this.
        }
        if seq < link.expected {
            // Repeated: the acknowledgement was lost.
            (link.greet, link.tells_seen) = (true, true);
        } else if seq == link.expected && link.ahead.is_empty() {
            take_message(link, bytes, copies, bodies);
        } else if link.ahead.len() < LINK_REORDER_MESSAGES_MAX || seq == link.expected {
            mark(Mark::AheadOfGap);
            link.ahead.insert(seq, bytes);
        }
    }
    while !link.is_garbled
        && let Some(bytes) = link.ahead.remove(&link.expected)
    {
        take_message(link, bytes, copies, bodies);
    }
}

/// Accepts the next message.
fn take_message(link: &mut Link, bytes: Bytes, copies: bool, bodies: &mut Vec<Body>) {
    link.expected += 1;
    // A message that cannot be decoded has no meaning here; the link continues.
    let message = wire::Message::decode(bytes).unwrap_or_default();
    let body = match message.body {
        Some(Body::Fragment(fragment)) => match join(&mut link.partial, fragment) {
            Some(body) => body,
            None => return,
        },
        other => other,
    };
    // An acknowledgement about replicas means that a change is synced. After a message that cannot
    // be decoded the receiver accepts nothing more: it would have a gap.
    if copies && body.is_none() {
        link.is_garbled = true;
        return;
    }
    link.whole = link.expected - 1;
    if body.as_ref().is_some_and(|body| scheduler::traits(body).gives_back) {
        (link.greet, link.tells_seen) = (true, true);
    }
    bodies.extend(body);
}

/// Adds a fragment. Returns the message's body after the last fragment, and `None` before.
pub(super) fn join(partial: &mut Vec<u8>, fragment: wire::Fragment) -> Option<Option<Body>> {
    if partial.len() + fragment.data.len() <= MESSAGE_BYTES_MAX {
        partial.extend_from_slice(&fragment.data);
    }
    if !fragment.last {
        return None;
    }
    let whole = std::mem::take(partial);
    let message = wire::Message::decode(whole.as_slice()).unwrap_or_default();
    Some(message.body.filter(|body| !matches!(body, Body::Fragment(_))))
}
