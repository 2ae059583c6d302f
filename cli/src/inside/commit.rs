//! `starling commit`: makes what a task has spawned exist, and keeps a state for the case that the
//! task runs again.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use proto::limits::TURN_STATE_BYTES_MAX;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard};

use crate::inside::{door, failure};

#[derive(Args, Debug)]
pub(crate) struct CommitArgs {
    /// A file with the state, at most 64 KiB; '-' is the standard input. If the task runs again,
    /// STARLING_STATE is the path of a file with it [default: the state stays as it was]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Keep the files of the directory STARLING_CHECKPOINT, packed at most 64 KiB, for the case
    /// that the task runs again. A task has either these files or a state
    #[arg(long, conflicts_with = "state")]
    checkpoint: bool,
    /// End this attempt. Another one begins with the state or the checkpoint, on any node
    #[arg(long = "yield")]
    ends: bool,
}

#[derive(Serialize)]
struct CommittedTurn {
    turn: u64,
}

pub(crate) fn run(context: &Context, args: &CommitArgs) -> Done {
    if args.ends && args.state.is_none() && !args.checkpoint {
        return Err(Failure::usage("--yield needs --state or --checkpoint"));
    }
    let door = door()?;
    let state = match args.checkpoint {
        true => Some(packed_checkpoint()?),
        false => args.state.as_deref().map(read).transpose()?,
    };
    let turn = door.commit(state, args.ends).map_err(failure)?;
    if context.output.json {
        heard(context.output.json(&CommittedTurn { turn }))?;
    }
    Ok(Exit::Ok)
}

/// The files of the task's checkpoint directory, as a state.
fn packed_checkpoint() -> Result<Vec<u8>, Failure> {
    let name = executor::checkpoint::VARIABLE;
    let directory = std::env::var_os(name).ok_or_else(|| {
        Failure::refused(format!("{name} is not set: this task has no checkpoint directory"))
            .hint("submit the task with --signal; one on several nodes has no such directory")
    })?;
    executor::checkpoint::pack(Path::new(&directory)).map_err(|error| {
        Failure::refused(error)
            .hint("keep large data in a file that all nodes see, and its path in the checkpoint")
    })
}

/// Reads a state, no further than its limit.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let wrong = |error: std::io::Error| Failure::file(path, &error);
    let most = TURN_STATE_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    match path.to_str() {
        Some("-") => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        _ => File::open(path).map_err(wrong)?.take(most).read_to_end(&mut bytes),
    }
    .map_err(wrong)?;
    if bytes.len() > TURN_STATE_BYTES_MAX {
        let shown = path.display();
        let text = format!("{shown}: a state has at most {TURN_STATE_BYTES_MAX} bytes");
        return Err(Failure::refused(text)
            .hint("keep the data in a file that all nodes see, and its path in the state"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        std::fs::write(&path, vec![0; TURN_STATE_BYTES_MAX]).unwrap();
        assert_eq!(read(&path).unwrap().len(), TURN_STATE_BYTES_MAX);
        std::fs::write(&path, vec![0; TURN_STATE_BYTES_MAX + 1]).unwrap();
        assert!(read(&path).unwrap_err().message.ends_with("at most 65536 bytes"));
        assert!(read(&dir.path().join("none")).is_err());
    }
}
