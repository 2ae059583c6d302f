//! Finding and killing processes that lost the spawner which started them.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Kills the processes of a session until there are none, or time is up. A spawner leads a session
/// of its own, so all it started are in it, except what asked for yet another session.
pub(crate) fn kill_session(session: Pid, patience: Duration) {
    kill_all(patience, |pid| stat_field(pid, 3) == Some(session.as_raw_nonzero().get()));
}

/// Kills the processes that were given a task directory below `tasks_dir`.
pub(crate) fn kill_by_task_dir(tasks_dir: &Path, patience: Duration) {
    let mut needle = b"STARLING_TASK_DIR=".to_vec();
    needle.extend_from_slice(tasks_dir.as_os_str().as_bytes());
    needle.push(b'/');
    kill_all(patience, |pid| {
        let mut environment = Vec::new();
        let opened = fs::File::open(format!("/proc/{}/environ", pid.as_raw_nonzero()));
        let read = opened.and_then(|file| file.take(1 << 20).read_to_end(&mut environment));
        read.is_ok() && environment.split(|byte| *byte == 0).any(|one| one.starts_with(&needle))
    });
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
            // Orphans come to this process (it is a subreaper); of others this asks in vain.
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
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    names.filter_map(Pid::from_raw).collect()
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

/// A zombie does nothing any more, whoever may reap it.
fn is_zombie(pid: Pid) -> bool {
    stat(pid).is_none_or(|text| text.starts_with('Z') || text.starts_with('X'))
}
