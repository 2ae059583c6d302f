//! Connections of commands to the door. A connection may carry several requests; `starling` sends
//! one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use node::Input;
use proto::work::Outcome;
use proto::{Span, wire};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use wire::door_request::Body as Asked;
use wire::door_response::Body as Answered;

use crate::door::attempts::{Accepted, Answer, End, Receipt};
use crate::door::refusal::Refusal;
use crate::door::token::Token;
use crate::door::{Door, frames, mail, rsh};
use crate::event_loop::inbox::Local;
use crate::limits::DOOR_CONNECTIONS_MAX;
use crate::rpc::rsh::{Inputs, Outputs};
use crate::rpc::service::Shared;

/// The maximum number of frames that are read at the same time; further ones wait.
const DOOR_READS_MAX: usize = 64;
/// A connection that sends no complete frame within this time is closed.
pub(super) const DOOR_FRAME_TIMEOUT: Span = Span::from_secs(5);
/// A connection without a request is closed after this time.
const DOOR_IDLE_TIMEOUT: Span = Span::from_secs(60);
/// A node ends an attempt this long after its waiting command has gone, if it has not ended by
/// itself.
const ABANDONED_WAIT_GRACE: Span = Span::from_millis(500);

/// The wait after an accept that failed, for lack of file descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the server needs of a node.
pub(crate) trait Host: Send + Sync + 'static {
    fn door(&self) -> &Door;
    /// Ends the command of an attempt; nothing is reported.
    fn kill(&self, task: proto::TaskId, attempt: proto::Attempt);
    /// Runs a command on a node of a gang.
    fn rsh(
        self: Arc<Self>,
        to: proto::NodeId,
        start: wire::RshStart,
        inputs: Inputs,
        outputs: Outputs,
    );
    /// Such a command of an attempt has ended; its caller learns of it afterwards.
    fn member_ended(&self, task: proto::TaskId, attempt: proto::Attempt, end: &wire::RshEnd);
    /// Writes a line for the operator.
    fn note(&self, text: &str);
}

impl Host for Shared {
    fn door(&self) -> &Door {
        &self.door
    }
    fn kill(&self, task: proto::TaskId, attempt: proto::Attempt) {
        self.executor.kill(task, attempt);
    }
    fn rsh(
        self: Arc<Self>,
        to: proto::NodeId,
        start: wire::RshStart,
        inputs: Inputs,
        outputs: Outputs,
    ) {
        tokio::spawn(crate::rpc::rsh::call(self, to, start, inputs, outputs));
    }
    fn member_ended(&self, task: proto::TaskId, attempt: proto::Attempt, end: &wire::RshEnd) {
        self.member_has_ended((task, attempt), end);
    }
    fn note(&self, text: &str) {
        self.log.refusal(text);
    }
}

/// Serves the door, if it has a socket, until the runtime ends.
pub(crate) async fn serve(host: Arc<impl Host>) {
    let Some(listener) = host.door().listener() else { return };
    let listener = listener.and_then(|listener| {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    });
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return host.note(&format!("the door does not open: {error}")),
    };
    let connections = Arc::new(Semaphore::new(DOOR_CONNECTIONS_MAX));
    let reads = Arc::new(Semaphore::new(DOOR_READS_MAX));
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let own = rustix::process::geteuid().as_raw();
        if !stream.peer_cred().is_ok_and(|peer| peer.uid() == own) {
            host.note("refused a command of another user at the door");
            continue;
        }
        match Arc::clone(&connections).try_acquire_owned() {
            Ok(permit) => {
                let (host, reads) = (Arc::clone(&host), Arc::clone(&reads));
                tokio::spawn(async move {
                    let _permit = permit;
                    if let Err(error) = talk(&host, &reads, &mut stream).await {
                        host.note(&format!("closed a connection at the door: {error}"));
                    }
                });
            }
            Err(_) => {
                let busy = wire::DoorResponse::from(Refusal::busy());
                let _ = timeout(ACCEPT_PAUSE, frames::write(&mut stream, &busy)).await;
            }
        }
    }
}

fn span(span: Span) -> Duration {
    Duration::from_nanos(span.0)
}

pub(super) async fn in_time<T>(
    limit: Span,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it takes too long");
    timeout(span(limit), future).await.map_err(late)?
}

/// Answers the requests of one connection.
async fn talk(host: &Arc<impl Host>, reads: &Semaphore, stream: &mut UnixStream) -> io::Result<()> {
    loop {
        let length = match timeout(span(DOOR_IDLE_TIMEOUT), frames::length(stream)).await {
            Ok(length) => length?,
            Err(_) => return Ok(()),
        };
        let Some(length) = length else { return Ok(()) };
        let request: wire::DoorRequest = {
            let _turn = reads.acquire().await.expect("it is never closed");
            in_time(DOOR_FRAME_TIMEOUT, frames::read(stream, length)).await?
        };
        if let Some(Asked::Rsh(call)) = request.body {
            return rsh::pass(Arc::clone(host), reads, stream, &request.token, *call).await;
        }
        let body = match answer(&**host, stream, request).await {
            Some(Ok(body)) => wire::DoorResponse { body: Some(body) },
            Some(Err(refusal)) => refusal.into(),
            None => return Ok(()), // The command is gone, or ends.
        };
        in_time(DOOR_FRAME_TIMEOUT, frames::write(stream, &body)).await?;
    }
}

