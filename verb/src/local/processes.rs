//! Nodes as separate processes: starting them, checking that they live, ending them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::Instance;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::errors::{Exit, Failure, plain};
use crate::flags::{CapturedArgs, ScrubArgs, SlurmArgs};
use crate::local::plan::ClusterPlan;
use crate::path_templates;

/// The time for a cluster on one machine to start.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Of a log, at its end.
const LOG_TAIL_BYTES: u64 = 4 << 10;
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// The lifetime of a node process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessLifetime {
    /// Ends with this process, however that ends: it stops at the end of its standard input.
    Ours,
    /// A session of its own.
    Own,
}

/// A started node, which may not be up yet.
#[derive(Debug)]
pub struct NodeProcess {
    pub node: u32,
    /// True for a joining node, which may get another number than expected.
    is_new: bool,
    child: Child,
    life: ProcessLifetime,
    log: PathBuf,
    /// The length of the log before this process wrote to it.
    log_start: u64,
}

/// The node that a process becomes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeIdentity {
    /// A founding node, or one that has joined before.
    Member(u32),
    /// A node that joins through another. Probably it gets that number.
    New { number: u32, by: String },
}

/// Starts one node of the instance in `dir`.
pub fn spawn(
    dir: &Path,
    identity: NodeIdentity,
    plan: &ClusterPlan,
    life: ProcessLifetime,
) -> Result<NodeProcess, Failure> {
    let (NodeIdentity::Member(node) | NodeIdentity::New { number: node, .. }) = identity;
    let home = dir.join("nodes").join(node.to_string());
    executor::private::own_dir(&home).map_err(|error| Failure::file(&home, &error))?;
    let log = home.join("node.log");
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&log);
    let file = file.map_err(|error| Failure::file(&log, &error))?;
    let log_start = file.metadata().map_or(0, |metadata| metadata.len());
    let copy = |file: &File| file.try_clone().map_err(|error| Failure::file(&log, &error));
    let program = std::env::current_exe()
        .map_err(|error| Failure::lost(format!("cannot find this program: {}", plain(&error))))?;
    let mut command = Command::new(&program);
    // The node expands placeholders in it.
    command.arg("--dir").arg(path_templates::escape(dir)).arg("node");
    match &identity {
        NodeIdentity::Member(node) => {
            command.args(["--rank", &node.to_string(), "--expect", &plan.nodes.to_string()]);
            command.args(["--replicas", &plan.replicas.to_string()])
        }
        NodeIdentity::New { by, .. } => command.args(["--join", by]),
    };
    command.args(["--slots", &plan.slots.to_string()]);
    command.args(plan.offer.flags());
    command.args(plan.life.flags());
    let of = plan.nodes.max(node + 1);
    command.args(["--share", &format!("{node}/{of}")]);
    command.args(ScrubArgs::flags(plan.scrub_every));
    command.args(CapturedArgs::flags(plan.captured));
    command.args(SlurmArgs::flags(plan.hides_slurm));
    command.args(crate::flags::tuning::flags(&plan.tuning));
    if plan.insecure {
        command.arg("--insecure");
    }
    command.stdout(copy(&file)?).stderr(file);
    match life {
        ProcessLifetime::Ours => command.arg("--with-parent").stdin(Stdio::piped()),
        ProcessLifetime::Own => command.arg("--detach").stdin(Stdio::null()),
    };
    let child = command.spawn().map_err(|error| Failure::file(&program, &error))?;
    let is_new = matches!(identity, NodeIdentity::New { .. });
    Ok(NodeProcess { node, is_new, child, life, log, log_start })
}

/// False if a log could not be written.
fn has_room(log: &Path) -> bool {
    rustix::fs::statvfs(log).map_or(true, |system| system.f_bavail > 0)
}

impl NodeProcess {
    /// The number of the node, once it listens.
    pub fn number(&self, dir: &Path) -> Option<u32> {
        let (instance, pid) = (Instance::new(dir), self.child.id());
        match self.is_new {
            true => instance.addresses().into_values().find(|it| it.pid == pid).map(|it| it.node),
            false => instance.address(self.node).filter(|it| it.pid == pid).map(|it| it.node),
        }
    }

    /// The failure of a node that has ended.
    pub fn ended(&mut self) -> Option<Failure> {
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
        let reason = last("error: ").unwrap_or_else(|| match has_room(&self.log) {
            true => format!("it ended with {status}"),
            false => format!("no space left on the device of {}", self.log.display()),
        });
        let name = format!("node n{}", self.node);
        let message = match reason.starts_with(&name) {
            true => reason,
            false => format!("{name}: {reason}"),
        };
        let mut failure = Failure::new(exit, message);
        // The log of a run is removed with it.
        let log =
            (self.life == ProcessLifetime::Own).then(|| format!("see {}", self.log.display()));
        failure.hint = last("hint: ").or(log);
        Some(failure)
    }

    /// Asks it to end by closing its standard input; [`Self::wait`] waits for that.
    pub fn release(&mut self) {
        drop(self.child.stdin.take());
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(id) = as_pid(self.child.id()) {
            // The process is not reaped yet, so the process id is still its own.
            let _ = kill_process(id, signal);
        }
    }

