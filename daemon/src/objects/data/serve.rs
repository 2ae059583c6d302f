//! The sending side of one data connection. Small objects that were requested together are sent
//! together.

use std::io::{self, BufReader, Read, Write};
use std::time::Duration;

use executor::{ObjectReader, ObjectStore};
use proto::work::FetchError;
use proto::{NodeId, ObjectId, limits};
use xxhash_rust::xxh3::Xxh3;

use super::frame::{self, Head, REQUEST_BYTES};
use super::not_given;
use super::socket::DataStream;
use crate::limits::DATA_BATCH_OBJECTS;
use crate::rpc::service::Shared;
use proto::Span;

/// An unused data connection is closed after this.
const DATA_IDLE_TIMEOUT: Span = Span::from_secs(60);

/// Answers requests until the other side closes the connection.
pub(super) fn give_out(shared: &Shared, to: NodeId, stream: DataStream) {
    let Some(_known) = shared.given.enter(stream.socket()) else { return };
    if let Err(error) = answer_all(shared.executor.objects(), stream)
        && !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::WouldBlock)
    {
        shared.log.refusal(&format!("data connection of node {} broke: {error}", to.0));
    }
}

fn answer_all(store: &ObjectStore, stream: DataStream) -> io::Result<()> {
    // The timeout between two requests.
    let idle = Duration::from_nanos(DATA_IDLE_TIMEOUT.0);
    stream.socket().set_read_timeout(Some(idle))?;
    let mut requests = BufReader::with_capacity(REQUEST_BYTES * DATA_BATCH_OBJECTS, stream);
    let mut gathered = Vec::new();
    loop {
        // Before this thread may wait for the other side, all gathered answers must be sent.
        if requests.buffer().len() < REQUEST_BYTES {
            send(requests.get_mut(), &mut gathered)?;
        }
        let mut request = [0; REQUEST_BYTES];
        requests.read_exact(&mut request)?;
        let object = frame::request_from_bytes(&request);
        answer(store, requests.get_mut(), object, &mut gathered)?;
    }
}

fn send(stream: &mut DataStream, gathered: &mut Vec<u8>) -> io::Result<()> {
    if !gathered.is_empty() {
        stream.write_all(gathered)?;
        gathered.clear();
    }
    Ok(())
}

/// Gathers small answers, so that they take few writes and full TLS records. Sends larger ones
/// directly.
fn answer(
    store: &ObjectStore,
    stream: &mut DataStream,
    object: ObjectId,
    gathered: &mut Vec<u8>,
) -> io::Result<()> {
    if gathered.len() >= limits::DATA_BUFFER_BYTES {
        send(stream, gathered)?;
    }
    let opened = store.open_object(object).map_err(|error| not_given(&error));
    let (mut reader, size_bytes) = match opened {
        Ok(found) => found,
        Err(FetchError::NotThere) => {
            gathered.extend_from_slice(&Head::Absent.to_bytes());
            return Ok(());
        }
        Err(reason) => {
            refuse(gathered, &reason.to_string());
            return Ok(());
        }
    };
    let head = match reader.is_executable() {
        true => Head::Program(size_bytes),
        false => Head::Object(size_bytes),
    };
    gathered.extend_from_slice(&head.to_bytes());
    match (store.checksum(object), reader.file()) {
        (Some(checksum), Some(file)) if size_bytes > limits::DATA_BUFFER_BYTES as u64 => {
            send(stream, gathered)?;
            stream.send_file(file, size_bytes)?;
            gathered.extend_from_slice(&checksum.to_le_bytes());
        }
        _ => {
            let checksum = read_and_send(stream, reader, size_bytes, gathered)?;
            store.note_checksum(object, checksum);
        }
    }
    Ok(())
}

