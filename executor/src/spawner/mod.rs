/*!
The spawner: a small process between a node and its commands.

`starling __spawner` calls [`main`]. It reads orders from its standard input, a Unix socket, and
sends reports there. A separate process has two advantages. It starts programs cheaply, however
large the node is: it has few files and threads and no signal handlers (see `vfork`). And it cleans
up: when the node ends for any reason, the socket ends. Then the spawner kills every process group
that it started, and exits.

The threads of the spawner: one loop that handles orders, output, exits and timers through one
epoll. A few more only spawn, because a spawn blocks until the new program runs.
*/

mod children;
pub(crate) mod descriptors;
pub(crate) mod liveness;
pub(crate) mod memory;
mod notice;
mod orphans;
pub(crate) mod process;
mod program;
mod reap;
mod shield;
pub(crate) mod starter;
mod vfork;
pub(crate) mod wire;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use proto::limits;
use rustix::event::{Timespec, epoll};
use rustix::process::Signal;

use crate::limits::STREAM_HELD_BYTES_MAX;
use crate::{huge_pages, open_files};
use children::{Children, Token, UNWATCHED};
use descriptors::{Others, Received};
use orphans::Orphans;
use program::Failure;
use proto::Span;
use wire::{Frames, Output, Report, SpawnerRequest, Start, Waiting};

/// The maximum time that captured output of a running command is in memory.
const STREAM_HELD_TIME: Span = Span::from_secs(1);

/// The hidden verb of the program that runs [`main`].
pub const VERB: &str = "__spawner";
pub(crate) const GRACE_VARIABLE: &str = "STARLING_KILL_GRACE_MS";
/// The umask for commands, octal, if the node's is different.
pub(crate) const UMASK_VARIABLE: &str = "STARLING_USER_UMASK";
/// The soft limit on open files of commands; the node may have raised its own.
pub(crate) const FILES_VARIABLE: &str = "STARLING_USER_FILES";

/// The delay of another search for processes that left their group, if it may find some.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// From this number of commands for each CPU on, the other commands keep the CPUs busy while some
/// ends wait.
const CROWD_PER_CPU: usize = 4;
/// In a crowd the loop sleeps this long after a round in which a command ended. The events of that
/// time make one round, one report and one step of the node. That saves a thread switch at four
/// places for each command.
const REST_IN_CROWD: Duration = Duration::from_millis(1);
/// Output of running commands is sent when it has this size.
const FLUSHED_BYTES: usize = 1 << 20;

/// The purpose of a timer in the spawner's heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// The time limit of the command is reached.
    Limit,
    /// The grace period after SIGTERM is over.
    Kill,
    /// Check again whether a killed group is gone.
    Reap,
    /// Check which commands have lasted long enough for their output to be watched.
    Watch,
    /// Look for processes that left the group of a command.
    Orphans,
    /// Send the output that is in memory.
    Flush,
    /// Read the memory of commands that have a limit.
    Memory,
    /// The time limit of the command is near.
    Notice,
}

#[derive(Default)]
struct Queue {
    starts: VecDeque<(Start, Others)>,
    closed: bool,
}

/// The state that the threads of the spawner share.
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    children: Mutex<Children>,
    epoll: OwnedFd,
    /// The connection to the node. Writers hold the lock for complete frames.
    socket: Mutex<UnixStream>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder of the queue panics")
    }
    fn children(&self) -> MutexGuard<'_, Children> {
        self.children.lock().expect("no holder of the children panics")
    }
    /// An error means that the node is gone; the loop detects that at the socket itself.
    fn send(&self, frames: &[u8]) -> io::Result<()> {
        self.socket.lock().expect("no holder of the socket panics").write_all(frames)
    }
}

/// Runs the spawner. Never returns: it ends the process when the node closes the connection.
pub fn main() -> ! {
    let code = i32::from(run().is_err());
    std::process::exit(code);
}

