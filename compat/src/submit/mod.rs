//! `hq submit`: one graph of Starling, or tasks of an open job.

mod request;
mod templates;

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use client::{
    Client, GraphBuilder, GraphTask, JobSettings, NewTask, Openness, SubmitOptions, TaskSpec,
};
use proto::JobId;
use verb::errors::{Failure, plain};

use crate::args::{Form, SubmitArgs};
use crate::cluster::Front;
use crate::records::{self, Submission};
use crate::{TASK_VERB, jobs, task};

/// The maximum of the standard input that is given to tasks: a value of the store.
const INPUT_BYTES_MAX: u64 = 8 << 20;

/// The standard input of this command, for the tasks.
pub(crate) fn read_input() -> Result<Vec<u8>, Failure> {
    let mut input = Vec::new();
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(Failure::usage("--stdin: the standard input is a terminal"));
    }
    stdin
        .lock()
        .take(INPUT_BYTES_MAX + 1)
        .read_to_end(&mut input)
        .map_err(|error| Failure::refused(format!("standard input: {}", plain(&error))))?;
    match input.len() as u64 > INPUT_BYTES_MAX {
        true => Err(Failure::refused("the standard input has more than 8 MiB")),
        false => Ok(input),
    }
}

pub(crate) fn run(front: &Front, args: &SubmitArgs) -> Result<ExitCode, Failure> {
    for warning in templates::warnings(args) {
        front.context.output.line(&format!("WARN {warning}"))?;
    }
    let (values, ids) = entries(args)?;
    verb::block_on(async {
        let client = front.connect().await?;
        let job = match &args.job {
            Some(selector) => add(&client, args, selector, ids, values.as_deref()).await?,
            None => {
                let ids = ids.unwrap_or_else(|| vec![0]);
                submit(&client, args, ids, values.as_deref()).await?
            }
        };
        match front.form {
            Form::Quiet => front.context.output.line(&job.0.to_string())?,
            Form::Json => front.context.output.raw_line(&format!("{{\"id\":{}}}", job.0))?,
            Form::Cli => {
                let text = format!("Job submitted successfully, job ID: {}", job.0);
                front.context.output.line(&text)?;
            }
        }
        if args.wait {
            jobs::wait(&client, job).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

type Entries = (Option<Vec<String>>, Option<Vec<u64>>);

/// The values of tasks, and their numbers; `None`: one task.
fn entries(args: &SubmitArgs) -> Result<Entries, Failure> {
    let read =
        |path: &Path| std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error));
    let values: Option<Vec<String>> = match (&args.each_line, &args.from_json) {
        (Some(path), _) => Some(read(path)?.lines().map(str::to_owned).collect()),
        (None, Some(path)) => {
            let value = serde_json::from_str(&read(path)?)
                .map_err(|error| Failure::refused(format!("{}: {error}", path.display())))?;
            let serde_json::Value::Array(values) = value else {
                let text = "The top element of the provided JSON file has to be an array";
                return Err(Failure::refused(text));
            };
            Some(values.iter().map(ToString::to_string).collect())
        }
        (None, None) => None,
    };
    let ids = match (&values, &args.array) {
        (Some(values), array) => {
            let count = values.len() as u64;
            let chosen: BTreeSet<u64> = match array {
                Some(ids) => ids.0.iter().copied().filter(|&id| id < count).collect(),
                None => (0..count).collect(),
            };
            Some(chosen.into_iter().collect())
        }
        (None, Some(ids)) => {
            let ids: BTreeSet<u64> = ids.0.iter().copied().collect();
            Some(ids.into_iter().collect())
        }
        (None, None) => None,
    };
    match ids {
        Some(ids) if Vec::is_empty(&ids) => Err(Failure::refused("the job has no tasks")),
        ids => Ok((values, ids)),
    }
}

/// The value of a task.
fn value_of(values: Option<&[String]>, id: u64) -> Option<String> {
    values.and_then(|values| values.get(id as usize)).cloned()
}

async fn submit(
    client: &Client,
    args: &SubmitArgs,
    ids: Vec<u64>,
    values: Option<&[String]>,
) -> Result<JobId, Failure> {
    let name = name_of(args)?;
    // The number of the job stands in its own texts.
    let mut empty = GraphBuilder::new(&name);
    empty.task(&TaskSpec::noop(), GraphTask::default());
    let job = client.plan(&empty.finish()?, &SubmitOptions::default()).await?.job();
    let (spec, submission) = describe(args, job, ids)?;
    let mut graph = GraphBuilder::new(&name);
    for &entry in &submission.ids {
        let value = value_of(values, entry);
        graph.task(&spec, GraphTask { entry, value, ..GraphTask::default() });
    }
    let settings =
        JobSettings { real_data: true, max_fails: args.max_fails, ..JobSettings::default() };
    let options = SubmitOptions { name, job: Some(job), settings, ..SubmitOptions::default() };
    let graph = graph.finish()?;
    note(client, args, job, submission).await?;
    client.submit(&graph, options).await?;
    Ok(job)
}

/// Adds tasks to an open job.
async fn add(
    client: &Client,
    args: &SubmitArgs,
    selector: &crate::words::Selector,
    ids: Option<Vec<u64>>,
    values: Option<&[String]>,
) -> Result<JobId, Failure> {
    for (option, is_given) in
        [("--name", args.name.is_some()), ("--max-fails", args.max_fails.is_some())]
    {
        if is_given {
            return Err(Failure::usage(format!(
                "Parameter {option} is not allowed when submitting to an open job."
            )));
        }
    }
    let present = jobs::states(client).await?;
    let numbers: Vec<u64> = present.iter().map(|state| state.id.0).collect();
    let Some(&job) = selector.pick(&numbers).first() else {
        return Err(Failure::refused("there is no job"));
    };
    match present.iter().find(|state| state.id.0 == job).map(|state| state.openness) {
        None => return Err(Failure::refused(format!("Job {job} not found"))),
        Some(Openness::Open) => {}
        Some(_) => return Err(Failure::refused(format!("Job {job} is not open"))),
    }
    let job = JobId(job);
    let record = records::job(client, job).await?;
    let known: BTreeSet<u64> = record.submissions.iter().flat_map(|it| &it.ids).copied().collect();
    let too_high = || Failure::refused(format!("job {} has no number for a further task", job.0));
    let next = match known.last() {
        Some(last) => last.checked_add(1).ok_or_else(too_high)?,
        None => 0,
    };
    let ids = match ids {
        None => vec![next],
        Some(ids) if values.is_none() => ids,
        Some(ids) => {
            let later = ids.into_iter().map(|id| id.checked_add(next).ok_or_else(too_high));
            later.collect::<Result<_, _>>()?
        }
    };
    if let Some(twice) = ids.iter().find(|id| known.contains(id)) {
        let text = format!("Task {twice} already exists in job {}", job.0);
        return Err(Failure::refused(text));
    }
    let (spec, submission) = describe(args, job, ids)?;
    let handle = client.join_job_for(job, submission.ids.len() as u64).await?;
    let entries = submission.ids.clone();
    note(client, args, job, submission).await?;
    for entry in entries {
        // Values are counted from the first new number.
        let value = values.and_then(|_| value_of(values, entry - next));
        let payload = value.map(|value| format!("={value}"));
        let payload = payload.unwrap_or_default().into_bytes().into();
        handle.room().await?;
        handle.append(&spec, NewTask { entry, payload, ..NewTask::default() })?;
    }
    handle.flush().await?;
    Ok(job)
}

/// Keeps what Starling does not keep, before the job is there.
async fn note(
    client: &Client,
    args: &SubmitArgs,
    job: JobId,
    submission: Submission,
) -> Result<(), Failure> {
    if let Some(input) = &args.input {
        let key = records::input_key(job, &submission.ids);
        client.kv().insert(key.as_bytes(), input).await?;
    }
    // Another submission may have taken the numbers meanwhile.
    let mut twice = None;
    records::change_job(client, job, |record: &mut records::JobRecord| {
        twice = submission.ids.iter().find(|&&id| record.of_task(id).is_some()).copied();
        if twice.is_none() {
            record.submissions.push(submission.clone());
        }
    })
    .await?;
    match twice {
        None => Ok(()),
        Some(id) => Err(Failure::refused(format!("Task {id} already exists in job {}", job.0))),
    }
}

pub(crate) const JOB_NAME_BYTES_MAX: usize = 40;

fn name_of(args: &SubmitArgs) -> Result<String, Failure> {
    let default = || {
        let program = args.command.first().map_or("job", String::as_str);
        program.rsplit('/').next().unwrap_or(program).to_owned()
    };
    let name = args.name.clone().unwrap_or_else(default);
    match name.contains(['\n', '\t']) {
        true => Err(Failure::usage("name contains forbidden characters (newline or tab)")),
        false => Ok(name),
    }
}

/// What the tasks do, for Starling and for the front.
fn describe(
    args: &SubmitArgs,
    job: JobId,
    ids: Vec<u64>,
) -> Result<(TaskSpec, Submission), Failure> {
    let here = std::env::current_dir()
        .map_err(|error| Failure::refused(format!("no working directory: {}", plain(&error))))?;
    let here = here.display().to_string();
    let paths = templates::Paths::of(args, &here, job)?;
    let wanted = request::Wanted::of(args)?;
    let submission = Submission {
        ids,
        command: command_of(args),
        env: args.env.clone(),
        cwd: paths.cwd,
        submit_dir: here,
        stdout: paths.stdout,
        stderr: paths.stderr,
        resources: wanted.texts.clone(),
        priority: args.priority,
        time_limit_ns: args.time_limit.map_or(0, |limit| limit.0.as_nanos() as u64),
        crash_limit: args.crash_limit.clone(),
        pin: args.pin,
        task_dir: args.task_dir,
    };
    let input = args.input.as_ref().map(|_| records::input_key(job, &submission.ids));
    let order = task::Order {
        submission: Submission { ids: Vec::new(), ..submission.clone() },
        removes: [paths.removes_stdout, paths.removes_stderr],
        input,
        is_streamed: args.stream.is_some(),
        has_entries: args.each_line.is_some() || args.from_json.is_some(),
    };
    let program = std::env::current_exe()
        .map_err(|error| Failure::lost(format!("cannot find this program: {}", plain(&error))))?;
    let program = program.display().to_string();
    let argv = [&program, TASK_VERB, "{job}", "{i}", &order.text()];
    let spec = TaskSpec::command(argv).name("task-{i}").kind(&name_of(args)?);
    let spec = spec.needs(&wanted.needs)?.priority(args.priority).awaits_nodes();
    let spec = spec.time_request(args.time_request.map_or(Duration::ZERO, |length| length.0));
    let spec = match args.time_limit {
        Some(limit) => spec.time_limit(limit.0),
        None => spec.time_limit(Duration::ZERO),
    };
    Ok((spec, submission))
}

/// The command, after the interpreter that a script names.
fn command_of(args: &SubmitArgs) -> Vec<String> {
    let script = args.command.first().map_or_else(|| Path::new(""), Path::new);
    let is_script = args.directives == crate::args::Where::File
        || script.extension().is_some_and(|ending| ending == "sh");
    let mut head = [0; 512];
    let read = std::fs::File::open(script).and_then(|mut file| file.read(&mut head));
    let head = String::from_utf8_lossy(&head[..read.unwrap_or(0)]).into_owned();
    let first = head.lines().next().unwrap_or_default();
    match first.strip_prefix("#!").filter(|_| is_script) {
        Some(interpreter) => {
            let mut words: Vec<String> =
                interpreter.split_whitespace().map(str::to_owned).collect();
            words.extend(args.command.iter().cloned());
            words
        }
        None => args.command.clone(),
    }
}
