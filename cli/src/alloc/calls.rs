//! Commands of the batch system, with a bounded run time and a bounded output.

use std::process::Stdio;
use std::time::Duration;

use allocation::System;
use allocation::backend::Call;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// The longest run time of a command.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest output of a command.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Variables of the allocation that this process may run in. They would change the submission.
const HIDDEN: [&str; 8] = [
    "SLURM_",
    "STARLING_",
    "PBS_JOB",
    "PBS_O_",
    "PBS_NODE",
    "PBS_ENVIRONMENT",
    "PBS_QUEUE",
    "PBS_TASK",
];
/// The configuration of the batch system itself.
const KEPT: [&str; 1] = ["SLURM_CONF"];

/// The end of a command.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) is_ok: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ran {
    /// The last line of its errors, or of its output.
    pub(super) fn why(&self) -> String {
        let last = |text: &str| {
            let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
            line.map(str::to_owned)
        };
        let line = last(&self.stderr).or_else(|| last(&self.stdout));
        line.unwrap_or_else(|| "it failed without a message".to_owned())
    }
}

/// Runs a command to its end. An error: it may have done anything.
pub(super) async fn run(call: &Call) -> Result<Ran, String> {
    let program = call.program;
    let mut command = Command::new(program);
    command.args(&call.arguments).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_hidden = HIDDEN.iter().any(|hidden| text.starts_with(hidden));
        if is_hidden && !KEPT.contains(&&*text) {
            command.env_remove(&name);
        }
    }
    let mut child = command.spawn().map_err(|error| format!("{program} did not start: {error}"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let end = async {
        let (stdout, stderr, status) = tokio::join!(read(stdout), read(stderr), child.wait());
        let status = status.map_err(|error| format!("{program}: {error}"))?;
        Ok::<Ran, String>(Ran { is_ok: status.success(), stdout, stderr })
    };
    let late = || format!("{program} did not end within {} s", TIMEOUT.as_secs());
    tokio::time::timeout(TIMEOUT, end).await.unwrap_or_else(|_| Err(late()))
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let _ = from.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether the program that submits is on this machine.
pub(super) fn is_installed(system: System) -> bool {
    let is_there = |folder: std::path::PathBuf| folder.join(system.submitter()).is_file();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(is_there)
}

/// Whether this machine may submit to a batch system.
pub(super) async fn may_submit(system: System) -> bool {
    is_installed(system) && run(&system.version()).await.is_ok_and(|ran| ran.is_ok)
}
