//! A thread of the spawner: takes an order, starts the command, and stays with it while it is
//! short.
//!
//! Most of what a short command costs beyond its own start are wake-ups from thread to thread. So
//! the thread that read the order also waits for the end and reports it; only a command that goes
//! on is handed to the loop, which hears any number of them at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout};
use std::time::{Duration, Instant};

use prost::Message as _;
use proto::limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::program::{self, Failure};
use super::wire::{self, Exit, ORDER_BYTES_MAX, Report, Start};
use super::{Shared, reap_group};

/// How long a thread stays with a command, whatever waits...
const PATIENCE: Duration = Duration::from_millis(3);
/// ... and how long when no order waits for a thread.
const IDLE_PATIENCE: Duration = Duration::from_millis(30);

/// A command that goes on.
#[derive(Debug)]
pub(super) struct Going {
    pub(super) number: u64,
    pub(super) started: Instant,
    pub(super) time_limit_ns: u64,
    pub(super) group: Pid,
    pub(super) exit: OwnedFd,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// What a thread leaves to the loop.
#[derive(Debug)]
pub(super) enum HandedOver {
    Going(Going),
    /// The leader is reaped; members of its group are still dying.
    Lingering(u64, Pid),
}

/// The commands that threads are with, for those who end them.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// None: not spawned yet.
    groups: BTreeMap<u64, Option<Pid>>,
    /// Not wanted any more, whether their orders have been read or not.
    killed: BTreeSet<u64>,
    /// The node is gone.
    closed: bool,
}

impl Held {
    /// False when it is not wanted any more.
    fn begin(&mut self, number: u64) -> bool {
        let wanted = !self.closed && !self.killed.remove(&number);
        if wanted {
            self.groups.insert(number, None);
        }
        wanted
    }

    fn spawned(&mut self, number: u64, group: Pid) {
        self.groups.insert(number, Some(group));
        if self.closed || self.killed.contains(&number) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// It has ended, or somebody else has it now. True when it is not wanted any more.
    pub(super) fn end(&mut self, number: u64) -> bool {
        self.groups.remove(&number);
        self.killed.remove(&number)
    }

    pub(super) fn kill(&mut self, number: u64) {
        self.signal(number, Signal::TERM);
        self.killed.insert(number);
        // A command may have ended before word of its killing came: such numbers never come again.
        if self.killed.len() > limits::SLOTS_MAX as usize {
            self.killed.pop_first();
        }
    }

    pub(super) fn signal(&self, number: u64, signal: Signal) {
        if let Some(Some(group)) = self.groups.get(&number) {
            let _ = kill_process_group(*group, signal);
        }
    }

    /// Nothing starts after this, and what runs is killed.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for number in self.groups.keys() {
            self.signal(*number, Signal::KILL);
        }
    }
}

