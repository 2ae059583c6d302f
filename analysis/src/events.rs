/*!
Reads event logs: frames of `u32 LE length ‖ block`, where each block contains consecutive events.
Reports, traces and explanations are made from them.

A log is read in one pass and never copied. The logs of several nodes are merged by time. The order
within a node is kept even if its clock stepped back, so causes precede effects within a node.
*/

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proto::event::{DecodeError, Decoder};
use proto::{Event, NodeId, Time};

/// The bytes of the length before each block.
const FRAME_HEADER_BYTES: usize = 4;

/// An event with its node and time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Entry {
    pub node: NodeId,
    pub time: Time,
    pub event: Event,
}

/// The reason why a log could not be read to its end. Earlier events were read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("event log of {node}: the block at byte {at} says {length} bytes but {left} follow")]
    TornBlock { node: NodeId, at: usize, length: usize, left: usize },
    #[error("event log of {node}: the block at byte {at} is damaged: {source}")]
    DamagedBlock { node: NodeId, at: usize, source: DecodeError },
}

/// The events of one node, in log order.
#[derive(Debug)]
pub struct NodeLog<'a> {
    node: NodeId,
    bytes: &'a [u8],
    at: usize,
    block_at: usize,
    block: Decoder<'a>,
}

impl<'a> NodeLog<'a> {
    #[must_use]
    pub fn new(node: NodeId, bytes: &'a [u8]) -> Self {
        Self { node, bytes, at: 0, block_at: 0, block: Decoder::new(&[]) }
    }

    /// Opens the next block. `None` at the end of the log.
    fn open_block(&mut self) -> Option<Result<(), ReadError>> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return None;
        }
        let torn =
            |length, left| ReadError::TornBlock { node: self.node, at: self.at, length, left };
        let Some((header, body)) = rest.split_first_chunk::<FRAME_HEADER_BYTES>() else {
            let error = torn(FRAME_HEADER_BYTES, rest.len());
            self.at = self.bytes.len();
            return Some(Err(error));
        };
        let length = u32::from_le_bytes(*header) as usize;
        let Some(block) = body.get(..length) else {
            let error = torn(length, body.len());
            self.at = self.bytes.len();
            return Some(Err(error));
        };
        self.block_at = self.at;
        self.at += FRAME_HEADER_BYTES + length;
        self.block = Decoder::new(block);
        Some(Ok(()))
    }
}

impl Iterator for NodeLog<'_> {
    type Item = Result<Entry, ReadError>;
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.block.next() {
                Some(Ok((time, event))) => {
                    return Some(Ok(Entry { node: self.node, time, event }));
                }
                Some(Err(source)) => {
                    let at = self.block_at;
                    return Some(Err(ReadError::DamagedBlock { node: self.node, at, source }));
                }
                None => match self.open_block()? {
                    Ok(()) => {}
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }
}

/// The events of several nodes as one stream, by time.
#[derive(Debug)]
pub struct Merged<'a> {
    logs: Vec<NodeLog<'a>>,
    /// The next entry of each log.
    heads: Vec<Option<Entry>>,
    /// (time of the next entry, log); times within a log never decrease here.
    queue: BinaryHeap<Reverse<(Time, usize)>>,
    errors: Vec<ReadError>,
}

impl<'a> Merged<'a> {
    #[must_use]
    pub fn new(logs: impl IntoIterator<Item = (NodeId, &'a [u8])>) -> Self {
        let logs: Vec<_> =
            logs.into_iter().map(|(node, bytes)| NodeLog::new(node, bytes)).collect();
        let heads = vec![None; logs.len()];
        let mut merged = Self { logs, heads, queue: BinaryHeap::new(), errors: Vec::new() };
        for log in 0..merged.logs.len() {
            merged.refill(log, Time::ZERO);
        }
        merged
    }

    /// The errors so far; the merge continues without the damaged parts.
    #[must_use]
    pub fn errors(&self) -> &[ReadError] {
        &self.errors
    }

    fn refill(&mut self, log: usize, not_before: Time) {
        loop {
            match self.logs[log].next() {
                None => return,
                Some(Err(error)) => self.errors.push(error),
                Some(Ok(entry)) => {
                    self.queue.push(Reverse((entry.time.max(not_before), log)));
                    self.heads[log] = Some(entry);
                    return;
                }
            }
        }
    }
}

impl Iterator for Merged<'_> {
    type Item = Entry;
    fn next(&mut self) -> Option<Entry> {
        let Reverse((time, log)) = self.queue.pop()?;
        let entry = self.heads[log].take().expect("a queued log has a head");
        self.refill(log, time);
        Some(entry)
    }
}

/// Frames one block as in a log.
#[must_use]
pub fn frame(block: &[u8]) -> Vec<u8> {
    let length = u32::try_from(block.len()).expect("a block is far below 4 GiB");
    let mut framed = Vec::with_capacity(FRAME_HEADER_BYTES + block.len());
    framed.extend_from_slice(&length.to_le_bytes());
    framed.extend_from_slice(block);
    framed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::JobId;
    use proto::event::Encoder;

    fn log(times: &[&[u64]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for block in times {
            let mut encoder = Encoder::default();
            for &time in *block {
                encoder.push(Time(time), &Event::Visible { job: JobId(time) });
            }
            bytes.extend(frame(&encoder.take()));
        }
        bytes
    }

    fn times(merged: &mut Merged<'_>) -> Vec<(u32, u64)> {
        merged.map(|entry| (entry.node.0, entry.time.0)).collect()
    }

    #[test]
    fn logs_merge_by_time_and_keep_each_nodes_order() {
        let (a, b) = (log(&[&[10, 40], &[30, 50]]), log(&[&[20], &[35, 60]]));
        let mut merged = Merged::new([(NodeId(0), &a[..]), (NodeId(1), &b[..])]);
        // Node 0's clock stepped back from 40 to 30: its order stays.
        let expected = [(0, 10), (1, 20), (1, 35), (0, 40), (0, 30), (0, 50), (1, 60)];
        assert_eq!(times(&mut merged), expected);
        assert_eq!(merged.errors(), []);
    }

    #[test]
    fn a_torn_tail_is_reported_and_what_came_before_is_kept() {
        let mut bytes = log(&[&[1, 2], &[3]]);
        bytes.pop();
        let mut merged = Merged::new([(NodeId(7), &bytes[..])]);
        assert_eq!(times(&mut merged), [(7, 1), (7, 2)]);
        assert!(matches!(merged.errors(), [ReadError::TornBlock { node: NodeId(7), .. }]));

        let mut merged = Merged::new([(NodeId(7), &bytes[..2])]);
        assert_eq!(times(&mut merged), []);
        assert!(matches!(merged.errors(), [ReadError::TornBlock { length: 4, left: 2, .. }]));
    }

    #[test]
    fn a_damaged_block_does_not_hide_the_next() {
        let mut bytes = frame(&[200, 0]);
        bytes.extend(log(&[&[9]]));
        let mut merged = Merged::new([(NodeId(0), &bytes[..])]);
        assert_eq!(times(&mut merged), [(0, 9)]);
        let damage = DecodeError::UnknownTag { tag: 200, at: 0 };
        let expected = ReadError::DamagedBlock { node: NodeId(0), at: 0, source: damage };
        assert_eq!(merged.errors(), [expected]);
    }
}
