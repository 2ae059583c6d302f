/*!
Calls of a running task to its node: spawn tasks, await them, commit a state.

They work only inside a task of a command, which has the socket of its node and the token of its
attempt in its environment. A call blocks until the node answers.

```no_run
# fn example() -> Result<(), starling_client::DoorError> {
use starling_client::Door;
let door = Door::of_environment()?;
door.commit(Some(b"half done".to_vec()), false)?;
for task in door.await_tasks(&[])? {
    println!("{task:?}");
}
# Ok(())
# }
```
*/

mod events;

use std::env;
use std::io::{self, Read as _, Write as _};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;

use prost::Message as _;
use proto::{LocalId, limits, wire};
use wire::door_request::Body as Asked;
use wire::door_response::Body as Answered;
use wire::rsh_output::Body as Piece;
use wire::task_ref;

use crate::{TaskSpec, Variable, Verdict};
pub use events::{EventPeer, TaskEvent};

/// The size of an answer: one verdict for each awaited task.
const DOOR_ANSWER_BYTES_MAX: usize = 64 << 20;

/// The standard input of a remote command is sent in pieces of at most this size.
const INPUT_PIECE_BYTES: usize = 64 << 10;

/// The variables of a task by which its commands find their node.
pub const DOOR_VARIABLE: &str = "STARLING_DOOR";
const TOKEN_VARIABLE: &str = "STARLING_TOKEN";

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The process is not part of a task.
    #[error("this is not inside a task: {0} is not set")]
    Outside(&'static str),
    /// The token of the environment is malformed.
    #[error("STARLING_TOKEN is not a token")]
    BadToken,
    /// The request is larger than the node reads.
    #[error("the request has {bytes} bytes, at most {} are sent", limits::DOOR_FRAME_BYTES_MAX)]
    TooLarge {
        /// The size of the request.
        bytes: usize,
    },
    /// The node has ended, or its socket is gone.
    #[error("the node does not answer at {path}: {error}")]
    Unreachable {
        /// The socket.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// The node refused the request.
    #[error("{text}")]
    Refused {
        /// The class of the reason.
        why: DoorRefusal,
        /// The reason in one line.
        text: String,
        /// The next step; empty: none.
        hint: String,
    },
    /// The output of a remote command could not be written here.
    #[error("cannot write the output of the command: {0}")]
    Output(io::Error),
    /// The answer does not fit the request.
    #[error("the node answered with something else; it may have another version")]
    BadAnswer,
}

/// The class of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DoorRefusal {
    /// No running attempt of this node has the token.
    NoToken,
    /// The attempt has ended, or another one has taken its place.
    Fenced,
    /// The request cannot be served for the reason in the text.
    BadRequest,
    /// The node serves too many commands at present; a later call may succeed.
    Busy,
}

/// Tasks to be spawned.
#[derive(Clone, PartialEq, Debug)]
pub struct Spawn {
    /// The same key names the same tasks in each attempt of this task. Empty: none.
    pub key: String,
    /// What each of them does.
    pub spec: TaskSpec,
    /// One task for each number, which is its `{i}`.
    pub entries: Vec<RangeInclusive<u64>>,
    /// The spawned tasks start after these.
    pub after: Vec<TaskRef>,
    /// Outputs of children: the spawned tasks read them under the same names.
    pub inputs: Vec<ChildOutput>,
}

/// An output of a child, in the form in which it was declared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildOutput {
    /// The child.
    pub task: TaskRef,
    /// `FILE`, `DIRECTORY/` or `glob:PATTERN`.
    pub output: String,
}

/// A task of the own job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskRef {
    /// A child of this task, by its ordinal from 0.
    Child(u64),
    /// Any task of the job.
    Task(LocalId),
}

/// The ordinals of spawned tasks: `first`, and `count` in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpawnedTasks {
    /// The ordinal of the first one.
    pub first: u64,
    /// The number of tasks.
    pub count: u64,
    /// An earlier attempt has spawned them under the same key.
    pub known: bool,
}

/// A task that was awaited and has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Awaited {
    /// Its id in the job.
    pub task: LocalId,
    /// Its ordinal if it is a child of this task.
    pub child: Option<u64>,
    /// How it ended.
    pub verdict: Verdict,
    /// 0 if its end has no exit code.
    pub exit_code: i32,
}

