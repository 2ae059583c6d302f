//! Runs a command in a part of a gang on this node.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use executor::{MemberEnd, MemberStreams};
use proto::wire;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use wire::rsh_input::Body as In;
use wire::rsh_output::Body as Out;

use super::{Inputs, Outputs, key_of, lost, with_totals};
use crate::limits::RSH_PIECE_BYTES;
use crate::rpc::rsh::parts::Started;
use crate::rpc::service::Shared;

/// After its end, the rest of a command's output is read while its caller takes it, and until none
/// came for this long. A process that it has left may keep the pipes open.
const REST_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a command. It is killed when its inputs end or its outputs are not wanted.
pub(crate) async fn run(
    shared: Arc<Shared>,
    start: wire::RshStart,
    inputs: Inputs,
    outputs: Outputs,
) {
    let key = key_of(&start);
    let theirs = Arc::clone(&shared);
    let started = tokio::task::spawn_blocking(move || theirs.start_in_part(start)).await;
    let started = match started {
        Ok(Ok(started)) => started,
        Ok(Err(error)) => {
            let _ = outputs.send(lost(error)).await; // The caller may be gone.
            return;
        }
        Err(_) => return, // The runtime ends.
    };
    let number = started.number;
    let kill = || shared.executor.kill_member(number);
    let end = match watch(started, inputs, &outputs, kill).await {
        Ok(end) => end,
        Err(error) => {
            kill();
            lost(format!("the streams of the command: {error}"))
        }
    };
    let elsewhere = shared.parts.ended(key, number);
    let end = match end {
        Out::End(end) => Out::End(with_totals(end, elsewhere)),
        output => output,
    };
    let _ = outputs.send(end).await; // The caller may be gone.
}

/// Passes the streams of a command, until it has ended.
async fn watch(
    started: Started,
    mut inputs: Inputs,
    outputs: &Outputs,
    kill: impl Fn(),
) -> io::Result<Out> {
    let Started { streams: MemberStreams { stdin, stdout, stderr }, mut ended, .. } = started;
    let stdin = pipe::Sender::from_owned_fd(stdin)?;
    let stdout = pipe::Receiver::from_owned_fd(stdout)?;
    let stderr = pipe::Receiver::from_owned_fd(stderr)?;
    let passed = Arc::new(AtomicU64::new(0));
    let read = tokio::spawn({
        let (outputs, passed) = (outputs.clone(), Arc::clone(&passed));
        async move {
            tokio::join!(
                read_all(stdout, &outputs, &passed, Out::Stdout),
                read_all(stderr, &outputs, &passed, Out::Stderr)
            )
        }
    });
    let end = {
        let fed = feed(&mut inputs, stdin);
        tokio::pin!(fed);
        let mut is_killed = false;
        loop {
            tokio::select! {
                end = &mut ended => break end,
                () = &mut fed, if !is_killed => (is_killed, _) = (true, kill()),
                () = outputs.closed(), if !is_killed => (is_killed, _) = (true, kill()),
            }
        }
    };
    let mut read = read;
    let mut before = passed.load(Relaxed);
    while tokio::time::timeout(REST_TIMEOUT, &mut read).await.is_err() {
        let now = passed.load(Relaxed);
        let is_slow = outputs.capacity() == 0 && !outputs.is_closed();
        if !is_slow && now == before {
            read.abort();
            break;
        }
        before = now;
    }
    Ok(match end {
        Ok(MemberEnd { code, failure, totals }) => {
            let end = wire::RshEnd { code, failure, ..Default::default() };
            Out::End(with_totals(end, totals))
        }
        Err(_) => lost("the node stops"),
    })
}

/// Writes the standard input of a command. Returns when its caller has gone.
async fn feed(inputs: &mut Inputs, stdin: pipe::Sender) {
    let mut stdin = Some(stdin);
    while let Some(input) = inputs.recv().await {
        match (input, &mut stdin) {
            (In::Data(data), Some(pipe)) => {
                if pipe.write_all(&data).await.is_err() {
                    stdin = None; // The command reads no more.
                }
            }
            (In::End(_), _) => stdin = None,
            (In::Data(_) | In::Start(_), _) => {}
        }
    }
}

/// Passes what a pipe has, and counts the bytes.
async fn read_all(
    mut pipe: pipe::Receiver,
    outputs: &Outputs,
    passed: &AtomicU64,
    as_output: fn(Vec<u8>) -> Out,
) {
    let mut buffer = vec![0; RSH_PIECE_BYTES];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        if outputs.send(as_output(buffer[..count].to_vec())).await.is_err() {
            return;
        }
        passed.fetch_add(count as u64, Relaxed);
    }
}
