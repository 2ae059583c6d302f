//! An object that is open for reading.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
pub struct ObjectReader(Source);

#[derive(Debug)]
enum Source {
    File(File),
    Memory(Cursor<Arc<[u8]>>),
}

impl ObjectReader {
    pub(super) fn of_memory(bytes: Arc<[u8]>) -> Self {
        Self(Source::Memory(Cursor::new(bytes)))
    }

    /// A file of another length than the object has is damaged.
    pub(crate) fn of_file(path: &Path, size_bytes: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let found_bytes = file.metadata()?.len();
        if found_bytes != size_bytes {
            let text = format!("its file has {found_bytes} bytes instead of {size_bytes}");
            return Err(io::Error::other(text));
        }
        Ok(Self(Source::File(file)))
    }

    /// The file, where there is one: for who gives it to the kernel as a whole.
    pub fn file(&mut self) -> Option<&mut File> {
        match &mut self.0 {
            Source::File(file) => Some(file),
            Source::Memory(_) => None,
        }
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Source::File(file) => file.read(buffer),
            Source::Memory(cursor) => cursor.read(buffer),
        }
    }

    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match &mut self.0 {
            Source::File(file) => file.read_to_end(buffer),
            Source::Memory(cursor) => cursor.read_to_end(buffer),
        }
    }
}
