//! Tests of the socket.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream as Plain;
use std::sync::Mutex;

use proto::work::GangNode;
use proto::work::{TurnAnswer, TurnCommit};
use proto::{Attempt, JobId, LocalId, NodeId, TaskId};
use tokio::sync::mpsc;

use super::*;
use crate::door::Order;

const TASK: TaskId = TaskId { job: JobId(7), local: LocalId(3) };

struct Node {
    door: Door,
    token: Token,
    killed: Mutex<Vec<(TaskId, Attempt)>>,
    /// The nodes of commands with a caller that has gone.
    gone: Mutex<Vec<NodeId>>,
    /// The ends of commands elsewhere.
    ended: Mutex<Vec<(TaskId, Attempt, wire::RshEnd)>>,
    _dir: tempfile::TempDir,
}

impl Host for Node {
    fn door(&self) -> &Door {
        &self.door
    }
    fn kill(&self, task: TaskId, attempt: Attempt) {
        self.killed.lock().unwrap().push((task, attempt));
    }
    /// Repeats its input, and ends with its input.
    fn rsh(self: Arc<Self>, to: NodeId, start: wire::RshStart, mut from: Inputs, out: Outputs) {
        use wire::{rsh_input::Body as In, rsh_output::Body as Out};
        tokio::spawn(async move {
            let said = format!("{to} runs {} of {} nodes", start.command, start.nodes.len());
            // An error means that the caller has gone.
            let _ = out.send(Out::Stderr(said.into_bytes())).await;
            while let Some(input) = from.recv().await {
                let output = match input {
                    In::Data(data) => Out::Stdout(data),
                    _ => Out::End(wire::RshEnd { code: 7, cpu_us: 9, ..Default::default() }),
                };
                let _ = out.send(output).await;
            }
            self.gone.lock().unwrap().push(to);
        });
    }
    fn member_ended(&self, task: TaskId, attempt: Attempt, end: &wire::RshEnd) {
        self.ended.lock().unwrap().push((task, attempt, end.clone()));
    }
    fn note(&self, _: &str) {}
}

fn with_token(door: Door, token: Token, dir: tempfile::TempDir) -> Node {
    let (killed, gone, ended) = (Mutex::default(), Mutex::default(), Mutex::default());
    Node { door, token, killed, gone, ended, _dir: dir }
}

/// A node that runs one attempt, and its inputs.
fn node() -> (Arc<Node>, mpsc::UnboundedReceiver<Local>) {
    let dir = tempfile::tempdir().unwrap();
    let (sender, inputs) = mpsc::unbounded_channel();
    let (door, lacks) = Door::open(dir.path(), sender);
    assert_eq!(lacks, None);
    let token = Token::draw().unwrap();
    door.attempts().enter((TASK, Attempt(1)), token, 0, None);
    let node = Arc::new(with_token(door, token, dir));
    tokio::spawn(serve(Arc::clone(&node)));
    (node, inputs)
}

fn call() -> client::Spawn {
    let (key, spec) = (String::new(), client::TaskSpec::command(["true"]));
    client::Spawn { key, spec, entries: vec![0..=2], inputs: Vec::new(), after: Vec::new() }
}

fn path(node: &Node) -> String {
    node.door.socket.as_ref().unwrap().path().display().to_string()
}

/// Sends a request, and returns the connection.
fn ask(node: &Node, body: Asked) -> Plain {
    let request = wire::DoorRequest { token: node.token.bytes(), body: Some(body) };
    let body = prost::Message::encode_to_vec(&request);
    let mut stream = Plain::connect(path(node)).unwrap();
    stream.write_all(&(body.len() as u32).to_le_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    stream
}

/// Calls the door on another thread, as a command does.
async fn with_door<T: Send + 'static>(
    node: &Node,
    token: &str,
    calls: impl FnOnce(&client::Door) -> T + Send + 'static,
) -> T {
    let (path, token) = (path(node), token.to_owned());
    let run = move || calls(&client::Door::new(&path, &token).unwrap());
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test]
async fn commands_spawn_and_commit() {
    let (node, mut inputs) = node();
    let token = node.token.text();
    let spawned = with_door(&node, &token, |door| {
        door.spawn(call()).unwrap();
        door.spawn(call()).unwrap()
    });
    assert_eq!(spawned.await, client::SpawnedTasks { first: 3, count: 3, known: false });
    let unknown = "00".repeat(16);
    let refused = with_door(&node, &unknown, |door| door.spawn(call()).unwrap_err()).await;
    assert!(refused.to_string().contains("has this token"));
    let answering = Arc::clone(&node);
    let core = tokio::spawn(async move {
        let Some(Local::Input(Input::Turn { task, attempt, turn })) = inputs.recv().await else {
            panic!("no turn");
        };
        let commit = TurnCommit { seq: 1, ..TurnCommit::default() };
        answering.door.answered(task, attempt, TurnAnswer::Committed(commit));
        turn.spawned.tasks.len()
    });
    let turn = with_door(&node, &token, |door| door.commit(Some(vec![1]), false).unwrap());
    assert_eq!((turn.await, core.await.unwrap()), (1, 6));
}