fn run() -> io::Result<()> {
    vfork::plain_signals();
    vfork::outlive_requests();
    huge_pages::restore();
    let umask = std::env::var(UMASK_VARIABLE).ok();
    if let Some(umask) = umask.and_then(|text| u32::from_str_radix(&text, 8).ok()) {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
    }
    let files = std::env::var(FILES_VARIABLE).ok();
    if let Some(files) = files.and_then(|text| text.parse().ok()) {
        open_files::lower_limit(files);
    }
    // A session of its own: it gets no signals of a terminal, and its processes can be found by the
    // session.
    let _ = rustix::process::setsid();
    // Orphans of its children become its own children, not those of the init process.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    if shield::raise() {
        let mut frame = Vec::new();
        wire::encode(&mut frame, &Report { shielded: true, ..Report::default() });
        (&socket).write_all(&frame)?;
    }
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &socket, Token::Socket.data(), epoll::EventFlags::IN)?;
    let reader = socket.try_clone()?;
    let shared = Arc::new(Shared {
        queue: Mutex::default(),
        changed: Condvar::new(),
        children: Mutex::new(Children::default()),
        epoll,
        socket: Mutex::new(socket),
    });
    let parallelism = std::thread::available_parallelism().map_or(2, usize::from);
    let mut threads = Vec::new();
    for _ in 0..parallelism.clamp(2, 8) {
        let (theirs, starter) = (shared.clone(), program::Starter::new()?);
        threads.push(std::thread::Builder::new().spawn(move || run_starts(&theirs, starter))?);
    }
    let result = Loop::new(&shared, reader, CROWD_PER_CPU * parallelism).run();
    // At once: a starter may hang in a start, and nothing may outlive the node meanwhile.
    shared.children().signal_all(Signal::KILL);
    shared.queue().closed = true;
    shared.changed.notify_all();
    for thread in threads {
        let _ = thread.join();
    }
    shared.children().signal_all(Signal::KILL);
    crate::commands::orphan_processes::kill_session(
        rustix::process::getpid(),
        Duration::from_secs(5),
    );
    crate::commands::orphan_processes::kill_descendants(Duration::from_secs(5));
    result
}

/// A thread that starts commands.
fn run_starts(shared: &Shared, mut starter: program::Starter) {
    loop {
        let mut queue = shared.queue();
        let (start, others) = loop {
            if queue.closed {
                return;
            }
            match queue.starts.pop_front() {
                Some(next) => break next,
                None => queue = shared.changed.wait(queue).expect("no holder of the queue panics"),
            }
        };
        drop(queue);
        let killed = shared.children().is_killed(start.number);
        let spawned = match killed {
            true => Err(Failure::new(&io::Error::other("it was killed before it started"))),
            false => starter.spawn(&start, &others),
        };
        drop(others);
        let adopted = spawned
            .and_then(|process| shared.children().adopt(&shared.epoll, start.number, process));
        if let Err(failure) = adopted {
            shared.children().forget(start.number);
            let mut frame = Vec::new();
            wire::encode(
                &mut frame,
                &Report { exit: Some(failure.report(&start)), ..Report::default() },
            );
            let _ = shared.send(&frame);
        }
    }
}

/// The loop's own state.
struct Loop<'a> {
    shared: &'a Shared,
    reader: UnixStream,
    frames: Frames,
    received: Received,
    alarms: BinaryHeap<Reverse<(Instant, Alarm, u64)>>,
    /// There is an alarm for `Watch`.
    will_watch: bool,
    orphans: Orphans,
    /// There is an alarm for `Orphans`.
    will_look: bool,
    /// There is an alarm for `Flush`.
    will_flush: bool,
    /// There is an alarm for `Memory`.
    will_measure: bool,
    grace: Duration,
    /// This number of commands is a crowd.
    crowd: usize,
    /// Some command has ended in this round.
    has_ended: bool,
    /// Frames for the node, sent once per round.
    reports: Vec<u8>,
    buffer: Vec<u8>,
}

