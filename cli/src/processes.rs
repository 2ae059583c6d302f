//! Nodes as processes of their own: starting them, seeing whether they live, ending them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::Instance;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::embed::ClusterPlan;
use crate::errors::{Exit, Failure};

/// How long a cluster on one machine may take to come up.
const READY_WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Whose life a node shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// Ends with us, however we end: it stops when its standard input does.
    Ours,
    /// A session of its own.
    Own,
}

/// A node that was started and may not have come up yet.
#[derive(Debug)]
pub(crate) struct NodeProcess {
    pub(crate) node: u32,
    child: Child,
    life: Life,
    log: PathBuf,
    /// What the log had before this process wrote to it.
    log_start: u64,
}

/// Starts one node of the instance in `dir`.
pub(crate) fn spawn(
    dir: &Path,
    node: u32,
    plan: &ClusterPlan,
    life: Life,
) -> Result<NodeProcess, Failure> {
    let home = dir.join("nodes").join(node.to_string());
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&home)
        .map_err(|error| Failure::file(&home, &error))?;
    let log = home.join("node.log");
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&log);
    let file = file.map_err(|error| Failure::file(&log, &error))?;
    let log_start = file.metadata().map_or(0, |metadata| metadata.len());
    let copy = |file: &File| file.try_clone().map_err(|error| Failure::file(&log, &error));
    let program = std::env::current_exe()
        .map_err(|error| Failure::lost(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(&program);
    command.arg("--dir").arg(dir).arg("node");
    command.args(["--rank", &node.to_string(), "--expect", &plan.nodes.to_string()]);
    command.args(["--slots", &plan.slots.to_string(), "--policy", plan.policy.name()]);
    command.args(["--threshold", &plan.threshold.to_string()]);
    command.args(["--bandwidth", &format!("{}B", plan.bandwidth.bytes_per_s.round())]);
    command.stdout(copy(&file)?).stderr(file);
    match life {
        Life::Ours => command.arg("--with-parent").stdin(Stdio::piped()),
        Life::Own => command.arg("--detach").stdin(Stdio::null()),
    };
    let child = command.spawn().map_err(|error| Failure::file(&program, &error))?;
    Ok(NodeProcess { node, child, life, log, log_start })
}

impl NodeProcess {
    /// What a node that has ended had to say.
    pub(crate) fn ended(&mut self) -> Option<Failure> {
        let status = self.child.try_wait().ok()??;
        let text = std::fs::read(&self.log).unwrap_or_default();
        let fresh = text.get(self.log_start as usize..).unwrap_or_default();
        let text = String::from_utf8_lossy(fresh).into_owned();
        let last = |start: &str| {
            text.lines().rev().find_map(|line| line.strip_prefix(start)).map(str::to_owned)
        };
        let exit = match status.code() {
            Some(2) => Exit::Usage,
            Some(4) => Exit::Refused,
            _ => Exit::Lost,
        };
        let reason = last("error: ").unwrap_or_else(|| format!("it ended with {status}"));
        let name = format!("node n{}", self.node);
        let message = match reason.starts_with(&name) {
            true => reason,
            false => format!("{name}: {reason}"),
        };
        let mut failure = Failure::new(exit, message);
        // The log of a run goes with it.
        let log = (self.life == Life::Own).then(|| format!("see {}", self.log.display()));
        failure.hint = last("hint: ").or(log);
        Some(failure)
    }

    /// Asks it to end by closing its standard input; [`Self::wait`] waits for that.
    pub(crate) fn release(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Ends a node that should not have been started.
    pub(crate) fn abandon(&mut self) {
        // Either may find that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end, then does not wait any longer.
    pub(crate) fn wait(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() >= deadline {
                return self.abandon();
            }
            std::thread::sleep(LOOK_AGAIN_AFTER);
        }
    }
}

/// Waits until all these nodes listen. A node that ends instead is the error.
pub(crate) async fn await_listening(
    dir: &Path,
    started: &mut [NodeProcess],
) -> Result<(), Failure> {
    let instance = Instance::new(dir);
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        for process in started.iter_mut() {
            if let Some(failure) = process.ended() {
                return Err(failure);
            }
        }
        let missing: Vec<String> = started
            .iter()
            .filter(|process| {
                let address = instance.address(process.node);
                address.is_none_or(|address| address.pid != process.child.id())
            })
            .map(|process| format!("n{}", process.node))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let waited_s = READY_WITHIN.as_secs();
            let text =
                format!("after {waited_s} s these nodes do not listen: {}", missing.join(", "));
            return Err(Failure::lost(text).hint(format!("see {}", started[0].log.display())));
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
}

/// Whether a process runs; one that is dead but not reaped does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Some(id) = as_pid(pid) else { return false };
    if test_kill_process(id).is_err() {
        return false;
    }
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = state.rsplit(')').next().unwrap_or_default().trim_start();
    !after_name.is_empty() && !after_name.starts_with(['Z', 'X'])
}

/// Whether a process is a node: numbers are used again.
pub(crate) fn is_node(pid: u32) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    is_alive(pid) && words.split(|byte| *byte == 0).any(|word| word == b"node")
}

/// Sends a signal to a node's process, if it still is one.
pub(crate) fn signal_node(pid: u32, signal: Signal) {
    if let Some(id) = as_pid(pid).filter(|_| is_node(pid)) {
        // It may have ended since we looked.
        let _ = kill_process(id, signal);
    }
}

fn as_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}
