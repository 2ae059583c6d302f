//! Finds and kills processes that left their group, or lost the spawner that started them.
//!
//! Each command has the mark of its attempt in its environment (`STARLING_MARK`): cluster and store
//! of the node, job, task and attempt. Its children inherit the mark in any session. A process that
//! cleared its environment is found only as a descendant of a living spawner.

use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::private;

/// The variable with the mark of an attempt.
pub(crate) const MARK_VARIABLE: &str = "STARLING_MARK";
/// The maximum of bytes read of an environment: more than the kernel takes for a program without a
/// raised stack limit.
const ENVIRONMENT_BYTES_MAX: u64 = 8 << 20;

/// The start of the mark that all commands of a node have.
pub(crate) fn mark_of_node(mark: &str) -> Vec<u8> {
    format!("{MARK_VARIABLE}={mark}:").into_bytes()
}

/// Kills the processes of a session until none is left or the time is over. A spawner leads a
/// session of its own. All its processes are in it, except those that started another session.
pub(crate) fn kill_session(session: Pid, patience: Duration) {
    kill_all(patience, |pid| stat_field(pid, 3) == Some(session.as_raw_nonzero().get()));
}

/// Kills the processes that have a mark of this node.
pub(crate) fn kill_marked(mark: &str, patience: Duration) {
    let needle = mark_of_node(mark);
    if !mark.is_empty() {
        kill_all(patience, |pid| has_variable(pid, &[&needle]));
    }
}

/// Kills the processes that have a task directory below `tasks_dir`, or a mark of this node.
pub(crate) fn kill_by_task_dir(tasks_dir: &Path, mark: &str, patience: Duration) {
    let mut needle = b"STARLING_TASK_DIR=".to_vec();
    needle.extend_from_slice(tasks_dir.as_os_str().as_bytes());
    needle.push(b'/');
    let marked = mark_of_node(mark);
    // Without a mark only the directory counts.
    let needles = if mark.is_empty() { vec![&needle[..]] } else { vec![&needle[..], &marked[..]] };
    kill_all(patience, |pid| has_variable(pid, &needles));
}

/// Kills all children of this process, and those that become its children, until none is left or
/// the time is over. For an ending subreaper these are all processes that it ever started.
pub(crate) fn kill_descendants(patience: Duration) {
    let start = Instant::now();
    loop {
        for pid in own_children() {
            let _ = kill_process(pid, Signal::KILL);
        }
        loop {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            match waitid(WaitId::All, options) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return, // There is none.
            }
        }
        if start.elapsed() > patience {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The complete variable of a process that begins with `start`.
pub(crate) fn variable_of(pid: Pid, start: &[u8]) -> Option<Vec<u8>> {
    let environment = environment_of(pid)?;
    let found = environment.split(|byte| *byte == 0).find(|one| one.starts_with(start));
    found.map(<[u8]>::to_vec)
}

fn has_variable(pid: Pid, starts: &[&[u8]]) -> bool {
    let Some(environment) = environment_of(pid) else { return false };
    let mut variables = environment.split(|byte| *byte == 0);
    variables.any(|one| starts.iter().any(|start| one.starts_with(start)))
}

fn environment_of(pid: Pid) -> Option<Vec<u8>> {
    let mut environment = Vec::new();
    let file = fs::File::open(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut environment).ok()?;
    Some(environment)
}

fn kill_all(patience: Duration, is_meant: impl Fn(Pid) -> bool) {
    let start = Instant::now();
    let myself = rustix::process::getpid();
    loop {
        let mut alive = false;
        for pid in all_processes() {
            if pid == myself || !is_meant(pid) {
                continue;
            }
            let _ = kill_process(pid, Signal::KILL);
            // Reaps orphans of this process, which is a subreaper. Fails for other processes.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let reaped = matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_)));
            alive |= !reaped && !is_zombie(pid);
        }
        if !alive || start.elapsed() > patience {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn all_processes() -> Vec<Pid> {
    numbers_in(Path::new("/proc"))
}

fn numbers_in(directory: &Path) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    names.filter_map(Pid::from_raw).collect()
}

/// The children of all threads of this process. If the kernel keeps no lists of them, all processes
/// are searched.
fn own_children() -> Vec<Pid> {
    let mut children = Vec::new();
    for thread in numbers_in(Path::new("/proc/self/task")) {
        let path = format!("/proc/self/task/{}/children", thread.as_raw_nonzero());
        let text = fs::read(path).unwrap_or_default();
        children.extend(pids_of(&text));
    }
    if children.is_empty() {
        let myself = rustix::process::getpid().as_raw_nonzero().get();
        let is_child = |pid: &Pid| stat_field(*pid, 1) == Some(myself);
        children = all_processes().into_iter().filter(is_child).collect();
    }
    children
}

/// Process ids separated by blanks.
pub(crate) fn pids_of(text: &[u8]) -> impl Iterator<Item = Pid> {
    let words = text.split(|byte| byte.is_ascii_whitespace());
    words.filter_map(|word| Pid::from_raw(std::str::from_utf8(word).ok()?.parse().ok()?))
}

/// The text of `/proc/PID/stat` after the program's name: state, parent, group, session ...
fn stat(pid: Pid) -> Option<String> {
    let text = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let text = String::from_utf8_lossy(&text);
    Some(text.rsplit_once(") ")?.1.to_owned())
}

fn stat_field(pid: Pid, index: usize) -> Option<i32> {
    stat(pid)?.split(' ').nth(index)?.parse().ok()
}

/// The process group.
pub(crate) fn group_of(pid: Pid) -> Option<Pid> {
    stat_field(pid, 2).and_then(Pid::from_raw)
}

/// True for a zombie, which runs no code, whichever process may reap it.
pub(crate) fn is_zombie(pid: Pid) -> bool {
    stat(pid).is_none_or(|text| text.starts_with('Z') || text.starts_with('X'))
}

/// Removes the task directories of an earlier incarnation. If there are any, the earlier node was
/// killed. Its spawner should have killed its commands, but may have been killed as well.
pub(crate) fn clear_tasks(tasks_dir: &Path, mark: &str) -> io::Result<()> {
    private::own_dir(tasks_dir)?;
    if fs::read_dir(tasks_dir)?.next().is_none() {
        return Ok(());
    }
    kill_by_task_dir(tasks_dir, mark, Duration::from_secs(5));
    remove_entries(tasks_dir)
}

pub(crate) fn remove_entries(tasks_dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(tasks_dir)? {
        let path = entry?.path();
        // A process that could not be killed may still write there: its directory stays.
        let _ = private::remove_tree(&path);
    }
    Ok(())
}
