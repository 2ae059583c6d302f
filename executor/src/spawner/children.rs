//! The commands of a spawner, from the start order until they are reaped.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::memory::{Measured, Resident};
use super::notice::{EarlyNotices, Notice};
use super::orphans::Running;
use super::program::{Failure, Process};
use super::reap;
use super::wire::{Exit, Output, Start};
use crate::limits::STREAM_HELD_BYTES_MAX;

/// The source of an event of the epoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Socket,
    Stream { number: u64, stderr: bool },
    Exit(u64),
}

impl Token {
    pub(super) fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Socket => 0,
            Self::Exit(number) => number << 2 | 1,
            Self::Stream { number, stderr } => number << 2 | 2 | u64::from(stderr),
        })
    }

    pub(super) fn of(data: EventData) -> Self {
        let data = data.u64();
        let number = data >> 2;
        match data & 3 {
            0 => Self::Socket,
            1 => Self::Exit(number),
            kind => Self::Stream { number, stderr: kind == 3 },
        }
    }
}

/// One command.
#[derive(Debug, Default)]
struct Child {
    /// None until it is spawned.
    process: Option<Spawned>,
    /// The node has asked for its end.
    killed: bool,
    timed_out: bool,
    limit: TimeLimit,
    memory: MemoryLimit,
    /// The commands that share the memory limit.
    memory_group: Vec<u8>,
    /// The mark in its environment, by which processes outside its group are found.
    mark: Vec<u8>,
    print: PrintedBytes,
    /// The signal before an end; `None`: it gets none.
    notice: Option<Notice>,
}

/// The time limit of a command. Time without a slot does not count.
#[derive(Clone, Copy, Debug, Default)]
struct TimeLimit {
    /// `None`: there is no limit.
    ends: Option<Instant>,
    waits_since: Option<Instant>,
}

impl TimeLimit {
    fn begin(limit_ns: u64) -> Self {
        let limit = Duration::from_nanos(limit_ns);
        let ends = (limit_ns > 0).then(|| Instant::now().checked_add(limit)).flatten();
        Self { ends, waits_since: None }
    }

    /// Stops or continues the clock. Returns the time that is left if it continues.
    fn set_waiting(&mut self, waits: bool, now: Instant) -> Option<Duration> {
        if waits {
            self.waits_since.get_or_insert(now);
            return None;
        }
        let waited = now.saturating_duration_since(self.waits_since.take()?);
        let ends = self.ends?.checked_add(waited);
        self.ends = ends;
        Some(ends?.saturating_duration_since(now))
    }

    fn waits(&self) -> bool {
        self.waits_since.is_some()
    }

    /// An alarm of an earlier end, before the clock stood still, does not count.
    fn is_over(&self, now: Instant) -> bool {
        self.waits_since.is_none() && self.ends.is_none_or(|ends| ends <= now)
    }
}

/// The memory limit of a command, the resident bytes that exceeded it, and the largest sum.
#[derive(Clone, Copy, Debug, Default)]
struct MemoryLimit {
    /// 0: none.
    limit_bytes: u64,
    exceeded_bytes: u64,
    peak_bytes: u64,
}

/// The bytes that a command has printed, and its limit.
#[derive(Debug, Default)]
struct PrintedBytes {
    bytes: u64,
    limit_bytes: u64,
}

impl PrintedBytes {
    /// Counts further printed bytes. Returns the number of those beyond the limit.
    fn add(&mut self, bytes: usize) -> usize {
        self.bytes += bytes as u64;
        let surplus = self.bytes.saturating_sub(self.limit_bytes);
        usize::try_from(surplus).unwrap_or(usize::MAX).min(bytes)
    }

    fn is_too_much(&self) -> bool {
        self.bytes > self.limit_bytes
    }
}

#[derive(Debug)]
struct Spawned {
    group: Pid,
    /// Open while its end is an event of the epoll.
    _exit: OwnedFd,
    stdout: Captured,
    stderr: Captured,
}

/// The time for which a command runs unwatched: see [`Children::watch_lasting`].
pub(super) const UNWATCHED: Duration = Duration::from_millis(5);

/// A pipe, and the bytes that were read from it and not yet sent.
#[derive(Debug)]
struct Captured {
    pipe: Option<OwnedFd>,
    watched: bool,
    held: Vec<u8>,
}

