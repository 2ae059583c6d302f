//! A spawner of its own beside the spawner of the commands of tasks: for zygotes and workers, and
//! for the commands that `starling rsh` starts. It kills them when the node dies.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

use rustix::process::Pid;

use crate::commands::orphan_processes;
use crate::executor::ExecutorConfig;
use crate::spawner::descriptors::send_with;
use crate::spawner::process;
use crate::spawner::wire::{self, Frames, Report, SpawnerRequest, Start};

/// The bytes that one read takes.
const READ_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Starter {
    child: Child,
    socket: UnixStream,
    frames: Frames,
    /// The mark of all its processes.
    mark: String,
    next: u64,
}

/// A process that the spawner starts.
#[derive(Debug, Default)]
pub(crate) struct Program<'a> {
    pub(crate) argv: Vec<Vec<u8>>,
    pub(crate) environment: Vec<Vec<u8>>,
    pub(crate) directory: &'a str,
    /// Descriptors, each with its number in the program.
    pub(crate) fds: &'a [(BorrowedFd<'a>, u32)],
    /// The program is killed if its process group has more resident memory. 0: no limit.
    pub(crate) memory_limit_bytes: u64,
    /// Programs with this word share the limit. Empty: the program has it alone.
    pub(crate) memory_group: Vec<u8>,
    /// The program runs on these cpus alone. None: on those of the node.
    pub(crate) cpus: Vec<u32>,
}

impl Starter {
    /// `what`: a word in the marks of its processes.
    pub(crate) fn start(config: &ExecutorConfig, what: &str) -> Result<Self, String> {
        let (child, socket) = process::start(config, None)?;
        socket.set_read_timeout(None).map_err(|error| error.to_string())?;
        let mark = match config.mark.is_empty() {
            true => String::new(),
            false => format!("{}:{what}", config.mark),
        };
        Ok(Self { child, socket, frames: Frames::default(), mark, next: 0 })
    }

    /// A request that cannot be written for this long fails.
    pub(crate) fn limit_writes(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_write_timeout(Some(timeout))
    }

    /// The number of the next program.
    pub(crate) fn next_number(&self) -> u64 {
        self.next + 1
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Starts a program; returns its number in reports.
    pub(crate) fn run(&mut self, program: Program<'_>) -> io::Result<u64> {
        self.next += 1;
        let number = self.next;
        let mark = match self.mark.is_empty() {
            true => Vec::new(),
            false => {
                format!("{}={}:{number}", orphan_processes::MARK_VARIABLE, self.mark).into_bytes()
            }
        };
        let start = Start {
            number,
            argv: program.argv,
            environment: program.environment,
            cwd: program.directory.as_bytes().to_vec(),
            mark,
            print_limit_bytes: u64::MAX,
            memory_limit_bytes: program.memory_limit_bytes,
            memory_group: program.memory_group,
            cpus: program.cpus,
            fds: program.fds.iter().map(|(_, number)| *number).collect(),
            ..Start::default()
        };
        let mut bytes = Vec::new();
        wire::encode(&mut bytes, &SpawnerRequest { start: Some(start), ..Default::default() });
        let fds: Vec<_> = program.fds.iter().map(|(fd, _)| *fd).collect();
        send_with(&self.socket, &bytes, &fds)?;
        Ok(number)
    }

    /// Ends a process with SIGTERM, and SIGKILL later.
    pub(crate) fn kill(&mut self, number: u64) {
        let mut bytes = Vec::new();
        wire::encode(&mut bytes, &SpawnerRequest { kill: Some(number), ..Default::default() });
        // A spawner that is gone has killed all its processes.
        let _ = send_with(&self.socket, &bytes, &[]);
    }

    /// The connection, for a thread that reads the reports.
    pub(crate) fn reports(&self) -> io::Result<UnixStream> {
        self.socket.try_clone()
    }

    /// Reads what is there. An error or no bytes: the spawner is gone.
    pub(crate) fn read(&mut self, reports: &mut Vec<Report>) -> io::Result<bool> {
        let mut buffer = vec![0; READ_BYTES];
        let count = self.socket.read(&mut buffer)?;
        self.frames.push(&buffer[..count]);
        let whole = self.frames.take(reports);
        Ok(count > 0 && whole.is_ok())
    }

    /// Ends the spawner with all its processes.
    pub(crate) fn end(mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        process::await_end(&mut self.child);
        let session = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(session) = session {
            orphan_processes::kill_session(session, Duration::from_secs(5));
        }
        orphan_processes::kill_marked(&self.mark, Duration::from_secs(5));
    }
}
