//! Preparation of a command: its directory, its input files, its arguments and its environment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use proto::entry;
use proto::wire::{self, OutputForm};
use proto::work::Launch;

use crate::commands::beside;
use crate::commands::collect;
use crate::commands::dir_pool::PooledDir;
use crate::commands::environment::{entry_of, environment, push_variable};
use crate::commands::expand::{self, Named, Scope};
use crate::commands::names;
use crate::commands::orphan_processes::MARK_VARIABLE;
use crate::commands::pin::push_pin;
use crate::error::reason;
use crate::executor::Shared;
use crate::inputs::deliver::LinkedInput;
use crate::inputs::{Brought, Staging, deliver};
use crate::limits::{COPIED_INPUT_BYTES_MAX, PRIVATE_INPUT_BYTES_MAX};
use crate::spawner::wire::Start;

/// The directory of an attempt and its expected outputs.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) directory: PathBuf,
    /// Returned to the spare directories if it is left empty.
    pub(crate) spare: Option<PooledDir>,
    pub(crate) outputs: Vec<OutputFile>,
    /// The delivered files, if the task has an output that is a pattern.
    pub(crate) inputs: Vec<PathBuf>,
    /// Inputs that are links.
    pub(crate) guards: Vec<LinkedInput>,
}

#[derive(Debug)]
pub(crate) struct OutputFile {
    pub(crate) key: String,
    pub(crate) path: PathBuf,
}

pub(crate) fn moves_no_files(launch: &Launch) -> bool {
    let spec = &launch.spec;
    launch.inputs.is_empty() && spec.externals.is_empty() && spec.outputs.is_empty()
}

/// True if [`prepare`] does nothing slow: it reads or makes no file. There must be a spare
/// directory for it.
pub(crate) fn needs_nothing(launch: &Launch) -> bool {
    let Some(wire::spec::Body::Command(command)) = &launch.spec.body else { return false };
    let looks_at_files = !command.cwd.is_empty() || !command.stdin.is_empty();
    let has_state = command.notice.is_some()
        || launch.resume.as_ref().is_some_and(|resume| resume.state.is_some());
    let is_path = command.argv.first().is_some_and(|program| beside::is_relative_path(program));
    moves_no_files(launch) && !looks_at_files && !has_state && !is_path
}

/// Prepares a command. On an error nothing is left behind, and the error is one line.
pub(crate) fn prepare(
    shared: &Shared,
    launch: &Launch,
    command: &wire::Command,
    number: u64,
) -> Result<(Workspace, Start), String> {
    // Making and removing a directory takes up to a fifth of the cost of a short command. A task
    // without files gets an empty directory of an earlier one. A task with files gets its own,
    // where no escaped process of an earlier task can write.
    let made = if moves_no_files(launch) {
        shared.spare_dirs.take().map(|spare| (spare.path.clone(), Some(spare)))
    } else {
        let (task, attempt) = (launch.task, launch.attempt);
        let name = format!("{:x}-{}-{:x}", task.job.0, task.local, attempt.0);
        let directory = shared.tasks_dir.join(name);
        fs::create_dir(&directory).map(|()| (directory, None))
    };
    let (directory, spare) = made.map_err(|error| {
        let node = node(shared);
        format!("cannot make the task's directory on {node}: {}", reason(&error))
    })?;
    let (outputs, inputs, guards) = (Vec::new(), Vec::new(), Vec::new());
    let workspace = Workspace { directory, spare, outputs, inputs, guards };
    match build(shared, launch, command, number, &workspace.directory) {
        Ok((ready, start)) => {
            let Ready { outputs, inputs, guards } = ready;
            Ok((Workspace { outputs, inputs, guards, ..workspace }, start))
        }
        Err(error) => {
            collect::clean_up(shared, &workspace);
            Err(error)
        }
    }
}

pub(crate) fn node(shared: &Shared) -> String {
    shared.config.node.to_string()
}

/// The part of [`Workspace`] that is known once its files are in place.
struct Ready {
    outputs: Vec<OutputFile>,
    inputs: Vec<PathBuf>,
    guards: Vec<LinkedInput>,
}

