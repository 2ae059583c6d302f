//! `starling spawn`: makes tasks from inside a task.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use client::{ChildOutput, SpawnedTasks, TaskRef};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard, plain};
use verb::flags::needs::NeedsArgs;
use verb::units::Timespan;
use workloads::Graph;

use crate::cluster::submit::{text_of_cwd, variable};
use crate::inside::handles::{self, Handles};
use crate::inside::{door, failure};

#[derive(Args, Debug)]
pub(crate) struct SpawnArgs {
    /// The same key names the same tasks in each attempt of this task: they are made once
    #[arg(long, value_name = "K")]
    key: Option<String>,
    /// One task for each number, for example 1-1000 or 1,3,5-9; {i} becomes the number
    #[arg(long, value_name = "NUMBERS")]
    array: Option<String>,
    /// Files that the command reads; they appear in its directory. ID:FILE for an output of a child
    /// of this task, such as 0:part.txt
    #[arg(long = "in", value_name = "FILE", num_args = 1..)]
    inputs: Vec<String>,
    /// Files on a file system that all nodes see; each node copies them to its own store, once
    #[arg(long, value_name = "FILE", num_args = 1..)]
    stage_in: Vec<String>,
    /// Files that the command writes; DIRECTORY/ for the content of a directory, glob:PATTERN for
    /// all files that match
    #[arg(long = "out", value_name = "FILE", num_args = 1..)]
    outputs: Vec<String>,
    /// Start after these children, such as 0 or 2-5
    #[arg(long, value_name = "ID", num_args = 1..)]
    after: Vec<Handles>,
    #[command(flatten)]
    needs: NeedsArgs,
    /// Name in lists
    #[arg(long)]
    name: Option<String>,
    /// The command's working directory [default: a directory of its own]
    #[arg(long, value_name = "DIRECTORY")]
    cwd: Option<PathBuf>,
    /// A variable of the command's environment; without a value, its value here
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// The standard input of the command [default: nothing]
    #[arg(long, value_name = "FILE")]
    stdin: Option<String>,
    /// Further attempts after a failed one
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// A task that takes longer is killed and fails
    #[arg(long, value_name = "DURATION")]
    time_limit: Option<Timespan>,
    /// The command gets signal S this long before its time limit or its node ends, and at once when
    /// its node is drained, such as USR1@60s or TERM; once in each attempt [default: none]
    #[arg(long, value_name = "S@TIME")]
    signal: Option<workloads::Notice>,
    /// Pin the command to the cpus that it gets: taskset by its affinity, omp by the places of
    /// OpenMP [default: it may use all cpus of the node]
    #[arg(long, value_name = "HOW")]
    pin: Option<workloads::CpuPin>,
    /// Fail a task when its node or spawner has died this often, whatever the cause: a number,
    /// never-restart (the first time) or unlimited [default: 3 deaths that the task may have
    /// caused]
    #[arg(long, value_name = "LIMIT")]
    crash_limit: Option<workloads::CrashLimit>,
    /// The command and its arguments; options precede it, and -- may
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = false,
        required = true,
        value_name = "COMMAND"
    )]
    command: Vec<String>,
}

#[derive(Serialize)]
struct Spawned {
    handle: String,
    first: u64,
    tasks: u64,
    /// An earlier attempt has made them.
    known: bool,
}

pub(crate) fn run(context: &Context, args: &SpawnArgs) -> Done {
    let door = door()?;
    if args.key.as_deref() == Some("") {
        return Err(Failure::usage("--key: it is empty").hint("leave it out, or name the task"));
    }
    let job = std::env::var("STARLING_JOB_ID").ok();
    let (after, all) = handles::resolve(&args.after, job.as_deref()).map_err(|problem| {
        Failure::refused(format!("--after: {problem}"))
            .hint("name children of this task, such as 0 or 2-5")
    })?;
    if all {
        return Err(Failure::usage("--after: 'all' is for 'starling await'")
            .hint("name the children, such as 0-9"));
    }
    let graph = graph(args)?;
    let key = args.key.clone().unwrap_or_default();
    let spec = client::raw::task_spec(Arc::new(graph.specs()[0].clone()));
    let entries = ranges(graph.tasks().map(|task| task.entry));
    let inputs = args.inputs.iter().filter_map(|text| output_input(text)).collect();
    let spawned = client::Spawn { key, spec, entries, after, inputs };
    let spawned = door.spawn(spawned).map_err(failure)?;
    let handle = handles::range_text(spawned.first, spawned.count);
    heard(match context.output.json {
        true => {
            let SpawnedTasks { first, count: tasks, known } = spawned;
            context.output.json(&Spawned { handle, first, tasks, known })
        }
        false => context.output.line(&handle),
    })?;
    Ok(Exit::Ok)
}

