/*!
Processes that left the group of their command.

The spawner is a subreaper: when the parent of such a process ends, the process becomes a child of
the spawner's first thread. That thread starts no commands, so the kernel's list of its children is
the list of orphans. One read of it shows whether there are any.

An orphan belongs to the command with the mark in its environment. Without a mark it belongs to the
command of its process group. In no known group it may stay until no command runs.
*/

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::commands::orphan_processes;

/// The command that an orphan belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Command(u64),
    /// The orphan has no mark and is in no group of a command.
    Unknown,
    /// The command of the orphan has ended.
    None,
}

/// The running commands.
pub(super) trait Running {
    fn by_mark(&self, mark: &[u8]) -> Option<u64>;
    fn by_group(&self, group: Pid) -> Option<u64>;
    fn runs(&self, number: u64) -> bool;
    fn is_empty(&self) -> bool;
}

#[derive(Debug)]
pub(super) struct Orphans {
    /// The kernel's list of the children of the first thread; `None`: the kernel has no such lists.
    list: Option<File>,
    known: HashMap<Pid, Owner>,
    text: Vec<u8>,
}

impl Orphans {
    pub(super) fn new() -> Self {
        let myself = rustix::process::getpid().as_raw_nonzero();
        let list = File::open(format!("/proc/self/task/{myself}/children")).ok();
        Self { list, known: HashMap::new(), text: vec![0; 4096] }
    }

    /// True if there are orphans. One system call.
    pub(super) fn are_there(&self) -> bool {
        let mut byte = [0];
        self.list.as_ref().is_some_and(|list| list.read_at(&mut byte, 0).is_ok_and(|n| n > 0))
    }

    /// Kills the orphans that belong to no running command, and reaps the dead ones. Returns
    /// whether another search soon is useful: some are still dying, or their children may become
    /// orphans.
    pub(super) fn sweep(&mut self, running: &impl Running) -> bool {
        let pids = self.read();
        let known = std::mem::take(&mut self.known);
        let mut again = false;
        for pid in pids {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            if matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))) {
                again = true;
                continue;
            }
            let remembered = known.get(&pid).copied().filter(|owner| *owner != Owner::None);
            let owner = remembered.unwrap_or_else(|| owner_of(pid, running));
            let stays = match owner {
                Owner::Command(number) => running.runs(number),
                Owner::Unknown => !running.is_empty(),
                Owner::None => false,
            };
            if stays {
                self.known.insert(pid, owner);
            } else {
                let _ = kill_process(pid, Signal::KILL);
                again = true;
            }
        }
        again
    }

    fn read(&mut self) -> Vec<Pid> {
        let Some(list) = &self.list else { return Vec::new() };
        let mut length = 0;
        loop {
            match list.read_at(&mut self.text[length..], length as u64) {
                Ok(0) | Err(_) => break,
                Ok(count) => length += count,
            }
            if length == self.text.len() {
                self.text.resize(2 * length, 0);
            }
        }
        orphan_processes::pids_of(&self.text[..length]).collect()
    }
}

fn owner_of(pid: Pid, running: &impl Running) -> Owner {
    let start = format!("{}=", orphan_processes::MARK_VARIABLE);
    if let Some(mark) = orphan_processes::variable_of(pid, start.as_bytes()) {
        return running.by_mark(&mark).map_or(Owner::None, Owner::Command);
    }
    match orphan_processes::group_of(pid).and_then(|group| running.by_group(group)) {
        Some(number) => Owner::Command(number),
        None => Owner::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Table {
        marks: HashMap<Vec<u8>, u64>,
    }

    impl Running for Table {
        fn by_mark(&self, mark: &[u8]) -> Option<u64> {
            self.marks.get(mark).copied()
        }
        fn by_group(&self, _: Pid) -> Option<u64> {
            None
        }
        fn runs(&self, number: u64) -> bool {
            self.marks.values().any(|one| *one == number)
        }
        fn is_empty(&self) -> bool {
            self.marks.is_empty()
        }
    }

    fn start(mark: Option<&str>) -> Child {
        let mut command = Command::new("sleep");
        command.arg("300").env_clear().stdout(Stdio::null());
        if let Some(mark) = mark {
            command.env(orphan_processes::MARK_VARIABLE, mark);
        }
        command.spawn().unwrap()
    }

    /// Sweeps until nothing changes any more.
    fn settle(orphans: &mut Orphans, running: &Table, pids: &[Pid]) {
        let list = pids.iter().map(|pid| format!("{} ", pid.as_raw_nonzero())).collect::<String>();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), list).unwrap();
        orphans.list = Some(File::open(file.path()).unwrap());
        for _ in 0..1000 {
            orphans.sweep(running);
            let dying = |pid: &&Pid| orphan_processes::is_zombie(**pid);
            if pids.iter().filter(dying).all(|pid| !orphans.known.contains_key(pid)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn only_what_belongs_to_no_running_command_is_killed() {
        let (lives, ended) = ("c-s:1.2.100000001", "c-s:1.3.100000001");
        let started = [start(Some(lives)), start(Some(ended)), start(None)];
        let pids: Vec<Pid> =
            started.iter().map(|it| Pid::from_raw(it.id() as i32).unwrap()).collect();
        let mut running = Table::default();
        running
            .marks
            .insert(format!("{}={lives}", orphan_processes::MARK_VARIABLE).into_bytes(), 7);
        let mut orphans = Orphans::new();
        settle(&mut orphans, &running, &pids);
        let alive = |pid: &Pid| !orphan_processes::is_zombie(*pid);
        assert_eq!(pids.iter().map(alive).collect::<Vec<_>>(), [true, false, true]);
        // The command has ended, and none runs: now the process without a mark is killed as well.
        running.marks.clear();
        settle(&mut orphans, &running, &pids);
        assert!(!pids.iter().any(alive), "nothing stays when no command runs");
    }
}