fn build(
    shared: &Shared,
    launch: &Launch,
    command: &wire::Command,
    number: u64,
    directory: &Path,
) -> Result<(Ready, Start), String> {
    let job = launch.task.job.0.to_string();
    let task = launch.task.local.to_string();
    let entry = entry_of(launch);
    let bare = Scope { entry, job: &job, task: &task, inputs: &[], outputs: &[], empty: &[] };
    let submit_dir = Path::new(&command.submit_dir);
    let (inputs, guards) = Staging { shared, launch, directory, submit_dir }.link()?;
    let (outputs, output_files) = name_outputs(launch, directory)?;
    let empty = without_files(launch, &inputs);
    let scope = Scope { inputs: &inputs, outputs: &outputs, empty: &empty, ..bare };

    let argv = arguments(command, &scope, directory)?;
    let cwd = match scope.expand(&command.cwd)? {
        cwd if cwd.is_empty() => directory.to_owned(),
        cwd => submit_dir.join(cwd),
    };
    if !command.cwd.is_empty() {
        check_cwd(&cwd, &node(shared))?;
    }
    let mut environment = environment(shared, launch, directory, command, &scope)?;
    let granted = launch.granted.as_deref();
    let cpus = push_pin(&mut environment, &shared.config, command.pin(), granted)?;
    for variable in &command.env {
        let value = scope.expand(&variable.value)?;
        push_variable(&mut environment, &variable.name, &value);
    }
    let notice = command.notice.as_deref();
    let start = Start {
        number,
        argv,
        environment,
        cwd: bytes_of(cwd),
        submit_dir: command.submit_dir.clone().into_bytes(),
        stdin: stdin(&scope.expand(&command.stdin)?, directory, submit_dir)?,
        stdout: output_file(&scope, launch, &command.stdout, submit_dir)?,
        stderr: output_file(&scope, launch, &command.stderr, submit_dir)?,
        time_limit_ns: launch.spec.time_limit_ns,
        memory_limit_bytes: crate::commands::resources::memory_limit_bytes(launch),
        memory_group: Vec::new(),
        mark: mark(shared, launch),
        print_limit_bytes: shared.print_limit_bytes(),
        fds: Vec::new(),
        notice_signal: notice.and_then(|it| i32::try_from(it.signal).ok()).unwrap_or(0),
        notice_before_ns: notice.map_or(0, |it| it.before_ns),
        cpus,
    };
    let has_pattern = launch.spec.outputs.iter().any(|it| it.form() == OutputForm::Files);
    let came_in = has_pattern.then(|| inputs.iter().map(|named| PathBuf::from(&named.path)));
    let inputs = came_in.into_iter().flatten().collect();
    Ok((Ready { outputs: output_files, inputs, guards }, start))
}

/// The declared inputs without a file: output patterns of other tasks that have matched none.
fn without_files(launch: &Launch, inputs: &[Named]) -> Vec<String> {
    let patterns = launch.spec.inputs.iter().filter(|input| input.form() == OutputForm::Files);
    let keys = patterns.map(|declared| &declared.key);
    keys.filter(|key| !inputs.iter().any(|named| named.key == **key)).cloned().collect()
}

/// The program and its arguments. In the text of a script, files of the attempt's directory have
/// relative names if a shell would split the path of that directory.
fn arguments(
    command: &wire::Command,
    scope: &Scope<'_>,
    directory: &Path,
) -> Result<Vec<Vec<u8>>, String> {
    let text = directory.to_string_lossy();
    let starts_there = command.cwd.is_empty();
    let near = (starts_there && !expand::is_one_word(&text)).then(|| {
        let relative = |files| expand::relative(files, &text);
        (relative(scope.inputs), relative(scope.outputs))
    });
    let mut argv = Vec::with_capacity(command.argv.len());
    for argument in &command.argv {
        let expanded = match &near {
            Some((inputs, outputs)) => {
                scope.arguments_beside(argument, &Scope { inputs, outputs, ..*scope })?
            }
            None => scope.arguments(argument)?,
        };
        argv.extend(expanded.into_iter().map(String::into_bytes));
    }
    if argv.first().is_none_or(Vec::is_empty) {
        return Err(String::from("the command is empty"));
    }
    if starts_there && let Some(path) = beside::program(&argv[0], directory, &command.submit_dir) {
        argv[0] = bytes_of(path);
    }
    Ok(argv)
}

/// The file for an output stream of the command; empty: a pipe.
fn output_file(
    scope: &Scope<'_>,
    launch: &Launch,
    template: &str,
    submit_dir: &Path,
) -> Result<Vec<u8>, String> {
    match template {
        "" => Ok(Vec::new()),
        "none" => Ok(b"/dev/null".to_vec()),
        template => {
            let path = scope.expand(template)?;
            let path = path.replace("%{INSTANCE_ID}", &launch.attempt.to_string());
            Ok(bytes_of(submit_dir.join(path)))
        }
    }
}

/// True if an output of the task has this name.
pub(crate) fn is_output(launch: &Launch, file: &str) -> bool {
    let mut named = launch.spec.outputs.iter().filter(|it| it.form() != OutputForm::Files);
    named.any(|output| entry::expand(&output.file, launch.entry) == file)
}

/// True if an external file may have to be copied to this node, which another thread then does.
fn may_be_copied(external: &wire::External) -> bool {
    // 0: its size was unknown when the job was submitted.
    let (size_bytes, most) = (external.size_bytes, COPIED_INPUT_BYTES_MAX);
    let fits = size_bytes == 0 || (PRIVATE_INPUT_BYTES_MAX..=most).contains(&size_bytes);
    external.staged || (!external.path.is_empty() && fits)
}

pub(crate) fn brings_files(launch: &Launch) -> bool {
    launch.spec.externals.iter().any(may_be_copied)
}

