/*!
What the end-to-end tests need: the real binary, instances that clean up behind themselves, and
deadlines, so that a hang is a failure and not a wait.

Nothing here knows how Starling works inside: a test gives a command line and reads the exit code,
the two streams, JSON, and the files of the instance directory.

**The binary.** A test package cannot name another package's binary, so [`binary`] takes the one
in `STARLING_TEST_BINARY` (`xtask ci` sets it to the one it has just built) or builds it, once per
test process, with the cargo that runs the tests: it is never older than the sources.

**Processes.** Each command runs in a process group of its own with a private temporary directory as
`TMPDIR` and current directory; whatever is left when the test ends is killed by its id.

**Data.** Real workflows lie outside the repository; a test that wants them calls
[`shared_data`] and skips, saying so, where the folder is absent.
*/
#![expect(clippy::print_stderr, reason = "a skipped test says why")]

mod command;
mod foreground;
mod instance;

pub use command::{Ran, Running, Sandbox, binary};
pub use foreground::{Foreground, Seen, Shape};
pub use instance::{Instance, is_alive};

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Nothing a test does takes this long, even on a loaded machine.
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

/// All files below a folder; none where it is not there.
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

/// Says that a test did not run, and why.
pub fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    eprintln!("skipped {name}: {reason}");
}

/// Waits until `condition` holds.
///
/// # Panics
/// When it does not within [`DEADLINE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "waited {DEADLINE:?} for this: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