#[tokio::test]
async fn a_waiting_command_that_goes_ends_its_attempt() {
    let (node, mut inputs) = node();
    let token = node.token.text();
    with_door(&node, &token, |door| door.spawn(call()).unwrap()).await;
    let stream = ask(&node, Asked::Await(wire::DoorAwait::default()));
    assert!(matches!(inputs.recv().await, Some(Local::Input(Input::Turn { .. }))));
    let commit = TurnAnswer::Committed(TurnCommit { seq: 1, ..TurnCommit::default() });
    node.door.answered(TASK, Attempt(1), commit);
    assert!(node.door.is_parked(TASK, Attempt(1)));
    drop(stream);
    timeout(Duration::from_secs(20), async {
        while node.killed.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(*node.killed.lock().unwrap(), [(TASK, Attempt(1))]);
    assert!(!node.door.is_parked(TASK, Attempt(1)));
    assert!(inputs.try_recv().is_err(), "the attempt was over before");
}

#[tokio::test]
async fn a_command_that_yields_gets_no_answer() {
    let (node, mut inputs) = node();
    let commit = wire::DoorCommit { state: Some(vec![1]), r#yield: true };
    let mut stream = ask(&node, Asked::Commit(commit));
    assert!(matches!(inputs.recv().await, Some(Local::Input(Input::Turn { .. }))));
    let commit = TurnAnswer::Committed(TurnCommit { seq: 1, ..TurnCommit::default() });
    assert_eq!(node.door.answered(TASK, Attempt(1), commit), Order::Kill);
    // The node closes the connection when the command has gone.
    stream.shutdown(Shutdown::Write).unwrap();
    let rest = tokio::task::spawn_blocking(move || {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).map(|_| rest)
    });
    assert_eq!(rest.await.unwrap().unwrap(), Vec::<u8>::new());
}

#[tokio::test]
async fn a_door_without_a_socket_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("door"), "no directory").unwrap();
    let (sender, _inputs) = mpsc::unbounded_channel();
    let (door, lacks) = Door::open(dir.path(), sender);
    assert!(lacks.unwrap().contains("no socket in"));
    let node = with_token(door, Token::draw().unwrap(), dir);
    timeout(Duration::from_secs(20), serve(Arc::new(node))).await.unwrap();
}

#[tokio::test]
async fn frames_are_bounded_and_garbage_ends_only_its_connection() {
    let (node, _inputs) = node();
    let path = path(&node);
    let too_long = (proto::limits::DOOR_FRAME_BYTES_MAX as u32 + 1).to_le_bytes().to_vec();
    let garbage = [&4u32.to_le_bytes()[..], &[0xff; 4]].concat();
    for bytes in [too_long, garbage] {
        let path = path.clone();
        let rest = tokio::task::spawn_blocking(move || {
            let mut stream = Plain::connect(path).unwrap();
            stream.write_all(&bytes).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).map(|_| rest).unwrap_or_default()
        });
        assert_eq!(rest.await.unwrap(), Vec::<u8>::new());
    }
    let token = node.token.text();
    assert!(with_door(&node, &token, |door| door.spawn(call()).is_ok()).await);
}

fn remote(host: &str) -> client::RemoteCommand {
    let (host, command) = (host.to_owned(), "echo".to_owned());
    client::RemoteCommand { host, command, environment: Vec::new(), directory: Vec::new() }
}

/// Makes the attempt one of a gang.
fn join(node: &Node) {
    let gang = |node| GangNode { node: NodeId(node), ..GangNode::default() };
    node.door.gangs().admit(node.token, (TASK, Attempt(1)), [gang(0), gang(3)].into());
}

#[tokio::test]
async fn a_command_elsewhere_has_the_streams_of_its_caller() {
    let (node, _inputs) = node();
    join(&node);
    let sent: Vec<u8> = (0..500_000_u32).map(|at| at as u8).collect();
    let (input, token) = (sent.clone(), node.token.text());
    let (end, stdout, stderr) = with_door(&node, &token, |door| {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let end = door.rsh(remote("n3"), io::Cursor::new(input), |piece| {
            match piece {
                client::OutputPiece::Stdout(data) => stdout.extend_from_slice(data),
                client::OutputPiece::Stderr(data) => stderr.extend_from_slice(data),
            }
            Ok(())
        });
        (end.unwrap(), stdout, stderr)
    })
    .await;
    assert_eq!((end.code, end.failure.as_str()), (7, ""));
    // The node knew the end before the caller.
    let ended = node.ended.lock().unwrap();
    let known: Vec<_> =
        ended.iter().map(|(task, attempt, end)| (*task, *attempt, end.cpu_us)).collect();
    assert_eq!(known, [(TASK, Attempt(1), 9)]);
    assert!(stdout == sent && stderr == b"n3 runs echo of 2 nodes");
}

#[tokio::test]
async fn a_command_elsewhere_learns_that_its_caller_has_gone() {
    let (node, _inputs) = node();
    join(&node);
    let call = wire::DoorRsh { host: "n3".into(), command: "echo".into(), ..Default::default() };
    let stream = ask(&node, Asked::Rsh(Box::new(call)));
    drop(stream);
    timeout(Duration::from_secs(20), async {
        while node.gone.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn commands_elsewhere_are_for_gangs_and_their_nodes() {
    let (node, _inputs) = node();
    let token = node.token.text();
    let refused = async |host: &'static str| {
        let call = |door: &client::Door| {
            door.rsh(remote(host), io::empty(), |_| Ok(())).unwrap_err().to_string()
        };
        with_door(&node, &token, call).await
    };
    assert_eq!(refused("n3").await, "this task is not on several nodes");
    join(&node);
    assert!(refused("n1").await.starts_with("'n1' is no node of this gang"));
    // The command of a part may call others, and do nothing else.
    let (part, _) = node.door.admit((TASK, Attempt(1)), [GangNode::default()].into()).unwrap();
    let spawned = with_door(&node, &part.text(), |door| door.spawn(call()).is_ok()).await;
    assert!(!spawned);
    node.door.dismiss((TASK, Attempt(1)));
    assert!(node.door.gang_of(part).is_err(), "its part has ended");
}