fn graph(args: &SpawnArgs) -> Result<Graph, Failure> {
    let options = workloads::CommandOptions {
        array: args.array.clone(),
        inputs: args.inputs.iter().filter(|text| output_input(text).is_none()).cloned().collect(),
        staged: args.stage_in.clone(),
        outputs: args.outputs.clone(),
        needs: args.needs.needs(),
        priority: args.needs.priority(),
        rank: args.needs.rank(),
        time_request_ns: args.needs.time_request_ns(),
        name: args.name.clone(),
        cwd: text_of_cwd(args.cwd.as_deref())?,
        submit_dir: submit_dir()?,
        env: args.env.iter().map(|text| variable(text)).collect::<Result<_, _>>()?,
        stdin: args.stdin.clone(),
        retries: args.retries,
        time_limit_ns: args.time_limit.map_or(0, |limit| limit.0.as_nanos() as u64),
        notice: args.signal,
        pin: args.pin,
        ..workloads::CommandOptions::default()
    };
    let mut graph = Graph::command(args.command.clone(), &options)?;
    if let Some(limit) = args.crash_limit {
        graph.set_crash_limit(limit);
    }
    Ok(graph)
}

/// `0:FILE`: an output of a child, as its `--out` has it. Other texts are files.
fn output_input(text: &str) -> Option<ChildOutput> {
    let (child, output) = text.split_once(':').filter(|(_, output)| !output.is_empty())?;
    let task = TaskRef::Child(child.parse().ok()?);
    Some(ChildOutput { task, output: output.to_owned() })
}

/// Relative paths begin at the job's submit directory: the task's own directory goes away.
fn submit_dir() -> Result<PathBuf, Failure> {
    match std::env::var_os("STARLING_SUBMIT_DIR").map(PathBuf::from) {
        Some(dir) if dir.is_absolute() => Ok(dir),
        _ => std::env::current_dir()
            .map_err(|error| Failure::refused(format!("no working directory: {}", plain(&error)))),
    }
}

/// Runs of consecutive entries.
fn ranges(entries: impl Iterator<Item = u64>) -> Vec<RangeInclusive<u64>> {
    let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
    for entry in entries {
        match ranges.last_mut() {
            Some(last) if last.end().checked_add(1) == Some(entry) => {
                *last = *last.start()..=entry;
            }
            _ => ranges.push(entry..=entry),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_with_a_handle_is_an_output_of_a_child() {
        let read = |text| output_input(text);
        let output = "a/b:c".to_owned();
        assert_eq!(read("12:a/b:c"), Some(ChildOutput { task: TaskRef::Child(12), output }));
        for file in ["a", "a:b", ":b", "1:", "/x/1:b", "-1:b", "3.17:b"] {
            assert_eq!(read(file), None, "{file}");
        }
    }

    #[test]
    fn entries_are_sent_as_ranges() {
        let pairs = |entries: &[u64]| {
            let ranges = ranges(entries.iter().copied());
            ranges.iter().map(|it| (*it.start(), *it.end())).collect::<Vec<_>>()
        };
        assert_eq!(pairs(&[1, 2, 3, 7, 9, 10]), [(1, 3), (7, 7), (9, 10)]);
        assert_eq!(pairs(&[3, 2, u64::MAX]), [(3, 3), (2, 2), (u64::MAX, u64::MAX)]);
        assert_eq!(pairs(&[]), []);
    }
}
