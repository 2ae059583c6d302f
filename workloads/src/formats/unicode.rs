//! Decodes UTF-16 texts, which some editors write. A byte order mark identifies them.

use std::io::{Error, Read, Result};

/// The byte order of a UTF-16 text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    /// The order of a text that begins with a byte order mark of UTF-16.
    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0xff, 0xfe, ..] => Some(Self::Little),
            [0xfe, 0xff, ..] => Some(Self::Big),
            _ => None,
        }
    }
}

/// The number of bytes read at a time.
const PIECE_BYTES: usize = 8 << 10;

/// A UTF-16 text as UTF-8.
pub(crate) struct Utf16<R> {
    reader: R,
    order: Order,
    /// Decoded UTF-8; the part from `taken` on has not been read.
    text: Vec<u8>,
    taken: usize,
    /// Bytes and a first surrogate that the next piece completes.
    rest: Vec<u8>,
    half: Option<u16>,
}

impl<R: Read> Utf16<R> {
    pub(crate) fn new(reader: R, order: Order) -> Self {
        Self { reader, order, text: Vec::new(), taken: 0, rest: Vec::new(), half: None }
    }

    /// Decodes the next piece; false at the end.
    fn advance(&mut self) -> Result<bool> {
        let wrong = || Error::other("the text is broken UTF-16");
        let before = self.rest.len();
        let limit = (PIECE_BYTES - before) as u64;
        let count = self.reader.by_ref().take(limit).read_to_end(&mut self.rest)?;
        if count == 0 {
            let is_whole = before == 0 && self.half.is_none();
            return if is_whole { Ok(false) } else { Err(wrong()) };
        }
        let whole = self.rest.len() / 2 * 2;
        let order = self.order;
        let units = self.rest[..whole].chunks_exact(2).map(|pair| match order {
            Order::Little => u16::from_le_bytes([pair[0], pair[1]]),
            Order::Big => u16::from_be_bytes([pair[0], pair[1]]),
        });
        let mut units: Vec<u16> = self.half.take().into_iter().chain(units).collect();
        let is_half = units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit));
        self.half = if is_half { units.pop() } else { None };
        self.rest.drain(..whole);
        (self.taken, self.text) = (0, Vec::with_capacity(units.len() * 2));
        for decoded in char::decode_utf16(units) {
            let c = decoded.map_err(|_| wrong())?;
            self.text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(true)
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        while self.taken == self.text.len() {
            if !self.advance()? {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.text.len() - self.taken);
        buffer[..count].copy_from_slice(&self.text[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8], order: Order) -> Result<String> {
        let mut text = String::new();
        Utf16::new(bytes, order).read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn both_orders_give_the_text() {
        // Longer than a piece, with a surrogate pair on every boundary.
        let text = "\u{feff}ä€🐦".repeat(PIECE_BYTES);
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(Order::of(&little), Some(Order::Little));
        assert_eq!(Order::of(&big), Some(Order::Big));
        assert_eq!(decoded(&little, Order::Little).unwrap(), text);
        assert_eq!(decoded(&big, Order::Big).unwrap(), text);
    }

    #[test]
    fn a_text_that_ends_within_a_character_is_broken() {
        for bytes in [&[0x61, 0, 0x62][..], &[0x3d, 0xd8], &[0, 0xdc, 0x61, 0]] {
            assert!(decoded(bytes, Order::Little).is_err(), "{bytes:?}");
        }
    }
}
