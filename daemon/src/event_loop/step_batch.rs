//! The number of queued inputs that one step of the node handles. The writes of a step are sent to
//! each replica as one message of bounded size.

use node::Input;

use proto::limits::FRAME_BYTES_MAX;
use proto::limits::MESSAGE_BYTES_MAX;
use proto::wire::request;

const _: () = assert!(STEP_INPUTS_UNWEIGHED * FRAME_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(STEP_INPUT_BYTES + FRAME_BYTES_MAX < MESSAGE_BYTES_MAX / 2);
/// The bytes of requests and packets in one step, and the number of inputs of unknown size. They
/// bound the writes of a step: these fit into one message to each replica.
const STEP_INPUT_BYTES: usize = 256 << 20;
const STEP_INPUTS_UNWEIGHED: usize = 32;

/// The first inputs up to `STEP_INPUT_BYTES`. Up to `STEP_INPUTS_UNWEIGHED` inputs are taken
/// unmeasured, which saves time.
pub(crate) fn batch_len(inputs: &[Input]) -> usize {
    if inputs.len() <= STEP_INPUTS_UNWEIGHED {
        return inputs.len();
    }
    let mut left = STEP_INPUT_BYTES;
    let mut fits = |input: &Input| {
        let fits = left > 0;
        left = left.saturating_sub(weight(input));
        fits
    };
    inputs.iter().take_while(|input| fits(input)).count()
}

/// The bytes that an input may add to the writes of a step; 0 for small ones.
fn weight(input: &Input) -> usize {
    match input {
        Input::Request { request, .. } => match &request.body {
            Some(
                body @ (request::Body::Kv(_)
                | request::Body::KvMany(_)
                | request::Body::Submit(_)
                | request::Body::Commit(_)),
            ) => body.encoded_len(),
            _ => 0,
        },
        Input::Packet(packet) => packet.reliable.iter().map(bytes::Bytes::len).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proto::limits::{FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, STEP_INPUTS_MAX};
    use proto::{ClientId, wire};

    use super::*;

    fn insert(bytes: usize) -> Input {
        let op = wire::KvOp { value: vec![7; bytes].into(), ..Default::default() };
        let batch = wire::KvBatch { ops: vec![op], ..Default::default() };
        let request = wire::Request { body: Some(request::Body::Kv(batch)), ..Default::default() };
        Input::Request { client: ClientId(1), request: Box::new(request) }
    }

    #[test]
    fn a_step_takes_no_more_than_one_message_to_a_replica_holds() {
        let large: Vec<Input> = (0..80).map(|_| insert(FRAME_BYTES_MAX / 2)).collect();
        let taken = batch_len(&large);
        assert!(taken > 0 && taken * FRAME_BYTES_MAX / 2 < MESSAGE_BYTES_MAX / 2, "{taken}");
        let small: Vec<Input> = (0..STEP_INPUTS_MAX).map(|_| insert(8)).collect();
        assert_eq!(batch_len(&small), STEP_INPUTS_MAX);
        assert_eq!(batch_len(&large[..STEP_INPUTS_UNWEIGHED]), STEP_INPUTS_UNWEIGHED);
    }
}
