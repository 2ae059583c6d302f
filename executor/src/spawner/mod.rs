/*!
The spawner: a small process between a node and its commands.

`starling __spawner` calls [`main`]. Two Unix sockets lead to the node: orders come on what would be
its standard output, reports go out on what would be its standard input. Two things are easier from
a process of its own: starting others (it has little memory and few threads, so `posix_spawn` stays
quick whatever the node holds), and dying well. When the node ends, in whatever way, the sockets
end, and the spawner kills every process group it started before it goes.

Its threads: some that take orders and stay with a command while it is short (`worker`), and one
loop that hears the output, ends and times of all the others through one epoll.
*/

mod children;
mod program;
pub(crate) mod wire;
mod worker;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use proto::limits;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use children::{Children, Token};
use wire::{Frames, Order, Report};
use worker::{HandedOver, Held};

/// The hidden verb of the program that runs [`main`].
pub const VERB: &str = "__spawner";
pub(crate) const GRACE_VARIABLE: &str = "STARLING_KILL_GRACE_MS";

/// What is written to wake the loop: any number but zero.
const WAKE: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

/// What a time in the spawner's heap is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// The command has run as long as it may.
    Limit,
    /// It had its grace after SIGTERM.
    Kill,
    /// Look again whether a killed group is gone.
    Reap,
}

/// What the threads of the spawner share.
struct Shared {
    /// Each message is an order to start a command; any worker takes it.
    orders: OwnedFd,
    /// Reports to the node, and its wishes to kill. Writers hold the lock for whole frames.
    socket: Mutex<UnixStream>,
    held: Mutex<Held>,
    handed_over: Mutex<Vec<HandedOver>>,
    /// Wakes the loop when something was handed over.
    wake: OwnedFd,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no holder of the commands panics")
    }
    fn handed_over(&self) -> MutexGuard<'_, Vec<HandedOver>> {
        self.handed_over.lock().expect("no holder of the list panics")
    }
    fn hand_over(&self, command: HandedOver) {
        self.handed_over().push(command);
        // It fails only when the counter is full, and then the loop is about to look.
        let _ = rustix::io::write(&self.wake, &WAKE);
    }
    /// An error means that the node is gone; the loop hears that from the socket itself.
    fn send(&self, frames: &[u8]) -> io::Result<()> {
        self.socket().write_all(frames)
    }
    /// Ends the loop, and with it the spawner.
    fn hang_up(&self) {
        let _ = self.socket().shutdown(std::net::Shutdown::Both);
    }
    fn socket(&self) -> MutexGuard<'_, UnixStream> {
        self.socket.lock().expect("no holder of the socket panics")
    }
}

/// Runs the spawner. Returns never: it ends the process when the node hangs up.
pub fn main() -> ! {
    let code = i32::from(run().is_err());
    std::process::exit(code);
}

fn run() -> io::Result<()> {
    // A session of its own: no terminal's signals, and all it starts can be found by the session.
    let _ = rustix::process::setsid();
    // What its children leave behind comes here, not to the machine's first process.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let orders = io::stdout().as_fd().try_clone_to_owned()?;
    let reader = socket.try_clone()?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    epoll::add(&epoll, &socket, Token::Socket.data(), epoll::EventFlags::IN)?;
    epoll::add(&epoll, &wake, Token::Wake.data(), epoll::EventFlags::IN)?;
    let shared = Arc::new(Shared {
        orders,
        socket: Mutex::new(socket),
        held: Mutex::default(),
        handed_over: Mutex::default(),
        wake,
    });
    let parallelism = std::thread::available_parallelism().map_or(2, usize::from);
    let mut threads = Vec::new();
    for _ in 0..(2 * parallelism).clamp(4, 64) {
        let theirs = shared.clone();
        threads.push(std::thread::Builder::new().spawn(move || worker::run(&theirs))?);
    }
    let mut hearing = Loop::new(&shared, reader, epoll);
    let result = hearing.run();
    // At once: a worker may hang in a start, and nothing may outlive the node meanwhile.
    shared.held().close();
    hearing.children.signal_all(Signal::KILL);
    let _ = rustix::net::shutdown(&shared.orders, rustix::net::Shutdown::Both);
    for thread in threads {
        let _ = thread.join();
    }
    crate::strays::kill_session(rustix::process::getpid(), Duration::from_secs(5));
    result
}

