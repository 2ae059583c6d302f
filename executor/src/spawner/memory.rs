//! The resident memory of commands, and that of workers of calls, from `/proc`.
//!
//! A process belongs to the command of its group, else to that of its parent. The parent of an
//! orphan is the spawner: it belongs to the command with its mark, as in `orphans`.

use std::collections::HashMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::commands::orphan_processes::{MARK_VARIABLE, variable_of};

/// The interval at which the memory of commands and calls with a limit is read.
pub(crate) const MEASURED_EVERY: Duration = Duration::from_millis(500);

/// A running command, as this search finds its processes.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) number: u64,
    pub(super) group: i32,
    pub(super) mark: Vec<u8>,
    /// The commands that share its limit; empty: none.
    pub(super) memory_group: Vec<u8>,
}

/// The memory of a command at one moment.
#[derive(Debug, Default)]
pub(crate) struct Resident {
    /// Pages that processes share count for each of them. With those of the commands that share
    /// its limit.
    pub(crate) bytes: u64,
    /// Its processes outside of its group.
    outside: Vec<(Pid, u64)>,
}

impl Resident {
    /// Kills the processes outside of the group of the command.
    pub(crate) fn kill_outside(&self) {
        for &(pid, started) in &self.outside {
            let is_same = read(pid.as_raw_nonzero().get()).is_some_and(|it| it.started == started);
            if is_same {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// A process of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: i32,
    group: i32,
    /// When it started, in ticks of the kernel.
    started: u64,
    pages: u64,
}

/// The memory of each command: one small file is read for each process of this machine, and the
/// environment of each orphan.
pub(super) fn of_commands(commands: &[Measured]) -> HashMap<u64, Resident> {
    let processes = processes(read);
    let spawner = rustix::process::getpid().as_raw_nonzero().get();
    let mut residents = sums(&processes, commands, spawner, |pid| {
        let start = format!("{MARK_VARIABLE}=");
        Pid::from_raw(pid).and_then(|pid| variable_of(pid, start.as_bytes()))
    });
    add_up_groups(commands, &mut residents);
    residents
}

/// Commands of one memory group have the sum of the group.
fn add_up_groups(commands: &[Measured], residents: &mut HashMap<u64, Resident>) {
    let mut sums: HashMap<&[u8], u64> = HashMap::new();
    let grouped = || commands.iter().filter(|it| !it.memory_group.is_empty());
    for command in grouped() {
        let bytes = residents.get(&command.number).map_or(0, |it| it.bytes);
        *sums.entry(&command.memory_group[..]).or_default() += bytes;
    }
    for command in grouped() {
        let sum = sums.get(&command.memory_group[..]);
        if let (Some(resident), Some(sum)) = (residents.get_mut(&command.number), sum) {
            resident.bytes = *sum;
        }
    }
}

/// The private memory of each worker by its number and process, with all processes below it.
/// Inputs that a worker maps are no memory of its own.
pub(crate) fn of_workers(workers: &[(u64, i32)]) -> HashMap<u64, Resident> {
    let processes = processes(|pid| Some(Process { pages: private_pages(pid)?, ..read(pid)? }));
    let own = |&(number, group): &(u64, i32)| Measured {
        number,
        group,
        mark: Vec::new(),
        memory_group: Vec::new(),
    };
    let workers: Vec<Measured> = workers.iter().map(own).collect();
    // No process has this parent: an orphan has no mark.
    sums(&processes, &workers, -1, |_| None)
}

/// The private bytes of one process.
pub(crate) fn private_bytes(pid: i32) -> Option<u64> {
    Some(private_pages(pid)? * rustix::param::page_size() as u64)
}

/// Resident pages that are of no file.
fn private_pages(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let kib = kib("RssAnon:")? + kib("RssShmem:").unwrap_or(0);
    Some((kib << 10) / rustix::param::page_size() as u64)
}

fn processes(read: impl Fn(i32) -> Option<Process>) -> HashMap<i32, Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, read(pid)?))).collect()
}