/// A command for another node of a gang.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteCommand {
    /// The name of the node, or of its host, or its address.
    pub host: String,
    /// For the shell there.
    pub command: String,
    /// Variables of its environment, as `NAME=value`, on top of those of its node.
    pub environment: Vec<Vec<u8>>,
    /// Its working directory, if that exists there.
    pub directory: Vec<u8>,
}

/// Bytes that a remote command has printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputPiece<'p> {
    /// To its standard output.
    Stdout(&'p [u8]),
    /// To its standard error.
    Stderr(&'p [u8]),
}

/// The end of a remote command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteEnd {
    /// Its exit code; after a signal 128 and the signal's number; 255 if it did not run or its end
    /// is not known.
    pub code: i32,
    /// Why it did not run, or why its end is not known; empty: it has ended by itself.
    pub failure: String,
}

/// The way of a running task to its node. Each call has a connection of its own, because a node
/// closes idle ones.
#[derive(Debug)]
pub struct Door {
    path: String,
    token: [u8; limits::DOOR_TOKEN_BYTES],
}

impl Door {
    /// # Errors
    /// The process is not part of a task.
    pub fn of_environment() -> Result<Self, DoorError> {
        let variable = |name| env::var(name).map_err(|_| DoorError::Outside(name));
        Self::new(&variable(DOOR_VARIABLE)?, &variable(TOKEN_VARIABLE)?)
    }

    /// # Errors
    /// The token is malformed.
    pub fn new(path: &str, token: &str) -> Result<Self, DoorError> {
        let token = security::from_hex(token).ok_or(DoorError::BadToken)?;
        Ok(Self { path: path.to_owned(), token })
    }

    /// Spawns tasks, which exist when the attempt's next turn is committed.
    ///
    /// # Errors
    /// The node refuses the call, or is gone.
    pub fn spawn(&self, call: Spawn) -> Result<SpawnedTasks, DoorError> {
        match self.call(Asked::Spawn(Box::new(call.into_record())))? {
            Answered::Spawned(wire::DoorSpawned { first, count, known }) => {
                Ok(SpawnedTasks { first, count, known })
            }
            _ => Err(DoorError::BadAnswer),
        }
    }

    /// Commits, gives the slot back, and returns when these tasks have ended; none: all children.
    ///
    /// # Errors
    /// The node refuses the call, or is gone.
    pub fn await_tasks(&self, tasks: &[TaskRef]) -> Result<Vec<Awaited>, DoorError> {
        let tasks = tasks.iter().map(|task| task.to_record()).collect();
        match self.call(Asked::Await(wire::DoorAwait { tasks }))? {
            Answered::Awaited(awaited) => {
                Ok(awaited.tasks.into_iter().map(Awaited::of_record).collect())
            }
            _ => Err(DoorError::BadAnswer),
        }
    }

