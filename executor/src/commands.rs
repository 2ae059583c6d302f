/*!
The node's end of the spawner: one thread hands commands over, one hears how they end.

```text
launch ─▶ queue ─▶ [launcher: directory, links, arguments] ─orders─▶ spawner process ─▶ commands
outcome ◀─ [listener: packs streams, collects outputs] ◀─reports─┘
```
The spawner starts with the first command. When it dies unexpectedly the listener kills what it left
behind, fails the attempts it ran, and starts another.
*/

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use proto::work::{Launch, Outcome};
use proto::{limits, wire as messages};
use rustix::process::Pid;

use crate::error::reason;
use crate::executor::Shared;
use crate::names::is_hidden_variable;
use crate::spawner::wire::{self, Exit, Order, Report};
use crate::spawner::{GRACE_VARIABLE, VERB};
use crate::stage::{self, Workspace};
use crate::streams::Piece;
use crate::table::{Key, Phase};
use crate::{collect, strays};

/// Orders are written when so many bytes have gathered, or when there is none left to gather.
const BATCH_BYTES: usize = 64 << 10;
/// After so many spawners in a row that ended without having ended any command, commands fail.
const BAD_STARTS_MAX: u32 = 3;

enum Work {
    Launch(u64, Box<Launch>),
    Kill(u64),
    Stop,
}

/// A command the spawner knows of.
struct Running {
    key: Key,
    launch: Box<Launch>,
    workspace: Workspace,
    stderr_tail: Vec<u8>,
    stream_error: Option<String>,
}

#[derive(Default)]
struct State {
    running: HashMap<u64, Running>,
    link: Link,
}

/// The connection to the spawner.
#[derive(Default)]
enum Link {
    #[default]
    Down,
    Up(Arc<UnixStream>),
    /// No spawner could be had, and why. The next command tries again.
    Broken(String),
}

struct Inner {
    shared: Arc<Shared>,
    state: Mutex<State>,
    changed: Condvar,
}

struct Threads {
    sender: mpsc::Sender<Work>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) struct Commands {
    inner: Arc<Inner>,
    numbers: AtomicU64,
    threads: OnceLock<Result<Threads, String>>,
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands").finish_non_exhaustive()
    }
}

impl Commands {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let inner = Inner { shared, state: Mutex::default(), changed: Condvar::new() };
        Self { inner: Arc::new(inner), numbers: AtomicU64::new(0), threads: OnceLock::new() }
    }

    pub(crate) fn launch(&self, launch: Launch) {
        let number = self.number();
        let key = (launch.task, launch.attempt);
        self.inner.shared.table.insert(key, Phase::Command(number));
        self.start(number, launch);
    }

    /// For a command that is in the table already: what it is called once it is one.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts what the table knows by this number; nothing if it was killed meanwhile.
    pub(crate) fn start(&self, number: u64, launch: Launch) {
        let key = (launch.task, launch.attempt);
        match self.threads.get_or_init(|| self.start_threads()) {
            Ok(threads) => {
                // The launcher is gone only when the executor has stopped.
                let _ = threads.sender.send(Work::Launch(number, Box::new(launch)));
            }
            Err(error) => {
                let outcome = Outcome { error: error.clone(), ..Outcome::default() };
                self.inner.shared.finish(key, outcome);
            }
        }
    }

    pub(crate) fn kill(&self, number: u64) {
        if let Some(Ok(threads)) = self.threads.get() {
            let _ = threads.sender.send(Work::Kill(number));
        }
    }

    /// Ends the spawner, and with it every command, and waits for the threads.
    pub(crate) fn stop(&self) {
        let Some(Ok(threads)) = self.threads.get() else { return };
        let _ = threads.sender.send(Work::Stop);
        let handles = std::mem::take(&mut *threads.handles.lock().expect("only joined under it"));
        {
            let state = self.inner.state();
            if let Link::Up(stream) = &state.link {
                // The spawner hears the end of its orders, kills everything and goes.
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            self.inner.changed.notify_all();
        }
        for handle in handles {
            if handle.thread().id() != std::thread::current().id() {
                let _ = handle.join();
            }
        }
    }

    fn start_threads(&self) -> Result<Threads, String> {
        let node = self.inner.shared.config.node;
        let failed =
            |error: io::Error| format!("cannot start a thread on {node}: {}", reason(&error));
        let (sender, receiver) = mpsc::channel();
        let inner = self.inner.clone();
        let launcher = std::thread::Builder::new()
            .name(format!("{node}-launch"))
            .spawn(move || run_launcher(&inner, &receiver))
            .map_err(failed)?;
        let inner = self.inner.clone();
        let listener = std::thread::Builder::new()
            .name(format!("{node}-listen"))
            .spawn(move || run_listener(&inner))
            .map_err(failed)?;
        Ok(Threads { sender, handles: Mutex::new(vec![launcher, listener]) })
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the state panics")
    }

    fn fail(&self, key: Key, error: &str) {
        self.shared.finish(key, Outcome { error: error.to_owned(), ..Outcome::default() });
    }
}