    /// Ends a node that should not have been started.
    pub fn abandon(&mut self) {
        // Either may find that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end, and kills it after `patience`.
    pub fn wait(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() >= deadline {
                return self.abandon();
            }
            std::thread::sleep(LOOK_AGAIN_AFTER);
        }
    }
}

/// Why a node of the instance that `up` started has ended, as its log says, where no node runs.
pub fn last_error(dir: &Path) -> Option<String> {
    if !nodes_of(dir).is_empty() {
        return None;
    }
    let nodes = std::fs::read_dir(dir.join("nodes")).ok()?.flatten();
    let mut logs: Vec<PathBuf> = nodes.map(|node| node.path().join("node.log")).collect();
    logs.sort_unstable();
    logs.iter().find_map(|log| {
        let mut file = File::open(log).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES))).ok()?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // A later start has taken back what an earlier one said.
        let last = text.lines().rev().find(|line| !line.starts_with("hint: "))?;
        last.strip_prefix("error: ").map(str::to_owned)
    })
}

/// Waits until all these nodes listen. A node that ends instead is the error.
pub async fn await_listening(dir: &Path, started: &mut [NodeProcess]) -> Result<(), Failure> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        for process in started.iter_mut() {
            if let Some(failure) = process.ended() {
                return Err(failure);
            }
        }
        let missing: Vec<String> = started
            .iter()
            .filter(|process| process.number(dir).is_none())
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

/// True if a process runs; a dead one that is not reaped does not.
pub fn is_alive(pid: u32) -> bool {
    let Some(id) = as_pid(pid) else { return false };
    if test_kill_process(id).is_err() {
        return false;
    }
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = state.rsplit(')').next().unwrap_or_default().trim_start();
    !after_name.is_empty() && !after_name.starts_with(['Z', 'X'])
}

/// True if a process is a node of the instance in `dir`. Process ids are reused, so the address
/// file of a killed node may name a foreign process.
pub fn is_node(pid: u32, dir: &Path) -> bool {
    if !is_alive(pid) {
        return false;
    }
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    match is_node_line(&words, &cwd, dir, |name| variable_of(pid, name)) {
        Some(true) => true,
        // The directory may have another name since.
        Some(false) => is_this_program(pid) && !locks_of(pid, dir).is_empty(),
        None => is_this_program(pid),
    }
}

/// A program's name; the file of a running one may have been replaced since it started.
fn program_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy();
    Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
}

/// True if a command line (words that end with a zero) starts a node, and not one of another
/// directory. `None`: a line without a directory may have it from the environment.
fn is_node_line(
    line: &[u8],
    cwd: &Path,
    dir: &Path,
    env: impl Fn(&str) -> Option<String>,
) -> Option<bool> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).skip(1).collect();
    if !words.contains(&&b"node"[..]) {
        return Some(false);
    }
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let value_of = |flag: &str| {
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            match word.strip_prefix(flag.as_bytes()) {
                Some(b"") => return rest.next().copied(),
                Some([b'=', value @ ..]) => return Some(value),
                _ => {}
            }
        }
        None
    };
    let named = value_of("--rendezvous").or_else(|| value_of("--dir"))?;
    let named = Path::new(std::ffi::OsStr::from_bytes(named));
    let scope = path_templates::Scope { flag: "--dir", rank: Err(path_templates::ALL_SHARE) };
    // A text that cannot be expanded has started no node.
    let named = path_templates::expand_with(named, scope, env).unwrap_or_else(|_| named.to_owned());
    Some(resolved(&cwd.join(named)) == resolved(dir))
}

/// The flags of a process, with their values. The values of a repeated flag are one text, sorted.
pub fn flags_of(pid: u32) -> BTreeMap<String, String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).into_owned();
    let words: Vec<&str> = line.split('\0').collect();
    let flag = |at: usize| {
        let word = words[at].strip_prefix("--").map(|_| words[at])?;
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, value),
            None => (word, *words.get(at + 1)?),
        };
        Some((name.to_owned(), value.to_owned()))
    };
    joined((0..words.len()).filter_map(flag))
}

/// Flags with the values of each as one text, sorted.
pub fn joined(flags: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, value) in flags {
        all.entry(name).or_default().insert(value);
    }
    let text = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(" ");
    all.into_iter().map(|(name, values)| (name, text(values))).collect()
}

/// A variable that a process was started with.
fn variable_of(pid: u32, name: &str) -> Option<String> {
    let all = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut all = all.split(|byte| *byte == 0);
    let value = all.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    std::str::from_utf8(value).ok().map(str::to_owned)
}

/// The node processes of the instance in `dir`, by their command lines or by the state directories
/// there that they have locked; also those without an address file that can be read.
pub fn nodes_of(dir: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_node = |pid: u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        let line = is_node_line(&words, &cwd, dir, |name| variable_of(pid, name));
        let is_here = line == Some(true) && has_flag_of_node(&words);
        is_here || !locks_of(pid, dir).is_empty()
    };
    pids.filter(|&pid| is_this_program(pid) && is_node(pid) && is_alive(pid)).collect()
}

