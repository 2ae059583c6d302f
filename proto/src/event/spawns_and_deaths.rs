//! The encoding of turns, and the decoding of turns, deaths and stalls.

use super::{DecodeError, Decoder, Encoder, Event, Spared, Stall, Turned};
use crate::{Attempt, NodeId, Span, TaskId};

impl Encoder {
    pub(super) fn turned(&mut self, event: &Event) -> u8 {
        if let Event::Turned { task, attempt, seq, turn, first, spawned } = *event {
            self.task(task, attempt);
            self.numbers(&[seq, turn as u64, first, spawned]);
        }
        34
    }
}

impl Decoder<'_> {
    pub(super) fn counted_event(
        &mut self,
        tag: u8,
        task: TaskId,
        attempt: Attempt,
    ) -> Result<Event, DecodeError> {
        Ok(match tag {
            27 => Event::CrashCounted {
                task,
                attempt,
                node: NodeId(self.small()?),
                incarnation: self.small()?,
                count: u8::try_from(self.number()?)
                    .map_err(|_| DecodeError::OutOfRange(self.at))?,
            },
            32 => Event::Spared {
                task,
                attempt,
                node: NodeId(self.small()?),
                incarnation: self.small()?,
                why: Spared::of_number(self.number()?).ok_or(DecodeError::OutOfRange(self.at))?,
            },
            28 => Event::Stalled {
                task,
                stall: Stall::of_number(self.number()?).ok_or(DecodeError::OutOfRange(self.at))?,
                home: NodeId(self.small()?),
                holder: NodeId(self.small()?),
                quiet: Span(self.number()?),
            },
            _ => Event::Turned {
                task,
                attempt,
                seq: self.number()?,
                turn: Turned::of_number(self.number()?).ok_or(DecodeError::OutOfRange(self.at))?,
                first: self.number()?,
                spawned: self.number()?,
            },
        })
    }
}
