//! Commands that `starling rsh` starts in a part of a gang. They have pipes to the node instead of
//! captured output, and belong to no attempt of this node.
//!
//! They have a spawner of their own, which starts with the first of them. When the node dies, it
//! kills them.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use proto::wire::CpuPin;
use proto::work::{GangNode, Part, Used};
use proto::{Attempt, NodeId, TaskId};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::commands::doorway::Entrance;
use crate::commands::environment::push_variable;
use crate::commands::gang::{MemberTotals, push_gang};
use crate::commands::names::is_hidden_variable;
use crate::commands::pin::{PIN_VARIABLE, push_pin};
use crate::commands::resources::{granted_memory_bytes, memory_of_limit, push_resources};
use crate::commands::stage::text_of;
use crate::error::reason;
use crate::executor::{Executor, Shared};
use crate::private;
use crate::spawner::starter::{Program, Starter};
use crate::spawner::wire::{Exit, Frames, Report};
use crate::table::Phase;

/// The bytes that one read takes.
const READ_BYTES: usize = 64 << 10;
/// A spawner that takes nothing for this long hangs: what it should start fails.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// The exit code of a command that could not be started or watched, as of other remote shells.
const CODE_LOST: i32 = 255;
/// A shell adds this to the number of the signal that ended a program.
const SIGNAL_CODES: i32 = 128;

/// The variables of Starling that are the same on all nodes of a gang.
const OF_TASK: [&str; 7] = [
    PIN_VARIABLE,
    "STARLING_JOB_ID",
    "STARLING_TASK_ID",
    "STARLING_ATTEMPT",
    "STARLING_ENTRY",
    "STARLING_SUBMIT_DIR",
    "STARLING_VARIANT",
];
/// A task has as many threads as cpus, unless its user says otherwise.
const THREADS: &str = "OMP_NUM_THREADS";
/// Variables that this node sets, or that say something about the caller's process.
const OF_NODE: [&str; 8] = [
    "TMPDIR",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "HOSTNAME",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
];

/// A command for a part of a gang.
#[derive(Clone, Debug)]
pub struct MemberCommand {
    pub part: Part,
    /// For the shell.
    pub command: String,
    /// The variables of the caller, as `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// The working directory of the caller; it need not exist here.
    pub directory: PathBuf,
    pub gang: Vec<GangNode>,
    /// By which the command reaches this node; `None`: it cannot.
    pub entrance: Option<Entrance>,
}

impl Executor {
    /// Starts a command in a part of a gang; returns its number. `ended` is called once, from a
    /// thread of the executor, unless this fails.
    ///
    /// # Errors
    /// It cannot be started: one line.
    pub fn start_member(
        &self,
        command: MemberCommand,
        ended: impl FnOnce(MemberEnd) + Send + 'static,
    ) -> Result<(u64, MemberStreams), String> {
        self.members.start(command, Box::new(ended))
    }

    /// Ends a command in a part of a gang with its process group.
    pub fn kill_member(&self, number: u64) {
        self.members.kill(number);
    }

    /// Adds what commands of its gang have used to an attempt of this node. With a reason for a
    /// failure the attempt ends, and fails. False if no command of the attempt runs here.
    pub fn add_members(&self, task: TaskId, attempt: Attempt, totals: MemberTotals) -> bool {
        match self.shared.table.phase((task, attempt)) {
            Some(Phase::Command(number)) => self.commands.add_members(number, totals),
            _ => false,
        }
    }
}

/// The node's ends of the pipes of a command.
#[derive(Debug)]
pub struct MemberStreams {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// The end of such a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberEnd {
    /// As a shell reports it.
    pub code: i32,
    /// The reason why it could not start or be watched; empty: it ended by itself.
    pub failure: String,
    /// What it has used, and the reason for which its attempt must fail.
    pub totals: MemberTotals,
}

type Ended = Box<dyn FnOnce(MemberEnd) + Send>;

struct Running {
    ended: Ended,
    /// Its directory for temporary files.
    directory: PathBuf,
    memory_limit_bytes: u64,
}

