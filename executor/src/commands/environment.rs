//! The environment of a command, and the lists of its input files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use proto::work::Launch;
use proto::{entry, wire};

use crate::commands::doorway::push_entrance;
use crate::commands::expand::{Named, Scope};
use crate::commands::gang::push_gang;
use crate::commands::names;
use crate::commands::resources::{cpus_of, push_resources};
use crate::commands::stage::text_of;
use crate::error::reason;
use crate::executor::Shared;

/// The total size of the texts that replace lists which do not fit into those variables.
const ENVIRONMENT_NOTICES_BYTES_MAX: usize = 256 << 10;

/// The kernel's bound on one string of an environment (MAX_ARG_STRLEN).
const ENVIRONMENT_STRING_BYTES_MAX: usize = 128 << 10;
/// The total size of path lists in all `STARLING_IN_` or `STARLING_OUT_` variables of a command.
const ENVIRONMENT_LISTS_BYTES_MAX: usize = 64 << 10;

/// The name of a file below a list of inputs. No such file can exist; the name points to the
/// variable to use instead.
const TOO_LONG: &str = "this-list-is-too-long-for-a-variable-read-STARLING_INPUTS_FILE";
/// The two lists in a task's directory: one path on each line, and a zero byte after each path.
const LIST: &str = ".starling-inputs";
const LIST0: &str = ".starling-inputs0";
/// In the state directory: the list of all tasks without inputs.
const EMPTY_LIST: &str = "no-inputs";

/// Makes the list that tasks without inputs share. It is read-only.
pub(crate) fn make_empty_list(state_dir: &Path) -> io::Result<PathBuf> {
    let path = state_dir.join(EMPTY_LIST);
    let _ = fs::remove_file(&path);
    fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(&path)?;
    Ok(path)
}

/// The entry of a task of an array. The name of such a task has a placeholder.
pub(crate) fn entry_of(launch: &Launch) -> Option<u64> {
    entry::is_template(&launch.spec.name).then_some(launch.entry)
}

/// The own value of a task, else its number.
fn value_of(launch: &Launch, width: usize) -> String {
    match launch.payload.strip_prefix(b"=") {
        Some(value) => String::from_utf8_lossy(value).into_owned(),
        None => entry::text(launch.entry, width),
    }
}

pub(crate) fn environment(
    shared: &Shared,
    launch: &Launch,
    directory: &Path,
    command: &wire::Command,
    scope: &Scope<'_>,
) -> Result<Vec<Vec<u8>>, String> {
    let mut out = Vec::with_capacity(16 + scope.inputs.len() + scope.outputs.len());
    let directory_text = text_of(directory);
    let cpus = cpus_of(launch).to_string();
    let width = entry::split(&launch.spec.name).map_or(1, |split| split.width);
    push_variable(&mut out, "STARLING_JOB_ID", scope.job);
    push_variable(&mut out, "STARLING_TASK_ID", scope.task);
    push_variable(&mut out, "STARLING_ATTEMPT", &launch.attempt.to_string());
    push_variable(&mut out, "STARLING_ENTRY", &value_of(launch, width));
    push_variable(&mut out, "STARLING_SUBMIT_DIR", &command.submit_dir);
    push_variable(&mut out, "STARLING_TASK_DIR", &directory_text);
    push_variable(&mut out, "STARLING_CPUS", &cpus);
    push_variable(&mut out, "STARLING_NODE", &shared.config.node.0.to_string());
    if let Some(dir) = &shared.config.instance_dir {
        push_variable(&mut out, "STARLING_DIR", &text_of(dir));
    }
    push_variable(&mut out, "TMPDIR", &directory_text);
    if std::env::var_os("OMP_NUM_THREADS").is_none() {
        push_variable(&mut out, "OMP_NUM_THREADS", &cpus);
    }
    push_resources(&mut out, &shared.config.gpu_pools, launch.granted.as_deref());
    if !launch.spec.request.is_empty() {
        let variant = launch.granted.as_ref().map_or(0, |granted| granted.variant);
        push_variable(&mut out, "STARLING_VARIANT", &variant.to_string());
    }
    push_gang(&mut out, &shared.config, &launch.gang, directory)?;
    if let Some(doorway) = &shared.config.doorway {
        push_entrance(&mut out, &**doorway, launch, directory)?;
    }
    let lists = Lists::of(shared, scope.inputs, directory)?;
    push_variable(&mut out, "STARLING_INPUTS_FILE", &text_of(&lists.lines));
    push_variable(&mut out, "STARLING_INPUTS_FILE0", &text_of(&lists.zeros));
    let notice = text_of(&lists.lines.join(TOO_LONG));
    let all = spaced(scope.inputs.iter().map(|input| input.path.as_str()));
    push_variable(&mut out, "STARLING_INPUTS", all.as_deref().unwrap_or(&notice));
    push_by_key(&mut out, "STARLING_IN_", scope.inputs, &notice);
    push_by_key(&mut out, "STARLING_OUT_", scope.outputs, &notice);
    Ok(out)
}

struct Lists {
    lines: PathBuf,
    zeros: PathBuf,
}

impl Lists {
    /// Writes both lists. Tasks without inputs share an empty one.
    fn of(shared: &Shared, inputs: &[Named], directory: &Path) -> Result<Self, String> {
        if inputs.is_empty() {
            let empty = &shared.empty_list;
            return Ok(Self { lines: empty.clone(), zeros: empty.clone() });
        }
        let write = |name: &str, after: char| {
            let mut text = String::new();
            for input in inputs {
                text.push_str(&input.path);
                text.push(after);
            }
            let path = directory.join(name);
            fs::write(&path, text)
                .map_err(|error| format!("cannot write the list of inputs: {}", reason(&error)))?;
            Ok::<PathBuf, String>(path)
        };
        Ok(Self { lines: write(LIST, '\n')?, zeros: write(LIST0, '\0')? })
    }
}

/// The paths separated by spaces, if a variable may be that long.
fn spaced<'p>(paths: impl Iterator<Item = &'p str>) -> Option<String> {
    let mut out = String::new();
    for path in paths {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(path);
        if out.len() >= ENVIRONMENT_STRING_BYTES_MAX / 2 {
            return None;
        }
    }
    Some(out)
}

/// Adds one variable for each key. Their total is bounded, as the kernel bounds it. Beyond the
/// bound a key gets the notice, and beyond a second bound no variable.
fn push_by_key(out: &mut Vec<Vec<u8>>, prefix: &str, files: &[Named], notice: &str) {
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        by_key.entry(&file.key).or_default().push(&file.path);
    }
    let (mut lists_bytes, mut notices_bytes) = (0, 0);
    for (key, paths) in by_key {
        let name = names::variable(prefix, key);
        let paths = spaced(paths.into_iter());
        match paths.filter(|paths| lists_bytes + paths.len() < ENVIRONMENT_LISTS_BYTES_MAX) {
            Some(paths) => {
                lists_bytes += paths.len() + name.len();
                push_variable(out, &name, &paths);
            }
            None if notices_bytes < ENVIRONMENT_NOTICES_BYTES_MAX => {
                notices_bytes += notice.len() + name.len();
                push_variable(out, &name, notice);
            }
            None => {}
        }
    }
}

pub(crate) fn push_variable(out: &mut Vec<Vec<u8>>, name: &str, value: &str) {
    let mut variable = Vec::with_capacity(name.len() + 1 + value.len());
    variable.extend_from_slice(name.as_bytes());
    variable.push(b'=');
    variable.extend_from_slice(value.as_bytes());
    out.push(variable);
}