/// The variable by which processes outside the command's group are found.
fn mark(shared: &Shared, launch: &Launch) -> Vec<u8> {
    let Launch { task, attempt, .. } = launch;
    let (node, job) = (&shared.config.mark, task.job.0);
    match node.is_empty() {
        true => Vec::new(),
        false => format!("{MARK_VARIABLE}={node}:{job:x}.{}.{:x}", task.local, attempt.0).into(),
    }
}

/// Copies the staged files of a task to this node, unless they are here. Blocks.
pub(crate) fn stage_in(shared: &Shared, launch: &Launch) -> Result<Vec<Brought>, String> {
    let Some(wire::spec::Body::Command(command)) = &launch.spec.body else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for external in launch.spec.externals.iter().filter(|external| may_be_copied(external)) {
        let source = Path::new(&command.submit_dir);
        let source = source.join(entry::expand(&external.path, launch.entry));
        let key = (launch.task, launch.attempt);
        if !external.staged {
            files.extend(copy_in(shared, &source, || shared.is_wanted(key)));
            continue;
        }
        let staged = shared.staged.get(&source, || shared.is_wanted(key)).map(Brought::File);
        let on = |error: String| {
            format!(
                "input file '{}' cannot be staged on {}: {error}",
                source.display(),
                node(shared)
            )
        };
        files.push(staged.map_err(on)?);
    }
    Ok(files)
}

/// Copies an input to this node if it gets one copy for all tasks. Without a copy the user's file
/// or directory itself is linked.
fn copy_in(shared: &Shared, source: &Path, is_wanted: impl Fn() -> bool) -> Option<Brought> {
    let metadata = fs::metadata(source).ok()?;
    if deliver::is_copied_once(shared, &metadata) {
        return shared.staged.get(source, is_wanted).ok().map(Brought::File);
    }
    let is_copied = metadata.is_dir() && !shared.means.may_mount();
    is_copied.then(|| shared.trees.get(source, is_wanted)).flatten().map(Brought::Tree)
}

fn name_outputs(
    launch: &Launch,
    directory: &Path,
) -> Result<(Vec<Named>, Vec<OutputFile>), String> {
    let mut named = Vec::with_capacity(launch.spec.outputs.len());
    let mut files = Vec::with_capacity(launch.spec.outputs.len());
    for output in &launch.spec.outputs {
        let file = entry::expand(&output.file, launch.entry);
        let path = match output.form() {
            OutputForm::Files => place_of_pattern(directory, &file)?,
            OutputForm::File | OutputForm::Directory => place(directory, &file)?,
        };
        named.push(Named { key: output.key.clone(), path: text_of(&path) });
        files.push(OutputFile { key: output.key.clone(), path });
    }
    Ok((named, files))
}

/// The path of a pattern below the task's directory. Makes the directories before its first
/// wildcard.
fn place_of_pattern(directory: &Path, pattern: &str) -> Result<PathBuf, String> {
    let plain: Vec<&str> =
        pattern.split('/').take_while(|part| !part.contains(['*', '?', '['])).collect();
    if !plain.is_empty() && plain.len() < pattern.split('/').count() {
        place(directory, &format!("{}/x", plain.join("/")))?;
    }
    Ok(directory.join(names::inside(pattern)?))
}

/// The path of a file in the task's directory. Makes its parents.
pub(crate) fn place(directory: &Path, file: &str) -> Result<PathBuf, String> {
    let inside = names::inside(file)?;
    let path = directory.join(&inside);
    let parent = inside.parent().unwrap_or_else(|| Path::new(""));
    names::no_link_above(directory, &inside)?;
    if !parent.as_os_str().is_empty() {
        fs::create_dir_all(directory.join(parent)).map_err(|error| {
            format!("cannot make the directory of '{file}': {}", reason(&error))
        })?;
    }
    Ok(path)
}

fn check_cwd(cwd: &Path, node: &str) -> Result<(), String> {
    let why = match fs::metadata(cwd) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => format!("is not a directory on {node}"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("does not exist on {node}")
        }
        Err(error) => format!("cannot be used on {node}: {}", reason(&error)),
    };
    Err(format!("working directory '{}' {why}", cwd.display()))
}

/// The path of a task's standard input: a file of its own directory, or one beside the workflow.
fn stdin(path: &str, directory: &Path, submit_dir: &Path) -> Result<Vec<u8>, String> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let own = directory.join(path);
    let path = if own.exists() { own } else { submit_dir.join(path) };
    match fs::metadata(&path) {
        Ok(found) if found.is_file() => Ok(bytes_of(path)),
        Ok(_) => Err(format!("standard input '{}' is not a file", path.display())),
        Err(error) => Err(format!("standard input '{}': {}", path.display(), reason(&error))),
    }
}

pub(crate) fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn bytes_of(path: PathBuf) -> Vec<u8> {
    OsString::from(path).into_vec()
}
