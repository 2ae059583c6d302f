//! Runs the real binary with a private directory and a deadline.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::DEADLINE;

/// The `starling` binary, as new as the sources.
///
/// # Panics
/// When it cannot be built.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("STARLING_TEST_BINARY") {
            return PathBuf::from(path);
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--workspace", "--bin", "starling"])
            .current_dir(crate::repository())
            .status()
            .expect("cargo starts");
        assert!(built.success(), "the binary did not build");
        // target/debug/deps/this-test → target/debug/starling
        let this = std::env::current_exe().expect("a running test has a path");
        let folder = this.parent().and_then(Path::parent).expect("tests lie in target/*/deps");
        let path = folder.join("starling");
        assert!(path.exists(), "{} was not built", path.display());
        path
    })
}

/// A directory that is removed at the end of the test, and commands that run in it.
#[derive(Debug)]
pub struct Sandbox {
    directory: tempfile::TempDir,
}

/// The results of a command.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; 128 + signal if a signal ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

/// A running command. It is killed with its process group when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    line: String,
    since: Instant,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Sandbox {
    /// # Panics
    /// When no temporary directory can be made.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("starling-test-").tempdir();
        Self { directory: directory.expect("a temporary directory") }
    }

    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file here, with the folders above it.
    ///
    /// # Panics
    /// When the disk does not permit it.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).expect("folders can be made");
        }
        fs::write(&path, text).expect("files can be written");
        path
    }

    /// Runs `starling` with these arguments to its end.
    pub fn starling<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Ran {
        self.start(arguments).end()
    }

    /// Starts `starling` with these arguments.
    pub fn start<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Running {
        let mut command = Command::new(binary());
        command.args(arguments);
        self.start_command(command)
    }

    /// Starts any command here, isolated from the caller's environment.
    ///
    /// # Panics
    /// When it cannot start.
    pub fn start_command(&self, mut command: Command) -> Running {
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let stdout = self.path(&format!("stdout.{number}"));
        let stderr = self.path(&format!("stderr.{number}"));
        let here = self.directory.path();
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["STARLING_", "SLURM_", "OMPI_", "PMI"].iter().any(|p| text.starts_with(p)) {
                command.env_remove(&name);
            }
        }
        if command.get_current_dir().is_none() {
            command.current_dir(here);
        }
        command
            .env("TMPDIR", here)
            .env("XDG_CONFIG_HOME", here)
            .env_remove("XDG_RUNTIME_DIR")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).expect("files can be made"))
            .stderr(File::create(&stderr).expect("files can be made"))
            .process_group(0);
        let line = format!("{command:?}");
        let child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
        Running { child, line, since: Instant::now(), stdout, stderr }
    }
}

impl Running {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output so far.
    #[must_use]
    pub fn output_so_far(&self) -> String {
        read(&self.stdout)
    }

    /// Its standard error so far.
    #[must_use]
    pub fn errors_so_far(&self) -> String {
        read(&self.stderr)
    }

    /// Sends a signal to this process alone.
    ///
    /// # Panics
    /// When its end was already collected.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.as_pid(), signal).expect("the child is not reaped yet");
    }

    /// True if it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended within [`DEADLINE`].
    pub fn end(self) -> Ran {
        self.end_within(DEADLINE)
    }

    /// Waits for its end, at most `deadline` from now.
    ///
    /// # Panics
    /// When it has not ended by then.
    pub fn end_within(mut self, deadline: Duration) -> Ran {
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if asked.elapsed() > deadline {
                self.kill_group();
                let (out, err) = (read(&self.stdout), read(&self.stderr));
                panic!("{} still ran after {deadline:?}\n{out}\n{err}", self.line);
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Ran {
            code: exit_code(status),
            stdout: read(&self.stdout),
            stderr: read(&self.stderr),
            took: self.since.elapsed(),
        }
    }

    fn as_pid(&self) -> Pid {
        let raw = i32::try_from(self.child.id()).expect("pids are small");
        Pid::from_raw(raw).expect("a child's pid is not zero")
    }

    fn kill_group(&mut self) {
        let _ = kill_process_group(self.as_pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill_group();
        }
    }
}

impl Ran {
    /// The JSON value on standard output.
    ///
    /// # Panics
    /// When there is none, or when it has no schema.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let value: serde_json::Value = serde_json::from_str(self.stdout.trim())
            .unwrap_or_else(|error| panic!("no JSON on standard output ({error}): {self:?}"));
        assert_eq!(value["schema"], 1, "{value}");
        value
    }

    /// # Panics
    /// When the exit code is another.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// # Panics
    /// When the exit code is not 0.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.expect_code(0)
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