fn run_launcher(inner: &Inner, receiver: &mpsc::Receiver<Work>) {
    let mut batch = Vec::new();
    let mut staged = Vec::new();
    while let Ok(mut work) = receiver.recv() {
        loop {
            match work {
                Work::Launch(number, launch) => {
                    stage(inner, number, launch, &mut batch, &mut staged)
                }
                Work::Kill(number) => {
                    wire::encode(&mut batch, &Order { start: None, kill: Some(number) });
                }
                Work::Stop => return,
            }
            if batch.len() >= BATCH_BYTES {
                break;
            }
            match receiver.try_recv() {
                Ok(next) => work = next,
                Err(_) => break,
            }
        }
        hand_over(inner, &mut batch, &mut staged);
    }
}

fn stage(
    inner: &Inner,
    number: u64,
    launch: Box<Launch>,
    batch: &mut Vec<u8>,
    staged: &mut Vec<(u64, Running)>,
) {
    let key = (launch.task, launch.attempt);
    if !inner.shared.table.contains(key) {
        return;
    }
    let Some(messages::spec::Body::Command(command)) = &launch.spec.body else {
        unreachable!("only commands come here");
    };
    let (workspace, start) = match stage::prepare(&inner.shared, &launch, command, number) {
        Ok(ready) => ready,
        Err(outcome) => return inner.shared.finish(key, outcome),
    };
    let before = batch.len();
    wire::encode(batch, &Order { start: Some(start), kill: None });
    if batch.len() - before > limits::FRAME_BYTES_MAX {
        batch.truncate(before);
        collect::clean_up(&inner.shared, &workspace);
        return inner.fail(key, "the command line and environment are too long");
    }
    let running = Running { key, launch, workspace, stderr_tail: Vec::new(), stream_error: None };
    staged.push((number, running));
}

/// Writes a batch to the spawner, once there is one.
fn hand_over(inner: &Inner, batch: &mut Vec<u8>, staged: &mut Vec<(u64, Running)>) {
    let mut state = inner.state();
    let stream = loop {
        match &state.link {
            _ if inner.shared.is_stopping() => break None,
            Link::Up(stream) => break Some(stream.clone()),
            Link::Broken(error) => {
                let error = error.clone();
                state.link = Link::Down;
                drop(state);
                inner.changed.notify_all();
                for (_, running) in staged.drain(..) {
                    collect::clean_up(&inner.shared, &running.workspace);
                    inner.fail(running.key, &error);
                }
                batch.clear();
                return;
            }
            Link::Down => {
                state = inner.changed.wait(state).expect("no holder of the state panics");
            }
        }
    };
    // Known before they are sent: whoever finds the link broken finds them as well.
    state.running.extend(staged.drain(..));
    drop(state);
    if let Some(stream) = stream {
        // If the spawner is gone the listener notices, and fails what was handed over.
        let _ = (&*stream).write_all(batch);
    }
    batch.clear();
}

fn run_listener(inner: &Inner) {
    let mut bad_starts = 0;
    while !inner.shared.is_stopping() {
        let (mut child, stream) = match start_spawner(inner) {
            Ok(started) => started,
            Err(error) => {
                let node = inner.shared.config.node;
                pause(inner, format!("cannot start the spawner process on {node}: {error}"));
                continue;
            }
        };
        let stream = Arc::new(stream);
        let mut state = inner.state();
        state.link = Link::Up(stream.clone());
        inner.changed.notify_all();
        drop(state);
        // Stopping may have begun before the link was up; then nobody else ends it.
        if inner.shared.is_stopping() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        let ended = listen(inner, &stream);
        let text = bury(inner, &mut child, &stream);
        bad_starts = if ended == 0 { bad_starts + 1 } else { 0 };
        if bad_starts >= BAD_STARTS_MAX {
            bad_starts = 0;
            pause(inner, text);
        }
    }
}

/// Waits until a command has failed for this reason: then it is worth another try.
fn pause(inner: &Inner, error: String) {
    let mut state = inner.state();
    state.link = Link::Broken(error);
    inner.changed.notify_all();
    while matches!(state.link, Link::Broken(_)) && !inner.shared.is_stopping() {
        state = inner.changed.wait(state).expect("no holder of the state panics");
    }
}

/// Clears up after a spawner: no process of it stays, no attempt is forgotten.
fn bury(inner: &Inner, child: &mut Child, stream: &UnixStream) -> String {
    inner.state().link = Link::Down;
    let _ = stream.shutdown(std::net::Shutdown::Both);
    if !inner.shared.is_stopping() {
        // It hung up or talked nonsense: it is not to be trusted with the killing.
        let _ = child.kill();
    }
    let status = child.wait();
    let session = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(session) = session {
        strays::kill_session(session, Duration::from_secs(5));
    }
    let status = status.map_or_else(|error| reason(&error), |status| status.to_string());
    let node = inner.shared.config.node;
    let text = format!("the spawner process of {node} ended ({status}); the command was killed");
    let lost = std::mem::take(&mut inner.state().running);
    for (_, running) in lost {
        collect::clean_up(&inner.shared, &running.workspace);
        let outcome = Outcome { error: text.clone(), lost: true, ..Outcome::default() };
        inner.shared.finish(running.key, outcome);
    }
    text
}