impl<'a> Loop<'a> {
    fn new(shared: &'a Shared, reader: UnixStream, crowd: usize) -> Self {
        let grace = std::env::var(GRACE_VARIABLE).ok().and_then(|text| text.parse().ok());
        let grace = grace.map_or(Duration::from_nanos(limits::KILL_GRACE.0), Duration::from_millis);
        Self {
            shared,
            reader,
            frames: Frames::default(),
            received: Received::default(),
            alarms: BinaryHeap::new(),
            will_watch: false,
            orphans: Orphans::new(),
            will_look: false,
            will_flush: false,
            will_measure: false,
            grace,
            crowd,
            has_ended: false,
            reports: Vec::new(),
            buffer: vec![0; STREAM_HELD_BYTES_MAX],
        }
    }

    /// Runs until the node closes the connection.
    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            let timeout = self.next_alarm();
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.shared.epoll, spare, timeout.as_ref()) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match Token::of(event.data) {
                    Token::Socket => {
                        if !self.hear_orders()? {
                            return Ok(());
                        }
                    }
                    Token::Stream { number, stderr } => self.hear_output(number, stderr),
                    Token::Exit(number) => self.hear_exit(number),
                }
            }
            self.ring();
            if !self.reports.is_empty() {
                self.shared.send(&self.reports)?;
                self.reports.clear();
            }
            if !std::mem::take(&mut self.has_ended) {
                continue;
            }
            if !self.will_look && self.orphans.are_there() {
                self.look_for_orphans();
            }
            // Not after mere output: a command that prints much waits for this loop.
            if self.shared.children().len() >= self.crowd {
                std::thread::sleep(REST_IN_CROWD);
            }
        }
    }

    fn next_alarm(&self) -> Option<Timespec> {
        let Reverse((at, ..)) = self.alarms.peek()?;
        let wait = at.saturating_duration_since(Instant::now());
        Some(Timespec {
            tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        })
    }

    /// False if the node has closed the connection.
    fn hear_orders(&mut self) -> io::Result<bool> {
        let count = match self.received.read(&self.reader, &mut self.buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            Err(error) => return Err(error),
        };
        self.frames.push(&self.buffer[..count]);
        let mut orders: Vec<SpawnerRequest> = Vec::new();
        let whole = self.frames.take(&mut orders);
        whole.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a malformed request"))?;
        for order in orders {
            if let Some(start) = order.start {
                if !self.will_watch {
                    self.will_watch = true;
                    self.alarm(UNWATCHED, Alarm::Watch, 0);
                }
                if start.memory_limit_bytes > 0 && !self.will_measure {
                    self.will_measure = true;
                    self.alarm(memory::MEASURED_EVERY, Alarm::Memory, 0);
                }
                self.shared.children().expect(&start);
                if start.time_limit_ns > 0 {
                    // After the clock of the command began, so that its limit is over then.
                    let limit = Duration::from_nanos(start.time_limit_ns);
                    self.alarm_of_limit(limit, start.number);
                }
                let others = self.received.take(&start.fds)?;
                self.shared.queue().starts.push_back((start, others));
                self.shared.changed.notify_one();
            }
            if order.ping {
                wire::encode(&mut self.reports, &Report::default());
            }
            if let Some(Waiting { number, waits }) = order.waiting {
                let left = self.shared.children().set_waiting(number, waits, Instant::now());
                if let Some(left) = left {
                    self.alarm_of_limit(left, number);
                }
            }
            if let Some(number) = order.notice {
                self.shared.children().give_notice(number);
            }
            if let Some(number) = order.kill {
                self.shared.children().kill_wanted(number);
                self.alarm(self.grace, Alarm::Kill, number);
            }
        }
        Ok(true)
    }

    fn alarm(&mut self, after: Duration, alarm: Alarm, number: u64) {
        // A time beyond the range of the clock never comes.
        if let Some(at) = Instant::now().checked_add(after) {
            self.alarms.push(Reverse((at, alarm, number)));
        }
    }

    /// The alarms of a command with a time limit that is over after `left`.
    fn alarm_of_limit(&mut self, left: Duration, number: u64) {
        self.alarm(left, Alarm::Limit, number);
        let notice = self.shared.children().notice_wait(number, left);
        if let Some(wait) = notice {
            self.alarm(wait, Alarm::Notice, number);
        }
    }

    fn hear_output(&mut self, number: u64, stderr: bool) {
        let (output, is_too_much) =
            self.shared.children().read(&self.shared.epoll, number, stderr, &mut self.buffer);
        if let Some(output) = output {
            wire::encode(&mut self.reports, &Report { output: Some(output), ..Report::default() });
        } else if !self.will_flush {
            self.will_flush = true;
            self.alarm(Duration::from_nanos(STREAM_HELD_TIME.0), Alarm::Flush, 0);
        }
        if is_too_much {
            self.alarm(self.grace, Alarm::Kill, number);
        }
    }

    fn hear_exit(&mut self, number: u64) {
        let ended = self.shared.children().end(&self.shared.epoll, number, &mut self.buffer);
        if let Some((exit, group_is_gone)) = ended {
            self.has_ended = true;
            wire::encode(&mut self.reports, &Report { exit: Some(exit), ..Report::default() });
            if !group_is_gone {
                self.alarm(Duration::from_millis(20), Alarm::Reap, number);
            }
        }
    }

    /// Kills processes that ended commands left outside their groups.
    fn look_for_orphans(&mut self) {
        let again = self.orphans.sweep(&*self.shared.children());
        self.will_look = again;
        if again {
            self.alarm(LOOK_AGAIN_AFTER, Alarm::Orphans, 0);
        }
    }

    /// Sends output in frames of bounded size.
    fn flush(&mut self, held: Vec<Output>) {
        for output in held {
            let report = Report { output: Some(output), ..Report::default() };
            wire::encode(&mut self.reports, &report);
            if self.reports.len() >= FLUSHED_BYTES {
                // A closed connection is noticed when orders are read.
                let _ = self.shared.send(&self.reports);
                self.reports.clear();
            }
        }
    }

    /// Handles the due alarms.
    fn ring(&mut self) {
        while let Some(Reverse((at, alarm, number))) = self.alarms.peek().copied() {
            if at > Instant::now() {
                return;
            }
            self.alarms.pop();
            let mut children = self.shared.children();
            match alarm {
                Alarm::Kill => children.signal(number, Signal::KILL),
                Alarm::Notice => children.give_notice_of_limit(number, Instant::now()),
                Alarm::Limit => {
                    if children.time_out(number, Instant::now()) {
                        drop(children);
                        self.alarm(self.grace, Alarm::Kill, number);
                    }
                }
                Alarm::Watch => {
                    self.will_watch = children.watch_lasting(&self.shared.epoll);
                    if self.will_watch {
                        drop(children);
                        self.alarm(UNWATCHED, Alarm::Watch, 0);
                    }
                }
                Alarm::Reap => {
                    let is_gone = children.reap_group(number);
                    drop(children);
                    if !is_gone {
                        self.alarm(Duration::from_millis(100), Alarm::Reap, number);
                    }
                    // Processes that the group's last member had started in another group are
                    // orphans now.
                    if !self.will_look && self.orphans.are_there() {
                        self.look_for_orphans();
                    }
                }
                Alarm::Memory => {
                    self.will_measure = children.has_memory_limits();
                    drop(children);
                    if self.will_measure {
                        // Without the lock, because `/proc` may be long. Only this thread reaps
                        // commands, so the numbers of their groups stay theirs.
                        let commands = self.shared.children().measured();
                        let residents = memory::of_commands(&commands);
                        self.shared.children().enforce_memory(&residents);
                        self.alarm(memory::MEASURED_EVERY, Alarm::Memory, 0);
                    }
                }
                Alarm::Orphans => {
                    drop(children);
                    self.look_for_orphans();
                }
                Alarm::Flush => {
                    self.will_flush = false;
                    let held = children.take_held();
                    drop(children);
                    self.flush(held);
                }
            }
        }
    }
}
