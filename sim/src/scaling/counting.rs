//! What the inputs and events of a step count as in the price list.

use node::Input;
use proto::event::Event;

use crate::costs::{Counts, Part};

/// Counts an input by its part of the price list.
pub(super) fn count_input(counts: &mut Counts, input: &Input) {
    match input {
        Input::Packet(packet) => counts.packet_in(packet),
        Input::Request { request, .. } => counts.request(request),
        Input::Finished { .. } => counts.add(Part::TaskEnd, 1.0),
        Input::Fetched { .. } => counts.add(Part::Fetched, 1.0),
        Input::Persisted { .. } => counts.add(Part::Persisted, 1.0),
        _ => {}
    }
}

/// An event describes one task, or a run of tasks.
pub(super) fn events_in(event: &Event) -> f32 {
    match event {
        Event::NodeStarted { .. } | Event::Staged { .. } => 0.0,
        _ => 1.0,
    }
}