/// Tells a node from `starling node list`, which is about nodes.
fn has_flag_of_node(line: &[u8]) -> bool {
    let flags = ["--rank", "--join", "--rendezvous", "--state-dir", "--detach"];
    let mut words = line.split(|byte| *byte == 0);
    words.any(|word| {
        let flag = word.split(|byte| *byte == b'=').next().unwrap_or_default();
        flags.iter().any(|known| known.as_bytes() == flag)
    })
}

/// Whether the state directory of a node process was removed: it holds a lock that is no more.
pub fn has_removed_state(pid: u32, dir: &Path) -> bool {
    locks_of(pid, dir).iter().any(|lock| lock.ends_with(REMOVED))
}

/// What the kernel adds to the name of an open file that was removed.
const REMOVED: &str = " (deleted)";

/// The locks of state directories in the instance in `dir` that a process has open.
fn locks_of(pid: u32, dir: &Path) -> Vec<String> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let nodes = format!("{}/", dir.join("nodes").display());
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let links = links.map(|link| link.display().to_string());
    let is_lock = |link: &String| {
        let name = link.strip_suffix(REMOVED).unwrap_or(link);
        name.starts_with(&nodes) && name.ends_with("/state/lock")
    };
    links.filter(is_lock).collect()
}

fn is_this_program(pid: u32) -> bool {
    let name = |link: &str| std::fs::read_link(link).ok().as_deref().and_then(program_name);
    let own = name("/proc/self/exe");
    own.is_some() && name(&format!("/proc/{pid}/exe")) == own
}

/// Sends a signal to a process of the instance in `dir`, if it still is one of its nodes.
pub fn signal_node(pid: u32, dir: &Path, signal: Signal) {
    if let Some(id) = as_pid(pid).filter(|_| is_node(pid, dir)) {
        // The process may have ended since the check.
        let _ = kill_process(id, signal);
    }
}

fn as_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_with_the_same_pid_is_no_node() {
        let mut stranger = Command::new("sh");
        stranger.args(["-c", "read end", "node"]).stdin(Stdio::piped());
        let mut child = stranger.spawn().unwrap();
        assert!(is_alive(child.id()));
        assert!(!is_node(child.id(), Path::new("/tmp")), "another program");
        assert!(!is_node(std::process::id(), Path::new("/tmp")), "this program, but no node");
        signal_node(child.id(), Path::new("/tmp"), Signal::KILL);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().code().is_some(), "no signal ended it");
        assert!(!is_alive(child.id()));
    }

    #[test]
    fn the_last_error_of_a_log_is_told_until_the_node_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("nodes/0/node.log");
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        assert_eq!(last_error(dir.path()), None);
        let starts = "node n0 of 1 listens on 127.0.0.1:7\n";
        let fails = format!("{starts}error: node n0 stopped: no space left\nhint: make some\n");
        std::fs::write(&log, &fails).unwrap();
        assert_eq!(last_error(dir.path()).as_deref(), Some("node n0 stopped: no space left"));
        std::fs::write(&log, fails + starts).unwrap();
        assert_eq!(last_error(dir.path()), None);
    }

    #[test]
    fn a_node_is_known_by_its_words_and_directory() {
        let is_node = |line: &str, dir: &str| {
            let line = line.replace(' ', "\0") + "\0";
            let env = |name: &str| (name == "SCRATCH").then(|| "/scratch/me".to_owned());
            is_node_line(line.as_bytes(), Path::new("/home/me"), Path::new(dir), env)
        };
        let meet = "starling node --rendezvous $SCRATCH/meet";
        assert_eq!(is_node(meet, "/scratch/me/meet"), Some(true), "it is expanded there");
        assert_eq!(is_node("starling --dir /a$$b/{{c}} node", "/a$b/{c}"), Some(true));
        assert_eq!(is_node("starling --dir $UNSET/a node", "/run/a"), Some(false));
        assert_eq!(is_node("starling --dir /run/a node --rank 0", "/run/a"), Some(true));
        assert_eq!(is_node("starling node --dir=a", "/home/me/a"), Some(true));
        assert_eq!(is_node("starling node --rendezvous /run/a", "/run/a"), Some(true));
        assert_eq!(
            is_node("starling node", "/run/a"),
            None,
            "its environment may name the directory"
        );
        assert_eq!(
            is_node("starling --dir /run/b node", "/run/a"),
            Some(false),
            "of another instance"
        );
        assert_eq!(is_node("starling run bag:tasks=5", "/run/a"), Some(false));
        let has_flag = |line: &str| has_flag_of_node(line.replace(' ', "\0").as_bytes());
        assert!(has_flag("starling node --dir a --join=b") && has_flag("starling node --rank 0"));
        assert!(!has_flag("starling --dir /run/a node list"), "it is no node");
        assert_eq!(
            is_node("node --dir /run/a", "/run/a"),
            Some(false),
            "its name is no word of its own"
        );
        let old = Path::new("/bin/starling (deleted)");
        assert_eq!(program_name(old).as_deref(), Some("starling"));
    }
}