/// Until the node hangs up.
pub(super) fn run(shared: &Shared) {
    let mut cache = program::Cache::default();
    let mut buffer = vec![0; ORDER_BYTES_MAX];
    loop {
        let flags = rustix::net::RecvFlags::empty();
        match rustix::net::recv(&shared.orders, &mut buffer[..], flags) {
            Ok((0, _)) => return,
            Ok((count, _)) => match decode(&buffer[..count]) {
                Ok(start) => carry_out(shared, &start, &mut cache, &mut buffer),
                // What comes from the node and makes no sense cannot be answered either.
                Err(_) => return shared.hang_up(),
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn decode(bytes: &[u8]) -> io::Result<Start> {
    let start = Start::decode(bytes)?;
    if start.spilled.is_empty() {
        return Ok(start);
    }
    let path = Path::new(&start.spilled);
    let bytes = fs::read(path)?;
    fs::remove_file(path)?;
    Ok(Start::decode(&bytes[..])?)
}

fn carry_out(shared: &Shared, start: &Start, cache: &mut program::Cache, buffer: &mut [u8]) {
    let number = start.number;
    let result = match shared.held().begin(number) {
        true => program::spawn(start, cache),
        false => Err(Failure::new(&io::Error::other("it was killed before it started"))),
    };
    let result = result.and_then(|process| begin(shared, start, process));
    match result {
        Ok(going) => stay(shared, going, buffer),
        Err(failure) => {
            shared.held().end(number);
            shared.report(&Report { output: None, exit: Some(failure.report(start)) });
        }
    }
}

fn begin(shared: &Shared, start: &Start, mut process: Child) -> Result<Going, Failure> {
    let group = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    let group = group.expect("the kernel gives positive process ids");
    shared.held().spawned(start.number, group);
    let exit = match rustix::process::pidfd_open(group, PidfdFlags::empty()) {
        Ok(exit) => exit,
        Err(error) => {
            let _ = kill_process_group(group, Signal::KILL);
            shared.held().end(start.number);
            let _ = process.wait();
            return Err(Failure::new(&error.into()));
        }
    };
    Ok(Going {
        number: start.number,
        started: Instant::now(),
        time_limit_ns: start.time_limit_ns,
        group,
        exit,
        stdout: process.stdout.take().expect("it was asked for"),
        stderr: process.stderr.take().expect("it was asked for"),
    })
}

/// Waits for the end if it comes soon.
fn stay(shared: &Shared, mut going: Going, buffer: &mut [u8]) {
    let number = going.number;
    if !ends_soon(shared, &going) {
        return shared.hand_over(HandedOver::Going(going));
    }
    // From here on its number may come to belong to another group: nobody else signals it.
    shared.held().end(number);
    let (code, signal) = bury(&going.exit, going.group);
    let exit = Exit {
        number,
        code,
        signal,
        stdout: read_rest(&mut going.stdout, buffer),
        stderr: read_rest(&mut going.stderr, buffer),
        ..Exit::default()
    };
    shared.report(&Report { output: None, exit: Some(exit) });
    if !reap_group(going.group) {
        shared.hand_over(HandedOver::Lingering(number, going.group));
    }
}

fn ends_soon(shared: &Shared, going: &Going) -> bool {
    let limit = Duration::from_nanos(going.time_limit_ns);
    let within = |patience: Duration| if limit.is_zero() { patience } else { patience.min(limit) };
    let exit = PollFd::new(&going.exit, PollFlags::IN);
    let mut events = [exit, PollFd::new(&shared.orders, PollFlags::IN)];
    // Orders are looked at in the second wait only: else each would wake every thread.
    wait(&mut events[..1], within(PATIENCE));
    if events[0].revents().is_empty() {
        wait(&mut events, within(IDLE_PATIENCE));
    }
    !events[0].revents().is_empty()
}

fn wait(events: &mut [PollFd<'_>], patience: Duration) {
    let nanoseconds = patience.subsec_nanos().into();
    let timeout = Timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // Interrupted or failed, it says of no file that it is ready.
    if poll(events, Some(&timeout)).is_err() {
        events.iter_mut().for_each(PollFd::clear_revents);
    }
}

/// Kills what is left of the group of a command that ended, then reaps the leader: exit code and
/// signal.
pub(super) fn bury(exit: &OwnedFd, group: Pid) -> (i32, i32) {
    // The leader is not reaped yet: its number cannot belong to another group.
    let _ = kill_process_group(group, Signal::KILL);
    let status = waitid(WaitId::PidFd(exit.as_fd()), WaitIdOptions::EXITED).ok().flatten();
    let code = status.as_ref().and_then(|status| status.exit_status());
    let signal = status.as_ref().and_then(|status| status.terminating_signal());
    // Neither should be unknown; if it is, the command does not count as done.
    (code.unwrap_or_else(|| if signal.is_some() { 0 } else { 255 }), signal.unwrap_or(0))
}

/// What is in the pipe now. A process that left the group may keep it open, and print for ever.
fn read_rest(pipe: &mut (impl Read + AsFd), buffer: &mut [u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    while rest.len() < 4 * limits::STREAM_HELD_BYTES_MAX {
        let mut events = [PollFd::new(pipe, PollFlags::IN)];
        let ready = poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        if !ready.is_ok_and(|_| events[0].revents().contains(PollFlags::IN)) {
            break;
        }
        match pipe.read(buffer) {
            Ok(count) if count > 0 => rest.extend_from_slice(&buffer[..count]),
            _ => break,
        }
    }
    rest
}

/// Tells the node of an end or of output.
impl Shared {
    pub(super) fn report(&self, report: &Report) {
        let mut frame = Vec::new();
        wire::encode(&mut frame, report);
        // An error means that the node is gone; the loop hears that from the socket itself.
        let _ = self.send(&frame);
    }
}
