/*!
Support for the end-to-end tests: the real binary, instances that remove their files and processes,
and deadlines. With a deadline a hang is a failure and not a wait.

Nothing here knows Starling's internals. A test passes a command line and reads the exit code, the
two streams, JSON, and the files of the instance directory.

**The binary.** A test package cannot name another package's binary. So [`binary`] takes the one in
`STARLING_TEST_BINARY`, which `xtask ci` sets to its own build. Otherwise it builds the binary once
per test process, with the cargo that runs the tests. So it is never older than the sources.

**Processes.** Each command runs in its own process group with a private temporary directory as
`TMPDIR` and current directory. Processes that remain at the end of the test are killed by id.

**Data.** Real workflows are outside the repository. A test that needs them calls [`shared_data`].
If the folder is absent, the test prints that and is skipped. So does [`has_python`].
*/
#![expect(clippy::print_stderr, reason = "a skipped test says why")]

mod command;
mod foreground;
mod instance;

pub use command::{Ran, Running, Sandbox, binary};
pub use foreground::{Foreground, Seen, Shape};
pub use instance::{Instance, is_alive};

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// No action of a test takes this long, even on a loaded machine.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// The root of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// The folder of real workflows beside the repository, if this machine has it.
#[must_use]
pub fn shared_data() -> Option<PathBuf> {
    let folder = repository().join("../shared/data");
    if folder.join("expected.jsonl").exists() {
        return Some(folder);
    }
    skip(&format!("{} is absent", folder.display()));
    None
}

/// All files below a folder; none if it does not exist.
#[must_use]
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => found.push(path),
            }
        }
    }
    found
}

/// True if this machine has `python3`. Otherwise the test prints that it is skipped.
#[must_use]
pub fn has_python() -> bool {
    let is_there = Command::new("python3").arg("--version").output().is_ok();
    if !is_there {
        skip("python3 is absent");
    }
    is_there
}

/// Prints that a test is skipped, and the reason.
pub fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    eprintln!("skipped {name}: {reason}");
}

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not hold within [`DEADLINE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "waited {DEADLINE:?} for this: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