#[derive(Default)]
struct State {
    starter: Option<Starter>,
    /// The number of started spawners; the upper half of the numbers of commands.
    spawners: u64,
    running: HashMap<u64, Running>,
    reader: Option<JoinHandle<()>>,
    is_over: bool,
}

struct Inner {
    shared: Arc<Shared>,
    /// The number of starts; it names their directories.
    starts: AtomicU64,
    state: Mutex<State>,
}

pub(crate) struct Members(Arc<Inner>);

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").finish_non_exhaustive()
    }
}

impl Members {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(Arc::new(Inner { shared, starts: AtomicU64::new(0), state: Mutex::default() }))
    }

    pub(crate) fn start(
        &self,
        command: MemberCommand,
        ended: Ended,
    ) -> Result<(u64, MemberStreams), String> {
        let inner = &self.0;
        let place = inner.starts.fetch_add(1, Relaxed);
        let directory = inner.shared.tasks_dir.join(format!("member-{place:x}"));
        private::own_dir(&directory).map_err(|error| reason(&error))?;
        // The disk may be slow: nothing waits for it, as no lock is held.
        let started = Prepared::of(&inner.shared, command, &directory)
            .and_then(|prepared| inner.start(prepared, ended, directory.clone()));
        if started.is_err() {
            let _ = private::remove_tree(&directory);
        }
        started
    }

    pub(crate) fn kill(&self, number: u64) {
        let mut state = self.0.state();
        if state.running.contains_key(&number)
            && let Some(starter) = &mut state.starter
        {
            starter.kill(number & u64::from(u32::MAX));
        }
    }

    /// Ends all commands, and waits for the thread.
    pub(crate) fn stop(&self) {
        let mut state = self.0.state();
        state.is_over = true;
        let (starter, reader) = (state.starter.take(), state.reader.take());
        drop(state);
        if let Some(starter) = starter {
            starter.end();
        }
        if let Some(reader) = reader
            && reader.thread().id() != std::thread::current().id()
        {
            let _ = reader.join();
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the state panics")
    }

    fn start(
        self: &Arc<Self>,
        prepared: Prepared,
        ended: Ended,
        directory: PathBuf,
    ) -> Result<(u64, MemberStreams), String> {
        let mut state = self.state();
        if state.is_over {
            return Err("this node stops".to_owned());
        }
        if state.starter.is_none() {
            self.start_spawner(&mut state)?;
        }
        let spawner = state.spawners << 32;
        let starter = state.starter.as_mut().expect("started above");
        let number = spawner | starter.next_number();
        let memory_limit_bytes = prepared.memory_limit_bytes;
        let streams = prepared.spawn(starter)?;
        state.running.insert(number, Running { ended, directory, memory_limit_bytes });
        Ok((number, streams))
    }

    fn start_spawner(self: &Arc<Self>, state: &mut State) -> Result<(), String> {
        let node = self.shared.config.node;
        let failed = |error: io::Error| format!("cannot start a thread: {}", reason(&error));
        let starter = Starter::start(&self.shared.config, "members")?;
        starter.limit_writes(WRITE_TIMEOUT).map_err(|error| reason(&error))?;
        let reports = starter.reports().map_err(|error| reason(&error))?;
        state.spawners += 1;
        let (theirs, spawner) = (Arc::clone(self), state.spawners);
        let thread = std::thread::Builder::new().name(format!("{node}-members"));
        let reader = thread.spawn(move || theirs.read(spawner, reports)).map_err(failed)?;
        state.starter = Some(starter);
        state.reader = Some(reader);
        Ok(())
    }

    /// Reads reports until the spawner ends.
    fn read(&self, spawner: u64, mut stream: UnixStream) {
        let (mut frames, mut reports) = (Frames::default(), Vec::<Report>::new());
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => frames.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            }
            let whole = frames.take(&mut reports);
            for exit in reports.drain(..).filter_map(|report| report.exit) {
                let running = self.state().running.remove(&(spawner << 32 | exit.number));
                if let Some(running) = running {
                    let node = self.shared.config.node;
                    let end = of_exit(&exit, node, running.memory_limit_bytes);
                    running.end(end);
                }
            }
            if whole.is_err() {
                break;
            }
        }
        let mut state = self.state();
        // After a stop, another thread ends the spawner.
        let starter = state.starter.take();
        let rest = std::mem::take(&mut state.running);
        drop(state);
        if let Some(starter) = starter {
            starter.end();
        }
        let failure = "the spawner process of the node ended; the command was killed";
        for running in rest.into_values() {
            let (failure, totals) = (failure.to_owned(), MemberTotals::default());
            running.end(MemberEnd { code: CODE_LOST, failure, totals });
        }
    }
}