impl Captured {
    fn new(pipe: OwnedFd) -> Self {
        Self { pipe: Some(pipe), watched: false, held: Vec::new() }
    }

    fn watch(&mut self, epoll: &OwnedFd, token: Token) -> io::Result<()> {
        if let Some(pipe) = &self.pipe
            && !self.watched
        {
            epoll::add(epoll, pipe, token.data(), EventFlags::IN)?;
            self.watched = true;
        }
        Ok(())
    }

    /// Removes the pipe from the epoll, which closing alone may not do. A process that is just
    /// being spawned may still have a copy, and until it runs its program, events would wake the
    /// loop.
    fn close(&mut self, epoll: &OwnedFd) {
        if let Some(pipe) = self.pipe.take()
            && self.watched
        {
            let _ = epoll::delete(epoll, &pipe);
        }
    }

    /// Reads once; waits if there is nothing. Bytes beyond the limit are dropped.
    fn read(&mut self, epoll: &OwnedFd, print: &mut PrintedBytes, buffer: &mut [u8]) {
        let Some(pipe) = &self.pipe else { return };
        match rustix::io::read(pipe, &mut *buffer) {
            Ok(count) if count > 0 => {
                let surplus = print.add(count);
                self.held.extend_from_slice(&buffer[..count - surplus]);
            }
            Err(Errno::INTR) => {}
            _ => self.close(epoll),
        }
    }

    /// The held bytes, if there are enough to send.
    fn take_if_much(&mut self) -> Option<Vec<u8>> {
        let much = self.held.len() >= STREAM_HELD_BYTES_MAX;
        much.then(|| std::mem::take(&mut self.held))
    }

    /// Reads the rest. A process outside the group may print forever, so only present bytes count.
    fn drain(&mut self, epoll: &OwnedFd, print: &mut PrintedBytes, buffer: &mut [u8]) -> Vec<u8> {
        while self.held.len() < 4 * STREAM_HELD_BYTES_MAX
            && !print.is_too_much()
            && self
                .pipe
                .as_ref()
                .is_some_and(|pipe| rustix::io::ioctl_fionread(pipe).is_ok_and(|count| count > 0))
        {
            self.read(epoll, print, buffer);
        }
        self.close(epoll);
        std::mem::take(&mut self.held)
    }
}

#[derive(Debug, Default)]
pub(super) struct Children {
    children: HashMap<u64, Child>,
    /// Start orders without a process so far.
    expected: usize,
    /// Processes with unwatched output, and since when.
    unwatched: VecDeque<(Instant, u64)>,
    /// Groups that still have members after their leader was reaped.
    lingering: HashMap<u64, Pid>,
    early_notices: EarlyNotices,
}

impl Children {
    /// Commands that were ordered and have not ended.
    pub(super) fn len(&self) -> usize {
        self.children.len()
    }

    /// Registers a start order.
    pub(super) fn expect(&mut self, start: &Start) {
        let (number, mark) = (start.number, start.mark.clone());
        let print = PrintedBytes { bytes: 0, limit_bytes: start.print_limit_bytes };
        let limit = TimeLimit::begin(start.time_limit_ns);
        let memory = MemoryLimit { limit_bytes: start.memory_limit_bytes, ..Default::default() };
        let mut notice = Notice::of(start);
        if let Some(notice) = &mut notice {
            notice.is_due = self.early_notices.take(number);
        }
        let memory_group = start.memory_group.clone();
        let child = Child { mark, print, limit, memory, memory_group, notice, ..Child::default() };
        self.children.insert(number, child);
        self.expected += 1;
    }

    /// Removes an order that led to no process.
    pub(super) fn forget(&mut self, number: u64) {
        self.children.remove(&number);
        self.expected -= 1;
    }

    /// True if it was killed before it started.
    pub(super) fn is_killed(&self, number: u64) -> bool {
        self.children.get(&number).is_none_or(|child| child.killed)
    }