    /// Commits the children so far and the state. Returns the number of the turn. If the attempt
    /// `ends` with it, the node answers nothing and ends the processes of the attempt, this one
    /// included.
    ///
    /// # Errors
    /// The node refuses the call, or is gone.
    pub fn commit(&self, state: Option<Vec<u8>>, ends: bool) -> Result<u64, DoorError> {
        match self.call(Asked::Commit(wire::DoorCommit { state, r#yield: ends }))? {
            Answered::Committed(committed) => Ok(committed.turn),
            _ => Err(DoorError::BadAnswer),
        }
    }

    /// The value of a variable of the job as this node knows it.
    ///
    /// # Errors
    /// The job has no such variable, or it is a sum, or the node is gone.
    pub fn variable(&self, name: &str) -> Result<Variable, DoorError> {
        self.get(name, None).map(|record| Variable::of_record(&record))
    }

    /// Follows a variable of the job: its value, then each later one.
    #[must_use]
    pub fn watch_variable<'d>(&'d self, name: &'d str) -> DoorVariableWatch<'d> {
        DoorVariableWatch { door: self, name, last: None }
    }

    fn get(
        &self,
        name: &str,
        unlike: Option<wire::DoorUnlike>,
    ) -> Result<wire::Variable, DoorError> {
        match self.call(Asked::Get(wire::DoorGet { name: name.to_owned(), unlike }))? {
            Answered::Variable(record) => Ok(*record),
            _ => Err(DoorError::BadAnswer),
        }
    }

    /// Sets a variable of the job at once. Returns the value that the node knows then, which may be
    /// a better one.
    ///
    /// # Errors
    /// The job has no such variable, or the value does not fit it, or the node is gone.
    pub fn set_variable(
        &self,
        name: &str,
        value: &str,
        witness: Vec<u8>,
    ) -> Result<Variable, DoorError> {
        let set = wire::DoorSet { name: name.to_owned(), value: value.to_owned(), witness };
        match self.call(Asked::Set(set))? {
            Answered::Variable(record) => Ok(Variable::of_record(&record)),
            _ => Err(DoorError::BadAnswer),
        }
    }

    /// Adds to a sum of the job. It counts when the attempt's next turn is committed.
    ///
    /// # Errors
    /// The job has no such sum, or this is no integer, or the node is gone.
    pub fn add_to_variable(&self, name: &str, number: &str) -> Result<(), DoorError> {
        let add = wire::DoorAdd { name: name.to_owned(), value: number.to_owned() };
        match self.call(Asked::Add(add))? {
            Answered::Added(wire::DoorAdded {}) => Ok(()),
            _ => Err(DoorError::BadAnswer),
        }
    }

    /// Runs a command on another node of the task's gang, and returns when it has ended. It gets
    /// the bytes of `input`, which another thread reads; its output goes to `output` as it comes.
    /// The command is killed when this process ends.
    ///
    /// # Errors
    /// The task has no such node, or a node is gone, or `output` fails.
    pub fn rsh(
        &self,
        call: RemoteCommand,
        input: impl io::Read + Send + 'static,
        mut output: impl FnMut(OutputPiece<'_>) -> io::Result<()>,
    ) -> Result<RemoteEnd, DoorError> {
        let failed = |error| DoorError::Unreachable { path: self.path.clone(), error };
        let request = self.request(Asked::Rsh(Box::new(call.into_record())))?;
        let mut stream = UnixStream::connect(&self.path).map_err(failed)?;
        let mut sent = stream.write_all(&request);
        if sent.is_ok() {
            let mut theirs = stream.try_clone().map_err(failed)?;
            let started = std::thread::Builder::new().name("rsh-input".to_owned());
            let started = started.spawn(move || send_input(input, &mut theirs));
            started.map_err(failed)?;
        }
        loop {
            let answer = read_answer(&mut stream);
            // A node without a free connection answers before it has read the request.
            let sent = std::mem::replace(&mut sent, Ok(()));
            let answer = answer.map_err(|error| failed(sent.err().unwrap_or(error)))?;
            let Answered::Output(wire::RshOutput { body: Some(body) }) = accepted(answer)? else {
                return Err(DoorError::BadAnswer);
            };
            let written = match &body {
                Piece::Stdout(data) => output(OutputPiece::Stdout(data)),
                Piece::Stderr(data) => output(OutputPiece::Stderr(data)),
                Piece::End(end) => {
                    let wire::RshEnd { code, failure, .. } = end.clone();
                    return Ok(RemoteEnd { code, failure });
                }
            };
            written.map_err(DoorError::Output)?;
        }
    }

    fn call(&self, body: Asked) -> Result<Answered, DoorError> {
        let request = self.request(body)?;
        let answer = self.exchange(&request);
        let path = self.path.clone();
        accepted(answer.map_err(|error| DoorError::Unreachable { path, error })?)
    }

    /// A request as a frame.
    fn request(&self, body: Asked) -> Result<Vec<u8>, DoorError> {
        let request = wire::DoorRequest { token: self.token.to_vec(), body: Some(body) };
        match request.encoded_len() {
            bytes if bytes > limits::DOOR_FRAME_BYTES_MAX => Err(DoorError::TooLarge { bytes }),
            _ => Ok(frame(&request)),
        }
    }

    fn exchange(&self, request: &[u8]) -> io::Result<wire::DoorResponse> {
        let mut stream = UnixStream::connect(&self.path)?;
        let sent = stream.write_all(request);
        // A node without a free connection answers before it has read the request.
        read_answer(&mut stream).map_err(|error| sent.err().unwrap_or(error))
    }
}

fn frame(request: &wire::DoorRequest) -> Vec<u8> {
    let body = request.encode_to_vec();
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&body);
    frame
}

fn read_answer(stream: &mut UnixStream) -> io::Result<wire::DoorResponse> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head) as usize;
    if length > DOOR_ANSWER_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    wire::DoorResponse::decode(&body[..])
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn accepted(answer: wire::DoorResponse) -> Result<Answered, DoorError> {
    match answer.body {
        Some(Answered::Refused(refused)) => {
            let why = DoorRefusal::of_record(refused.why());
            Err(DoorError::Refused { why, text: refused.text, hint: refused.hint })
        }
        Some(body) => Ok(body),
        None => Err(DoorError::BadAnswer),
    }
}

/// Sends the standard input of a remote command, up to its end.
fn send_input(mut input: impl io::Read, stream: &mut UnixStream) {
    let mut buffer = vec![0; INPUT_PIECE_BYTES];
    loop {
        let data = match input.read(&mut buffer) {
            Ok(count) => buffer[..count].to_vec(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => Vec::new(),
        };
        let end = data.is_empty();
        let body = Some(Asked::Input(wire::DoorInput { data, end }));
        let request = wire::DoorRequest { token: Vec::new(), body };
        // The other thread sees why the node takes no more.
        if stream.write_all(&frame(&request)).is_err() || end {
            return;
        }
    }
}

/// The values of one variable, as [`Door::watch_variable`] follows it.
#[derive(Debug)]
pub struct DoorVariableWatch<'d> {
    door: &'d Door,
    name: &'d str,
    last: Option<wire::DoorUnlike>,
}

impl DoorVariableWatch<'_> {
    /// The present value at first, then the next one that differs from the last.
    ///
    /// # Errors
    /// As [`Door::variable`]; also when the attempt has ended.
    pub fn next(&mut self) -> Result<Variable, DoorError> {
        let record = self.door.get(self.name, self.last.take())?;
        let variable = Variable::of_record(&record);
        self.last = Some(wire::DoorUnlike { value: record.value });
        Ok(variable)
    }
}