fn refuse(gathered: &mut Vec<u8>, reason: &str) {
    let mut end = reason.len().min(limits::ERROR_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    gathered.extend_from_slice(&Head::Refusal(end as u32).to_bytes());
    gathered.extend_from_slice(&reason.as_bytes()[..end]);
}

/// Computes the checksum when an object is sent for the first time. Leaves its last bytes in
/// `gathered`, to be sent with the checksum behind them.
fn read_and_send(
    stream: &mut DataStream,
    mut reader: ObjectReader,
    size_bytes: u64,
    gathered: &mut Vec<u8>,
) -> io::Result<u64> {
    let mut hash = Xxh3::new();
    let mut rest = size_bytes;
    loop {
        let begin = gathered.len();
        let count = rest.min(limits::DATA_BUFFER_BYTES as u64) as usize;
        gathered.resize(begin + count, 0);
        reader.read_exact(&mut gathered[begin..])?;
        hash.update(&gathered[begin..]);
        rest -= count as u64;
        if rest == 0 {
            break;
        }
        send(stream, gathered)?;
    }
    let checksum = hash.digest();
    gathered.extend_from_slice(&checksum.to_le_bytes());
    Ok(checksum)
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};

    use executor::ObjectKind;
    use proto::{Attempt, TaskId};
    use xxhash_rust::xxh3::xxh3_64;

    use super::super::frame::HEAD_BYTES;
    use super::*;

    const ABSENT: u64 = 9;
    /// Object 1 is empty, 4 is too large to be gathered, 5 is sent in pieces.
    const SIZES: [(u64, usize); 6] = [
        (0, 100),
        (1, 0),
        (2, 64 << 10),
        (3, 7),
        (4, limits::DATA_BUFFER_BYTES),
        (5, 3 * limits::DATA_BUFFER_BYTES + 1),
    ];

    fn object(number: u64) -> ObjectId {
        ObjectId { task: TaskId::new(1, number), attempt: Attempt(1), output: 0 }
    }

    fn bytes_of(number: u64, size: usize) -> Vec<u8> {
        (0..size).map(|at| (at as u64 * 31 + number) as u8).collect()
    }

    /// Reads one answer: the bytes of an object, or another head.
    fn take(stream: &mut TcpStream) -> Result<Vec<u8>, Head> {
        let mut read = |count: usize| {
            let mut bytes = vec![0; count];
            stream.read_exact(&mut bytes).unwrap();
            bytes
        };
        let head: [u8; HEAD_BYTES] = read(HEAD_BYTES).try_into().unwrap();
        match Head::from_bytes(head).unwrap() {
            Head::Object(size_bytes) | Head::Program(size_bytes) => {
                let bytes = read(size_bytes as usize);
                assert_eq!(read(8), xxh3_64(&bytes).to_le_bytes());
                Ok(bytes)
            }
            head @ (Head::Refusal(_) | Head::Absent) => Err(head),
        }
    }

    #[test]
    fn a_request_for_one_or_many_objects_gets_each_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let store = ObjectStore::open(dir.path(), 1 << 30).unwrap();
        for (number, size) in SIZES {
            let mut incoming = store.create_incoming(object(number), ObjectKind::Made).unwrap();
            incoming.write(&bytes_of(number, size)).unwrap();
            incoming.commit().unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut asking = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        asking.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let giving = DataStream::Plain(listener.accept().unwrap().0);
        let many: Vec<u64> = (0..2 * DATA_BATCH_OBJECTS as u64).map(|at| at * 5 % 7).collect();
        std::thread::scope(|scope| {
            let answers = scope.spawn(|| answer_all(&store, giving));
            // First one by one: no answer is held back for the next request. Then many requests at
            // once: the checksums are computed the first time and known the second time.
            let alone = (0..6).chain([ABSENT]).map(|number| vec![number]);
            for asked in alone.chain([many.clone(), many]) {
                let requests: Vec<u8> = asked
                    .iter()
                    .flat_map(|&number| frame::request_to_bytes(object(number)))
                    .collect();
                asking.write_all(&requests).unwrap();
                for number in asked {
                    let size = SIZES.iter().find(|(other, _)| *other == number);
                    match (take(&mut asking), size) {
                        (Ok(bytes), Some(&(_, size))) => {
                            assert!(bytes == bytes_of(number, size), "object {number}");
                        }
                        (Err(Head::Absent), None) => {}
                        (answer, _) => panic!("object {number}: {answer:?}"),
                    }
                }
            }
            asking.shutdown(Shutdown::Both).unwrap();
            assert!(answers.join().unwrap().is_err(), "it ends when the other side does");
        });
    }
}
