//! Files that stand beside a workflow and not in the directory of an attempt: scripts above all.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use proto::wire;

use crate::spawner::wire::Exit;

/// The maximum number of words that are compared with the files beside a workflow.
const WORDS_COMPARED_MAX: usize = 64;
/// The exit code of a program that is not there.
const NOT_FOUND: i32 = 127;

/// True for `./step.sh` and `bin/step`, for which no search path is used.
pub(crate) fn is_relative_path(program: &str) -> bool {
    program.contains('/') && !program.starts_with('/')
}

/// The file beside the workflow that `./step.sh` means if the attempt's directory has none.
pub(crate) fn program(argument: &[u8], directory: &Path, submit_dir: &str) -> Option<PathBuf> {
    let name = Path::new(OsStr::from_bytes(argument));
    if submit_dir.is_empty() || name.is_absolute() || !argument.contains(&b'/') {
        return None;
    }
    let beside = Path::new(submit_dir).join(name.strip_prefix(".").unwrap_or(name));
    (!directory.join(name).exists() && beside.is_file()).then_some(beside)
}

/// A hint at the first argument of a failed command that names a file beside the workflow.
pub(crate) fn hint(command: &wire::Command, directory: &Path, exit: &Exit) -> Option<String> {
    let exceeded_limit = exit.timed_out || exit.memory_bytes > 0 || exit.printed_too_much_bytes > 0;
    let was_killed = exit.signal != 0 || exceeded_limit;
    let ended_well = exit.code == 0 && exit.failure.is_empty();
    if was_killed || ended_well || !command.cwd.is_empty() || command.submit_dir.is_empty() {
        return None;
    }
    let submit_dir = Path::new(&command.submit_dir);
    if !exit.failure.is_empty() {
        let program = command.argv.first().filter(|_| exit.code == NOT_FOUND)?;
        if is_relative_path(program) {
            let place = submit_dir.display();
            return Some(format!("it is neither in the task's directory nor in {place}"));
        }
        return is_beside(program, directory, submit_dir)
            .then(|| format!("hint: it is beside the workflow: write \"./{program}\""));
    }
    let mut compared =
        command.argv.iter().skip(1).flat_map(|it| words(it)).take(WORDS_COMPARED_MAX);
    let name = compared.find(|word| is_beside(word, directory, submit_dir))?;
    let name = name.strip_prefix("./").unwrap_or(name);
    let path = submit_dir.join(name);
    let path = path.display();
    Some(format!(
        "hint: '{name}' is beside the workflow, not in the task's directory: list it in inputs, or \
         write \"{path}\""
    ))
}

/// An argument, and the words of it if it may be a script for a shell.
fn words(argument: &str) -> impl Iterator<Item = &str> {
    let breaks = |c: char| c.is_whitespace() || ";|&<>()\"'`$".contains(c);
    let is_script = argument.contains(breaks);
    let words = argument.split(breaks).filter(move |word| is_script && !word.is_empty());
    std::iter::once(argument).chain(words)
}

/// True for a plain name of a file that is beside the workflow alone.
fn is_beside(argument: &str, directory: &Path, submit_dir: &Path) -> bool {
    let is_name = !argument.is_empty() && !argument.starts_with(['-', '/']);
    is_name && !directory.join(argument).exists() && submit_dir.join(argument).is_file()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn command(argv: &[&str], submit_dir: &Path) -> wire::Command {
        wire::Command {
            argv: argv.iter().map(ToString::to_string).collect(),
            submit_dir: submit_dir.display().to_string(),
            ..wire::Command::default()
        }
    }

    #[test]
    fn a_program_beside_the_workflow_is_found_unless_the_attempt_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let (own, beside) = (dir.path().join("own"), dir.path().join("beside"));
        fs::create_dir(&own).unwrap();
        fs::create_dir(&beside).unwrap();
        let submit_dir = beside.to_str().unwrap();
        let found = |name: &str| program(name.as_bytes(), &own, submit_dir);
        assert_eq!(found("./step.sh"), None);
        fs::write(beside.join("step.sh"), "").unwrap();
        assert_eq!(found("./step.sh"), Some(beside.join("step.sh")));
        assert_eq!((found("step.sh"), found("/step.sh")), (None, None));
        fs::write(own.join("step.sh"), "").unwrap();
        assert_eq!(found("./step.sh"), None);
    }

    #[test]
    fn a_failed_command_names_its_file_beside_the_workflow() {
        let dir = tempfile::tempdir().unwrap();
        let (own, beside) = (dir.path().join("own"), dir.path().join("beside"));
        fs::create_dir(&own).unwrap();
        fs::create_dir(&beside).unwrap();
        fs::write(beside.join("step.py"), "").unwrap();
        let exit = Exit { code: 2, ..Exit::default() };
        let hint = |argv: &[&str], exit: &Exit| hint(&command(argv, &beside), &own, exit);
        let told = hint(&["python3", "-u", "step.py"], &exit).unwrap();
        assert!(told.contains("'step.py' is beside the workflow"), "{told}");
        assert_eq!(hint(&["python3", "-u", "other.py"], &exit), None);
        assert_eq!(hint(&["python3", "step.py"], &Exit::default()), None);
        for script in ["python3 step.py > out", "cat <step.py", "./step.py; x", "x && 'step.py'"] {
            let told = hint(&["sh", "-c", script], &exit).unwrap();
            assert!(told.contains("'step.py' is beside the workflow"), "{script}: {told}");
        }
        assert_eq!(hint(&["sh", "-c", "cat other.py steps.py"], &exit), None);
        let absent = Exit { code: 127, failure: "no such file".into(), ..Exit::default() };
        let told = hint(&["step.py"], &absent).unwrap();
        assert!(told.contains("write \"./step.py\""), "{told}");
        let told = hint(&["./none.sh"], &absent).unwrap();
        assert!(told.contains("neither in the task's directory nor in"), "{told}");
        fs::write(own.join("step.py"), "").unwrap();
        assert_eq!(hint(&["python3", "step.py"], &exit), None);
    }
}