impl DoorRefusal {
    fn of_record(why: wire::DoorRefusal) -> Self {
        match why {
            wire::DoorRefusal::NoToken => Self::NoToken,
            wire::DoorRefusal::Fenced => Self::Fenced,
            wire::DoorRefusal::BadRequest => Self::BadRequest,
            wire::DoorRefusal::Busy => Self::Busy,
        }
    }
}

impl RemoteCommand {
    fn into_record(self) -> wire::DoorRsh {
        let Self { host, command, environment, directory } = self;
        wire::DoorRsh { host, command, environment, directory }
    }
}

impl Spawn {
    fn into_record(self) -> wire::DoorSpawn {
        let range = |range: RangeInclusive<u64>| wire::EntryRange {
            first: *range.start(),
            last: *range.end(),
        };
        let input = |input: ChildOutput| {
            let (file, form) = workloads::output_form(&input.output);
            let (task, file, form) = (Some(input.task.to_record()), file.to_owned(), form as i32);
            wire::DoorInputFile { task, file, form }
        };
        wire::DoorSpawn {
            key: self.key,
            spec: Some(self.spec.spec.as_ref().clone()),
            entries: self.entries.into_iter().map(range).collect(),
            after: self.after.iter().map(|task| task.to_record()).collect(),
            inputs: self.inputs.into_iter().map(input).collect(),
        }
    }
}

impl TaskRef {
    fn to_record(self) -> wire::TaskRef {
        let task = match self {
            Self::Child(child) => task_ref::Task::Child(child),
            Self::Task(local) => task_ref::Task::Local(local.0),
        };
        wire::TaskRef { task: Some(task) }
    }
}

impl Awaited {
    fn of_record(awaited: wire::Awaited) -> Self {
        Self {
            task: LocalId(awaited.local),
            child: awaited.child.checked_sub(1),
            verdict: Verdict::of_record(awaited.verdict()),
            exit_code: awaited.exit_code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_token_is_found_before_the_node_is_called() {
        assert!(Door::new("nowhere", &"0f".repeat(limits::DOOR_TOKEN_BYTES)).is_ok());
        for token in ["", "00fF", &"0x".repeat(16), &"00".repeat(17), &"é".repeat(16)] {
            assert!(matches!(Door::new("nowhere", token), Err(DoorError::BadToken)), "{token}");
        }
    }
}
