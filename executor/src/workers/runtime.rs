//! Runtimes: the programs of workers, and the loaded processes from which workers are forked.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use proto::wire;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::binding::Binding;
use crate::commands::environment::push_variable;
use crate::commands::stage::text_of;
use crate::executor::Shared;

/// The placeholder of the Python worker in the arguments of a runtime.
const WORKER: &str = "{worker}";

/// The state of a runtime on this node.
#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) spec: wire::Runtime,
    pub(super) zygote: Zygote,
    /// Workers are started one by one: the runtime asks for it, or its zygote refuses to fork.
    pub(super) is_direct: bool,
    /// Why its zygote refuses to fork; empty: it does not.
    pub(super) refusal: String,
    /// Consecutive workers that ended before they were ready.
    pub(super) failures: u32,
    /// When its last worker ended.
    pub(super) idle_since: Instant,
}

/// The process that forks the workers of a runtime.
#[derive(Debug)]
pub(super) enum Zygote {
    None,
    /// `is_ready`: it has loaded its modules. `number`: at the spawner.
    Runs {
        socket: OwnedFd,
        number: u64,
        is_ready: bool,
        since: Instant,
        /// It has closed its socket; its end follows.
        closed: Option<Instant>,
        stderr: Vec<u8>,
    },
}

impl Runtime {
    pub(super) fn new(spec: wire::Runtime, now: Instant) -> Self {
        let is_direct = spec.direct;
        let refusal = String::new();
        Self { spec, zygote: Zygote::None, is_direct, refusal, failures: 0, idle_since: now }
    }

    /// The arguments of its program; `worker` is the Python worker of the node.
    pub(super) fn argv(&self, worker: &Path, role: &str) -> Vec<Vec<u8>> {
        let python = ["python3".to_owned(), WORKER.to_owned()];
        let argv = if self.spec.argv.is_empty() { &python[..] } else { &self.spec.argv };
        let worker = text_of(worker);
        let mut argv: Vec<Vec<u8>> =
            argv.iter().map(|argument| argument.replace(WORKER, &worker).into_bytes()).collect();
        argv.push(role.as_bytes().to_vec());
        argv
    }

    /// Whether it sets this variable itself.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.spec.env.iter().any(|variable| variable.name == name)
    }

    /// The variables that its processes have besides those of the node.
    pub(super) fn environment(
        &self,
        shared: &Shared,
        results: &Path,
        binding: &Binding,
    ) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        push_variable(&mut out, "STARLING_WORKER_OBJECTS", &text_of(results));
        if !self.spec.preload.is_empty() {
            push_variable(&mut out, "STARLING_WORKER_PRELOAD", &self.spec.preload.join(","));
        }
        push_variable(&mut out, "STARLING_NODE", &shared.config.node.0.to_string());
        for (name, value) in binding.variables_in(self) {
            push_variable(&mut out, &name, &value);
        }
        if let Some(dir) = &shared.config.instance_dir {
            push_variable(&mut out, "STARLING_DIR", &text_of(dir));
        }
        if !self.spec.directory.is_empty() {
            let own = self.spec.env.iter().rev().find(|variable| variable.name == "PYTHONPATH");
            let inherited = std::env::var("PYTHONPATH").ok();
            let rest = own.map(|variable| variable.value.clone()).or(inherited);
            let rest = rest.filter(|rest| !rest.is_empty());
            let path = match rest {
                Some(rest) => format!("{}:{rest}", self.spec.directory),
                None => self.spec.directory.clone(),
            };
            push_variable(&mut out, "PYTHONPATH", &path);
        }
        for variable in self.spec.env.iter().filter(|variable| variable.name != "PYTHONPATH") {
            push_variable(&mut out, &variable.name, &variable.value);
        }
        out
    }
}

/// The two ends of a zygote's socket: the node's, and the zygote's.
pub(super) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// The next packet of a zygote; `None`: there is none now. No bytes: it has ended.
pub(super) fn read_packet(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT) {
        Ok((_, count)) => Ok(Some(count)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Asks a zygote for a worker with these variables and descriptors.
pub(super) fn send_fork(
    socket: &OwnedFd,
    seq: u64,
    variables: &[(String, String)],
    theirs: &super::files::TheirEnds,
) -> io::Result<()> {
    let packet = super::wire::fork_packet(seq, variables);
    crate::spawner::descriptors::send_with(socket.as_fd(), &packet, &theirs.fds())
}

/// The numbers of runtimes by their bytes.
#[derive(Debug, Default)]
pub(super) struct RuntimeNumbers(HashMap<Vec<u8>, usize>);

impl RuntimeNumbers {
    /// The number of a runtime, and whether it is new.
    pub(super) fn of(&mut self, spec: &wire::Runtime) -> (usize, bool) {
        let next = self.0.len();
        let number = *self.0.entry(prost::Message::encode_to_vec(spec)).or_insert(next);
        (number, number == next)
    }
}
