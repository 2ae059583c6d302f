//! `hq submit`: one graph of Starling, or tasks of an open job.

mod job_file;
pub(crate) mod request;
mod templates;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr as _;
use std::time::Duration;

use client::{
    Client, ClientError, CrashLimit, GraphBuilder, GraphTask, JobSettings, LocalId, NewTask,
    Openness, Parent, SubmitOptions, TaskSpec,
};
use proto::JobId;
use verb::errors::{Exit, Failure, plain};

use crate::args::{Form, SubmitArgs};
use crate::cluster::Front;
use crate::records::{self, Submission};
use crate::words::Selector;
use crate::{TASK_VERB, cluster, jobs, task};

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

/// The tasks of a submission.
pub(crate) struct Tasks {
    /// Of the job, if it is a new one.
    name: String,
    max_fails: Option<u64>,
    /// Tasks that are alike.
    batches: Vec<SubmitArgs>,
    /// Parents come before their children.
    tasks: Vec<Task>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Task {
    batch: usize,
    id: u64,
    /// Its variable HQ_ENTRY.
    value: Option<String>,
    /// The tasks that it waits for.
    after: Vec<u64>,
}

pub(crate) fn run(front: &Front, args: &SubmitArgs) -> Result<ExitCode, Failure> {
    for warning in templates::warnings(args) {
        front.context.output.line(&format!("WARN {warning}"))?;
    }
    let (values, ids) = entries(args)?;
    verb::block_on(async {
        let client = front.connect().await?;
        let (open, ids) = match &args.job {
            None => (None, ids.unwrap_or_else(|| vec![0])),
            Some(selector) => {
                refuse_for_open(args.name.is_some(), args.max_fails.is_some())?;
                let open = Open::find(&client, selector).await?;
                let ids = match ids {
                    None => vec![open.next()?],
                    Some(ids) if values.is_none() => ids,
                    Some(ids) => open.later(ids)?,
                };
                (Some(open), ids)
            }
        };
        // The last ones: numbers of an open job are counted from its next one.
        let value = |at: usize| values.as_ref().and_then(|values| values.get(at)).cloned();
        let task = |(at, id): (usize, u64)| Task { id, value: value(at), ..Task::default() };
        let tasks = Tasks {
            name: name_of(args)?,
            max_fails: args.max_fails,
            batches: vec![args.clone()],
            tasks: ids.into_iter().enumerate().map(task).collect(),
        };
        let job = send(&client, tasks, open).await?;
        report(front, job)?;
        if args.wait {
            jobs::wait(&client, job).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Submits the tasks of a job definition file.
pub(crate) fn run_file(
    front: &Front,
    path: &Path,
    job: Option<&Selector>,
) -> Result<ExitCode, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    verb::block_on(async {
        let client = front.connect().await?;
        let open = match job {
            Some(selector) => Some(Open::find(&client, selector).await?),
            None => None,
        };
        let first = open.as_ref().map_or(Ok(0), Open::next)?;
        let tasks = job_file::read(&text, first)?;
        let job = send(&client, tasks, open).await?;
        report(front, job)?;
        Ok(ExitCode::SUCCESS)
    })
}

fn report(front: &Front, job: JobId) -> Result<(), Failure> {
    let output = &front.context.output;
    match front.form {
        Form::Quiet => output.line(&job.0.to_string()),
        Form::Json => output.raw_line(&format!("{{\"id\":{}}}", job.0)),
        Form::Cli => output.line(&format!("Job submitted successfully, job ID: {}", job.0)),
    }
}

/// The values of tasks by position, and the numbers of tasks; `None`: one task.
type Entries = (Option<Vec<String>>, Option<Vec<u64>>);

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
    let chosen: Option<BTreeSet<u64>> =
        args.array.as_ref().map(|ids| ids.0.iter().copied().collect());
    let ids: Option<Vec<u64>> = match (&values, chosen) {
        (Some(values), chosen) => {
            let all = 0..values.len() as u64;
            let is_chosen = |id: &u64| chosen.as_ref().is_none_or(|chosen| chosen.contains(id));
            Some(all.filter(is_chosen).collect())
        }
        (None, chosen) => chosen.map(|chosen| chosen.into_iter().collect()),
    };
    let Some(ids) = ids else { return Ok((None, None)) };
    if ids.is_empty() {
        return Err(Failure::refused("the job has no tasks"));
    }
    let of_ids = |values: Vec<String>| ids.iter().map(|&id| values[id as usize].clone()).collect();
    Ok((values.map(of_ids), Some(ids)))
}

/// An open job that gets tasks.
struct Open {
    job: JobId,
    known: BTreeSet<u64>,
}

impl Open {
    async fn find(client: &Client, selector: &Selector) -> Result<Self, Failure> {
        let present = jobs::states(client).await?;
        let Some(&job) = selector.pick(&jobs::numbers(&present)).first() else {
            return Err(Failure::refused("there is no job"));
        };
        match present.iter().find(|state| state.id.0 == job).map(|state| state.openness) {
            None => return Err(Failure::refused(format!("Job {job} not found"))),
            Some(Openness::Open) => {}
            Some(_) => return Err(Failure::refused(format!("Job {job} is not open"))),
        }
        let job = JobId(job);
        let submissions = records::job(client, job).await?.submissions;
        let known = submissions.iter().flat_map(|it| &it.ids).copied().collect();
        Ok(Self { job, known })
    }

    /// The number after the highest one.
    fn next(&self) -> Result<u64, Failure> {
        self.later(vec![0]).map(|ids| ids[0])
    }

    /// Numbers from 0, counted from the next one.
    fn later(&self, ids: Vec<u64>) -> Result<Vec<u64>, Failure> {
        let next = self.known.last().map_or(Some(0), |last| last.checked_add(1));
        let text = format!("job {} has no number for a further task", self.job.0);
        let later = |id: u64| next.and_then(|next| id.checked_add(next));
        let ids = ids.into_iter().map(|id| later(id).ok_or_else(|| Failure::refused(&text)));
        ids.collect()
    }
}

fn refuse_for_open(has_name: bool, has_max_fails: bool) -> Result<(), Failure> {
    for (option, is_given) in [("--name", has_name), ("--max-fails", has_max_fails)] {
        if is_given {
            return Err(Failure::usage(format!(
                "Parameter {option} is not allowed when submitting to an open job."
            )));
        }
    }
    Ok(())
}

/// Submits tasks as a job, or adds them to an open one. If Starling refuses them, nothing of them
/// is left.
async fn send(client: &Client, tasks: Tasks, open: Option<Open>) -> Result<JobId, Failure> {
    let is_new = open.is_none();
    let job = match &open {
        Some(open) => open.job,
        None => client.next_job().await?,
    };
    let mut described = Vec::new();
    for (at, args) in tasks.batches.iter().enumerate() {
        let of = || tasks.tasks.iter().filter(|task| task.batch == at);
        let mut ids: Vec<u64> = of().map(|task| task.id).collect();
        ids.sort_unstable();
        let (spec, mut submission) = describe(client, args, job, ids)?;
        let waits = of().filter(|task| !task.after.is_empty());
        submission.deps = waits.map(|task| (task.id, task.after.clone())).collect();
        described.push((spec, submission));
    }
    let specs: Vec<TaskSpec> = described.iter().map(|(spec, _)| spec.clone()).collect();
    let inputs = tasks.batches.iter().map(|args| args.input.clone());
    let submissions: Vec<(Submission, Option<Vec<u8>>)> =
        described.into_iter().map(|(_, submission)| submission).zip(inputs).collect();
    note(client, job, &submissions, tasks.max_fails).await?;
    let sent = match open {
        Some(_) => append(client, &tasks, job, &specs).await,
        None => submit(client, &tasks, job, &specs).await,
    };
    let Err(failure) = sent else { return Ok(job) };
    // Without an answer they may be there; then their texts stay.
    let is_away = match is_new {
        true => matches!(client.raw().job(job).await, Err(ClientError::UnknownJob(_))),
        false => failure.exit == Exit::Refused,
    };
    if is_away {
        for (submission, _) in &submissions {
            records::withdraw(client, job, &submission.ids).await?;
        }
    }
    Err(failure)
}

async fn submit(
    client: &Client,
    tasks: &Tasks,
    job: JobId,
    specs: &[TaskSpec],
) -> Result<(), Failure> {
    let mut graph = GraphBuilder::new(&tasks.name);
    let mut numbers: BTreeMap<u64, u32> = BTreeMap::new();
    for task in &tasks.tasks {
        let of = GraphTask { entry: task.id, value: task.value.clone(), ..GraphTask::default() };
        let number = graph.task(&specs[task.batch], of);
        for parent in task.after.iter().filter_map(|parent| numbers.get(parent)) {
            graph.after(number, *parent);
        }
        numbers.insert(task.id, number);
    }
    let settings =
        JobSettings { real_data: true, max_fails: tasks.max_fails, ..JobSettings::default() };
    let name = tasks.name.clone();
    let options = SubmitOptions { name, job: Some(job), settings, ..SubmitOptions::default() };
    client.submit(&graph.finish()?, options).await?;
    Ok(())
}

/// Adds tasks to an open job.
async fn append(
    client: &Client,
    tasks: &Tasks,
    job: JobId,
    specs: &[TaskSpec],
) -> Result<(), Failure> {
    let handle = client.join_job_for(job, tasks.tasks.len() as u64).await?;
    let mut numbers: BTreeMap<u64, LocalId> = BTreeMap::new();
    for task in &tasks.tasks {
        let payload = task.value.as_ref().map(|value| format!("={value}"));
        let payload = payload.unwrap_or_default().into_bytes().into();
        let known = task.after.iter().filter_map(|parent| numbers.get(parent));
        let parents = known.map(|&task| Parent { task, output: None }).collect();
        handle.room().await?;
        let new = NewTask { entry: task.id, payload, parents, ..NewTask::default() };
        numbers.insert(task.id, handle.append(&specs[task.batch], new)?);
    }
    handle.flush().await?;
    Ok(())
}

/// Keeps what Starling does not keep, before the tasks are there.
async fn note(
    client: &Client,
    job: JobId,
    submissions: &[(Submission, Option<Vec<u8>>)],
    max_fails: Option<u64>,
) -> Result<(), Failure> {
    // Another submission may have taken the numbers meanwhile.
    let mut twice = None;
    records::change_job(client, job, |record: &mut records::JobRecord| {
        let mut ids = submissions.iter().flat_map(|(submission, _)| &submission.ids);
        twice = ids.find(|&&id| record.of_task(id).is_some()).copied();
        if twice.is_none() {
            record.submissions.extend(submissions.iter().map(|(submission, _)| submission.clone()));
            record.max_fails = record.max_fails.or(max_fails);
        }
    })
    .await?;
    if let Some(id) = twice {
        return Err(Failure::refused(format!("Task {id} already exists in job {}", job.0)));
    }
    for (submission, input) in submissions {
        if let Some(input) = input {
            let key = records::input_key(job, &submission.ids);
            client.kv().insert(key.as_bytes(), input).await?;
        }
    }
    Ok(())
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
    client: &Client,
    args: &SubmitArgs,
    job: JobId,
    ids: Vec<u64>,
) -> Result<(TaskSpec, Submission), Failure> {
    let here = std::env::current_dir()
        .map_err(|error| Failure::refused(format!("no working directory: {}", plain(&error))))?;
    let here = here.display().to_string();
    let paths = templates::Paths::of(args, &here, job, &cluster::uid(&client.raw().map()))?;
    let wanted = request::Wanted::of(args)?;
    let submission = Submission {
        ids,
        command: command_of(args),
        env: args.env.clone(),
        cwd: paths.cwd,
        submit_dir: here,
        stdout: paths.stdout,
        stderr: paths.stderr,
        stream: paths.stream,
        resources: wanted.ways[0].amounts.clone(),
        ways: wanted.ways.clone(),
        nodes: args.nodes.unwrap_or_default(),
        deps: BTreeMap::new(),
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
        has_entries: args.each_line.is_some() || args.from_json.is_some() || args.has_entries,
    };
    let program = std::env::current_exe()
        .map_err(|error| Failure::lost(format!("cannot find this program: {}", plain(&error))))?;
    let program = program.display().to_string();
    let argv = [&program, TASK_VERB, "{job}", "{i}", &order.text()];
    let spec = TaskSpec::command(argv).name("task-{i}").kind(&name_of(args)?);
    let spec = spec.needs(&wanted.needs)?.nodes(args.nodes.unwrap_or(1));
    let spec = spec.priority(args.priority).awaits_nodes();
    let limit = CrashLimit::from_str(&args.crash_limit);
    let spec =
        spec.crash_limit(limit.map_err(|why| Failure::usage(format!("--crash-limit: {why}")))?);
    let longest = wanted.ways.iter().map(|way| way.time_request_ns).max().unwrap_or(0);
    let spec = spec.time_request(Duration::from_nanos(longest));
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
