//! The way from a command back to its node.

use std::fmt;
use std::path::{Path, PathBuf};

use proto::work::Launch;
use proto::{Attempt, TaskId};

use crate::checkpoint;
use crate::commands::environment::push_variable;
use crate::error::reason;

/// The file with the last committed state, in the task's directory.
const STATE: &str = ".starling-state";

/// What the commands of an attempt need to reach their node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entrance {
    /// The path of the node's socket.
    pub door: String,
    /// The secret of the attempt.
    pub token: String,
    /// The state of the task's last turn; `None`: it has none.
    pub state: Option<Vec<u8>>,
}

/// Lets the commands of attempts in. Called once for each command, just before it starts.
pub trait Doorway: fmt::Debug + Send + Sync {
    /// # Errors
    /// The commands of the attempt could not be known: one line.
    fn enter(&self, launch: &Launch) -> Result<Entrance, String>;

    /// The command of an attempt has ended, or was never started, after the attempt was killed.
    fn leave(&self, task: TaskId, attempt: Attempt);
}

/// Adds the variables by which a command finds its node, its state and its checkpoint.
pub(crate) fn push_entrance(
    out: &mut Vec<Vec<u8>>,
    doorway: &dyn Doorway,
    launch: &Launch,
    directory: &Path,
) -> Result<(), String> {
    let Entrance { door, token, state } = doorway.enter(launch)?;
    push_variable(out, "STARLING_DOOR", &door);
    push_variable(out, "STARLING_TOKEN", &token);
    if let Some(path) = checkpoint::make(launch, directory, state.as_deref())? {
        push_variable(out, checkpoint::VARIABLE, &path.to_string_lossy());
    }
    if let Some(state) = state.filter(|state| !checkpoint::is_packed(state)) {
        let path = write_state(directory, &state)?;
        push_variable(out, "STARLING_STATE", &path.to_string_lossy());
    }
    Ok(())
}

fn write_state(directory: &Path, state: &[u8]) -> Result<PathBuf, String> {
    let path = directory.join(STATE);
    std::fs::write(&path, state)
        .map_err(|error| format!("cannot write the state of the task: {}", reason(&error)))?;
    Ok(path)
}
