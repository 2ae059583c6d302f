//! The spawner as a child of the node: its start, and the wait for its end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::commands::names::is_hidden_variable;
use crate::error::reason;
use crate::executor::ExecutorConfig;
use crate::huge_pages;
use crate::open_files;
use crate::private;
use crate::spawner::liveness::SpawnerLiveness;
use crate::spawner::shield::SHIELD_VARIABLE;
use crate::spawner::{FILES_VARIABLE, GRACE_VARIABLE, UMASK_VARIABLE, VERB};
use proto::Span;

/// The time that a spawner has to end its commands at its own stop.
const SPAWNER_EXIT_TIMEOUT: Span = Span::from_secs(10);

/// Starts the spawner of a node.
pub(crate) fn start(
    config: &ExecutorConfig,
    shield: Option<&Path>,
) -> Result<(Child, UnixStream), String> {
    // Orphans of a killed spawner become children of this process, which can then reap them.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let program = config.spawner_program.clone();
    let own = program.is_none();
    // This is the running program, even if its file was replaced meanwhile.
    let program = program.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let describe = |error: io::Error| format!("{}: {}", program.display(), reason(&error));
    let (mine, theirs) = UnixStream::pair().map_err(describe)?;
    let is_hidden = |name: &str| is_hidden_variable(name, config.hides_slurm);
    let environment = std::env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(is_hidden));
    let mut command = Command::new(&program);
    if own {
        command.arg0("starling-spawner");
    }
    let grace_ms = config.kill_grace.0 / 1_000_000;
    let child = command
        .arg(VERB)
        .env_clear()
        .envs(environment)
        .env(GRACE_VARIABLE, grace_ms.to_string())
        .envs(huge_pages::variable())
        .envs(shield.map(|directory| (SHIELD_VARIABLE, directory)))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .envs(private::user_umask().map(|umask| (UMASK_VARIABLE, format!("{umask:o}"))))
        .envs(open_files::of_user().map(|files| (FILES_VARIABLE, files.to_string())))
        .spawn()
        .map_err(describe)?;
    mine.set_read_timeout(Some(SpawnerLiveness::wait())).map_err(describe)?;
    Ok((child, mine))
}

/// Waits for a spawner that was told to end, and kills it if it takes too long. A spawner that
/// survives even that (for example in a wait for a disk) is left behind; its commands are killed
/// anyway.
pub(crate) fn await_end(child: &mut Child) -> String {
    for is_last in [false, true] {
        let start = Instant::now();
        while start.elapsed() < Duration::from_nanos(SPAWNER_EXIT_TIMEOUT.0) {
            match child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Err(error) => return reason(&error),
            }
        }
        if !is_last {
            let _ = child.kill();
        }
    }
    String::from("it cannot be killed")
}