fn start_spawner(inner: &Inner) -> Result<(Child, UnixStream), String> {
    let config = &inner.shared.config;
    // Orphans of a spawner that is killed come to this process, which can then reap them.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let program = config.spawner_program.clone();
    let own = program.is_none();
    // Even if the file was replaced meanwhile, this is the program that runs.
    let program = program.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let describe = |error: io::Error| format!("{}: {}", program.display(), reason(&error));
    let (mine, theirs) = UnixStream::pair().map_err(describe)?;
    let environment =
        std::env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(is_hidden_variable));
    let mut command = Command::new(&program);
    if own {
        command.arg0("starling-spawner");
    }
    let grace_ms = config.kill_grace.0 / 1_000_000;
    let child = command
        .arg(VERB)
        .env_clear()
        .envs(environment)
        .env(GRACE_VARIABLE, grace_ms.to_string())
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .map_err(describe)?;
    Ok((child, mine))
}

/// Takes reports until the spawner hangs up. Answers how many commands ended.
fn listen(inner: &Inner, mut stream: &UnixStream) -> u64 {
    let mut frames = wire::Frames::default();
    let mut buffer = vec![0; 256 << 10];
    let mut reports = Vec::new();
    let mut ended = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return ended,
            Ok(count) => frames.push(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return ended,
        }
        let whole = frames.take::<Report>(&mut reports);
        keep_streams(inner, &reports);
        for report in reports.drain(..) {
            if let Some(exit) = report.exit {
                ended += 1;
                complete(inner, &exit);
            }
        }
        if whole.is_err() {
            return ended;
        }
    }
}

/// Packs what commands printed, before anybody hears that they ended.
fn keep_streams(inner: &Inner, reports: &[Report]) {
    let mut state = inner.state();
    let mut parts: Vec<(u64, bool, &[u8])> = Vec::new();
    for report in reports {
        if let Some(output) = &report.output {
            parts.push((output.number, output.stderr, &output.data));
        }
        if let Some(exit) = &report.exit {
            parts.push((exit.number, false, &exit.stdout));
            parts.push((exit.number, true, &exit.stderr));
        }
    }
    parts.retain(|(number, _, data)| !data.is_empty() && state.running.contains_key(number));
    let mut pieces = Vec::with_capacity(parts.len());
    for (number, stderr, data) in &parts {
        let running = state.running.get_mut(number).expect("only known ones were retained");
        if *stderr {
            keep_tail(&mut running.stderr_tail, data);
        }
        let (task, attempt) = running.key;
        pieces.push(Piece { task, attempt, stderr: *stderr, data });
    }
    drop(state);
    if let Err(error) = inner.shared.streams.append(&pieces) {
        let mut state = inner.state();
        for (number, ..) in &parts {
            if let Some(running) = state.running.get_mut(number) {
                running.stream_error = Some(reason(&error));
            }
        }
    }
}

fn keep_tail(tail: &mut Vec<u8>, data: &[u8]) {
    let data = &data[data.len().saturating_sub(limits::STDERR_TAIL_BYTES)..];
    tail.extend_from_slice(data);
    let surplus = tail.len().saturating_sub(limits::STDERR_TAIL_BYTES);
    tail.drain(..surplus);
}

fn complete(inner: &Inner, exit: &Exit) {
    let Some(running) = inner.state().running.remove(&exit.number) else { return };
    let Running { key, launch, workspace, stderr_tail, stream_error } = running;
    let shared = &inner.shared;
    // One that was killed leaves no outputs.
    if shared.table.contains(key) {
        let stream_error = stream_error.as_deref();
        let outcome =
            collect::outcome(shared, &launch, &workspace, exit, stream_error, stderr_tail);
        shared.finish(key, outcome);
    }
    collect::clean_up(shared, &workspace);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_end_of_what_was_printed() {
        let mut tail = Vec::new();
        keep_tail(&mut tail, b"abc");
        keep_tail(&mut tail, &vec![b'x'; limits::STDERR_TAIL_BYTES - 1]);
        assert_eq!(tail.len(), limits::STDERR_TAIL_BYTES);
        assert_eq!(tail[..2], *b"cx");
        keep_tail(&mut tail, &vec![b'y'; limits::STDERR_TAIL_BYTES * 3]);
        assert!(tail.iter().all(|byte| *byte == b'y'));
        assert_eq!(tail.len(), limits::STDERR_TAIL_BYTES);
    }
}
