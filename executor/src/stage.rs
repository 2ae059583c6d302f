//! Before a command starts: its directory, its input files, its arguments and its environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proto::work::{Launch, Outcome};
use proto::{limits, wire};

use crate::collect;
use crate::error::reason;
use crate::executor::Shared;
use crate::expand::{Named, Scope};
use crate::names;
use crate::objects::ObjectError;
use crate::spare::SpareDir;
use crate::spawner::wire::Start;
use crate::staged::StagedFile;

/// Where an attempt works and what it is to leave behind.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) directory: PathBuf,
    /// Goes back to the spare ones when it is left empty.
    pub(crate) spare: Option<SpareDir>,
    pub(crate) outputs: Vec<OutputFile>,
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

/// Whether [`prepare`] has nothing to do that may take its time: no file is looked at or made.
/// There must be a spare directory for it.
pub(crate) fn needs_nothing(launch: &Launch) -> bool {
    let Some(wire::spec::Body::Command(command)) = &launch.spec.body else { return false };
    let looks_at_files = !command.cwd.is_empty() || !command.stdin.is_empty();
    moves_no_files(launch) && !looks_at_files
}

/// Makes everything ready. On an error nothing is left behind, and the error is one line.
pub(crate) fn prepare(
    shared: &Shared,
    launch: &Launch,
    command: &wire::Command,
    number: u64,
) -> Result<(Workspace, Start), Outcome> {
    // Making and removing a directory costs as much as a fifth of a short command. One that moves
    // no files gets a directory that was left empty before it; one that does gets its own, where
    // nobody who escaped from an earlier task can write.
    let made = if moves_no_files(launch) {
        shared.spare_dirs.take().map(|spare| (spare.path.clone(), Some(spare)))
    } else {
        let (task, attempt) = (launch.task, launch.attempt);
        let name = format!("{:x}-{}-{:x}", task.job.0, task.local, attempt.0);
        let directory = shared.tasks_dir.join(name);
        fs::create_dir(&directory).map(|()| (directory, None))
    };
    let wrong = |error| Outcome { error, ..Outcome::default() };
    let (directory, spare) = made.map_err(|error| {
        let node = node(shared);
        wrong(format!("cannot make the task's directory on {node}: {}", reason(&error)))
    })?;
    let workspace = Workspace { directory, spare, outputs: Vec::new() };
    match build(shared, launch, command, number, &workspace.directory) {
        Ok((outputs, start)) => Ok((Workspace { outputs, ..workspace }, start)),
        Err(error) => {
            collect::clean_up(shared, &workspace);
            Err(wrong(error))
        }
    }
}

fn node(shared: &Shared) -> String {
    shared.config.node.to_string()
}

fn build(
    shared: &Shared,
    launch: &Launch,
    command: &wire::Command,
    number: u64,
    directory: &Path,
) -> Result<(Vec<OutputFile>, Start), String> {
    let job = launch.task.job.0.to_string();
    let task = launch.task.local.to_string();
    let bare = Scope { entry: launch.entry, job: &job, task: &task, inputs: &[], outputs: &[] };
    let submit_dir = Path::new(&command.submit_dir);
    let mut inputs = link_inputs(shared, launch, &bare, directory)?;
    link_externals(shared, launch, &bare, directory, submit_dir, &mut inputs)?;
    let (outputs, output_files) = name_outputs(launch, &bare, directory)?;
    let scope = Scope { inputs: &inputs, outputs: &outputs, ..bare };

    let mut argv = Vec::with_capacity(command.argv.len());
    for argument in &command.argv {
        argv.push(scope.expand(argument)?.into_bytes());
    }
    if argv.first().is_none_or(Vec::is_empty) {
        return Err(String::from("the command is empty"));
    }
    let cwd = match scope.expand(&command.cwd)? {
        cwd if cwd.is_empty() => directory.to_owned(),
        cwd => submit_dir.join(cwd),
    };
    if !command.cwd.is_empty() && !cwd.is_dir() {
        let cwd = cwd.display();
        return Err(format!("working directory '{cwd}' does not exist on {}", node(shared)));
    }
    let mut environment = environment(shared, launch, directory, submit_dir, &scope)?;
    for variable in &command.env {
        let value = scope.expand(&variable.value)?;
        push_variable(&mut environment, &variable.name, &value);
    }
    let start = Start {
        number,
        argv,
        environment,
        cwd: bytes_of(cwd),
        submit_dir: command.submit_dir.clone().into_bytes(),
        stdin: stdin(&scope.expand(&command.stdin)?, directory, submit_dir)?,
        time_limit_ns: launch.spec.time_limit_ns,
    };
    Ok((output_files, start))
}

