//! The parts of gangs on this node, and the commands that run in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use executor::{MemberCommand, MemberEnd, MemberStreams, MemberTotals};
use proto::work::{Part, PartChange, Used};
use proto::{Attempt, NodeId, TaskId, wire};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use tokio::sync::oneshot;

use crate::limits::RSH_COMMANDS_MAX;
use crate::rpc::rsh::{key_of, of_records, totals_of};
use crate::rpc::service::Shared;

type Key = (TaskId, Attempt);

#[derive(Debug)]
struct OpenPart {
    part: Part,
    /// The commands that run, by their numbers at the executor.
    running: BTreeSet<u64>,
    /// The number of commands that are about to run.
    starting: usize,
    /// Of commands that its commands have started elsewhere: no end of a command here has told the
    /// use, and each tells the failure.
    elsewhere: MemberTotals,
}

impl OpenPart {
    fn new(part: Part) -> Self {
        let elsewhere = MemberTotals::default();
        Self { part, running: BTreeSet::new(), starting: 0, elsewhere }
    }
}

/// The parts that have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct Parts(Mutex<BTreeMap<Key, OpenPart>>);

/// A command that runs in a part.
pub(super) struct Started {
    pub(super) number: u64,
    pub(super) streams: MemberStreams,
    pub(super) ended: oneshot::Receiver<MemberEnd>,
}

impl Parts {
    fn open(&self) -> MutexGuard<'_, BTreeMap<Key, OpenPart>> {
        self.0.lock().expect("no holder of the parts panics")
    }

    /// Counts a command that is about to run in a part. Returns the part.
    fn begin_start(&self, key: Key, node: NodeId) -> Result<Part, String> {
        let mut parts = self.open();
        let commands = parts.values().map(|open| open.running.len() + open.starting).sum::<usize>();
        let Some(open) = parts.get_mut(&key) else {
            return Err(format!("node {node} has no part of this task's gang"));
        };
        if commands >= RSH_COMMANDS_MAX {
            return Err(format!("{commands} commands run in parts of gangs on node {node}"));
        }
        open.starting += 1;
        Ok(open.part.clone())
    }

    /// The start has ended, with the number of a command that runs. Returns whether the part is
    /// still open.
    fn end_start(&self, key: Key, number: Option<u64>) -> bool {
        let mut parts = self.open();
        let Some(open) = parts.get_mut(&key) else { return false };
        open.starting -= 1;
        open.running.extend(number);
        true
    }

    /// A command has ended. Returns what its caller learns of commands elsewhere.
    pub(super) fn ended(&self, key: Key, number: u64) -> MemberTotals {
        let mut parts = self.open();
        let Some(open) = parts.get_mut(&key) else { return MemberTotals::default() };
        open.running.remove(&number);
        let told = open.elsewhere.clone();
        open.elsewhere.used = Used::default();
        told
    }

    /// A command that a command of this part has started elsewhere has ended.
    fn ended_elsewhere(&self, key: Key, totals: MemberTotals) {
        if let Some(open) = self.open().get_mut(&key) {
            open.elsewhere.add(totals);
        }
    }
}

impl Shared {
    /// A part of a gang begins or ends here. Its commands end with it.
    pub(crate) fn change_part(&self, change: PartChange) {
        match change {
            PartChange::Begins(part) => {
                let open = OpenPart::new(*part);
                self.parts.open().insert((open.part.task, open.part.attempt), open);
            }
            PartChange::Ends(task, attempt) => {
                let ended = self.parts.open().remove(&(task, attempt));
                self.door.dismiss((task, attempt));
                let running = ended.map_or_else(BTreeSet::new, |open| open.running);
                running.into_iter().for_each(|number| self.executor.kill_member(number));
            }
        }
    }

    /// A command has ended that was called from this node. If the attempt is of this node, it has
    /// its totals before the caller can end.
    pub(crate) fn member_has_ended(&self, (task, attempt): Key, end: &wire::RshEnd) {
        let totals = totals_of(end);
        if !self.executor.add_members(task, attempt, totals.clone()) {
            self.parts.ended_elsewhere((task, attempt), totals);
        }
    }

    /// Starts a command in a part of this node. This may block.
    pub(super) fn start_in_part(&self, start: wire::RshStart) -> Result<Started, String> {
        let key = key_of(&start);
        let node = self.identity.node;
        // Without a lock on the parts: a slow disk must not hold the node up.
        let part = self.parts.begin_start(key, node)?;
        let gang = of_records(start.nodes);
        let entrance = self.door.admit(key, gang.clone().into());
        let token = entrance.as_ref().map(|(token, _)| *token);
        let command = MemberCommand {
            part,
            command: start.command,
            environment: start.environment,
            directory: PathBuf::from(OsString::from_vec(start.directory)),
            gang,
            entrance: entrance.map(|(_, entrance)| entrance),
        };
        let (sender, ended) = oneshot::channel();
        let door = Arc::downgrade(&self.door);
        let started = self.executor.start_member(command, move |end| {
            if let (Some(door), Some(token)) = (door.upgrade(), token) {
                door.forget(token);
            }
            let _ = sender.send(end); // The caller may be gone.
        });
        let number = started.as_ref().ok().map(|(number, _)| *number);
        let is_open = self.parts.end_start(key, number);
        match started {
            Ok((number, streams)) if is_open => Ok(Started { number, streams, ended }),
            Ok((number, _)) => {
                self.executor.kill_member(number);
                Err(format!("the part on node {node} has ended"))
            }
            Err(error) => {
                if let Some(token) = token {
                    self.door.forget(token);
                }
                Err(format!("the command cannot start on node {node}: {error}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_tells_what_commands_elsewhere_have_used_once_and_a_failure_always() {
        let (task, attempt) = (TaskId::new(1, 2), Attempt(3));
        let (key, parts) = ((task, attempt), Parts::default());
        let part = Part { task, attempt, cpus: 1, granted: None };
        parts.open().insert(key, OpenPart::new(part));
        let totals = |cpu_us, max_rss_kib, failure: &str| MemberTotals {
            used: Used { cpu_us, max_rss_kib },
            failure: failure.to_owned(),
        };
        parts.ended_elsewhere(key, totals(5, 70, "memory"));
        parts.ended_elsewhere(key, totals(6, 60, ""));
        parts.ended_elsewhere((task, Attempt(4)), totals(9, 99, "another attempt"));
        assert_eq!(parts.ended(key, 0), totals(11, 70, "memory"));
        assert_eq!(parts.ended(key, 1), totals(0, 0, "memory"));
    }
}
