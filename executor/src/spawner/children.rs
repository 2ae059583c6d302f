//! The commands that the loop of a spawner hears: those that go on for longer than a moment.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStderr, ChildStdout};

use proto::limits;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::reason;

use super::wire::{Exit, Output};
use super::worker::{self, Going};

/// What an event of the epoll is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Socket,
    /// Workers have handed something over.
    Wake,
    Stream {
        number: u64,
        stderr: bool,
    },
    Exit(u64),
}

impl Token {
    pub(super) fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Socket => 0,
            Self::Wake => 4,
            Self::Exit(number) => number << 2 | 1,
            Self::Stream { number, stderr } => number << 2 | 2 | u64::from(stderr),
        })
    }

    pub(super) fn of(data: EventData) -> Self {
        let data = data.u64();
        let number = data >> 2;
        match data & 3 {
            0 if number == 0 => Self::Socket,
            0 => Self::Wake,
            1 => Self::Exit(number),
            kind => Self::Stream { number, stderr: kind == 3 },
        }
    }
}

/// One command.
#[derive(Debug)]
struct Child {
    group: Pid,
    exit: OwnedFd,
    stdout: Captured<ChildStdout>,
    stderr: Captured<ChildStderr>,
    timed_out: bool,
}

/// A pipe and what was read from it and not yet sent.
#[derive(Debug)]
struct Captured<P> {
    pipe: Option<P>,
    held: Vec<u8>,
}

impl<P: Read + AsFd> Captured<P> {
    fn new(pipe: P) -> Self {
        Self { pipe: Some(pipe), held: Vec::new() }
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
    /// Takes a command in: from here on its end and its output are heard.
    pub(super) fn adopt(
        &mut self,
        epoll: &OwnedFd,
        going: Going,
        killed: bool,
    ) -> Result<(), Exit> {
        let Going { number, group, exit, stdout, stderr, .. } = going;
        if let Err(error) = watch(epoll, number, &exit, &stdout, &stderr) {
            let _ = kill_process_group(group, Signal::KILL);
            worker::bury(&exit, group);
            self.linger(number, group);
            let failure = format!("its output cannot be heard: {}", reason(&error));
            return Err(Exit { number, code: 126, failure, ..Exit::default() });
        }
        if killed {
            // Its grace began with the wish, which may have come before there was a group to tell.
            let _ = kill_process_group(group, Signal::TERM);
        }
        let (stdout, stderr) = (Captured::new(stdout), Captured::new(stderr));
        self.children.insert(number, Child { group, exit, stdout, stderr, timed_out: false });
        Ok(())
    }

    /// Remembers a group whose leader is gone and whose members are still dying.
    pub(super) fn linger(&mut self, number: u64, group: Pid) {
        self.lingering.insert(number, group);
    }

    /// The node wants it ended: politely first. False when it is not here.
    pub(super) fn kill_wanted(&mut self, number: u64) -> bool {
        self.signal(number, Signal::TERM);
        self.children.contains_key(&number)
    }

    /// Its time is over. False when it has ended already.
    pub(super) fn time_out(&mut self, number: u64) -> bool {
        let Some(child) = self.children.get_mut(&number) else { return false };
        child.timed_out = true;
        self.signal(number, Signal::TERM);
        true
    }

    pub(super) fn signal(&self, number: u64, signal: Signal) {
        if let Some(child) = self.children.get(&number) {
            let _ = kill_process_group(child.group, signal);
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
        let process = self.children.get_mut(&number)?;
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
        let mut child = self.children.remove(&number)?;
        let (code, signal) = worker::bury(&child.exit, child.group);
        let _ = epoll::delete(epoll, &child.exit);
        let exit = Exit {
            number,
            code,
            signal,
            timed_out: child.timed_out,
            stdout: child.stdout.drain(epoll, buffer),
            stderr: child.stderr.drain(epoll, buffer),
            ..Exit::default()
        };
        self.linger(number, child.group);
        Some((exit, self.reap_group(number)))
    }

    /// Reaps what is left of a group whose leader is gone. True when nothing is.
    pub(super) fn reap_group(&mut self, number: u64) -> bool {
        let gone = self.lingering.get(&number).is_none_or(|group| super::reap_group(*group));
        if gone {
            self.lingering.remove(&number);
        }
        gone
    }
}

fn watch(
    epoll: &OwnedFd,
    number: u64,
    exit: &OwnedFd,
    stdout: &ChildStdout,
    stderr: &ChildStderr,
) -> io::Result<()> {
    rustix::io::ioctl_fionbio(stdout, true)?;
    rustix::io::ioctl_fionbio(stderr, true)?;
    let token = |stderr| Token::Stream { number, stderr }.data();
    epoll::add(epoll, stdout, token(false), EventFlags::IN)?;
    epoll::add(epoll, stderr, token(true), EventFlags::IN)?;
    epoll::add(epoll, exit, Token::Exit(number).data(), EventFlags::IN)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        let number = u64::MAX >> 2;
        for token in [
            Token::Socket,
            Token::Wake,
            Token::Exit(number),
            Token::Exit(0),
            Token::Stream { number, stderr: true },
            Token::Stream { number: 0, stderr: false },
        ] {
            assert_eq!(Token::of(token.data()), token);
        }
    }
}
