//! The bytes of an object are sent in pieces by the node that has it. A missing one is reported at
//! once.

mod support;

use std::fs;
use std::path::Path;

use daemon::start;
use proto::{limits, wire};
use support::{call, connect, options};

/// Stores a file as output 2 of job 5, task 3.9, attempt 1.1. The node does not know that job, so
/// it keeps only a kept output.
fn put(dir: &Path, bytes: &[u8]) -> wire::ObjectRequest {
    let objects = dir.join("nodes/0/state/objects/0000000000000005");
    fs::create_dir_all(&objects).expect("a directory of the test");
    fs::write(objects.join("3.9-100000001-2-kept"), bytes).expect("a file of the test");
    wire::ObjectRequest { job: 5, task: 3 << 40 | 9, attempt: 1 << 32 | 1, output: 2 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn objects_of_all_sizes_arrive_whole() {
    for size in [0, 1, 60_000, limits::PIECE_BYTES, 3 * limits::PIECE_BYTES + 17] {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..size).map(|at| (at ^ (at >> 8)) as u8).collect();
        let request = put(dir.path(), &bytes);
        let node = start(options(dir.path(), 0, 1)).unwrap();
        let mut client = connect(&node, dir.path()).await;
        let mut pieces = client.fetch(call(request)).await.unwrap().into_inner();
        let mut received = Vec::new();
        while let Some(piece) = pieces.message().await.unwrap() {
            assert_eq!(piece.total_bytes, size as u64);
            assert!(piece.data.len() <= limits::PIECE_BYTES);
            received.extend_from_slice(&piece.data);
        }
        assert!(received == bytes, "{size} bytes");
        let other = wire::ObjectRequest { output: 3, ..request };
        let status = client.fetch(call(other)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::NotFound, "{status}");
    }
}

/// Small objects in frames of the link, large ones over lines, all together and one after another.
/// A burst of small ones goes over lines, unless large ones are on them.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nodes_bring_objects_from_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let objects = dir.path().join("nodes/0/state/objects/0000000000000005");
    fs::create_dir_all(&objects).unwrap();
    let mut sizes = vec![0, 1, 65_536, 65_537, 300_000, 9 << 20];
    let few = sizes.len();
    sizes.extend((0..40).map(|number| 65_536 - number));
    let object = |output: usize| wire::Object {
        job: 5,
        task: 3 << 40 | 9,
        attempt: 1 << 32 | 1,
        output: output as u32,
        size_bytes: sizes[output],
    };
    for (output, size_bytes) in sizes.iter().enumerate() {
        let bytes: Vec<u8> = (0..*size_bytes).map(|at| (at ^ (at >> 8)) as u8).collect();
        fs::write(objects.join(format!("3.9-100000001-{output}-kept")), bytes).unwrap();
    }
    let nodes = daemon::start_all(&options(dir.path(), 0, 2)).unwrap();
    let mut client = connect(&nodes[1], dir.path()).await;
    let mut bring = async |objects: Vec<wire::Object>| {
        client.bring(call(wire::BringRequest { from: 0, objects })).await
    };
    let all: Vec<wire::Object> = (0..sizes.len()).map(object).collect();
    for _ in 0..2 {
        bring(all.clone()).await.unwrap();
    }
    for one in &all[..few] {
        bring(vec![*one]).await.unwrap();
    }
    for _ in 0..2 {
        bring(all[few..].to_vec()).await.unwrap();
    }
    let absent = wire::Object { output: 77, size_bytes: 10, ..object(1) };
    let status = bring([&all[few..], &[absent]].concat()).await.unwrap_err();
    assert!(status.message().contains("not there"), "{status}");
    for size_bytes in [10, 300_000] {
        let absent = wire::Object { output: 77, size_bytes, ..object(1) };
        let status = bring(vec![absent, object(1), object(4)]).await.unwrap_err();
        assert!(status.message().contains("not there"), "{status}");
    }
    let longer = wire::Object { size_bytes: 300_001, ..object(4) };
    let status = bring(vec![longer, object(5)]).await.unwrap_err();
    assert!(status.message().contains("300000 bytes there instead of 300001"), "{status}");
    bring(all).await.unwrap();
    let left = fs::read_dir(dir.path().join("nodes/1/state/objects/0000000000000005")).unwrap();
    assert_eq!(left.count(), 0, "no partial file and no released object is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn streams_of_an_unknown_job_end_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    let request = wire::StreamsRequest { job: 99, ..Default::default() };
    let mut client = connect(&node, dir.path()).await;
    let streams = client.streams(call(request)).await.unwrap();
    let mut streams = streams.into_inner();
    let last = streams.message().await.unwrap().unwrap();
    assert!(last.end && last.data.is_empty());
    assert_eq!(streams.message().await.unwrap(), None);
}
