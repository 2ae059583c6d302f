//! Builds the graph of one command line, for `starling submit -- COMMAND`.

use std::path::{Path, PathBuf};

use proto::wire::OutputForm;

use crate::formats::error::{LoadError, Problem};
use crate::formats::toml_file::array::Array;
use crate::formats::toml_file::assemble::assemble;
use crate::formats::toml_file::function::of_arguments;
use crate::formats::toml_file::table::{Body, ExternalFileUse, InputFile, OutputFile, TaskTable};
use crate::formats::toml_file::{Fault, Located};
use crate::graph::Graph;
use crate::graph::needs::Needs;
use crate::graph::notice::Notice;
use crate::graph::pin::CpuPin;

/// The place where requests are described.
const NEEDS_HINT: &str = "docs/resources.md describes requests";

/// The options of a command besides its arguments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandOptions {
    /// `1-40`: one task per number, which replaces `{i}`.
    pub array: Option<String>,
    /// One task for each value, which is its variable STARLING_ENTRY. They are numbered from 0;
    /// with an array only those of its numbers.
    pub values: Option<Vec<String>>,
    /// Files for the output, below `submit_dir` unless absolute.
    pub stdout: Option<String>,
    pub stderr: Option<String>,
    /// `FILE` or `KEY=FILE`; without a key it is numbered from 1.
    pub inputs: Vec<String>,
    /// As `inputs`, copied once to each node that reads them.
    pub staged: Vec<String>,
    /// As `inputs`, from the submitter's machine.
    pub uploads: Vec<String>,
    /// `FILE` or `KEY=FILE`; they are kept. `DIRECTORY/` is a whole directory, `glob:PATTERN` all
    /// files that match.
    pub outputs: Vec<String>,
    /// Executing slots; 0 means 1. Not used if `needs` has cpus.
    pub cpus: u32,
    pub needs: Needs,
    /// The task with the highest priority is first.
    pub priority: i32,
    /// Of tasks of one priority, the highest rank is first; 0: the nodes rank the task.
    pub rank: u32,
    /// Nodes that the task holds at once; 0 and 1: one.
    pub nodes: u32,
    /// The expected time from start to end; 0: unknown.
    pub time_request_ns: u64,
    pub retries: u32,
    /// As in a spec.
    pub crash_limit: u32,
    /// 0: none.
    pub time_limit_ns: u64,
    /// The signal that the command gets before an end.
    pub notice: Option<Notice>,
    /// `None`: the command is not pinned to its cpus.
    pub pin: Option<CpuPin>,
    /// Default: the program's name.
    pub name: Option<String>,
    pub cwd: Option<String>,
    pub env: Vec<(String, String)>,
    pub stdin: Option<String>,
    /// `module:name`: the task calls this function, with the arguments as JSON values.
    pub function: Option<String>,
    /// The directory of relative paths; must be absolute.
    pub submit_dir: PathBuf,
}

impl Graph {
    /// A graph of one command, or of an array of it.
    ///
    /// # Errors
    /// An invalid array or file name, or an input that does not exist.
    ///
    /// # Panics
    /// When there is no program, or `submit_dir` is relative.
    pub fn command(argv: Vec<String>, options: &CommandOptions) -> Result<Self, LoadError> {
        let is_function = options.function.is_some();
        assert!(!argv.is_empty() || is_function, "a command begins with its program");
        assert!(options.submit_dir.is_absolute(), "relative paths need a known beginning");
        let name = match options.name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => name.to_owned(),
            None => match &options.function {
                Some(function) => function.replace(':', "."),
                None => crate::formats::detect::stem(&argv[0]),
            },
        };
        let build = || {
            let table = table(&name, argv, options)?;
            assemble(&proto::entry::strip(&name), &[table], &options.submit_dir, false)
        };
        build().map_err(|fault: Fault| LoadError::new("", of_command(fault.problem, options)))
    }
}

/// There is no workflow file: a file that cannot be used is named with its whole path.
fn of_command(problem: Problem, options: &CommandOptions) -> Problem {
    let (file, reason) = match problem {
        Problem::FileNotFound { file, .. } => (file, None),
        Problem::FileUnreadable { file, reason, .. } => (file, Some(reason)),
        problem => return problem,
    };
    let path = options.submit_dir.join(&file);
    let reason = reason.unwrap_or_else(|| match path.is_symlink() {
        true => "it is a link to a file that does not exist".to_owned(),
        false => "no such file".to_owned(),
    });
    Problem::InputNotFound { file, path: path.display().to_string(), reason }
}

/// The name and the form of an output that is written as `FILE`, `DIRECTORY/` or `glob:PATTERN`.
#[must_use]
pub fn output_form(text: &str) -> (&str, OutputForm) {
    if let Some(pattern) = text.strip_prefix("glob:") {
        (pattern, OutputForm::Files)
    } else if let Some(directory) = text.strip_suffix('/') {
        (directory, OutputForm::Directory)
    } else {
        (text, OutputForm::File)
    }
}

/// All are kept.
fn output(key: String, mut file: Located<String>) -> OutputFile {
    let (name, form) = output_form(&file.value);
    file.value = name.to_owned();
    let (optional, keep, replicas, size_bytes) = (false, true, 0, 0);
    OutputFile { key, file, keep, replicas, form, optional, size_bytes }
}

fn values_and_streams(table: &mut TaskTable, options: &CommandOptions) -> Result<(), String> {
    if let Some(values) = &options.values {
        take_values(table, values)?;
    }
    let tasks = table.array.as_ref().map(Array::count);
    let path =
        |given: &Option<String>| output_path(given.as_deref().unwrap_or_default(), options, tasks);
    table.stdout = path(&options.stdout)?;
    table.stderr = path(&options.stderr)?;
    Ok(())
}

