/*!
The node's end of the spawner: one thread sends commands to it, another receives their ends.

```text
launch ─▶ queue ─▶ [launcher: files, arguments] ─orders─▶ spawner ─▶ commands
outcome ◀─ [listener: packs streams, collects outputs] ◀─reports─┘
```
If the queue is empty, the launching thread sends a command without preparation itself.

The spawner starts with the first command. When it dies unexpectedly, the listener kills its
processes, fails its attempts, and starts another one.
*/

pub(crate) mod beside;
pub(crate) mod captured;
pub(crate) mod collect;
pub(crate) mod dir_pool;
pub(crate) mod doorway;
pub(crate) mod environment;
pub mod expand;
pub(crate) mod gang;
pub(crate) mod names;
pub(crate) mod orphan_processes;
pub(crate) mod pin;
pub(crate) mod resources;
mod spawner_loss;
pub(crate) mod stage;
mod waiting;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use proto::work::{Launch, Outcome};
use proto::{limits, wire as messages};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::commands::captured::Printed;
use crate::commands::gang::MemberTotals;
use crate::commands::spawner_loss::reap_spawner;
use crate::commands::stage::Workspace;
use crate::error::reason;
use crate::executor::{AttemptOutcome, Shared};
use crate::inputs::deliver;
use crate::spawner::liveness::{SilenceAction, SpawnerLiveness};
use crate::spawner::process;
use crate::spawner::wire::{self, Exit, Report, SpawnerRequest};
use crate::streams::Piece;
use crate::table::{Key, Phase};

/// Orders are written when their bytes reach this size, or when no more are queued.
const BATCH_BYTES: usize = 64 << 10;
/// After this number of consecutive spawners that ended no command, commands fail.
const BAD_STARTS_MAX: u32 = 3;

/// A launch and its number at the spawner.
pub(crate) type Numbered = (u64, Box<Launch>);

enum Work {
    Launch(u64, Box<Launch>),
    Request(Box<SpawnerRequest>),
    /// The spawner ended before these orders were sent.
    Staged(Vec<u8>, Vec<(u64, Running)>),
    /// The spawner did not take all written bytes at once.
    Rest,
    Stop,
}

/// A command that was sent to the spawner.
struct Running {
    key: Key,
    launch: Box<Launch>,
    workspace: Workspace,
    printed: Printed,
    /// Of its commands on other nodes.
    members: MemberTotals,
    since: Instant,
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
    /// No spawner could be started, for this reason. The next command tries again.
    Broken(String),
}