    /// Registers a spawned process: from now on its end is an event.
    pub(super) fn adopt(
        &mut self,
        epoll: &OwnedFd,
        number: u64,
        process: Process,
    ) -> Result<(), Failure> {
        let child = self.children.get_mut(&number).expect("an order came before the process");
        // One-shot, so no removal is needed. Closing the descriptor removes it, or the later close
        // of a copy in a process that is just being spawned.
        let once = EventFlags::IN | EventFlags::ONESHOT;
        if let Err(error) = epoll::add(epoll, &process.exit, Token::Exit(number).data(), once) {
            let _ = kill_process_group(process.group, Signal::KILL);
            let _ = waitid(WaitId::PidFd(process.exit.as_fd()), WaitIdOptions::EXITED);
            return Err(Failure::new(&error.into()));
        }
        self.expected -= 1;
        self.unwatched.push_back((Instant::now(), number));
        if child.killed || child.timed_out {
            // The grace period may have passed during the start.
            let _ = kill_process_group(process.group, Signal::KILL);
        }
        let Process { group, exit, stdout, stderr } = process;
        let (stdout, stderr) = (Captured::new(stdout), Captured::new(stderr));
        child.process = Some(Spawned { group, _exit: exit, stdout, stderr });
        if child.notice.is_some_and(|notice| notice.is_due) {
            self.give_notice(number);
        }
        Ok(())
    }

    /// Watches the output of commands that have run for `UNWATCHED`. A shorter command has ended by
    /// then, with its output in its pipes, and the close of the pipes does not wake the loop again.
    /// A command that fills its pipe earlier waits for this once. Returns whether there will be
    /// something to watch.
    pub(super) fn watch_lasting(&mut self, epoll: &OwnedFd) -> bool {
        while let Some(&(since, number)) = self.unwatched.front() {
            if since.elapsed() < UNWATCHED {
                break;
            }
            let child = self.children.get_mut(&number);
            if let Some(process) = child.and_then(|child| child.process.as_mut()) {
                let token = |stderr| Token::Stream { number, stderr };
                let watched = process.stdout.watch(epoll, token(false));
                if watched.and_then(|()| process.stderr.watch(epoll, token(true))).is_err() {
                    break; // No memory at present; a later call tries again.
                }
            }
            self.unwatched.pop_front();
        }
        self.expected > 0 || !self.unwatched.is_empty()
    }

    /// Ends a command at the node's request: SIGTERM first.
    pub(super) fn kill_wanted(&mut self, number: u64) {
        if let Some(child) = self.children.get_mut(&number) {
            child.killed = true;
        }
        self.signal(number, Signal::TERM);
    }

    /// A command begins to wait without a slot, or goes on. Returns the time until its limit if the
    /// limit must be watched again.
    pub(super) fn set_waiting(
        &mut self,
        number: u64,
        waits: bool,
        now: Instant,
    ) -> Option<Duration> {
        let child = self.children.get_mut(&number)?;
        if let Some(notice) = child.notice.as_mut().filter(|_| !waits && child.limit.waits()) {
            notice.is_given = false; // It goes on as the next attempt, which gets its signal too.
        }
        child.limit.set_waiting(waits, now)
    }

    /// Handles the end of a command's time limit. False if it has ended already, or if the limit is
    /// a later one.
    pub(super) fn time_out(&mut self, number: u64, now: Instant) -> bool {
        let Some(child) = self.children.get_mut(&number) else { return false };
        if !child.limit.is_over(now) {
            return false;
        }
        child.timed_out = true;
        self.signal(number, Signal::TERM);
        true
    }

    /// The command gets its signal, once.
    pub(super) fn give_notice(&mut self, number: u64) {
        let Some(child) = self.children.get_mut(&number) else {
            return self.early_notices.add(number);
        };
        let Some(notice) = child.notice.as_mut().filter(|notice| !notice.is_given) else { return };
        notice.is_due = true;
        if let Some(process) = &child.process {
            let _ = kill_process_group(process.group, notice.signal());
            (notice.is_due, notice.is_given) = (false, true);
        }
    }

    /// The command gets its signal if its time limit is near.
    pub(super) fn give_notice_of_limit(&mut self, number: u64, now: Instant) {
        let Some(child) = self.children.get(&number) else { return };
        let Some((ends, notice)) = child.limit.ends.zip(child.notice) else { return };
        let is_near = notice.wait(ends.saturating_duration_since(now)).is_zero();
        if is_near && !child.limit.waits() {
            self.give_notice(number);
        }
    }

