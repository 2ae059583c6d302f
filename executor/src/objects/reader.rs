//! An object that is open for reading.

use std::fs::{File, Metadata};
use std::io::{self, Cursor, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// The modification time of a file.
pub(super) fn changed_ns(metadata: &Metadata) -> i64 {
    metadata.mtime().wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec())
}

#[derive(Debug)]
pub struct ObjectReader {
    source: Source,
    executable: bool,
}

#[derive(Debug)]
enum Source {
    File(File),
    Memory(Cursor<Arc<[u8]>>),
}

impl ObjectReader {
    pub(super) fn of_memory(bytes: Arc<[u8]>, executable: bool) -> Self {
        Self { source: Source::Memory(Cursor::new(bytes)), executable }
    }

    /// The file of an object with this time of its last change; `None`: the file was changed since.
    pub(super) fn of_unchanged_file(
        path: &Path,
        size_bytes: u64,
        before_ns: Option<i64>,
    ) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if before_ns.is_some_and(|before_ns| before_ns != changed_ns(&metadata)) {
            return Ok(None);
        }
        Self::of_open_file(file, &metadata, size_bytes).map(Some)
    }

    /// A file with another length than the object's size is damaged.
    pub(crate) fn of_file(path: &Path, size_bytes: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        Self::of_open_file(file, &metadata, size_bytes)
    }

    fn of_open_file(file: File, metadata: &Metadata, size_bytes: u64) -> io::Result<Self> {
        let found_bytes = metadata.len();
        if found_bytes != size_bytes {
            let text = format!("its file has {found_bytes} bytes instead of {size_bytes}");
            return Err(io::Error::other(text));
        }
        let executable = metadata.permissions().mode() & 0o111 != 0;
        Ok(Self { source: Source::File(file), executable })
    }

    /// True if the file of the object has the executable bit, or will have it.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.executable
    }

    /// The file, if there is one, for a caller that passes it to the kernel as a whole.
    pub fn file(&mut self) -> Option<&mut File> {
        match &mut self.source {
            Source::File(file) => Some(file),
            Source::Memory(_) => None,
        }
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.source {
            Source::File(file) => file.read(buffer),
            Source::Memory(cursor) => cursor.read(buffer),
        }
    }

    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match &mut self.source {
            Source::File(file) => file.read_to_end(buffer),
            Source::Memory(cursor) => cursor.read_to_end(buffer),
        }
    }
}