struct Inner {
    shared: Arc<Shared>,
    state: Mutex<State>,
    changed: Condvar,
    /// Work that the launcher has not done yet.
    queued: AtomicU64,
    /// Held by the thread that writes orders. Its bytes are sent to their spawner before anything
    /// else.
    rest: Mutex<Option<(Arc<UnixStream>, Vec<u8>)>>,
    /// The consecutive queries that the spawner has not answered.
    unanswered: AtomicU32,
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
        let inner = Inner {
            shared,
            state: Mutex::default(),
            changed: Condvar::new(),
            queued: AtomicU64::new(0),
            rest: Mutex::default(),
            unanswered: AtomicU32::new(0),
        };
        Self { inner: Arc::new(inner), numbers: AtomicU64::new(0), threads: OnceLock::new() }
    }

    pub(crate) fn launch_all(&self, launches: Vec<Launch>) {
        let table = &self.inner.shared.table;
        let numbered = launches.into_iter().map(|launch| {
            let number = self.number();
            table.insert((launch.task, launch.attempt), Phase::Command(number));
            (number, Box::new(launch))
        });
        let numbered: Vec<Numbered> = numbered.collect();
        if !numbered.is_empty() {
            self.start(numbered);
        }
    }

    /// The number of a command, for an attempt that is in the table already.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts the table's attempts with these numbers, except those killed meanwhile.
    pub(crate) fn start(&self, launches: Vec<Numbered>) {
        match self.threads.get_or_init(|| self.start_threads()) {
            Ok(threads) => {
                let work = self.inner.start_at_once(launches);
                let sender = &threads.sender;
                work.into_iter().for_each(|work| self.inner.queue(sender, work));
            }
            Err(error) => launches.iter().for_each(|(_, launch)| {
                self.inner.fail((launch.task, launch.attempt), error);
            }),
        }
    }

    pub(crate) fn kill(&self, number: u64) {
        if let Some(Ok(threads)) = self.threads.get() {
            self.inner.queue(&threads.sender, Work::Request(Box::new(kill(number))));
        }
    }

    pub(crate) fn any_runs(&self) -> bool {
        !self.inner.state().running.is_empty()
    }

    /// Ends the spawner with every command, and waits for the threads.
    pub(crate) fn stop(&self) {
        let Some(Ok(threads)) = self.threads.get() else { return };
        let _ = threads.sender.send(Work::Stop);
        let handles = std::mem::take(&mut *threads.handles.lock().expect("only joined under it"));
        {
            let state = self.inner.state();
            if let Link::Up(stream) = &state.link {
                // The spawner sees the end of its orders, kills all commands and exits.
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
        let (inner, orders) = (self.inner.clone(), sender.clone());
        let listener = std::thread::Builder::new()
            .name(format!("{node}-listen"))
            .spawn(move || run_listener(&inner, &orders))
            .map_err(failed)?;
        Ok(Threads { sender, handles: Mutex::new(vec![launcher, listener]) })
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the state panics")
    }

    fn queue(&self, launcher: &mpsc::Sender<Work>, work: Work) {
        self.queued.fetch_add(1, Ordering::AcqRel);
        // The launcher has ended only if the executor has stopped.
        let _ = launcher.send(work);
    }

    /// Sends commands that need no preparation; returns the work that is left to the launcher.
    fn start_at_once(&self, launches: Vec<Numbered>) -> Vec<Work> {
        let to_launcher = |(number, launch)| Work::Launch(number, launch);
        let idle = self.queued.load(Ordering::Acquire) == 0;
        let Some(mut rest) = self.rest.try_lock().ok().filter(|rest| idle && rest.is_none()) else {
            return launches.into_iter().map(to_launcher).collect();
        };
        if !matches!(self.state().link, Link::Up(_)) {
            return launches.into_iter().map(to_launcher).collect();
        }
        let mut spare_dirs = self.shared.spare_dirs.count();
        let (mut work, mut batch, mut staged) = (Vec::new(), Vec::new(), Vec::new());
        for (number, launch) in launches {
            if spare_dirs > 0 && batch.len() < BATCH_BYTES && stage::needs_nothing(&launch) {
                spare_dirs -= 1;
                stage(self, number, launch, &mut batch, &mut staged);
            } else {
                work.push(to_launcher((number, launch)));
            }
        }
        if !staged.is_empty() {
            work.extend(self.send_at_once(&mut rest, batch, staged));
        }
        work
    }

    /// Writes orders as far as the socket takes them; returns the rest for the launcher.
    fn send_at_once(
        &self,
        rest: &mut Option<(Arc<UnixStream>, Vec<u8>)>,
        mut batch: Vec<u8>,
        staged: Vec<(u64, Running)>,
    ) -> Option<Work> {
        let mut state = self.state();
        let Link::Up(stream) = &state.link else { return Some(Work::Staged(batch, staged)) };
        let stream = stream.clone();
        state.running.extend(staged);
        drop(state);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = match rustix::net::send(&*stream, &batch, flags) {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => return None, // The listener notices, and fails the commands.
        };
        if sent == batch.len() {
            return None;
        }
        *rest = Some((stream, batch.split_off(sent)));
        Some(Work::Rest)
    }

    /// Writes orders; waits for a spawner that takes them slowly.
    fn write(&self, stream: Option<&UnixStream>, batch: &[u8]) {
        let mut rest = self.rest.lock().expect("no writer panics");
        // If a spawner has ended, the listener notices and fails its commands.
        if let Some((stream, bytes)) = rest.take() {
            let _ = (&*stream).write_all(&bytes);
        }
        if let Some(mut stream) = stream {
            let _ = stream.write_all(batch);
        }
    }

    /// Sends a ping to the spawner, unless unsent orders wait already.
    fn ask(&self) {
        let Ok(mut rest) = self.rest.try_lock() else { return };
        let Link::Up(stream) = &self.state().link else { return };
        if rest.is_some() {
            return;
        }
        let mut ping = Vec::new();
        wire::encode(&mut ping, &SpawnerRequest { ping: true, ..SpawnerRequest::default() });
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if let Ok(sent) = rustix::net::send(&**stream, &ping, flags)
            && sent < ping.len()
        {
            *rest = Some((stream.clone(), ping.split_off(sent)));
        }
    }

    fn fail(&self, key: Key, error: &str) {
        self.shared.finish(key, Outcome { error: error.to_owned(), ..Outcome::default() });
    }
}

fn kill(number: u64) -> SpawnerRequest {
    SpawnerRequest { kill: Some(number), ..SpawnerRequest::default() }
}

fn run_launcher(inner: &Inner, receiver: &mpsc::Receiver<Work>) {
    let mut batch = Vec::new();
    let mut staged = Vec::new();
    while let Ok(mut work) = receiver.recv() {
        let mut done = 0;
        loop {
            done += 1;
            match work {
                Work::Launch(number, launch) => {
                    stage(inner, number, launch, &mut batch, &mut staged)
                }
                Work::Request(request) => wire::encode(&mut batch, &*request),
                Work::Staged(orders, running) => {
                    batch.extend_from_slice(&orders);
                    staged.extend(running);
                }
                Work::Rest => inner.write(None, &[]),
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
        if !batch.is_empty() {
            hand_over(inner, &mut batch, &mut staged);
        }
        inner.queued.fetch_sub(done, Ordering::AcqRel);
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
        Err(error) => return inner.fail(key, &error),
    };
    let before = batch.len();
    wire::encode(batch, &SpawnerRequest { start: Some(start), ..SpawnerRequest::default() });
    if batch.len() - before > limits::FRAME_BYTES_MAX {
        batch.truncate(before);
        collect::clean_up(&inner.shared, &workspace);
        return inner.fail(key, "the command line and environment are too long");
    }
    let (printed, members) = (Printed::default(), MemberTotals::default());
    let running = Running { key, launch, workspace, printed, members, since: Instant::now() };
    staged.push((number, running));
}

/// Writes a batch to the spawner, once one is connected.
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
    // Registered before they are sent, so that after a failure of the link they are found.
    state.running.extend(staged.drain(..));
    drop(state);
    if let Some(stream) = stream {
        inner.write(Some(&stream), batch);
    }
    batch.clear();
}

fn run_listener(inner: &Inner, orders: &mpsc::Sender<Work>) {
    let mut bad_starts = 0;
    while !inner.shared.is_stopping() {
        let means = &inner.shared.means;
        means.spawner_starts();
        let started = process::start(&inner.shared.config, means.to_shield());
        let (mut child, stream) = match started {
            Ok(started) => started,
            Err(error) => {
                let node = inner.shared.config.node;
                pause(inner, format!("cannot start the spawner process on {node}: {error}"));
                continue;
            }
        };
        means.spawner_is(child.id());
        let stream = Arc::new(stream);
        inner.unanswered.store(0, Ordering::Relaxed);
        let mut state = inner.state();
        state.link = Link::Up(stream.clone());
        inner.changed.notify_all();
        drop(state);
        // If the stop began before the link was up, no other thread shuts it down.
        if inner.shared.is_stopping() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        let (ended, hung) = listen(inner, &stream, orders);
        let text = reap_spawner(inner, &mut child, &stream, hung);
        bad_starts = if ended == 0 { bad_starts + 1 } else { 0 };
        if bad_starts >= BAD_STARTS_MAX {
            bad_starts = 0;
            pause(inner, text);
        }
    }
}

/// Waits until a command has failed for this reason; then another try is useful.
fn pause(inner: &Inner, error: String) {
    let mut state = inner.state();
    state.link = Link::Broken(error);
    inner.changed.notify_all();
    while matches!(state.link, Link::Broken(_)) && !inner.shared.is_stopping() {
        state = inner.changed.wait(state).expect("no holder of the state panics");
    }
}

/// Receives reports until the spawner closes the connection or does not answer. Returns the number
/// of ended commands, and whether the spawner hung.
fn listen(inner: &Inner, mut stream: &UnixStream, orders: &mpsc::Sender<Work>) -> (u64, bool) {
    let mut frames = wire::Frames::default();
    let mut buffer = vec![0; 256 << 10];
    let mut reports = Vec::new();
    let mut ended = 0;
    let mut pulse = SpawnerLiveness::new(inner.shared.config.spawner_silence);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (ended, false),
            Ok(count) => {
                pulse.heard();
                inner.unanswered.store(0, Ordering::Relaxed);
                frames.push(&buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let is_waited_for = !inner.state().running.is_empty();
                match pulse.silence(is_waited_for) {
                    SilenceAction::Idle => {}
                    SilenceAction::Ask => {
                        inner.unanswered.fetch_add(1, Ordering::Relaxed);
                        inner.ask();
                    }
                    SilenceAction::Hangs => {
                        let (node, silence) = (inner.shared.config.node, SpawnerLiveness::wait());
                        (inner.shared.config.say)(&format!(
                            "warning: the spawner process of {node} hangs: it was asked every \
                             {silence:?} and does not answer; another takes its place, and its \
                             tasks run again"
                        ));
                        return (ended, true);
                    }
                }
                continue;
            }
            Err(_) => return (ended, false),
        }
        let whole = frames.take::<Report>(&mut reports);
        if reports.iter().any(|report| report.shielded) {
            inner.shared.means.spawner_shields();
        }
        keep_streams(inner, &reports, orders);
        let exits: Vec<Exit> = reports.drain(..).filter_map(|report| report.exit).collect();
        ended += exits.len() as u64;
        inner.shared.report(exits.iter().filter_map(|exit| complete(inner, exit)).collect());
        if whole.is_err() {
            return (ended, false);
        }
    }
}

/// Packs the output of commands before their ends are reported. Kills a command if there is no
/// space for its output.
fn keep_streams(inner: &Inner, reports: &[Report], orders: &mpsc::Sender<Work>) {
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
            running.printed.keep_tail(data);
        }
        let (task, attempt) = running.key;
        pieces.push(Piece { task, attempt, stderr: *stderr, carried: false, data });
    }
    drop(state);
    let kept = inner.shared.keep_pieces(&pieces);
    if parts.is_empty() {
        return;
    }
    let mut state = inner.state();
    for (number, stderr, data) in &parts {
        let Some(Running { printed, .. }) = state.running.get_mut(number) else { continue };
        match &kept {
            Ok(()) => printed.captured.add(*stderr, data.len() as u64),
            Err(loss) => {
                if printed.lose(loss.clone()) {
                    inner.queue(orders, Work::Request(Box::new(kill(*number))));
                }
            }
        }
    }
}

/// Turns the end of a command into the end of its attempt. A killed attempt leaves no outputs and
/// no report.
fn complete(inner: &Inner, exit: &Exit) -> Option<AttemptOutcome> {
    let running = inner.state().running.remove(&exit.number)?;
    let Running { key, launch, workspace, printed, members, since } = running;
    let shared = &inner.shared;
    let changed_input = deliver::check(shared, &workspace.guards);
    // No death of a node is behind a failure with a known reason.
    let (is_gang, is_known) = (!launch.gang.is_empty(), !members.failure.is_empty());
    let ended = shared.table.contains(key).then(|| {
        let outcome =
            collect::outcome(shared, &launch, &workspace, exit, changed_input, printed, members);
        collect::with_checkpoint(&launch, &workspace, exit, outcome)
    });
    // First, because the next command may need the directory.
    collect::clean_up(shared, &workspace);
    let Some((outcome, checkpoint)) = ended else {
        shared.leave(key);
        return None;
    };
    let doubt = match is_known {
        true => Duration::ZERO,
        false => collect::doubt(is_gang, &outcome, exit, since.elapsed()),
    };
    Some(AttemptOutcome { checkpoint, doubt, ..shared.end(key, outcome)? })
}