/// One task for each value; the numbers of an array select some.
fn take_values(table: &mut TaskTable, values: &[String]) -> Result<(), String> {
    let last = values.len().checked_sub(1).ok_or("there are no entries")?;
    let is_wanted =
        |at: &u64| table.array.as_ref().is_none_or(|array| array.position(*at).is_some());
    let beyond =
        table.array.as_ref().and_then(|array| array.elements().find(|at| *at > last as u64));
    if let Some(beyond) = beyond {
        let count = values.len();
        return Err(format!("the array has {beyond}, and there are {count} entries: 0 to {last}"));
    }
    let numbers: Vec<u64> = (0..=last as u64).filter(is_wanted).collect();
    let zero = values.iter().position(|value| value.contains('\0'));
    if let Some(at) = zero {
        return Err(format!("entry {at} has a zero byte, which no variable may have"));
    }
    table.array = Some(Array::of(&numbers));
    table.values = numbers.iter().map(|&at| (at, values[at as usize].clone())).collect();
    Ok(())
}

/// The template of a file for the output of a command. `tasks`: the number of an array's tasks.
fn output_path(text: &str, options: &CommandOptions, tasks: Option<u32>) -> Result<String, String> {
    let directory = options.submit_dir.to_string_lossy();
    let directory = proto::entry::literal_in_command(&directory, tasks.is_some());
    let cwd = options.cwd.as_deref().map(|cwd| Path::new(&directory).join(cwd));
    let cwd = cwd.map_or_else(|| directory.clone(), |cwd| cwd.display().to_string());
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("%{") {
        let (name, after) =
            after.split_once('}').ok_or_else(|| format!("'{text}' has a %{{ without its }}"))?;
        out.push_str(before);
        match name {
            "JOB_ID" => out.push_str("{job}"),
            "TASK_ID" => out.push_str(if tasks.is_some() { "{i}" } else { "{task}" }),
            "INSTANCE_ID" => out.push_str("%{INSTANCE_ID}"),
            "SUBMIT_DIR" => out.push_str(&directory),
            "CWD" => out.push_str(&cwd),
            _ => {
                return Err(format!(
                    "'{text}': there is no placeholder %{{{name}}}; there are {OUTPUT_PLACEHOLDERS}"
                ));
            }
        }
        rest = after;
    }
    out.push_str(rest);
    let is_own = ["{i}", "{task}"].iter().any(|own| out.contains(own));
    if tasks.is_some_and(|tasks| tasks > 1) && !is_own && !matches!(text, "" | "none") {
        return Err(format!(
            "all tasks of the array would write to '{text}'; hint: %{{TASK_ID}} in the path"
        ));
    }
    Ok(out)
}

const OUTPUT_PLACEHOLDERS: &str = "JOB_ID, TASK_ID, INSTANCE_ID, CWD and SUBMIT_DIR";

fn table(name: &str, argv: Vec<String>, options: &CommandOptions) -> Result<TaskTable, Fault> {
    let body = match &options.function {
        Some(function) => Body::Function(of_arguments(function, &argv)?),
        None => Body::Command(argv),
    };
    let mut table = TaskTable::bare(name, body);
    if let Some(text) = &options.array {
        table.array = Some(Array::parse(text).map_err(|reason| Fault::task(None, name, reason))?);
    }
    values_and_streams(&mut table, options).map_err(|reason| Fault::task(None, name, reason))?;
    let keyed = |(at, text): (usize, &String)| match text.split_once('=') {
        Some((key, file)) => (key.to_owned(), Located::nowhere(file.to_owned())),
        None => ((at + 1).to_string(), Located::nowhere(text.clone())),
    };
    let brought = |files: &[String], bring| vec![bring; files.len()];
    let brings = [
        brought(&options.inputs, ExternalFileUse::Not),
        brought(&options.staged, ExternalFileUse::Stage),
        brought(&options.uploads, ExternalFileUse::Upload),
    ];
    table.inputs = [&options.inputs[..], &options.staged, &options.uploads]
        .into_iter()
        .flatten()
        .enumerate()
        .map(keyed)
        .zip(brings.concat())
        .map(|((key, file), bring)| InputFile {
            key,
            file,
            name: None,
            modelled_bytes: None,
            bring,
            is_result: false,
        })
        .collect();
    table.outputs = options
        .outputs
        .iter()
        .enumerate()
        .map(keyed)
        .map(|(key, file)| output(key, file))
        .collect();
    let mut needs = options.needs.clone();
    if needs.cpus.is_empty() && options.cpus > 1 {
        needs.cpus = options.cpus.to_string();
    }
    let requested = needs.of_gang(options.nodes, false).and_then(|needs| needs.request());
    table.requested =
        requested.map_err(|reason| Fault::task(None, name, reason).with_hint(NEEDS_HINT))?;
    table.nodes = options.nodes;
    (table.priority, table.rank) = (options.priority, options.rank);
    table.time_request_ns = options.time_request_ns;
    table.retries = options.retries;
    table.crash_limit = options.crash_limit;
    (table.time_limit_ns, table.notice) = (options.time_limit_ns, options.notice);
    table.pin = options.pin;
    table.cwd.clone_from(&options.cwd);
    table.env.clone_from(&options.env);
    table.stdin = options.stdin.clone().map(Located::nowhere);
    if let Body::Function(call) = &table.body {
        call.check_size(&table.name)?;
        table.give_result()?;
        table.outputs[0].keep = true;
    }
    table.check()?;
    Ok(table)
}
