//! Between Starling and a command of the front: its directory, its files, its variables. It runs on
//! a node as the task's command, and becomes the command where nothing is left to do afterwards.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use client::{Client, ClientError};
use serde::{Deserialize, Serialize};

use crate::args::Pin;
use crate::records::{self, Submission};
use crate::workers;

/// The marker of a reason on the standard error that Starling captures.
pub(crate) const REASON: &str = "hq-reason: ";
/// The variable of a node with the names of its pools that are amounts.
pub(crate) const SUMS: &str = "HQ_SUMS";
/// The maximum of a reason that a task writes: with its escapes it fits into the end of standard
/// error that Starling keeps.
const REASON_BYTES_MAX: usize = 960;
const NOT_FOUND: u8 = 127;
const CANNOT_RUN: u8 = 126;

/// What is done around a command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) submission: Submission,
    /// Remove standard output and standard error of a task that is done.
    pub(crate) removes: [bool; 2],
    /// The key of the standard input.
    pub(crate) input: Option<String>,
    pub(crate) has_entries: bool,
    /// Starling keeps the output.
    #[serde(default)]
    pub(crate) is_streamed: bool,
}

impl Order {
    /// As an argument in which Starling finds no placeholder: in its texts `{` is escaped.
    pub(crate) fn text(&self) -> String {
        let json = serde_json::to_string(self).expect("texts and numbers always serialise");
        let (mut out, mut in_text, mut is_escaped) = (String::new(), false, false);
        for letter in json.chars() {
            match letter {
                '{' if in_text => out.push_str("\\u007b"),
                letter => out.push(letter),
            }
            match letter {
                _ if is_escaped => is_escaped = false,
                '\\' if in_text => is_escaped = true,
                '"' => in_text = !in_text,
                _ => {}
            }
        }
        out
    }
}

/// `JOB TASK ORDER`.
pub(crate) fn run(line: &[OsString]) -> ExitCode {
    let words: Vec<&str> = line.iter().filter_map(|word| word.to_str()).collect();
    let [job, task, order] = words[..] else { return ExitCode::from(2) };
    let Ok(order) = serde_json::from_str::<Order>(order) else { return ExitCode::from(2) };
    let names = Names { job, task, instance: instance() };
    // A failed start leaves the streams of the command in the place of those of this process.
    let captured = io::stderr().as_fd().try_clone_to_owned();
    match start(&order, &names) {
        Ok(code) => code,
        Err((code, reason)) => {
            let line = format!("{REASON}{}\n", reason.replace('\n', "\\n"));
            // Without the stream the exit code has to do.
            let _ = captured.map(File::from).and_then(|mut file| file.write_all(line.as_bytes()));
            ExitCode::from(code)
        }
    }
}

/// The number of earlier attempts.
fn instance() -> String {
    let attempt = std::env::var("STARLING_ATTEMPT").unwrap_or_default();
    let last = attempt.rsplit('.').next().and_then(|last| last.parse::<u64>().ok());
    last.unwrap_or(1).saturating_sub(1).to_string()
}

struct Names<'a> {
    job: &'a str,
    task: &'a str,
    instance: String,
}

impl Names<'_> {
    fn fill(&self, text: &str) -> String {
        text.replace("%{TASK_ID}", self.task)
            .replace("%{JOB_ID}", self.job)
            .replace("%{INSTANCE_ID}", &self.instance)
    }
}

type Reason = (u8, String);

fn cannot(what: &str, path: &str, error: &io::Error) -> Reason {
    (CANNOT_RUN, format!("Cannot use {what} `{path}`: {error}"))
}

fn create(path: &str) -> io::Result<File> {
    if let Some(parent) = Path::new(path).parent() {
        fs::create_dir_all(parent)?;
    }
    File::create(path)
}

