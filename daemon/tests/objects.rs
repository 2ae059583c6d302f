//! The bytes of an object leave the node that has it, in pieces; what it has not is said at once.

mod support;

use std::fs;
use std::path::Path;

use daemon::start;
use proto::{limits, wire};
use support::{call, connect, options, secret};

/// Puts a file where the executor keeps the object of job 5, task 3.9, attempt 1.1, output 2.
fn put(dir: &Path, bytes: &[u8]) -> wire::ObjectRequest {
    let objects = dir.join("nodes/0/state/objects/0000000000000005");
    fs::create_dir_all(&objects).expect("a directory of the test");
    fs::write(objects.join("3.9-100000001-2"), bytes).expect("a file of the test");
    wire::ObjectRequest { job: 5, task: 3 << 40 | 9, attempt: 1 << 32 | 1, output: 2 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn objects_of_all_sizes_arrive_whole() {
    for size in [0, 1, 60_000, limits::PIECE_BYTES, 3 * limits::PIECE_BYTES + 17] {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..size).map(|at| (at ^ (at >> 8)) as u8).collect();
        let request = put(dir.path(), &bytes);
        let node = start(options(dir.path(), 0, 1)).unwrap();
        let secret = secret(dir.path());
        let mut client = connect(&node).await;
        let mut pieces = client.fetch(call(&secret, request)).await.unwrap().into_inner();
        let mut received = Vec::new();
        while let Some(piece) = pieces.message().await.unwrap() {
            assert_eq!(piece.total_bytes, size as u64);
            assert!(piece.data.len() <= limits::PIECE_BYTES);
            received.extend_from_slice(&piece.data);
        }
        assert!(received == bytes, "{size} bytes");
        let other = wire::ObjectRequest { output: 3, ..request };
        let status = client.fetch(call(&secret, other)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::NotFound, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn streams_of_an_unknown_job_end_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    let request = wire::StreamsRequest { job: 99, ..Default::default() };
    let mut client = connect(&node).await;
    let streams = client.streams(call(&secret(dir.path()), request)).await.unwrap();
    let mut streams = streams.into_inner();
    let last = streams.message().await.unwrap().unwrap();
    assert!(last.end && last.data.is_empty());
    assert_eq!(streams.message().await.unwrap(), None);
}