/// `None`: the command has gone while it waited, or is killed.
async fn answer(
    host: &impl Host,
    stream: &UnixStream,
    request: wire::DoorRequest,
) -> Option<Result<Answered, Refusal>> {
    let Some(token) = Token::of_bytes(&request.token) else {
        return Some(Err(Refusal::no_token()));
    };
    let door = host.door();
    match request.body {
        Some(Asked::Spawn(call)) => Some(door.spawn(token, *call).map(Answered::Spawned)),
        Some(Asked::Commit(commit)) => {
            let yields = commit.r#yield;
            let begun = door.attempts().commit(token, commit);
            match door.begin(begun) {
                Ok(answer) => committed(stream, yields, answer).await,
                Err(refusal) => Some(Err(refusal)),
            }
        }
        Some(Asked::Await(awaited)) => {
            let begun = door.attempts().wait(token, awaited.tasks);
            match door.begin(begun) {
                Ok(answer) => waited(host, stream, token, answer).await,
                Err(refusal) => Some(Err(refusal)),
            }
        }
        Some(Asked::Send(send)) => or_gone(stream, door.send(token, send)).await,
        Some(Asked::Receive(call)) => {
            let received = door.attempts().receive(token, call);
            match received {
                Ok(Receipt::Letter(letter)) => Some(Ok(mail::received(Some(letter)))),
                Ok(Receipt::Waits(turn, answer)) => match door.begin(Ok((turn, answer))) {
                    Ok(answer) => waited(host, stream, token, answer).await,
                    Err(refusal) => Some(Err(refusal)),
                },
                Err(refusal) => Some(Err(refusal)),
            }
        }
        Some(Asked::Get(get)) => or_gone(stream, door.get(token, get)).await,
        // The core answers at once. So a command that goes keeps its connection until then, and
        // the number of connections bounds the sets under way.
        Some(Asked::Set(set)) => Some(door.set(token, set).await),
        Some(Asked::Add(add)) => or_gone(stream, door.add(token, add)).await,
        Some(Asked::Rsh(_) | Asked::Input(_)) | None => Some(Err(Refusal::bad(
            "a request that this node does not know",
            "use the 'starling' of this node's version",
        ))),
    }
}

/// Waits for an answer, as long as the command does.
async fn or_gone(
    stream: &UnixStream,
    answer: impl Future<Output = Result<Answered, Refusal>>,
) -> Option<Result<Answered, Refusal>> {
    tokio::select! {
        answer = answer => Some(answer),
        () = gone(stream) => None,
    }
}

/// Waits until the turn is committed.
async fn committed(
    stream: &UnixStream,
    yields: bool,
    answer: oneshot::Receiver<Answer>,
) -> Option<Result<Answered, Refusal>> {
    Some(match answer.await {
        Ok(Ok(Accepted::Committed(turn))) => Ok(Answered::Committed(wire::DoorCommitted { turn })),
        Ok(Err(refusal)) => Err(refusal),
        Err(_) if yields => {
            // The command is being killed. It must not see an end of its connection before that,
            // which it would report.
            let _ = timeout(span(DOOR_IDLE_TIMEOUT), gone(stream)).await;
            return None;
        }
        // The attempt has ended.
        Ok(Ok(Accepted::Awaited(_) | Accepted::Received(_))) | Err(_) => Err(Refusal::fenced()),
    })
}

/// Waits for the end of the awaited tasks or for an event, or for the end of the command.
async fn waited(
    host: &impl Host,
    stream: &UnixStream,
    token: Token,
    answer: oneshot::Receiver<Answer>,
) -> Option<Result<Answered, Refusal>> {
    let answer = tokio::select! {
        answer = answer => answer,
        () = gone(stream) => {
            abandoned(host, token).await;
            return None;
        }
    };
    Some(match answer {
        Ok(Ok(Accepted::Awaited(tasks))) => Ok(Answered::Awaited(wire::DoorAwaited { tasks })),
        Ok(Ok(Accepted::Received(letter))) => Ok(mail::received(letter)),
        Ok(Err(refusal)) => Err(refusal),
        Ok(Ok(Accepted::Committed(_))) | Err(_) => Err(Refusal::fenced()),
    })
}

/// Returns when the command has closed the connection, or sends more although it waits.
async fn gone(stream: &UnixStream) {
    loop {
        if stream.readable().await.is_err() {
            return;
        }
        match stream.try_read(&mut [0; 1]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return,
        }
    }
}

/// The command of an attempt that waited has gone, and the attempt has no slot. Its other processes
/// must not go on. If they have all gone with it, the executor reports that soon.
async fn abandoned(host: &impl Host, token: Token) {
    tokio::time::sleep(span(ABANDONED_WAIT_GRACE)).await;
    let door = host.door();
    let Some(((task, attempt), end)) = door.attempts().abandon(token) else { return };
    host.kill(task, attempt);
    if end == End::Reported {
        let error = "its 'starling await' ended while it waited".to_owned();
        let outcome = Box::new(Outcome { error, exit_code: 1, ..Outcome::default() });
        let _ = door.inputs.send(Local::Input(Input::Finished { task, attempt, outcome }));
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