impl Running {
    fn end(self, end: MemberEnd) {
        // A process that could not be killed may still write there.
        let _ = private::remove_tree(&self.directory);
        (self.ended)(end);
    }
}

fn of_exit(exit: &Exit, node: NodeId, memory_limit_bytes: u64) -> MemberEnd {
    let (failure, of_attempt) = match exit.memory_bytes {
        0 => (exit.failure.clone(), String::new()),
        bytes => {
            let figures = memory_of_limit(bytes, memory_limit_bytes);
            (format!("memory: {figures}"), format!("memory on {node}: {figures}"))
        }
    };
    let code = if exit.signal > 0 { SIGNAL_CODES + exit.signal } else { exit.code };
    let used = Used { cpu_us: exit.cpu_us, max_rss_kib: exit.max_rss_kib };
    MemberEnd { code, failure, totals: MemberTotals { used, failure: of_attempt } }
}

/// A command with all that it needs of the disk.
struct Prepared {
    environment: Vec<Vec<u8>>,
    argv: Vec<Vec<u8>>,
    directory: String,
    memory_limit_bytes: u64,
    /// Names the part: its commands share the limit.
    memory_group: Vec<u8>,
    cpus: Vec<u32>,
}

impl Prepared {
    fn of(shared: &Shared, command: MemberCommand, directory: &Path) -> Result<Self, String> {
        let cwd = if command.directory.is_dir() { &command.directory } else { directory };
        let argv = ["/bin/sh", "-c", &command.command].map(|word| word.as_bytes().to_vec());
        let mut environment = environment(shared, &command, directory)?;
        // The variable came along from the caller, the cpus are those of this node.
        let pin = pin_among(&command.environment);
        let granted = command.part.granted.as_deref();
        let cpus = push_pin(&mut environment, &shared.config, pin, granted)?;
        Ok(Self {
            environment,
            cpus,
            argv: argv.to_vec(),
            directory: text_of(cwd),
            memory_limit_bytes: granted_memory_bytes(granted),
            memory_group: format!("{}/{}", command.part.task, command.part.attempt).into_bytes(),
        })
    }

    fn spawn(self, starter: &mut Starter) -> Result<MemberStreams, String> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| reason(&error.into()));
        let ((their_in, stdin), (stdout, their_out)) = (pipe()?, pipe()?);
        let (stderr, their_err) = pipe()?;
        let program = Program {
            argv: self.argv,
            environment: self.environment,
            directory: &self.directory,
            fds: &[(their_in.as_fd(), 0), (their_out.as_fd(), 1), (their_err.as_fd(), 2)],
            memory_limit_bytes: self.memory_limit_bytes,
            memory_group: self.memory_group,
            cpus: self.cpus,
        };
        starter.run(program).map_err(|error| reason(&error))?;
        Ok(MemberStreams { stdin, stdout, stderr })
    }
}