    /// How long a command that has this time left waits for its signal.
    pub(super) fn notice_wait(&self, number: u64, left: Duration) -> Option<Duration> {
        let notice = self.children.get(&number)?.notice.filter(|notice| !notice.is_given)?;
        Some(notice.wait(left))
    }

    /// Whether some command has a memory limit.
    pub(super) fn has_memory_limits(&self) -> bool {
        self.children.values().any(|child| child.memory.limit_bytes > 0)
    }

    /// All running commands, for the measurement of their memory.
    pub(super) fn measured(&self) -> Vec<Measured> {
        let running = self.children.iter().filter_map(|(&number, child)| {
            let group = child.process.as_ref()?.group.as_raw_nonzero().get();
            let (mark, memory_group) = (child.mark.clone(), child.memory_group.clone());
            Some(Measured { number, group, mark, memory_group })
        });
        running.collect()
    }

    /// Kills the commands with more resident memory than their limits.
    pub(super) fn enforce_memory(&mut self, residents: &HashMap<u64, Resident>) {
        for (number, resident) in residents {
            let Some(child) = self.children.get_mut(number) else { continue };
            let (Some(process), memory) = (&child.process, &mut child.memory) else { continue };
            memory.peak_bytes = memory.peak_bytes.max(resident.bytes);
            if memory.limit_bytes > 0 && resident.bytes > memory.limit_bytes {
                memory.exceeded_bytes = memory.exceeded_bytes.max(resident.bytes);
                let _ = kill_process_group(process.group, Signal::KILL);
                resident.kill_outside();
            }
        }
    }

    pub(super) fn signal(&self, number: u64, signal: Signal) {
        if let Some(Child { process: Some(process), .. }) = self.children.get(&number) {
            let _ = kill_process_group(process.group, signal);
        }
    }

    pub(super) fn signal_all(&self, signal: Signal) {
        for number in self.children.keys() {
            self.signal(*number, signal);
        }
    }

    /// Reads the output of a command. Returns the held bytes if there are enough to send, and
    /// whether the output has just exceeded its limit.
    pub(super) fn read(
        &mut self,
        epoll: &OwnedFd,
        number: u64,
        stderr: bool,
        buffer: &mut [u8],
    ) -> (Option<Output>, bool) {
        let Some(Child { process: Some(process), print, .. }) = self.children.get_mut(&number)
        else {
            return (None, false);
        };
        let was_too_much = print.is_too_much();
        let captured = if stderr { &mut process.stderr } else { &mut process.stdout };
        captured.read(epoll, print, buffer);
        let output = captured.take_if_much().map(|data| Output { number, stderr, data });
        let is_news = print.is_too_much() && !was_too_much;
        if is_news {
            self.signal(number, Signal::TERM);
        }
        (output, is_news)
    }

    /// Takes the output of running commands that is in memory.
    pub(super) fn take_held(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        for (&number, child) in &mut self.children {
            let Some(process) = &mut child.process else { continue };
            for (stderr, captured) in [(false, &mut process.stdout), (true, &mut process.stderr)] {
                if !captured.held.is_empty() {
                    let data = std::mem::take(&mut captured.held);
                    outputs.push(Output { number, stderr, data });
                }
            }
        }
        outputs
    }

    /// Handles the end of a command: kills its group. Returns its exit, and whether the group is
    /// gone.
    pub(super) fn end(
        &mut self,
        epoll: &OwnedFd,
        number: u64,
        buffer: &mut [u8],
    ) -> Option<(Exit, bool)> {
        self.children.get(&number)?.process.as_ref()?;
        let mut child = self.children.remove(&number).expect("looked at above");
        let mut process = child.process.take().expect("looked at above");
        // The leader is not reaped yet, so its number cannot belong to another group.
        let _ = kill_process_group(process.group, Signal::KILL);
        let reap::End { code, signal, used } = reap::reap(process.group);
        let exit = Exit {
            number,
            // If both are unknown, which should not happen, the command counts as failed.
            code: code.unwrap_or_else(|| if signal.is_some() { 0 } else { 255 }),
            signal: signal.unwrap_or(0),
            timed_out: child.timed_out,
            signalled: child.notice.is_some_and(Notice::is_signalled),
            memory_bytes: child.memory.exceeded_bytes,
            cpu_us: used.cpu_us,
            max_rss_kib: used.max_rss_kib.max(child.memory.peak_bytes >> 10),
            stdout: process.stdout.drain(epoll, &mut child.print, buffer),
            stderr: process.stderr.drain(epoll, &mut child.print, buffer),
            ..Exit::default()
        };
        let PrintedBytes { bytes, .. } = child.print;
        let printed_too_much_bytes = if child.print.is_too_much() { bytes } else { 0 };
        let exit = Exit { printed_too_much_bytes, ..exit };
        self.lingering.insert(number, process.group);
        Some((exit, self.reap_group(number)))
    }

