//! Commands of a gang's task on other nodes, over a connection of the door.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use proto::wire;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::UnixStream;
use tokio::net::unix::ReadHalf;
use tokio::sync::{Semaphore, mpsc};
use wire::door_request::Body as Asked;
use wire::door_response::Body as Answered;
use wire::rsh_input::Body as In;
use wire::rsh_output::Body as Out;

use super::server::{DOOR_FRAME_TIMEOUT, Host, in_time};
use crate::door::frames;
use crate::door::refusal::Refusal;
use crate::door::token::Token;
use crate::limits::RSH_QUEUE_PIECES;
use crate::rpc::rsh;

/// The interval of a check for the caller while the command reads nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Serves a connection from its first request on, until the command has ended or its caller has
/// gone.
pub(super) async fn pass(
    host: Arc<impl Host>,
    reads: &Semaphore,
    stream: &mut UnixStream,
    token: &[u8],
    call: wire::DoorRsh,
) -> io::Result<()> {
    let (to, start) = match begin(&*host, token, call) {
        Ok(begun) => begun,
        Err(refusal) => {
            let refused = wire::DoorResponse::from(refusal);
            return in_time(DOOR_FRAME_TIMEOUT, frames::write(stream, &refused)).await;
        }
    };
    let (sender, inputs) = mpsc::channel(RSH_QUEUE_PIECES);
    let (outputs, mut answers) = mpsc::channel(RSH_QUEUE_PIECES);
    let (task, attempt) = rsh::key_of(&start);
    Arc::clone(&host).rsh(to, start, inputs, outputs);
    let (mut reader, mut writer) = stream.split();
    let write = async {
        while let Some(output) = answers.recv().await {
            if let Out::End(end) = &output {
                host.member_ended(task, attempt, end);
            }
            let output = wire::RshOutput { body: Some(output) };
            let body = Some(Answered::Output(output));
            // A caller may read slowly, and no other one waits for it.
            frames::write(&mut writer, &wire::DoorResponse { body }).await?;
        }
        Ok(())
    };
    tokio::select! {
        read = read_inputs(reads, &mut reader, sender) => read,
        written = write => written,
    }
}

fn begin(
    host: &impl Host,
    token: &[u8],
    call: wire::DoorRsh,
) -> Result<(proto::NodeId, wire::RshStart), Refusal> {
    let token = Token::of_bytes(token).ok_or_else(Refusal::no_token)?;
    let ((task, attempt), gang) = host.door().gang_of(token)?;
    let hint = "the lines of STARLING_MPI_HOSTFILE and the names of nodes, such as n1, are names";
    let to = rsh::find(&gang, &call.host).map_err(|text| Refusal::bad(text, hint))?;
    if call.command.trim().is_empty() {
        return Err(Refusal::bad("the command is empty", "starling rsh HOST COMMAND"));
    }
    let start = wire::RshStart {
        job: task.job.0,
        task: task.local.0,
        attempt: attempt.0,
        command: call.command,
        environment: call.environment,
        directory: call.directory,
        nodes: rsh::to_records(&gang),
    };
    Ok((to, start))
}

/// Reads the standard input of a command. Returns when its caller has gone.
async fn read_inputs(
    reads: &Semaphore,
    reader: &mut ReadHalf<'_>,
    sender: mpsc::Sender<In>,
) -> io::Result<()> {
    while let Some(length) = frames::length(reader).await? {
        let request: wire::DoorRequest = {
            let _turn = reads.acquire().await.expect("it is never closed");
            in_time(DOOR_FRAME_TIMEOUT, frames::read(reader, length)).await?
        };
        let Some(Asked::Input(wire::DoorInput { data, end })) = request.body else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a request beside a command"));
        };
        let permit = loop {
            match tokio::time::timeout(LOOK_EVERY, sender.reserve()).await {
                Ok(Ok(permit)) => break permit,
                // The command has ended; its last output is on its path.
                Ok(Err(_)) => std::future::pending().await,
                Err(_) if has_gone(reader.as_ref()) => return Ok(()),
                Err(_) => {}
            }
        };
        permit.send(if end { In::End(true) } else { In::Data(data) });
    }
    Ok(())
}

/// Whether the other side has closed the connection, even if bytes of it are unread.
fn has_gone(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::RDHUP)];
    let is_polled = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok();
    let over = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    is_polled && polled[0].revents().intersects(over)
}
