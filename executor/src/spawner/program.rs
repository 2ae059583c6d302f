//! Finding a program and starting it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::wire::{Exit, Start};
use crate::error::reason;

const CODE_NOT_FOUND: i32 = 127;
const CODE_CANNOT_RUN: i32 = 126;

/// Why a command did not start.
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

/// Where programs were found: name and search path to file.
pub(super) type Cache = HashMap<(Vec<u8>, OsString), PathBuf>;

/// Starts a command in a process group of its own, its output in pipes.
pub(super) fn spawn(start: &Start, cache: &mut Cache) -> Result<Child, Failure> {
    let name = start.argv.first().ok_or_else(|| Failure::new(&io::ErrorKind::NotFound.into()))?;
    let cwd = Path::new(OsStr::from_bytes(&start.cwd));
    // The standard library forks, slowly, when PATH is set and the program has no slash: it is
    // found here instead. That also tells a missing program from one that cannot run.
    if name.contains(&b'/') {
        let path = with_slash(name, cwd, Path::new(OsStr::from_bytes(&start.submit_dir)));
        return run(start, &path, cwd);
    }
    let search = search_path(start);
    let key = (name.clone(), search);
    if let Some(path) = cache.get(&key) {
        let started = run(start, path, cwd);
        if !matches!(&started, Err(failure) if failure.code == CODE_NOT_FOUND) {
            return started;
        }
    }
    cache.remove(&key);
    let path = find(name, &key.1, cwd).map_err(|error| Failure::new(&error))?;
    let started = run(start, &path, cwd);
    if cache.len() >= 1024 {
        cache.clear();
    }
    cache.insert(key, path);
    started
}

fn run(start: &Start, path: &Path, cwd: &Path) -> Result<Child, Failure> {
    let argv: Vec<_> = start.argv.iter().map(|argument| OsStr::from_bytes(argument)).collect();
    let stdin = if start.stdin.is_empty() {
        Stdio::null()
    } else {
        match File::open(OsStr::from_bytes(&start.stdin)) {
            Ok(file) => Stdio::from(file),
            Err(error) => {
                let text = format!("standard input: {}", reason(&error));
                return Err(Failure { code: CODE_CANNOT_RUN, text });
            }
        }
    };
    let mut command = Command::new(path);
    command.arg0(argv[0]).args(&argv[1..]);
    command.env_remove(super::GRACE_VARIABLE);
    for variable in &start.environment {
        let middle = variable.iter().position(|byte| *byte == b'=').unwrap_or(variable.len());
        let value = variable.get(middle + 1..).unwrap_or_default();
        command.env(OsStr::from_bytes(&variable[..middle]), OsStr::from_bytes(value));
    }
    command
        .current_dir(cwd)
        .process_group(0)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| describe(&error, path))
}

/// A script whose interpreter is missing reads as if it were missing itself.
fn describe(error: &io::Error, path: &Path) -> Failure {
    if error.kind() == io::ErrorKind::NotFound && path.exists() {
        let text = String::from("its interpreter (the #! line) does not exist");
        return Failure { code: CODE_CANNOT_RUN, text };
    }
    Failure::new(error)
}

/// A path as it was typed: beside the task's files, else beside the submission.
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
