//! Finds a program and starts it.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::shield::SHIELD_VARIABLE;
use super::vfork::{self, Stack, Wanted};
use super::wire::{Exit, Start};
use crate::commands::orphan_processes::MARK_VARIABLE;
use crate::error::reason;
use crate::huge_pages::RESTORE_VARIABLE;

const CODE_NOT_FOUND: i32 = 127;
const CODE_CANNOT_RUN: i32 = 126;

/// The reason why a command did not start.
#[derive(Debug)]
pub(super) struct Failure {
    code: i32,
    text: String,
}

impl Failure {
    pub(super) fn new(error: &io::Error) -> Self {
        let not_found = error.kind() == io::ErrorKind::NotFound;
        let code = if not_found { CODE_NOT_FOUND } else { CODE_CANNOT_RUN };
        Self { code, text: reason(error) }
    }

    pub(super) fn report(self, start: &Start) -> Exit {
        let program = start.argv.first().map_or(&[][..], Vec::as_slice);
        Exit {
            number: start.number,
            code: self.code,
            failure: self.text,
            program: String::from_utf8_lossy(program).into_owned(),
            ..Exit::default()
        }
    }
}

/// A started process. Its process id is also that of its group.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) group: Pid,
    /// Readable once it has ended.
    pub(super) exit: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// The state that a thread keeps between the starts of commands.
#[derive(Debug)]
pub(super) struct Starter {
    /// The paths of found programs, by name and search path.
    found: HashMap<(Vec<u8>, OsString), PathBuf>,
    /// The environment of all commands, unless they override it.
    environment: Vec<CString>,
    null: File,
    stack: Stack,
}

/// The maximum of remembered paths.
const FOUND_MAX: usize = 1024;

impl Starter {
    pub(super) fn new() -> io::Result<Self> {
        let ours = [
            super::GRACE_VARIABLE,
            super::UMASK_VARIABLE,
            super::FILES_VARIABLE,
            SHIELD_VARIABLE,
            RESTORE_VARIABLE,
        ];
        let is_ours = |name: &OsStr| ours.iter().any(|one| name == *one);
        let own = std::env::vars_os().filter(|(name, _)| !is_ours(name));
        let environment = own.map(|(name, value)| {
            let variable = [name.as_bytes(), b"=", value.as_bytes()].concat();
            CString::new(variable).expect("it came with a null at its end")
        });
        let environment = environment.collect();
        let null = File::options().read(true).write(true).open("/dev/null")?;
        Ok(Self { found: HashMap::new(), environment, null, stack: Stack::new() })
    }

    /// Starts a command in a process group of its own, with its output in pipes.
    pub(super) fn spawn(
        &mut self,
        start: &Start,
        others: &[(OwnedFd, i32)],
    ) -> Result<Process, Failure> {
        let name =
            start.argv.first().ok_or_else(|| Failure::new(&io::ErrorKind::NotFound.into()))?;
        let cwd = Path::new(OsStr::from_bytes(&start.cwd));
        if name.contains(&b'/') {
            let path = with_slash(name, cwd, Path::new(OsStr::from_bytes(&start.submit_dir)));
            return self.run(start, &path, others);
        }
        let search = search_path(start);
        let key = (name.clone(), search);
        if let Some(path) = self.found.get(&key).cloned() {
            let started = self.run(start, &path, others);
            if !matches!(&started, Err(failure) if failure.code == CODE_NOT_FOUND) {
                return started;
            }
        }
        self.found.remove(&key);
        let path = find(name, &key.1, cwd).map_err(|error| Failure::new(&error))?;
        let started = self.run(start, &path, others);
        if self.found.len() >= FOUND_MAX {
            self.found.clear();
        }
        self.found.insert(key, path);
        started
    }

    fn run(
        &mut self,
        start: &Start,
        path: &Path,
        others: &[(OwnedFd, i32)],
    ) -> Result<Process, Failure> {
        let failed = |error: io::Error| Failure::new(&error);
        let opened = match start.stdin.is_empty() {
            true => None,
            false => Some(open_input(&start.stdin)?),
        };
        let program = c_string(path.as_os_str().as_bytes())?;
        let directory = c_string(&start.cwd)?;
        let argv: Vec<_> = start.argv.iter().map(|it| c_string(it)).collect::<Result<_, _>>()?;
        let mut variables = own_variables(&start.environment)?;
        if !start.mark.is_empty() {
            // The task itself must not replace it.
            variables.retain(|variable| name_of(variable) != MARK_VARIABLE.as_bytes());
            variables.push(c_string(&start.mark)?);
        }
        let names: HashSet<&[u8]> = variables.iter().map(|variable| name_of(variable)).collect();
        let inherited = self.environment.iter().filter(|it| !names.contains(name_of(it)));
        let environment = inherited.chain(&variables).map(CString::as_c_str).collect();

        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()));
        let ((stdout, their_stdout), (stderr, their_stderr)) = (pipe()?, pipe()?);
        let stdin = opened.as_ref().unwrap_or(&self.null);
        let out_file = open_output(&start.stdout)?;
        let err_file = match (&out_file, start.stderr == start.stdout) {
            (Some(file), true) => Some(file.try_clone().map_err(failed)?),
            _ => open_output(&start.stderr)?,
        };
        let wanted = Wanted {
            program: &program,
            argv: &argv.iter().map(CString::as_c_str).collect(),
            environment: &environment,
            directory: &directory,
            stdio: [
                stdin.as_fd(),
                out_file.as_ref().map_or_else(|| their_stdout.as_fd(), AsFd::as_fd),
                err_file.as_ref().map_or_else(|| their_stderr.as_fd(), AsFd::as_fd),
            ],
            others,
            cpus: cpus_of(start)?,
        };
        match vfork::start(&mut self.stack, &wanted) {
            Ok((group, exit)) => Ok(Process { group, exit, stdout, stderr }),
            Err(vfork::Error::Program(error)) => Err(describe(&error, path)),
            Err(vfork::Error::Process(error)) => Err(Failure::new(&error)),
            Err(vfork::Error::Cpus(error)) if error.raw_os_error() == Some(libc::EINVAL) => {
                Err(not_pinned(start, "the node may not use all of them"))
            }
            Err(vfork::Error::Cpus(error)) => Err(not_pinned(start, &reason(&error))),
            Err(vfork::Error::Directory(error)) => {
                let text = format!("its working directory: {}", reason(&error));
                Err(Failure { code: CODE_CANNOT_RUN, text })
            }
        }
    }
}