    /// Reaps the rest of a group after the end of its leader. True if no member is left.
    pub(super) fn reap_group(&mut self, number: u64) -> bool {
        let Some(group) = self.lingering.get(&number).copied() else { return true };
        loop {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            match waitid(WaitId::Pgid(Some(group)), options) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => {
                    self.lingering.remove(&number);
                    return true;
                }
            }
        }
    }
}

impl Running for Children {
    fn by_mark(&self, mark: &[u8]) -> Option<u64> {
        self.children.iter().find(|(_, child)| child.mark == mark).map(|(number, _)| *number)
    }
    fn by_group(&self, group: Pid) -> Option<u64> {
        let is_it = |child: &Child| child.process.as_ref().is_some_and(|it| it.group == group);
        self.children.iter().find(|(_, child)| is_it(child)).map(|(number, _)| *number)
    }
    fn runs(&self, number: u64) -> bool {
        self.children.contains_key(&number)
    }
    fn is_empty(&self) -> bool {
        self.children.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_limit_are_distinguished() {
        let mut print = PrintedBytes { bytes: 0, limit_bytes: 10 };
        assert_eq!((print.add(10), print.is_too_much()), (0, false));
        assert_eq!((print.add(3), print.is_too_much()), (3, true));
        assert_eq!((print.add(4), print.bytes), (4, 17));
        let mut print = PrintedBytes { bytes: 8, limit_bytes: 10 };
        assert_eq!((print.add(5), print.bytes), (3, 13));
    }

    #[test]
    fn the_time_limit_stands_still_while_a_command_waits() {
        let (start, s) = (Instant::now(), Duration::from_secs);
        let mut limit = TimeLimit { ends: Some(start + s(10)), waits_since: None };
        assert!(!limit.is_over(start + s(9)) && limit.is_over(start + s(10)));
        assert_eq!(limit.set_waiting(true, start + s(4)), None);
        assert_eq!(limit.set_waiting(true, start + s(5)), None); // Repeated.
        assert!(!limit.is_over(start + s(10)));
        assert_eq!(limit.set_waiting(false, start + s(104)), Some(s(6)));
        assert_eq!(limit.set_waiting(false, start + s(105)), None);
        assert!(!limit.is_over(start + s(109)) && limit.is_over(start + s(110)));
        let mut none = TimeLimit::begin(0);
        assert_eq!(none.set_waiting(true, start), None);
        assert_eq!(none.set_waiting(false, start + s(1)), None);
    }

    #[test]
    fn a_command_that_goes_on_after_a_wait_gets_its_signal_again() {
        let mut children = Children::default();
        children.expect(&Start { number: 1, notice_signal: 10, ..Start::default() });
        let notice = children.children.get_mut(&1).and_then(|child| child.notice.as_mut());
        notice.expect("it has one").is_given = true;
        let (now, left) = (Instant::now(), Duration::from_secs(1));
        for waits in [false, true] {
            children.set_waiting(1, waits, now);
            assert_eq!(children.notice_wait(1, left), None, "it has got it");
        }
        children.set_waiting(1, false, now);
        assert_eq!(children.notice_wait(1, left), Some(left));
    }

    #[test]
    fn tokens_round_trip() {
        let number = u64::MAX >> 2;
        for token in [
            Token::Socket,
            Token::Exit(number),
            Token::Exit(0),
            Token::Stream { number, stderr: true },
            Token::Stream { number: 0, stderr: false },
        ] {
            assert_eq!(Token::of(token.data()), token);
        }
    }
}