fn sums(
    processes: &HashMap<i32, Process>,
    commands: &[Measured],
    spawner: i32,
    mark_of: impl Fn(i32) -> Option<Vec<u8>>,
) -> HashMap<u64, Resident> {
    let page = rustix::param::page_size() as u64;
    let groups: HashMap<i32, u64> = commands.iter().map(|it| (it.group, it.number)).collect();
    let marks = commands.iter().filter(|it| !it.mark.is_empty());
    let marks: HashMap<&[u8], u64> = marks.map(|it| (&it.mark[..], it.number)).collect();
    let mut known: HashMap<i32, Option<u64>> = HashMap::new();
    let mut residents: HashMap<u64, Resident> = HashMap::new();
    for (&pid, process) in processes {
        // The ancestors up to one with a known command.
        let (mut path, mut at) = (Vec::new(), pid);
        let number = loop {
            if let Some(&number) = known.get(&at) {
                break number;
            }
            let Some(found) = processes.get(&at) else { break None };
            // Parents may change while they are read: no ring is followed.
            known.insert(at, None);
            path.push(at);
            if let Some(&number) = groups.get(&found.group) {
                break Some(number);
            }
            if found.parent == spawner {
                break mark_of(at).and_then(|mark| marks.get(&mark[..]).copied());
            }
            at = found.parent;
        };
        known.extend(path.into_iter().map(|pid| (pid, number)));
        let Some(number) = number else { continue };
        let resident = residents.entry(number).or_default();
        resident.bytes += process.pages * page;
        if groups.get(&process.group) != Some(&number)
            && let Some(pid) = Pid::from_raw(pid)
        {
            resident.outside.push((pid, process.started));
        }
    }
    residents
}

fn read(pid: i32) -> Option<Process> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(&String::from_utf8_lossy(&stat))
}

/// Reads the text of `/proc/PID/stat`.
fn parse(stat: &str) -> Option<Process> {
    // The name of the program may have spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let pages: i64 = fields.get(21)?.parse().ok()?;
    Some(Process {
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        pages: u64::try_from(pages).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(number: u64, group: i32, mark: &[u8]) -> Measured {
        Measured { number, group, mark: mark.into(), memory_group: Vec::new() }
    }

    #[test]
    fn commands_that_share_a_limit_have_the_sum_of_their_memory() {
        let shared = |number: u64, word: &[u8]| Measured {
            memory_group: word.into(),
            ..command(number, 10, b"")
        };
        let commands = [shared(1, b"a"), shared(2, b"a"), shared(3, b"b"), command(4, 10, b"")];
        let resident = |number: u64| (number, Resident { bytes: 10 * number, outside: Vec::new() });
        // The third has no process.
        let mut residents: HashMap<u64, Resident> = [1, 2, 4].map(resident).into();
        add_up_groups(&commands, &mut residents);
        let bytes = [1, 2, 4].map(|number| residents[&number].bytes);
        assert_eq!((bytes, residents.len()), ([30, 30, 40], 3));
    }

    #[test]
    fn the_line_of_a_process_is_read() {
        let stat = "77 (a) b) S 1 70 70 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 100 4096 25 99 1 1";
        let process = Process { parent: 1, group: 70, started: 100, pages: 25 };
        assert_eq!(parse(stat), Some(process));
        assert_eq!(parse("77 (a"), None);
        let own = rustix::process::getpgrp().as_raw_nonzero().get();
        let command = command(7, own, b"");
        assert!(of_commands(&[command]).get(&7).is_some_and(|it| it.bytes > 0));
    }

    #[test]
    fn descendants_and_marked_orphans_count_wherever_they_are() {
        let process = |parent, group| Process { parent, group, started: 5, pages: 1 };
        let processes = HashMap::from([
            (10, process(2, 10)),
            (11, process(10, 11)), // In a group of its own.
            (12, process(11, 12)),
            (20, process(2, 20)),
            (21, process(2, 21)), // An orphan of the first.
            (22, process(2, 22)), // An orphan without a mark.
            (30, process(31, 30)),
            (31, process(30, 30)),
        ]);
        let commands = [command(1, 10, b"M=1"), command(2, 20, b"M=2")];
        let mark = |pid| (pid == 21).then(|| b"M=1".to_vec());
        let sums = sums(&processes, &commands, 2, mark);
        let page = rustix::param::page_size() as u64;
        assert_eq!((sums[&1].bytes, sums[&2].bytes), (4 * page, page));
        assert_eq!((sums[&1].outside.len(), sums[&2].outside.len()), (3, 0));
        assert_eq!(sums.len(), 2);
    }
}
