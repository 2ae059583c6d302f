//! Receives the bytes of one object from a line and stores them.

use std::io::Read;
use std::sync::mpsc;

use executor::{IncomingObject, ObjectError, ObjectKind, ObjectStore};
use proto::{ObjectId, limits};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::Wanted;
use super::frame::{CHECKSUM_BYTES, Head};
use super::socket::DataStream;

/// Objects of at least this size use one thread to read the socket and another one to write.
const DATA_PIPELINE_BYTES: u64 = 8 << 20;

/// The number of buffers between the thread that reads a large object and the one that writes it.
const PIPE_BUFFERS: usize = 4;

/// The reason why an object did not arrive.
#[derive(Debug)]
pub(super) enum Failure {
    /// The line failed; another line may bring the object.
    Line(String),
    /// The object was refused or could not be stored; its bytes may still be on the line.
    Object(String),
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Self {
        Self::Object(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Line(error.to_string())
    }
}

/// Receives one object.
pub(super) fn receive(
    store: &ObjectStore,
    stream: &mut DataStream,
    wanted: &Wanted,
    head: Head,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    let (size_bytes, executable) = match head {
        Head::Object(size_bytes) => (size_bytes, false),
        Head::Program(size_bytes) => (size_bytes, true),
        Head::Refusal(_) | Head::Absent => {
            return Err(Failure::Object("no bytes follow".to_owned()));
        }
    };
    if size_bytes != wanted.size_bytes {
        let expected = wanted.size_bytes;
        let text = format!("it has {size_bytes} bytes there instead of {expected}");
        return Err(Failure::Object(text));
    }
    if size_bytes <= limits::SMALL_OBJECT_BYTES {
        let bytes = &mut buffer[..size_bytes as usize];
        return receive_small(store, stream, wanted.object, bytes, executable);
    }
    let incoming = store.create_incoming(wanted.object, ObjectKind::Copy)?;
    incoming.set_executable(executable)?;
    incoming.reserve(size_bytes)?;
    let sink = ObjectSink { incoming, hash: Xxh3::new() };
    let sink = if size_bytes >= DATA_PIPELINE_BYTES {
        pipe(stream, sink, size_bytes)?
    } else {
        pour(stream, sink, size_bytes, buffer)?
    };
    let ObjectSink { incoming, hash } = sink;
    // The object is published only when it is known to be complete.
    let checksum = read_checksum(stream, hash.digest())?;
    incoming.commit_with(checksum)?;
    Ok(())
}

/// As [`receive`], for an object that fits the buffer.
fn receive_small(
    store: &ObjectStore,
    stream: &mut DataStream,
    object: ObjectId,
    bytes: &mut [u8],
    executable: bool,
) -> Result<(), Failure> {
    stream.read_exact(bytes)?;
    let checksum = read_checksum(stream, xxh3_64(bytes))?;
    Ok(store.keep_copy_as(object, bytes, checksum, executable)?)
}

/// Reads the checksum behind the bytes of an object and compares it with that of the bytes.
fn read_checksum(stream: &mut DataStream, of_bytes: u64) -> Result<u64, Failure> {
    let mut checksum = [0; CHECKSUM_BYTES];
    stream.read_exact(&mut checksum)?;
    let checksum = u64::from_le_bytes(checksum);
    if of_bytes != checksum {
        return Err(Failure::Line("its bytes came damaged".to_owned()));
    }
    Ok(checksum)
}

/// The destination of an object's bytes.
struct ObjectSink {
    incoming: IncomingObject,
    hash: Xxh3,
}

impl ObjectSink {
    fn take(&mut self, bytes: &[u8]) -> Result<(), ObjectError> {
        self.hash.update(bytes);
        self.incoming.write(bytes)
    }
}

/// Reads the available bytes, up to the size of the buffer and the missing `rest`.
fn read_some(stream: &mut DataStream, buffer: &mut [u8], rest: u64) -> Result<usize, Failure> {
    let count = rest.min(buffer.len() as u64) as usize;
    loop {
        match stream.read(&mut buffer[..count]) {
            Ok(0) => {
                return Err(Failure::Line(format!("it broke off {rest} bytes before the end")));
            }
            Ok(came) => return Ok(came),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn pour(
    stream: &mut DataStream,
    mut sink: ObjectSink,
    size_bytes: u64,
    buffer: &mut [u8],
) -> Result<ObjectSink, Failure> {
    let mut rest = size_bytes;
    while rest > 0 {
        let came = read_some(stream, buffer, rest)?;
        sink.take(&buffer[..came])?;
        rest -= came as u64;
    }
    Ok(sink)
}

/// As [`pour`], with a second thread that hashes and writes while this one reads.
fn pipe(
    stream: &mut DataStream,
    mut sink: ObjectSink,
    size_bytes: u64,
) -> Result<ObjectSink, Failure> {
    let (full, to_write) = mpsc::sync_channel::<(Vec<u8>, usize)>(PIPE_BUFFERS);
    let (empty, to_fill) = mpsc::sync_channel::<Vec<u8>>(PIPE_BUFFERS);
    for _ in 0..PIPE_BUFFERS {
        empty.send(vec![0; limits::DATA_BUFFER_BYTES]).expect("the queue has room for all");
    }
    std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().spawn_scoped(scope, move || {
            for (buffer, came) in to_write {
                sink.take(&buffer[..came])?;
                let _ = empty.send(buffer); // Fails if the reader has ended.
            }
            Ok(sink)
        });
        let writer = writer.map_err(|error| Failure::Line(format!("no thread: {error}")))?;
        let mut rest = size_bytes;
        while rest > 0 {
            // The writer ended early; it returns the reason.
            let Ok(mut buffer) = to_fill.recv() else { break };
            // Full buffers keep the number of hand-overs small.
            let mut filled = 0;
            while filled < buffer.len() && rest > 0 {
                let came = read_some(stream, &mut buffer[filled..], rest)?;
                filled += came;
                rest -= came as u64;
            }
            if full.send((buffer, filled)).is_err() {
                break;
            }
        }
        drop(full);
        writer.join().expect("writing does not panic")
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};

    use proto::{Attempt, TaskId};

    use super::*;

    fn wanted_object() -> ObjectId {
        ObjectId { task: TaskId::new(3, 4), attempt: Attempt(5), output: 6 }
    }

    /// Receives these bytes as an object. Returns the error, if any, and whether the object is
    /// stored.
    fn came(expected_bytes: usize, told_bytes: usize, sent: &[u8]) -> (Option<String>, bool) {
        let dir = tempfile::tempdir().unwrap();
        let store = ObjectStore::open(dir.path(), 1 << 30).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let wanted = Wanted::new(wanted_object(), expected_bytes as u64, |_| {});
        let mut buffer = vec![0; limits::SMALL_OBJECT_BYTES as usize];
        let result = std::thread::scope(|scope| {
            scope.spawn(move || {
                // The receiver may close the connection first.
                let _ = out.write_all(sent);
                let _ = out.shutdown(Shutdown::Write);
            });
            let mut wire = DataStream::Plain(stream);
            let result =
                receive(&store, &mut wire, &wanted, Head::Object(told_bytes as u64), &mut buffer);
            wire.socket().shutdown(Shutdown::Both).unwrap_or_default();
            result
        });
        let files = std::fs::read_dir(dir.path().join("0000000000000003"));
        let files = files.map_or(0, |entries| entries.count());
        let has_file = expected_bytes as u64 > limits::SMALL_OBJECT_BYTES;
        let is_here = store.contains(wanted_object());
        assert_eq!(files, usize::from(is_here && has_file), "nothing half-written stays");
        let error = result.err().map(|failure| match failure {
            Failure::Line(text) => format!("line: {text}"),
            Failure::Object(text) => format!("object: {text}"),
        });
        (error, is_here)
    }

    fn with_checksum(bytes: &[u8]) -> Vec<u8> {
        [bytes, &xxh3_64(bytes).to_le_bytes()].concat()
    }

    #[test]
    fn only_what_is_whole_is_published() {
        for size in [0, 1, 60_000, 100_000, DATA_PIPELINE_BYTES as usize + 12_345] {
            let bytes: Vec<u8> = (0..size).map(|at| (at ^ (at >> 9)) as u8).collect();
            let sent = with_checksum(&bytes);
            assert_eq!(came(size, size, &sent), (None, true), "{size} bytes");
            let (error, is_here) = came(size, size, &sent[..sent.len() - 1]);
            assert!(error.unwrap().starts_with("line: ") && !is_here, "{size} bytes, cut off");
            let mut damaged = sent.clone();
            damaged[size / 2] ^= 1;
            let (error, is_here) = came(size, size, &damaged);
            assert!(error.unwrap().contains("damaged") && !is_here, "{size} bytes");
            let (error, is_here) = came(size + 1, size, &sent);
            assert!(error.unwrap().starts_with("object: it has") && !is_here, "{size} bytes");
        }
        let half = vec![7; DATA_PIPELINE_BYTES as usize];
        let (error, is_here) = came(2 * half.len(), 2 * half.len(), &half);
        assert!(error.unwrap().contains("broke off") && !is_here);
    }
}
