//! The commands of a spawner: from the order to start them until they are reaped.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child as Process, ChildStderr, ChildStdout};

use proto::limits;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::program::Failure;
use super::wire::{Exit, Output};

/// What an event of the epoll is about.
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
    /// The node does not want it any more.
    killed: bool,
    timed_out: bool,
}

#[derive(Debug)]
struct Spawned {
    group: Pid,
    exit: OwnedFd,
    stdout: Captured<ChildStdout>,
    stderr: Captured<ChildStderr>,
}

/// A pipe and what was read from it and not yet sent.
#[derive(Debug)]
struct Captured<P> {
    pipe: Option<P>,
    held: Vec<u8>,
}

impl<P: Read + AsFd> Captured<P> {
    fn new(pipe: Option<P>) -> Self {
        Self { pipe, held: Vec::new() }
    }

    /// Closing alone is not enough to be forgotten by the epoll: a process that is just being
    /// spawned may still have a copy, and until it runs its program the loop would be woken in
    /// vain.
    fn close(&mut self, epoll: &OwnedFd) {
        if let Some(pipe) = self.pipe.take() {
            let _ = epoll::delete(epoll, &pipe);
        }
    }

    /// Reads once. False when nothing more is to be had now.
    fn read(&mut self, epoll: &OwnedFd, buffer: &mut [u8]) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        match pipe.read(buffer) {
            Ok(count) if count > 0 => {
                self.held.extend_from_slice(&buffer[..count]);
                // A pipe that gave less than was asked for is empty.
                count == buffer.len()
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            _ => {
                self.close(epoll);
                false
            }
        }
    }

    /// What is held, when it is time to send it.
    fn take_if_much(&mut self) -> Option<Vec<u8>> {
        let much = self.held.len() >= limits::STREAM_HELD_BYTES_MAX;
        much.then(|| std::mem::take(&mut self.held))
    }

    /// The rest. A process that left the group may print for ever: only what is there now counts.
    fn drain(&mut self, epoll: &OwnedFd, buffer: &mut [u8]) -> Vec<u8> {
        while self.held.len() < 4 * limits::STREAM_HELD_BYTES_MAX && self.read(epoll, buffer) {}
        self.close(epoll);
        std::mem::take(&mut self.held)
    }
}

#[derive(Debug, Default)]
pub(super) struct Children {
    children: HashMap<u64, Child>,
    /// Groups whose leader was reaped while members were still dying.
    lingering: HashMap<u64, Pid>,
}

impl Children {
    /// An order to start came.
    pub(super) fn expect(&mut self, number: u64) {
        self.children.insert(number, Child::default());
    }

    pub(super) fn forget(&mut self, number: u64) {
        self.children.remove(&number);
    }

    /// Whether it was killed before it started.
    pub(super) fn is_killed(&self, number: u64) -> bool {
        self.children.get(&number).is_none_or(|child| child.killed)
    }

    /// Takes a spawned process in: from here on its end and its output are heard.
    pub(super) fn adopt(
        &mut self,
        epoll: &OwnedFd,
        number: u64,
        mut process: Process,
    ) -> Result<Process, Failure> {
        let group = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        let group = group.expect("the kernel gives positive process ids");
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        let watched = watch(epoll, number, group, stdout.as_ref(), stderr.as_ref());
        let child = self.children.get_mut(&number).expect("an order came before the process");
        match watched {
            Ok(exit) => {
                if child.killed || child.timed_out {
                    // Its grace may have passed while it was being started.
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let (stdout, stderr) = (Captured::new(stdout), Captured::new(stderr));
                child.process = Some(Spawned { group, exit, stdout, stderr });
                Ok(process)
            }
            Err(error) => {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = process.wait();
                Err(Failure::new(&error))
            }
        }
    }

    /// The node wants it ended: politely first.
    pub(super) fn kill_wanted(&mut self, number: u64) {
        if let Some(child) = self.children.get_mut(&number) {
            child.killed = true;
        }
        self.signal(number, Signal::TERM);
    }

    /// Its time is over. False when it has ended already.
    pub(super) fn time_out(&mut self, number: u64) -> bool {
        let Some(child) = self.children.get_mut(&number) else { return false };
        child.timed_out = true;
        self.signal(number, Signal::TERM);
        true
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

    /// Reads what a command printed; what has gathered is returned when it is enough to be sent.
    pub(super) fn read(
        &mut self,
        epoll: &OwnedFd,
        number: u64,
        stderr: bool,
        buffer: &mut [u8],
    ) -> Option<Output> {
        let process = self.children.get_mut(&number)?.process.as_mut()?;
        let data = if stderr {
            process.stderr.read(epoll, buffer);
            process.stderr.take_if_much()
        } else {
            process.stdout.read(epoll, buffer);
            process.stdout.take_if_much()
        };
        data.map(|data| Output { number, stderr, data })
    }

    /// A command ended: its group dies with it. Answers how it ended, and whether the group is
    /// gone.
    pub(super) fn end(
        &mut self,
        epoll: &OwnedFd,
        number: u64,
        buffer: &mut [u8],
    ) -> Option<(Exit, bool)> {
        self.children.get(&number)?.process.as_ref()?;
        let child = self.children.remove(&number).expect("looked at above");
        let mut process = child.process.expect("looked at above");
        // The leader is not reaped yet: its number cannot belong to another group.
        let _ = kill_process_group(process.group, Signal::KILL);
        let status = waitid(WaitId::PidFd(process.exit.as_fd()), WaitIdOptions::EXITED);
        let status = status.ok().flatten();
        let _ = epoll::delete(epoll, &process.exit);
        let code = status.as_ref().and_then(|status| status.exit_status());
        let signal = status.as_ref().and_then(|status| status.terminating_signal());
        let exit = Exit {
            number,
            // Neither should be unknown; if it is, the command does not count as done.
            code: code.unwrap_or_else(|| if signal.is_some() { 0 } else { 255 }),
            signal: signal.unwrap_or(0),
            timed_out: child.timed_out,
            stdout: process.stdout.drain(epoll, buffer),
            stderr: process.stderr.drain(epoll, buffer),
            ..Exit::default()
        };
        self.lingering.insert(number, process.group);
        Some((exit, self.reap_group(number)))
    }

    /// Reaps what is left of a group whose leader is gone. True when nothing is.
    pub(super) fn reap_group(&mut self, number: u64) -> bool {
        let Some(group) = self.lingering.get(&number).copied() else { return true };
        loop {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            match waitid(WaitId::Pgid(Some(group)), options) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => {
                    self.lingering.remove(&number);
                    return true;
                }
            }
        }
    }
}

fn watch(
    epoll: &OwnedFd,
    number: u64,
    process: Pid,
    stdout: Option<&ChildStdout>,
    stderr: Option<&ChildStderr>,
) -> io::Result<OwnedFd> {
    let exit = rustix::process::pidfd_open(process, PidfdFlags::empty())?;
    if let Some(pipe) = stdout {
        rustix::io::ioctl_fionbio(pipe, true)?;
        let token = Token::Stream { number, stderr: false };
        epoll::add(epoll, pipe, token.data(), EventFlags::IN)?;
    }
    if let Some(pipe) = stderr {
        rustix::io::ioctl_fionbio(pipe, true)?;
        let token = Token::Stream { number, stderr: true };
        epoll::add(epoll, pipe, token.data(), EventFlags::IN)?;
    }
    epoll::add(epoll, &exit, Token::Exit(number).data(), EventFlags::IN)?;
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;

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
