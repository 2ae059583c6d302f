//! Files of submitters: accepted only for a staged task that stands for a file.

#[path = "support/session.rs"]
mod session;
mod support;

use std::path::Path;

use daemon::rpc::peer_client::PeerClient;
use daemon::start;
use proto::{LocalId, PartitionId, wire};
use security::Role;
use session::Session;
use support::{call, channel, connect, dialer, options};
use tonic::Code;
use wire::request::Body as Ask;
use wire::response::Body as Answer;
use xxhash_rust::xxh3::xxh3_64;

const JOB: u64 = 5;

fn part(job: u64, index: u64, bytes: &'static [u8]) -> wire::UploadPart {
    wire::UploadPart {
        job,
        task: LocalId::new(PartitionId(3), index).0,
        size_bytes: bytes.len() as u64,
        data: bytes.into(),
        checksum: xxh3_64(bytes),
        last: true,
        copy: false,
        executable: false,
    }
}

/// One task that stands for a file, and one that does not.
fn chunk() -> wire::Chunk {
    let body = |body| wire::Spec { body: Some(body), ..Default::default() };
    let upload = body(wire::spec::Body::Upload(wire::Upload {}));
    let noop = body(wire::spec::Body::Noop(Default::default()));
    let task = |spec| wire::Task { spec, ..Default::default() };
    wire::Chunk {
        job: JOB,
        partition: 3,
        specs: vec![wire::Spec { outputs: vec![Default::default()], ..upload }, noop],
        tasks: vec![task(0), task(1)],
        ..Default::default()
    }
}

fn kept(dir: &Path, job: u64) -> usize {
    let uploads = dir.join(format!("nodes/0/state/uploads/{job:016x}"));
    std::fs::read_dir(uploads).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_file_that_no_job_goes_with_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    let mut client = connect(&node, dir.path()).await;
    let mut put = async |part| client.put(call(tokio_stream::once(part))).await.map(drop);
    let refused = put(part(JOB, 0, b"too early")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("submit its job first"), "{refused}");
    let mut session = Session::open(&node, dir.path()).await;
    let staged = session.ask(Ask::Submit(chunk())).await;
    assert!(matches!(staged.body, Some(Answer::Accepted(_))), "{staged:?}");
    put(part(JOB, 0, b"in time")).await.unwrap();
    put(part(JOB, 0, b"and again")).await.unwrap();
    for other in [part(JOB, 1, b"no file"), part(JOB, 2, b"no task"), part(6, 0, b"no job")] {
        let refused = put(other).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    }
    assert_eq!((kept(dir.path(), JOB), kept(dir.path(), 6)), (1, 0));
}

/// A node that is not the task's home cannot know its job, and sends the file to a later home.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_copy_is_taken_and_given_out_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    let mut client = connect(&node, dir.path()).await;
    let copy = wire::UploadPart { copy: true, ..part(6, 0, b"for another home") };
    let task = copy.task;
    client.put(call(tokio_stream::once(copy))).await.unwrap();
    assert_eq!(kept(dir.path(), 6), 1);
    let wanted = |task| call(wire::ObjectRequest { job: 6, task, attempt: 0, output: 0 });
    let mut pieces = client.fetch(wanted(task)).await.unwrap().into_inner();
    let piece = pieces.message().await.unwrap().unwrap();
    assert_eq!((&piece.data[..], piece.total_bytes), (&b"for another home"[..], 16));
    assert!(pieces.message().await.unwrap().is_none());
    let refused = client.fetch(wanted(task + 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    let submitter = channel(&node, &dialer(dir.path(), Role::Client)).await;
    let refused = PeerClient::new(submitter).fetch(wanted(task)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
}
