//! The verbs for commands inside a task: they make tasks, wait for them, commit a state,
//! and send and receive events.
//! They reach the node by its local socket, not by the instance's directory.

pub(crate) mod awaiting;
pub(crate) mod commit;
pub(crate) mod event;
pub(crate) mod handles;
pub(crate) mod rsh;
pub(crate) mod spawn;
pub(crate) mod var;

use client::{Door, DoorError, DoorRefusal};
use verb::errors::{Failure, plain};

fn door() -> Result<Door, Failure> {
    Door::of_environment().map_err(failure)
}

fn failure(error: DoorError) -> Failure {
    match error {
        DoorError::Outside(_) => Failure::refused(error.to_string())
            .hint("from outside: 'starling submit'; inside a task the node sets this variable"),
        DoorError::BadToken => {
            Failure::refused(error.to_string()).hint("leave the variable as the node has set it")
        }
        DoorError::TooLarge { .. } => Failure::refused(error.to_string())
            .hint("pass long lists in a file instead of arguments or variables"),
        DoorError::Unreachable { path, error } => {
            Failure::lost(format!("the node of this task does not answer: {}", plain(&error)))
                .hint(format!("its socket is {path}; if the node has ended, the task runs again"))
        }
        DoorError::Refused { why, text, hint } => {
            let failure = match why {
                DoorRefusal::Busy => Failure::lost(text),
                _ => Failure::refused(text),
            };
            failure.hint(hint)
        }
        DoorError::Output(_) => Failure::lost(error.to_string()),
        DoorError::BadAnswer => {
            Failure::lost(error.to_string()).hint("use the 'starling' of the node's version")
        }
    }
}