/// Reaps what is left of a group whose leader is gone. True when nothing is.
fn reap_group(group: Pid) -> bool {
    loop {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match waitid(WaitId::Pgid(Some(group)), options) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// The loop's own state.
struct Loop<'a> {
    shared: &'a Shared,
    reader: UnixStream,
    epoll: OwnedFd,
    children: Children,
    frames: Frames,
    alarms: BinaryHeap<Reverse<(Instant, Alarm, u64)>>,
    grace: Duration,
    /// Frames for the node, sent once per round.
    reports: Vec<u8>,
    buffer: Vec<u8>,
}

impl<'a> Loop<'a> {
    fn new(shared: &'a Shared, reader: UnixStream, epoll: OwnedFd) -> Self {
        let grace = std::env::var(GRACE_VARIABLE).ok().and_then(|text| text.parse().ok());
        let grace = grace.map_or(Duration::from_nanos(limits::KILL_GRACE.0), Duration::from_millis);
        Self {
            shared,
            reader,
            epoll,
            children: Children::default(),
            frames: Frames::default(),
            alarms: BinaryHeap::new(),
            grace,
            reports: Vec::new(),
            buffer: vec![0; limits::STREAM_HELD_BYTES_MAX],
        }
    }

    /// Until the node hangs up.
    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            let timeout = self.next_alarm();
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
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
                    Token::Wake => self.take_over(),
                    Token::Stream { number, stderr } => self.hear_output(number, stderr),
                    Token::Exit(number) => self.hear_exit(number),
                }
            }
            self.ring();
            if !self.reports.is_empty() {
                self.shared.send(&self.reports)?;
                self.reports.clear();
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

    /// False when the node has hung up.
    fn hear_orders(&mut self) -> io::Result<bool> {
        let count = match self.reader.read(&mut self.buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            Err(error) => return Err(error),
        };
        self.frames.push(&self.buffer[..count]);
        let mut orders: Vec<Order> = Vec::new();
        let whole = self.frames.take(&mut orders);
        whole.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        for order in orders {
            // Whichever thread has it by then: the loop takes commands over by itself alone.
            if !self.children.kill_wanted(order.kill) {
                self.shared.held().kill(order.kill);
            }
            self.alarm_in(self.grace, Alarm::Kill, order.kill);
        }
        Ok(true)
    }

    /// Takes in what workers have left to the loop.
    fn take_over(&mut self) {
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
        let handed_over = std::mem::take(&mut *self.shared.handed_over());
        for command in handed_over {
            match command {
                HandedOver::Going(going) => {
                    let number = going.number;
                    if going.time_limit_ns > 0 {
                        let limit = Duration::from_nanos(going.time_limit_ns);
                        self.alarm_at(going.started.checked_add(limit), Alarm::Limit, number);
                    }
                    let killed = self.shared.held().end(number);
                    if let Err(exit) = self.children.adopt(&self.epoll, going, killed) {
                        let report = Report { output: None, exit: Some(exit) };
                        wire::encode(&mut self.reports, &report);
                    }
                }
                HandedOver::Lingering(number, group) => {
                    self.children.linger(number, group);
                    self.alarm_in(Duration::from_millis(20), Alarm::Reap, number);
                }
            }
        }
    }

    fn alarm_in(&mut self, after: Duration, alarm: Alarm, number: u64) {
        self.alarm_at(Instant::now().checked_add(after), alarm, number);
    }

    /// A time beyond what the clock can count never comes.
    fn alarm_at(&mut self, at: Option<Instant>, alarm: Alarm, number: u64) {
        self.alarms.extend(at.map(|at| Reverse((at, alarm, number))));
    }

    fn hear_output(&mut self, number: u64, stderr: bool) {
        let output = self.children.read(&self.epoll, number, stderr, &mut self.buffer);
        if let Some(output) = output {
            wire::encode(&mut self.reports, &Report { output: Some(output), exit: None });
        }
    }

    fn hear_exit(&mut self, number: u64) {
        let ended = self.children.end(&self.epoll, number, &mut self.buffer);
        if let Some((exit, group_is_gone)) = ended {
            wire::encode(&mut self.reports, &Report { output: None, exit: Some(exit) });
            if !group_is_gone {
                self.alarm_in(Duration::from_millis(20), Alarm::Reap, number);
            }
        }
    }

    /// Does what is due.
    fn ring(&mut self) {
        while let Some(Reverse((at, alarm, number))) = self.alarms.peek().copied() {
            if at > Instant::now() {
                return;
            }
            self.alarms.pop();
            match alarm {
                Alarm::Kill => {
                    self.children.signal(number, Signal::KILL);
                    self.shared.held().signal(number, Signal::KILL);
                }
                Alarm::Limit => {
                    if self.children.time_out(number) {
                        self.alarm_in(self.grace, Alarm::Kill, number);
                    }
                }
                Alarm::Reap => {
                    if !self.children.reap_group(number) {
                        self.alarm_in(Duration::from_millis(100), Alarm::Reap, number);
                    }
                }
            }
        }
    }
}
