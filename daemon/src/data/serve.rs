//! The giving side of one data connection.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::time::Duration;

use executor::ObjectStore;
use proto::{NodeId, ObjectId, limits};
use xxhash_rust::xxh3::Xxh3;

use super::frame::{self, Head, REQUEST_BYTES};
use super::socket::DataStream;
use crate::service::Shared;

/// Answers requests until the other side has no more.
pub(super) fn give_out(shared: &Shared, to: NodeId, stream: DataStream) {
    let Some(_known) = shared.given.enter(stream.socket()) else { return };
    if let Err(error) = answer_all(shared.executor.objects(), stream)
        && !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::WouldBlock)
    {
        shared.log.refusal(&format!("data connection of node {} broke: {error}", to.0));
    }
}

fn answer_all(store: &ObjectStore, stream: DataStream) -> io::Result<()> {
    let mut requests = BufReader::with_capacity(REQUEST_BYTES * 64, stream);
    let mut buffer = Vec::new();
    loop {
        // Between objects there is time.
        let idle = Duration::from_nanos(limits::DATA_IDLE.0);
        requests.get_ref().socket().set_read_timeout(Some(idle))?;
        let mut request = [0; REQUEST_BYTES];
        requests.read_exact(&mut request)?;
        let object = frame::request_from_bytes(&request);
        answer(store, requests.get_mut(), object, &mut buffer)?;
    }
}

fn answer(
    store: &ObjectStore,
    stream: &mut DataStream,
    object: ObjectId,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    let opened = store.open_object(object).map_err(|error| error.to_string());
    let checked = opened.and_then(|(file, size_bytes)| match file.metadata() {
        Ok(metadata) if metadata.len() == size_bytes => Ok((file, size_bytes)),
        Ok(metadata) => {
            Err(format!("its file has {} bytes instead of {size_bytes}", metadata.len()))
        }
        Err(error) => Err(error.to_string()),
    });
    let (mut file, size_bytes) = match checked {
        Ok(found) => found,
        Err(reason) => return refuse(stream, &reason),
    };
    let head = Head::Object(size_bytes).to_bytes();
    match store.checksum(object) {
        Some(checksum) if size_bytes > limits::DATA_BUFFER_BYTES as u64 => {
            stream.write_all(&head)?;
            stream.send_file(&mut file, size_bytes)?;
            stream.write_all(&checksum.to_le_bytes())
        }
        _ => {
            let checksum = read_and_send(stream, file, size_bytes, &head, buffer)?;
            store.note_checksum(object, checksum);
            Ok(())
        }
    }
}

fn refuse(stream: &mut DataStream, reason: &str) -> io::Result<()> {
    let mut end = reason.len().min(limits::ERROR_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let head = Head::Refusal(end as u32).to_bytes();
    stream.write_all(&[&head[..], &reason.as_bytes()[..end]].concat())
}

/// The first time an object is given out its checksum is made on the way.
fn read_and_send(
    stream: &mut DataStream,
    mut file: File,
    size_bytes: u64,
    head: &[u8],
    buffer: &mut Vec<u8>,
) -> io::Result<u64> {
    let mut hash = Xxh3::new();
    buffer.clear();
    buffer.extend_from_slice(head);
    let mut rest = size_bytes;
    loop {
        let begin = buffer.len();
        let count = rest.min(limits::DATA_BUFFER_BYTES as u64) as usize;
        buffer.resize(begin + count, 0);
        file.read_exact(&mut buffer[begin..])?;
        hash.update(&buffer[begin..]);
        rest -= count as u64;
        if rest == 0 {
            break;
        }
        stream.write_all(buffer)?;
        buffer.clear();
    }
    let checksum = hash.digest();
    buffer.extend_from_slice(&checksum.to_le_bytes());
    stream.write_all(buffer)?;
    Ok(checksum)
}
