//! One worker as its node sees it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::binding::Binding;
use super::call::Call;
use super::files::WorkerFiles;
use super::wire::{FunctionId, Incoming, Outgoing, Value};
use crate::commands::resources::memory_limit_bytes;
use crate::spawner::memory::private_bytes;
use crate::spawner::starter::Starter;

/// The maximum of functions that a worker keeps.
const FUNCTIONS_MAX: usize = 256;

/// The stage of a worker's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It has not sent its first record.
    Starting,
    Ready,
    /// It was asked to end, or has closed its pipe.
    Ending,
}

/// The reason why the node ends a worker, or interrupts its call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// Nothing needs its call any more.
    Cancelled,
    Time,
    /// With the text of the error.
    Failure(String),
}

/// The runtime and the resources of a worker.
pub(super) type WorkerType = (usize, Option<Arc<Binding>>);

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) runtime: usize,
    /// The resources beside cpus and memory that it was started with.
    pub(super) binding: Option<Arc<Binding>>,
    pub(super) stage: Stage,
    pub(super) was_ready: bool,
    /// Its private memory when it was ready.
    pub(super) ready_bytes: u64,
    /// Its first call has been told why it was not forked.
    pub(super) told_direct: bool,
    pub(super) files: WorkerFiles,
    /// Of the worker process, once it is known.
    pub(super) pid: Option<Pid>,
    pidfd: Option<OwnedFd>,
    /// Its number at the spawner, if it is not forked from a zygote.
    pub(super) number: Option<u64>,
    /// The calls in its hands; it runs the first.
    pub(super) calls: VecDeque<Box<Call>>,
    functions: VecDeque<FunctionId>,
    pub(super) outgoing: Outgoing,
    /// Bytes that the pipe did not take.
    unsent: Vec<u8>,
    pub(super) incoming: Incoming,
    pub(super) since: Instant,
    /// The first call was interrupted then, for this reason.
    pub(super) interrupted: Option<(Instant, Why)>,
    /// The status of `waitpid`, once it is known.
    pub(super) status: Option<i32>,
    /// It has closed its pipe then, or has ended: the record of a worker ends soon after that, even
    /// if another process holds the pipe open.
    pub(super) closed: Option<Instant>,
}

impl Worker {
    pub(super) fn new((runtime, binding): WorkerType, files: WorkerFiles, now: Instant) -> Self {
        Self {
            runtime,
            binding,
            stage: Stage::Starting,
            was_ready: false,
            ready_bytes: 0,
            told_direct: false,
            files,
            pid: None,
            pidfd: None,
            number: None,
            calls: VecDeque::new(),
            functions: VecDeque::new(),
            outgoing: Outgoing::default(),
            unsent: Vec::new(),
            incoming: Incoming::default(),
            since: now,
            interrupted: None,
            status: None,
            closed: None,
        }
    }

    /// Whether it may serve the call, as far as runtime and resources are concerned.
    pub(super) fn is_for(&self, call: &Call) -> bool {
        self.is_of(call.runtime, call.binding.as_ref())
    }

    pub(super) fn is_of(&self, runtime: usize, binding: Option<&Arc<Binding>>) -> bool {
        self.runtime == runtime && self.binding.as_ref() == binding
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Ready && self.calls.is_empty()
    }

    /// Its process has this number.
    pub(super) fn name(&mut self, pid: i32) {
        if self.pid.is_none() {
            self.pid = Pid::from_raw(pid).filter(|_| pid > 1);
            self.pidfd = self.pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        }
    }

    /// Adds a function to the outgoing records, unless the worker has it.
    pub(super) fn bring_function(&mut self, id: &FunctionId, value: &Value<'_>) {
        if self.functions.contains(id) {
            return;
        }
        if self.functions.len() >= FUNCTIONS_MAX
            && let Some(oldest) = self.functions.pop_front()
        {
            self.outgoing.drop_function(&oldest);
        }
        self.outgoing.function(id, value);
        self.functions.push_back(*id);
    }

    /// Writes the outgoing records as far as the pipe takes them. True if some are left.
    pub(super) fn write(&mut self) -> bool {
        let new = self.outgoing.take();
        if self.unsent.is_empty() {
            self.unsent = new;
        } else {
            self.unsent.extend_from_slice(&new);
        }
        while !self.unsent.is_empty() {
            match rustix::io::write(&self.files.to_worker, &self.unsent) {
                Ok(count) if count == self.unsent.len() => self.unsent.clear(),
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                // It has ended; the end of its own pipe is handled.
                Err(_) => self.unsent.clear(),
            }
        }
        false
    }

    /// Reads what is there. False: the worker has closed the pipe.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> bool {
        loop {
            match rustix::io::read(&self.files.from_worker, &mut *buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    self.incoming.push(&buffer[..count]);
                    if count < buffer.len() {
                        return true;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Sends SIGINT for its running call.
    pub(super) fn interrupt(&mut self, why: Why, now: Instant) -> io::Result<()> {
        let Some(call) = self.calls.front() else { return Ok(()) };
        self.interrupted = Some((now, why));
        self.files.name_interrupted(call.number)?;
        match &self.pidfd {
            Some(process) => Ok(pidfd_send_signal(process.as_fd(), Signal::INT)?),
            None => Ok(()),
        }
    }

    /// Kills its process group. The end of its pipe follows. The spawner kills a worker that it
    /// started and that has not named its process yet.
    pub(super) fn kill(&mut self, starter: Option<&mut Starter>) {
        self.stage = Stage::Ending;
        if self.pid.is_none()
            && let Some(number) = self.number
            && let Some(starter) = starter
        {
            starter.kill(number);
        }
        if let Some(process) = &self.pidfd {
            // The descriptor never names another process.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        if let Some(pid) = self.pid.filter(|_| self.status.is_none()) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    /// The private bytes of its process: mapped inputs are not its own.
    pub(super) fn private_bytes(&self) -> Option<u64> {
        private_bytes(self.pid?.as_raw_nonzero().get())
    }

    /// The sum of the limits of its calls, in bytes; 0: none. Calls that wait in the same process
    /// use memory as well.
    pub(super) fn memory_limit_bytes(&self) -> u64 {
        let limits = self.calls.iter().map(|call| memory_limit_bytes(&call.launch));
        let is_limited = limits.clone().all(|limit| limit > 0);
        if is_limited { limits.fold(0, u64::saturating_add) } else { 0 }
    }

    /// Whether earlier calls have left more memory in it than this call may use, and a new worker
    /// has room for it.
    pub(super) fn is_too_large_for(&self, call: &Call) -> bool {
        let limit_bytes = memory_limit_bytes(&call.launch);
        let is_larger = |bytes: u64| bytes > limit_bytes;
        self.ready_bytes < limit_bytes && self.private_bytes().is_some_and(is_larger)
    }
}
