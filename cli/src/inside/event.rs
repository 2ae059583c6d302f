//! `starling event`: events between the tasks of a job, inside a task.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Subcommand};
use client::{EventPeer, TaskEvent, TaskRef};
use proto::limits::EVENT_BYTES_MAX;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard};
use verb::units::Timespan;

use crate::inside::handles::{self, Handles};
use crate::inside::{commit, door, failure};

#[derive(Subcommand, Debug)]
pub(crate) enum EventVerb {
    /// Send an event to another task of the job, once this task commits, waits or is done
    Send(SendArgs),
    /// Print the next event; wait for it without a slot. Exit 1 when there is none in time
    Recv(ReceiveArgs),
}

#[derive(Args, Debug)]
pub(crate) struct SendArgs {
    /// A child as 'starling spawn' prints it, such as 0; a task of the job, such as 3.17; or parent
    #[arg(value_name = "TASK")]
    to: Peer,
    /// '-': the bytes of the event are the standard input
    #[arg(value_name = "-", conflicts_with_all = ["data", "file"], value_parser = ["-"])]
    stdin: Option<String>,
    /// The event is this text
    #[arg(long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    data: Option<String>,
    /// The event has the bytes of this file, at most 64 KiB
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct ReceiveArgs {
    /// Only events of this task, named as in 'starling event send'
    #[arg(long, value_name = "TASK")]
    from: Option<Peer>,
    /// Wait no longer than this, such as 10s; 0s does not wait
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Timespan>,
    /// Commit this state first, as 'starling commit --state' does
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Print the bytes of the event alone
    #[arg(long)]
    raw: bool,
}

/// The text of a task that sends or receives events.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Peer {
    Parent,
    Task(Handles),
}

impl FromStr for Peer {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "parent" => Ok(Self::Parent),
            text => text.parse().map(Self::Task),
        }
    }
}

impl Peer {
    fn resolve(&self) -> Result<EventPeer, Failure> {
        let Self::Task(handles) = self else { return Ok(EventPeer::Parent) };
        let job = std::env::var("STARLING_JOB_ID").ok();
        let hint = "an event has one receiver: a child, a task of the own job, or parent";
        let wrong = |problem: String| Failure::refused(problem).hint(hint);
        let named = handles::resolve(std::slice::from_ref(handles), job.as_deref());
        match &named.map_err(wrong)? {
            (tasks, false) if tasks.len() == 1 => Ok(match tasks[0] {
                TaskRef::Child(ordinal) => EventPeer::Child(ordinal),
                TaskRef::Task(local) => EventPeer::Task(local),
            }),
            _ => Err(wrong("several tasks are named".to_owned())),
        }
    }
}

#[derive(Serialize)]
struct EventRow {
    from: String,
    bytes: usize,
    /// If the bytes are text.
    text: Option<String>,
    base64: String,
}

pub(crate) fn run(context: &Context, verb: &EventVerb) -> Done {
    match verb {
        EventVerb::Send(args) => send(args),
        EventVerb::Recv(args) => receive(context, args),
    }
}

fn send(args: &SendArgs) -> Done {
    let (door, to) = (door()?, args.to.resolve()?);
    let data = match (&args.data, &args.file, &args.stdin) {
        (Some(text), ..) => text.clone().into_bytes(),
        (_, Some(path), _) => read(path)?,
        (.., Some(_)) => read(Path::new("-"))?,
        (None, None, None) => Vec::new(),
    };
    door.send_event(to, data).map_err(failure)?;
    Ok(Exit::Ok)
}

/// Reads an event, no further than its limit.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let wrong = |error: std::io::Error| Failure::file(path, &error);
    let most = EVENT_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    match path.to_str() {
        Some("-") => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        _ => std::fs::File::open(path).map_err(wrong)?.take(most).read_to_end(&mut bytes),
    }
    .map_err(wrong)?;
    if bytes.len() > EVENT_BYTES_MAX {
        let text = format!("{}: an event has at most {EVENT_BYTES_MAX} bytes", path.display());
        return Err(Failure::refused(text).hint("send the name of a file or of a key instead"));
    }
    Ok(bytes)
}

fn receive(context: &Context, args: &ReceiveArgs) -> Done {
    let door = door()?;
    let from = args.from.as_ref().map(Peer::resolve).transpose()?;
    let state = args.state.as_deref().map(commit::read).transpose()?;
    let timeout = args.timeout.map(|timeout| timeout.0);
    let Some(TaskEvent { from, data }) =
        door.receive_event(from, timeout, state).map_err(failure)?
    else {
        return Ok(Exit::Failed);
    };
    heard(match (context.output.json, args.raw) {
        (true, _) => context.output.json(&EventRow {
            from: from.to_string(),
            bytes: data.len(),
            base64: lens::report::base64_of(&data),
            text: String::from_utf8(data).ok(),
        }),
        (false, true) => context.output.bytes(&data),
        (false, false) => {
            let line = [from.to_string().as_bytes(), b" ", &data, b"\n"].concat();
            context.output.bytes(&line)
        }
    })?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_is_named() {
        let peer = |text: &str| text.parse::<Peer>().map(|peer| peer.resolve());
        assert_eq!(peer("parent").unwrap().unwrap(), EventPeer::Parent);
        assert_eq!(peer("4").unwrap().unwrap(), EventPeer::Child(4));
        let local = "3.17".parse().unwrap();
        assert_eq!(peer("3.17").unwrap().unwrap(), EventPeer::Task(local));
        for several in ["0-1", "0,1", "all"] {
            let refused = peer(several).unwrap().unwrap_err();
            assert_eq!(refused.message, "several tasks are named");
        }
        assert!(peer("neither").is_err());
    }

    #[test]
    fn an_event_has_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("event");
        std::fs::write(&path, vec![0; EVENT_BYTES_MAX]).unwrap();
        assert_eq!(read(&path).unwrap().len(), EVENT_BYTES_MAX);
        std::fs::write(&path, vec![0; EVENT_BYTES_MAX + 1]).unwrap();
        assert!(read(&path).unwrap_err().message.ends_with("at most 65536 bytes"));
    }
}