fn start(order: &Order, names: &Names<'_>) -> Result<ExitCode, Reason> {
    let of = &order.submission;
    let cwd = names.fill(&of.cwd);
    fs::create_dir_all(&cwd).map_err(|error| cannot("working directory", &cwd, &error))?;
    let Some((program, rest)) = of.command.split_first() else {
        return Err((CANNOT_RUN, "the command is empty".to_owned()));
    };
    let cpus = std::env::var("STARLING_CPUS_LIST").unwrap_or_default();
    let mut command = match of.pin {
        Some(Pin::Taskset) if !cpus.is_empty() => {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpus]).arg(program);
            command
        }
        _ => Command::new(program),
    };
    command.args(rest).current_dir(&cwd);
    let mut files = Vec::new();
    for (at, path) in [&of.stdout, &of.stderr].into_iter().enumerate() {
        let path = path.as_ref().map(|path| names.fill(path));
        let stream = match &path {
            Some(path) => {
                let file = create(path).map_err(|error| cannot("output file", path, &error))?;
                Stdio::from(file)
            }
            // Starling keeps the output, as --stream asks for.
            None if order.is_streamed => Stdio::inherit(),
            None => Stdio::null(),
        };
        match at {
            0 => command.stdout(stream),
            _ => command.stderr(stream),
        };
        files.extend(path.filter(|_| order.removes[at]));
    }
    if let Some(key) = &order.input {
        let input = input(key).map_err(|why| (CANNOT_RUN, format!("standard input: {why}")))?;
        command.stdin(Stdio::from(input));
    }
    if of.nodes > 0 {
        name_workers(&mut command, names);
    }
    let reason_file = variables(&mut command, order, names, &cpus);
    if files.is_empty() && !of.task_dir {
        let error = command.exec();
        return Err(not_started(of, &cwd, &error));
    }
    let status = command.status().map_err(|error| not_started(of, &cwd, &error))?;
    if status.success() {
        for file in files {
            let _ = fs::remove_file(file);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    match reason_file.and_then(|path| fs::read(path).ok()) {
        Some(text) => Err((code as u8, own_reason(&text))),
        None => Ok(ExitCode::from(code as u8)),
    }
}

/// The reason that a task has written.
fn own_reason(text: &[u8]) -> String {
    if text.is_empty() {
        return "Task created an error file, but it is empty".to_owned();
    }
    let cut = &text[..text.len().min(REASON_BYTES_MAX)];
    let reason = String::from_utf8_lossy(cut).trim_end().to_owned();
    match text.len() > REASON_BYTES_MAX {
        true => format!("{reason}\n[The message was truncated]"),
        false => reason,
    }
}

/// Sets the variables; the path of the file for a reason, if there is one.
fn variables(
    command: &mut Command,
    order: &Order,
    names: &Names<'_>,
    cpus: &str,
) -> Option<String> {
    let of = &order.submission;
    command.env("HQ_JOB_ID", names.job).env("HQ_TASK_ID", names.task);
    command.env("HQ_INSTANCE_ID", &names.instance).env("HQ_SUBMIT_DIR", &of.submit_dir);
    if order.has_entries {
        command.env("HQ_ENTRY", std::env::var_os("STARLING_ENTRY").unwrap_or_default());
    }
    let sums = std::env::var(SUMS).unwrap_or_default();
    command.env_remove(SUMS);
    let ways = of.ways();
    let variant: usize =
        std::env::var("STARLING_VARIANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    if ways.len() > 1 {
        command.env("HQ_RESOURCE_VARIANT", variant.to_string());
    }
    for (name, text) in ways.get(variant).into_iter().flat_map(|way| &way.amounts) {
        let word: String =
            name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' }).collect();
        command.env(format!("HQ_RESOURCE_REQUEST_{word}"), text);
        let values = match name.as_str() {
            "cpus" => cpus.to_owned(),
            // An amount has no indices.
            name if sums.split(',').any(|sum| sum == name) => String::new(),
            _ => std::env::var(format!("STARLING_RESOURCE_{word}"))
                .or_else(|_| std::env::var(format!("STARLING_RESOURCE_{}", word.to_uppercase())))
                .unwrap_or_default(),
        };
        command.env(format!("HQ_RESOURCE_VALUES_{word}"), &values);
    }
    command.env("HQ_CPUS", cpus);
    if of.pin == Some(Pin::Omp) {
        command.env("OMP_PROC_BIND", "close").env("OMP_PLACES", format!("{{{cpus}}}"));
    }
    if of.pin == Some(Pin::Taskset) {
        command.env("HQ_PIN", "taskset");
    }
    let reason_file = of.task_dir.then(|| {
        let dir = std::env::var("STARLING_TASK_DIR").unwrap_or_default();
        command.env("HQ_TASK_DIR", &dir);
        let path = format!("{dir}/hq-error");
        command.env("HQ_ERROR_FILENAME", &path);
        path
    });
    command.envs(of.env.iter().map(|(name, value)| (name, value)));
    reason_file
}

fn not_started(of: &Submission, cwd: &str, error: &io::Error) -> Reason {
    let program = &of.command[0];
    let line = of.command.join(" ");
    let mut text = format!("Cannot execute \"{line}\": {error}");
    match error.kind() {
        io::ErrorKind::NotFound => {
            text.push_str(&format!(
                "\nThe program that you have tried to execute (`{program}`) was not found."
            ));
            let here = Path::new(cwd).join(program);
            if !program.contains('/') && here.is_file() {
                text.push_str(&format!(
                    "\nThe file `{}` exists, maybe you have meant `./{program}` instead?",
                    here.display()
                ));
            }
            (NOT_FOUND, text)
        }
        io::ErrorKind::PermissionDenied => {
            text.push_str(&format!(
                "\nThe script that you have tried to execute (`{program}`) is not executable.\nTry \
                 making it executable or add a shebang line to it."
            ));
            (CANNOT_RUN, text)
        }
        _ => (CANNOT_RUN, text),
    }
}

/// Asks the cluster of this task.
fn ask<T>(question: impl AsyncFnOnce(Client) -> Result<T, ClientError>) -> Result<T, String> {
    let dir = std::env::var_os("STARLING_DIR").ok_or("this task has no cluster")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let answer =
        runtime.block_on(async { question(Client::connect(Path::new(&dir)).await?).await });
    answer.map_err(|error| error.to_string())
}

/// Sets the variables of a task on several workers, writes the files with their names, and stores
/// the names for lists of tasks. Without an answer of the cluster there is only the file of hosts.
fn name_workers(command: &mut Command, names: &Names<'_>) {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    command.env("HQ_NUM_NODES", variable("STARLING_NODES"));
    let nodes = variable("STARLING_NODE_NAMES");
    let hosts = ask(async |client| {
        let known = workers::names(&client).await.unwrap_or_default();
        let host_of = |node: u32| known.get(&node).cloned();
        let host = |node: &str| node.strip_prefix('n')?.parse().ok().and_then(host_of);
        let hosts = nodes.split(' ').map(|node| host(node).unwrap_or_else(|| node.to_owned()));
        let hosts: Vec<String> = hosts.collect();
        records::note_hosts(&client, (names.job, names.task), &hosts).await?;
        Ok(hosts)
    });
    let Ok(hosts) = hosts else {
        command.env("HQ_NODE_FILE", variable("STARLING_NODEFILE"));
        return;
    };
    let dir = variable("STARLING_TASK_DIR");
    let short = |host: &String| host.split('.').next().unwrap_or_default().to_owned();
    for (name, file, lines) in [
        ("HQ_NODE_FILE", "hq-nodes", hosts.iter().map(short).collect::<Vec<_>>()),
        ("HQ_HOST_FILE", "hq-hosts", hosts.clone()),
    ] {
        let path = format!("{dir}/{file}");
        if fs::write(&path, lines.join("\n") + "\n").is_ok() {
            command.env(name, path);
        }
    }
}

/// The standard input from the store, in a file without a name.
fn input(key: &str) -> Result<File, String> {
    let value = ask(async |client| client.kv().lookup(key.as_bytes()).await)?;
    let value = value.ok_or("it is gone")?;
    let path = std::env::temp_dir().join(format!(".hq-stdin-{}", std::process::id()));
    let make = || {
        let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        file.write_all(&value.bytes)?;
        file.rewind()?;
        Ok::<File, io::Error>(file)
    };
    make().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_no_placeholders() {
        let command = ["a{job}", "\"{i}\"", "{{task}}\\"].map(str::to_owned).to_vec();
        let submission = Submission { command, ..Submission::default() };
        let order = Order {
            submission,
            removes: [false; 2],
            input: None,
            has_entries: false,
            is_streamed: false,
        };
        let text = order.text();
        assert!(!text.contains("{job}") && !text.contains("{i}") && !text.contains("{task}"));
        assert_eq!(serde_json::from_str::<Order>(&text).unwrap(), order);
    }

    #[test]
    fn reasons_are_bounded() {
        assert_eq!(own_reason(b"why\n"), "why");
        assert!(own_reason(b"").contains("empty"));
        assert!(own_reason(&[b'a'; 10_000]).ends_with("aaa\n[The message was truncated]"));
    }
}
