//! *Calls*: each attempt of a call gets the arguments that its client gave.

use proto::wire;
use proto::work::Launch;

use super::{Verdict, Violation};

const NAME: &str = "calls";

/// The arguments of a call in a simulated job.
pub(crate) fn payload_of(entry: u64) -> Vec<u8> {
    entry.to_le_bytes().to_vec()
}

pub(crate) fn on_launch(launch: &Launch) -> Verdict {
    let is_call = matches!(launch.spec.body, Some(wire::spec::Body::Call(_)));
    if !is_call || launch.payload == payload_of(launch.entry) {
        return Ok(());
    }
    let text = format!("{} is called with {:?}", launch.task, launch.payload);
    Err(Violation::new(NAME, text))
}