/// The variables of the caller, except those that are of its node.
fn environment(
    shared: &Shared,
    command: &MemberCommand,
    directory: &Path,
) -> Result<Vec<Vec<u8>>, String> {
    let (config, part) = (&shared.config, &command.part);
    let threads = own_threads(&command.environment);
    let given = command.environment.iter().filter(|it| goes_along(it) && Some(*it) != threads);
    let mut out: Vec<Vec<u8>> = given.cloned().collect();
    if threads.is_some() {
        push_variable(&mut out, THREADS, &part.cpus.max(1).to_string());
    }
    push_variable(&mut out, "STARLING_NODE", &config.node.0.to_string());
    push_variable(&mut out, "STARLING_TASK_DIR", &text_of(directory));
    push_variable(&mut out, "STARLING_CPUS", &part.cpus.max(1).to_string());
    push_variable(&mut out, "TMPDIR", &text_of(directory));
    if let Some(instance) = &config.instance_dir {
        push_variable(&mut out, "STARLING_DIR", &text_of(instance));
    }
    push_resources(&mut out, &config.gpu_pools, part.granted.as_deref());
    push_gang(&mut out, config, &command.gang, directory)?;
    if let Some(Entrance { door, token, .. }) = &command.entrance {
        push_variable(&mut out, "STARLING_DOOR", door);
        push_variable(&mut out, "STARLING_TOKEN", token);
    }
    Ok(out)
}

/// How the caller is pinned to its cpus.
fn pin_among(environment: &[Vec<u8>]) -> CpuPin {
    let start = format!("{PIN_VARIABLE}=").into_bytes();
    let word = environment.iter().find_map(|it| it.strip_prefix(&start[..]));
    word.and_then(|word| CpuPin::named(str::from_utf8(word).ok()?)).unwrap_or_default()
}

/// The caller's number of threads, if its node has set it: then it is that of its cpus.
fn own_threads(environment: &[Vec<u8>]) -> Option<&Vec<u8>> {
    let value = |name: &str| {
        let start = format!("{name}=").into_bytes();
        environment.iter().find_map(|it| Some((it, it.strip_prefix(&start[..])?)))
    };
    let ((variable, threads), (_, cpus)) = (value(THREADS)?, value("STARLING_CPUS")?);
    (threads == cpus).then_some(variable)
}

/// Whether a variable of the caller is one of the command as well.
fn goes_along(variable: &[u8]) -> bool {
    let name = variable.split(|byte| *byte == b'=').next().unwrap_or_default();
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let is_own = is_hidden_variable(name, false) || OF_NODE.contains(&name);
    OF_TASK.contains(&name) || !(name.is_empty() || is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_callers_node_stay_there() {
        for kept in ["PATH=/bin", "STARLING_JOB_ID=3", "LD_LIBRARY_PATH=/a=b", "EMPTY="] {
            assert!(goes_along(kept.as_bytes()), "{kept}");
        }
        for left in ["STARLING_DOOR=/x", "STARLING_TOKEN=1", "TMPDIR=/t", "PMI_RANK=0", "=C"] {
            assert!(!goes_along(left.as_bytes()), "{left}");
        }
    }

    #[test]
    fn threads_are_those_of_the_node_unless_the_user_has_set_them() {
        let of = |threads: &str| {
            let all = [format!("OMP_NUM_THREADS={threads}"), "STARLING_CPUS=64".to_owned()];
            all.map(String::into_bytes)
        };
        assert!(own_threads(&of("64")).is_some());
        assert!(own_threads(&of("2")).is_none() && own_threads(&of("64")[..1]).is_none());
    }

    #[test]
    fn an_end_has_the_code_of_a_shell() {
        let end = |exit: &Exit| of_exit(exit, NodeId(1), 2 << 30);
        let exit = |code, signal| end(&Exit { code, signal, ..Exit::default() }).code;
        assert_eq!((exit(3, 0), exit(0, 9)), (3, 137));
        let killed = Exit { memory_bytes: 3 << 30, signal: 9, cpu_us: 7, ..Exit::default() };
        let MemberEnd { code, failure, totals } = end(&killed);
        assert_eq!((code, failure.as_str()), (137, "memory: 3 GiB of 2 GiB asked"));
        assert_eq!(totals.failure, "memory on n1: 3 GiB of 2 GiB asked");
        assert_eq!(totals.used, Used { cpu_us: 7, max_rss_kib: 0 });
    }
}
