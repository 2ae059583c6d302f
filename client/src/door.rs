/*!
Calls of a running task to its node: spawn tasks, await them, commit a state.

They work only inside a task of a command, which has the socket of its node and the token of its
attempt in its environment. A call blocks until the node answers.

```no_run
# fn example() -> Result<(), client::DoorError> {
use client::Door;
let door = Door::of_environment()?;
door.commit(Some(b"half done".to_vec()), false)?;
for task in door.await_tasks(&[])? {
    println!("{task:?}");
}
# Ok(())
# }
```
*/

use std::env;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use prost::Message as _;
use proto::{limits, wire};
use wire::door_request::Body as Asked;
use wire::door_response::Body as Answered;

/// The variables of a task by which its commands find their node.
pub const DOOR_VARIABLE: &str = "STARLING_DOOR";
const TOKEN_VARIABLE: &str = "STARLING_TOKEN";

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The process is not part of a task.
    #[error("this is not inside a task: {0} is not set")]
    Outside(&'static str),
    #[error("STARLING_TOKEN is not a token")]
    BadToken,
    /// The request is larger than the node reads.
    #[error("the request has {bytes} bytes, at most {} are sent", limits::DOOR_FRAME_BYTES_MAX)]
    TooLarge { bytes: usize },
    #[error("the node does not answer at {path}: {error}")]
    Unreachable { path: String, error: io::Error },
    /// The node refused the request.
    #[error("{text}")]
    Refused { why: wire::DoorRefusal, text: String, hint: String },
    #[error("the node answered with something else; it may have another version")]
    BadAnswer,
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
    pub fn spawn(&self, call: wire::DoorSpawn) -> Result<wire::DoorSpawned, DoorError> {
        match self.call(Asked::Spawn(Box::new(call)))? {
            Answered::Spawned(spawned) => Ok(spawned),
            _ => Err(DoorError::BadAnswer),
        }
    }

    /// Commits, gives the slot back, and returns when these tasks have ended; none: all children.
    ///
    /// # Errors
    /// The node refuses the call, or is gone.
    pub fn await_tasks(&self, tasks: &[wire::TaskRef]) -> Result<Vec<wire::Awaited>, DoorError> {
        match self.call(Asked::Await(wire::DoorAwait { tasks: tasks.to_vec() }))? {
            Answered::Awaited(awaited) => Ok(awaited.tasks),
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

    fn call(&self, body: Asked) -> Result<Answered, DoorError> {
        let request = wire::DoorRequest { token: self.token.to_vec(), body: Some(body) };
        let bytes = request.encoded_len();
        if bytes > limits::DOOR_FRAME_BYTES_MAX {
            return Err(DoorError::TooLarge { bytes });
        }
        let answer = self.exchange(&request);
        let path = self.path.clone();
        match answer.map_err(|error| DoorError::Unreachable { path, error })?.body {
            Some(Answered::Refused(refused)) => {
                let why = refused.why();
                Err(DoorError::Refused { why, text: refused.text, hint: refused.hint })
            }
            Some(body) => Ok(body),
            None => Err(DoorError::BadAnswer),
        }
    }

    fn exchange(&self, request: &wire::DoorRequest) -> io::Result<wire::DoorResponse> {
        let body = request.encode_to_vec();
        let mut frame = Vec::with_capacity(4 + body.len());
        frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
        frame.extend_from_slice(&body);
        let mut stream = UnixStream::connect(&self.path)?;
        let sent = stream.write_all(&frame);
        // A node without a free connection answers before it has read the request.
        let mut head = [0; 4];
        stream.read_exact(&mut head).map_err(|error| sent.err().unwrap_or(error))?;
        let length = u32::from_le_bytes(head) as usize;
        if length > limits::DOOR_ANSWER_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        wire::DoorResponse::decode(&body[..])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
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