/// The cpus to which the command is pinned.
fn cpus_of(start: &Start) -> Result<Option<libc::cpu_set_t>, Failure> {
    if start.cpus.is_empty() {
        return Ok(None);
    }
    vfork::cpu_set(&start.cpus).map(Some).ok_or_else(|| not_pinned(start, "a number is too large"))
}

fn not_pinned(start: &Start, reason: &str) -> Failure {
    let cpus: Vec<String> = start.cpus.iter().map(ToString::to_string).collect();
    let text = format!("it cannot be pinned to the cpus {}: {reason}", cpus.join(","));
    Failure { code: CODE_CANNOT_RUN, text }
}

fn open_input(path: &[u8]) -> Result<File, Failure> {
    File::open(OsStr::from_bytes(path)).map_err(|error| {
        let text = format!("standard input: {}", reason(&error));
        Failure { code: CODE_CANNOT_RUN, text }
    })
}

/// Makes or empties a file for output, and its directories. An empty path is no file.
fn open_output(path: &[u8]) -> Result<Option<File>, Failure> {
    if path.is_empty() {
        return Ok(None);
    }
    let path = Path::new(OsStr::from_bytes(path));
    let make = || {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // Each write goes to the end: both streams may share the file.
        let _ = File::create(path)?;
        File::options().append(true).open(path)
    };
    make().map(Some).map_err(|error| {
        let text = format!("output file '{}': {}", path.display(), reason(&error));
        Failure { code: CODE_CANNOT_RUN, text }
    })
}

fn c_string(bytes: &[u8]) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|error| Failure::new(&error.into()))
}

/// The variables that a task adds to the environment, as `NAME=value`: the last one of each name.
fn own_variables(given: &[Vec<u8>]) -> Result<Vec<CString>, Failure> {
    let mut names = HashSet::with_capacity(given.len());
    let mut variables = Vec::with_capacity(given.len());
    for variable in given.iter().rev() {
        let end = variable.iter().position(|byte| *byte == b'=').unwrap_or(variable.len());
        if names.insert(&variable[..end]) {
            let mut whole = variable.clone();
            if end == variable.len() {
                whole.push(b'=');
            }
            variables.push(c_string(&whole)?);
        }
    }
    Ok(variables)
}

fn name_of(variable: &CStr) -> &[u8] {
    let bytes = variable.to_bytes();
    bytes.split(|byte| *byte == b'=').next().unwrap_or(bytes)
}

/// The system reports a script with a missing interpreter as missing itself.
fn describe(error: &io::Error, path: &Path) -> Failure {
    if error.kind() == io::ErrorKind::NotFound && path.exists() {
        let text = String::from("its interpreter (the #! line) does not exist");
        return Failure { code: CODE_CANNOT_RUN, text };
    }
    Failure::new(error)
}

/// A path as it was typed: below the task's directory, else below that of the submission.
fn with_slash(name: &[u8], cwd: &Path, submit_dir: &Path) -> PathBuf {
    let name = Path::new(OsStr::from_bytes(name));
    let here = cwd.join(name);
    if name.is_absolute() || here.exists() { here } else { submit_dir.join(name) }
}

fn search_path(start: &Start) -> OsString {
    let own = start.environment.iter().rev().find_map(|variable| variable.strip_prefix(b"PATH="));
    match own {
        Some(path) => OsString::from_vec(path.to_vec()),
        None => std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin")),
    }
}

fn find(name: &[u8], search: &OsStr, cwd: &Path) -> io::Result<PathBuf> {
    let mut denied = false;
    for directory in std::env::split_paths(search) {
        let path = cwd.join(directory).join(OsStr::from_bytes(name));
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            return Ok(path);
        }
        denied |= metadata.is_file();
    }
    Err(if denied { io::ErrorKind::PermissionDenied } else { io::ErrorKind::NotFound }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_variable_the_last_counts() {
        let given = ["A=1", "B", "A=2=3", "=C", "B=x", "D="].map(|it| it.as_bytes().to_vec());
        let mut variables = own_variables(&given).unwrap();
        variables.sort();
        assert_eq!(variables, [c"=C", c"A=2=3", c"B=x", c"D="]);
        assert!(own_variables(&[b"A=\0".to_vec()]).is_err());
    }
}