/// Puts the objects of parents where the task expects them.
fn link_inputs(
    shared: &Shared,
    launch: &Launch,
    bare: &Scope<'_>,
    directory: &Path,
) -> Result<Vec<Named>, String> {
    let mut inputs = Vec::with_capacity(launch.inputs.len() + launch.spec.externals.len());
    for input in &launch.inputs {
        // Slots beyond the declared inputs only order.
        let Some(declared) = launch.spec.inputs.get(input.slot as usize) else { continue };
        let file = bare.expand(&declared.file)?;
        let target = place(directory, &file)?;
        let source = shared.objects.file(input.object).map_err(|error| match error {
            ObjectError::Absent(object) => {
                format!("input file '{file}': {object} is not on {}", node(shared))
            }
            _ => format!("input file '{file}': {error}"),
        })?;
        // A hard link stays whole even if the object is dropped meanwhile.
        let linked = fs::hard_link(&source, &target).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Err(error),
            _ => symlink(&source, &target),
        });
        linked.map_err(|error| format!("input file '{file}': {}", link_reason(&error)))?;
        inputs.push(Named { key: declared.key.clone(), path: text_of(&target) });
    }
    Ok(inputs)
}

/// Brings the files that a task wants staged to this node, those that are not here yet. Blocks.
pub(crate) fn bring_near(shared: &Shared, launch: &Launch) -> Result<Vec<StagedFile>, String> {
    let Some(wire::spec::Body::Command(command)) = &launch.spec.body else { return Ok(Vec::new()) };
    let (job, task) = (launch.task.job.0.to_string(), launch.task.local.to_string());
    let bare = Scope { entry: launch.entry, job: &job, task: &task, inputs: &[], outputs: &[] };
    let mut files = Vec::new();
    for external in launch.spec.externals.iter().filter(|external| external.staged) {
        let source = Path::new(&command.submit_dir).join(bare.expand(&external.path)?);
        let key = (launch.task, launch.attempt);
        let staged = shared.staged.get(&source, || shared.is_wanted(key));
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

/// Links the files that exist before the run.
fn link_externals(
    shared: &Shared,
    launch: &Launch,
    bare: &Scope<'_>,
    directory: &Path,
    submit_dir: &Path,
    inputs: &mut Vec<Named>,
) -> Result<(), String> {
    for external in &launch.spec.externals {
        let source = submit_dir.join(bare.expand(&external.path)?);
        let shown = source.display();
        if let Err(error) = fs::metadata(&source) {
            return Err(match error.kind() {
                io::ErrorKind::NotFound => format!("input file '{shown}' does not exist"),
                _ => format!("input file '{shown}': {}", reason(&error)),
            });
        }
        let file = match bare.expand(&external.file)? {
            file if file.is_empty() => {
                source.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            file => file,
        };
        let target = place(directory, &file)?;
        let linked = if external.staged {
            // It is here already, and stays for as long as the task has its link.
            let key = (launch.task, launch.attempt);
            let staged = shared.staged.get(&source, || shared.is_wanted(key));
            let staged = staged.map_err(|error| format!("input file '{shown}': {error}"))?;
            fs::hard_link(staged.path(), &target)
        } else {
            symlink(&source, &target)
        };
        linked.map_err(|error| format!("input file '{file}': {}", link_reason(&error)))?;
        inputs.push(Named { key: external.key.clone(), path: text_of(&target) });
    }
    Ok(())
}

fn link_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => String::from("two inputs have this name"),
        _ => reason(error),
    }
}

fn name_outputs(
    launch: &Launch,
    bare: &Scope<'_>,
    directory: &Path,
) -> Result<(Vec<Named>, Vec<OutputFile>), String> {
    let mut named = Vec::with_capacity(launch.spec.outputs.len());
    let mut files = Vec::with_capacity(launch.spec.outputs.len());
    for output in &launch.spec.outputs {
        let file = bare.expand(&output.file)?;
        let path = place(directory, &file)?;
        named.push(Named { key: output.key.clone(), path: text_of(&path) });
        files.push(OutputFile { key: output.key.clone(), path });
    }
    Ok((named, files))
}

/// Where a file of that name lies in the task's directory; its parents are made.
fn place(directory: &Path, file: &str) -> Result<PathBuf, String> {
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

/// The path of a task's standard input: a file of its own directory, or one beside the workflow.
fn stdin(path: &str, directory: &Path, submit_dir: &Path) -> Result<Vec<u8>, String> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let own = directory.join(path);
    let path = if own.exists() { own } else { submit_dir.join(path) };
    if !path.is_file() {
        return Err(format!("standard input '{}' is not a file", path.display()));
    }
    Ok(bytes_of(path))
}

fn environment(
    shared: &Shared,
    launch: &Launch,
    directory: &Path,
    submit_dir: &Path,
    scope: &Scope<'_>,
) -> Result<Vec<Vec<u8>>, String> {
    let mut out = Vec::with_capacity(12 + scope.inputs.len() + scope.outputs.len());
    let directory_text = text_of(directory);
    let cpus = launch.spec.cpus.max(1).to_string();
    push_variable(&mut out, "STARLING_JOB_ID", scope.job);
    push_variable(&mut out, "STARLING_TASK_ID", scope.task);
    push_variable(&mut out, "STARLING_ATTEMPT", &launch.attempt.to_string());
    push_variable(&mut out, "STARLING_ENTRY", &launch.entry.to_string());
    push_variable(&mut out, "STARLING_SUBMIT_DIR", &text_of(submit_dir));
    push_variable(&mut out, "STARLING_TASK_DIR", &directory_text);
    push_variable(&mut out, "STARLING_CPUS", &cpus);
    push_variable(&mut out, "STARLING_NODE", &shared.config.node.0.to_string());
    push_variable(&mut out, "TMPDIR", &directory_text);
    if std::env::var_os("OMP_NUM_THREADS").is_none() {
        push_variable(&mut out, "OMP_NUM_THREADS", &cpus);
    }
    push_inputs(&mut out, scope.inputs, directory)?;
    push_by_key(&mut out, "STARLING_IN_", scope.inputs);
    push_by_key(&mut out, "STARLING_OUT_", scope.outputs);
    Ok(out)
}

/// `STARLING_INPUTS`, or `STARLING_INPUTS_FILE` (a path to a line) when they are too many for the
/// kernel.
fn push_inputs(out: &mut Vec<Vec<u8>>, inputs: &[Named], directory: &Path) -> Result<(), String> {
    let all: Vec<_> = inputs.iter().map(|input| input.path.as_str()).collect();
    let spaced = all.join(" ");
    if spaced.len() < limits::ENVIRONMENT_STRING_BYTES_MAX / 2 {
        push_variable(out, "STARLING_INPUTS", &spaced);
        return Ok(());
    }
    let list = directory.join(".starling-inputs");
    fs::write(&list, all.join("\n") + "\n")
        .map_err(|error| format!("cannot write the list of inputs: {}", reason(&error)))?;
    push_variable(out, "STARLING_INPUTS_FILE", &text_of(&list));
    Ok(())
}

/// One variable per key. Where they would be too much for the kernel there are none: such a task
/// has `STARLING_INPUTS_FILE`.
fn push_by_key(out: &mut Vec<Vec<u8>>, prefix: &str, files: &[Named]) {
    let total_bytes: usize = files.iter().map(|file| file.path.len() + prefix.len()).sum();
    if total_bytes >= limits::ENVIRONMENT_STRING_BYTES_MAX / 2 {
        return;
    }
    let mut by_key: BTreeMap<&str, String> = BTreeMap::new();
    for file in files {
        let paths = by_key.entry(&file.key).or_default();
        if !paths.is_empty() {
            paths.push(' ');
        }
        paths.push_str(&file.path);
    }
    for (key, paths) in by_key {
        push_variable(out, &names::variable(prefix, key), &paths);
    }
}

fn push_variable(out: &mut Vec<Vec<u8>>, name: &str, value: &str) {
    let mut variable = Vec::with_capacity(name.len() + 1 + value.len());
    variable.extend_from_slice(name.as_bytes());
    variable.push(b'=');
    variable.extend_from_slice(value.as_bytes());
    out.push(variable);
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn bytes_of(path: PathBuf) -> Vec<u8> {
    OsString::from(path).into_vec()
}
