//! Bounds the memory of a JSON reader before it is allocated.
//!
//! A JSON reader keeps a whole string, and a whole task, in memory until it is complete. The guard
//! between the text and that reader refuses strings and tasks that are too long.

use std::cell::Cell;
use std::io::{BufReader, Error, Read, Result};

use crate::formats::detect::HEAD_BYTES;
use crate::formats::text::Source;
use crate::limits::WORKFLOW_WORD_BYTES_MAX;

/// The maximum size of one task in JSON. The reader keeps the whole task in memory.
const WORKFLOW_ELEMENT_BYTES_MAX: u64 = 32 << 20;

/// The bytes read since the current task began. The reader of tasks resets it.
#[derive(Debug, Default)]
pub(crate) struct Element {
    bytes: Cell<u64>,
    /// A skipped value takes no memory, so its length is not bounded.
    is_passed_over: Cell<bool>,
}

impl Element {
    /// The next task begins.
    pub(crate) fn begin(&self) {
        self.bytes.set(0);
        self.is_passed_over.set(false);
    }

    /// A value begins that the reader skips.
    pub(crate) fn pass_over(&self) {
        self.is_passed_over.set(true);
    }
}

struct Guard<'e, R> {
    reader: R,
    element: &'e Element,
    is_in_string: bool,
    is_escaped: bool,
    /// The bytes of the string so far.
    word: usize,
}

/// The same text under the guard.
pub(crate) fn guarded<'g>(source: &'g mut Source<'_>, element: &'g Element) -> Source<'g> {
    let guard = Guard { reader: source, element, is_in_string: false, is_escaped: false, word: 0 };
    BufReader::with_capacity(HEAD_BYTES, Box::new(guard))
}

impl<R> Guard<'_, R> {
    fn see(&mut self, bytes: &[u8]) -> Result<()> {
        for &byte in bytes {
            if !self.is_in_string {
                self.is_in_string = byte == b'"';
                self.word = 0;
                continue;
            }
            self.word += 1;
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.is_in_string = false,
                _ => {}
            }
            if self.word > WORKFLOW_WORD_BYTES_MAX {
                let limit = WORKFLOW_WORD_BYTES_MAX;
                return Err(Error::other(format!("a text is longer than {limit} bytes")));
            }
        }
        let read = self.element.bytes.get() + bytes.len() as u64;
        self.element.bytes.set(read);
        if read > WORKFLOW_ELEMENT_BYTES_MAX && !self.element.is_passed_over.get() {
            let limit = WORKFLOW_ELEMENT_BYTES_MAX;
            return Err(Error::other(format!("a task is longer than {limit} bytes")));
        }
        Ok(())
    }
}

impl<R: Read> Read for Guard<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = self.reader.read(buffer)?;
        self.see(&buffer[..count])?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: Vec<u8>, element: &Element) -> Result<usize> {
        let plain: Box<dyn Read> = Box::new(std::io::Cursor::new(text));
        let mut source = BufReader::with_capacity(HEAD_BYTES, plain);
        guarded(&mut source, element).read_to_end(&mut Vec::new())
    }

    #[test]
    fn a_string_has_a_length_that_it_may_have() {
        let long = |length: usize| format!("[\"\\\"{}\", 1]", "x".repeat(length)).into_bytes();
        assert!(read(long(WORKFLOW_WORD_BYTES_MAX - 3), &Element::default()).is_ok());
        let error = read(long(WORKFLOW_WORD_BYTES_MAX), &Element::default()).unwrap_err();
        assert_eq!(error.to_string(), "a text is longer than 1048576 bytes");
        // Blanks between strings do not count.
        assert!(read(vec![b' '; WORKFLOW_WORD_BYTES_MAX * 2], &Element::default()).is_ok());
    }

    #[test]
    fn a_task_has_a_length_that_it_may_have() {
        let many = "\"a\",".repeat(WORKFLOW_ELEMENT_BYTES_MAX as usize / 4 + 1).into_bytes();
        let error = read(many, &Element::default()).unwrap_err();
        assert_eq!(error.to_string(), "a task is longer than 33554432 bytes");
        let element = Element::default();
        element.pass_over();
        assert!(read(vec![b' '; WORKFLOW_ELEMENT_BYTES_MAX as usize + 1], &element).is_ok());
    }
}
