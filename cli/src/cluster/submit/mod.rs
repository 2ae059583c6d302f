//! `starling submit`: a command or a workflow, to a running cluster.

pub(crate) mod entries;
mod replicas;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use client::{AfterJob, DeclaredVariable, JobSettings, OpenOptions, SubmitOptions};
use serde::Serialize;
use verb::Context;
use verb::cluster::kept_outputs;
use verb::directives::{self, Directives, Script};
use verb::errors::{Done, Exit, Failure, heard, plain};
use verb::flags::needs::{NeedsArgs, first_given};
use verb::flags::{LoadArgs, PlaceArgs, TimeoutArgs};
use verb::units::{Bandwidth, Timespan};
use workloads::Graph;

use crate::alloc;
use crate::cluster::job::open;
use crate::cluster::submit::replicas::ReplicasOf;
use crate::cluster::task;
use crate::common::selector::Selector;
use crate::views::jobs;
use crate::views::kept::KeptRow;
use crate::views::{submission, waiting};
use crate::workload;

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true)
    .args(["file", "command", "function", "open"]))]
pub(crate) struct SubmitArgs {
    /// A workflow file or generator instead of a command
    #[arg(long, value_name = "WORKFLOW")]
    file: Option<String>,
    /// A function of a module here, instead of a command; its arguments follow as JSON values
    #[arg(long, value_name = "MODULE:NAME", conflicts_with_all = ["file", "stdin", "stage_in"])]
    function: Option<String>,
    /// One task for each number, for example 1-1000, 1-100:5 or 1,3,5-9; {i} becomes the number.
    /// With --each-line or --from-json: only these entries. NUMBERS%N: at most N run at once
    #[arg(long, value_name = "NUMBERS", conflicts_with = "file")]
    array: Option<String>,
    /// One task for each line of a file, or of standard input (-), counted from 0; STARLING_ENTRY
    /// is the line, {i} its number
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "function"])]
    each_line: Option<PathBuf>,
    /// One task for each value of an array in a JSON file, or in standard input (-); STARLING_ENTRY
    /// is the value as JSON
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "function", "each_line"])]
    from_json: Option<PathBuf>,
    /// Files that the command reads; they appear in its directory
    #[arg(long = "in", value_name = "FILE", num_args = 1.., conflicts_with = "file")]
    inputs: Vec<String>,
    /// Files on a file system that all nodes see; each node copies them to its own store, once
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "file")]
    stage_in: Vec<String>,
    /// Files of this machine, uploaded with the job
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "file")]
    upload: Vec<String>,
    /// Files that the command writes; DIRECTORY/ for the content of a directory, glob:PATTERN for
    /// all files that match
    #[arg(long = "out", value_name = "FILE", num_args = 1.., conflicts_with = "file")]
    outputs: Vec<String>,
    #[command(flatten)]
    needs: NeedsArgs,
    /// Nodes that the task holds at once; the other needs are of each, and without them it holds
    /// whole nodes
    #[arg(long, value_name = "K", conflicts_with_all = ["file", "function"], value_parser = clap::value_parser!(u32).range(1..=GANG_NODES_MAX))]
    nodes: Option<u32>,
    /// Name in lists
    #[arg(long)]
    name: Option<String>,
    /// The command's working directory [default: a directory of its own]
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "file")]
    cwd: Option<PathBuf>,
    /// A variable of the command's environment; without a value, its value here
    #[arg(long, value_name = "NAME[=VALUE]", conflicts_with = "file")]
    env: Vec<String>,
    /// The standard input of the command [default: nothing]
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    stdin: Option<String>,
    /// A file for the standard output, below this directory, or none; it may have %{JOB_ID},
    /// %{TASK_ID}, %{INSTANCE_ID}, %{CWD} and %{SUBMIT_DIR} [default: captured, see 'job output']
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "function"])]
    stdout: Option<String>,
    /// The same for the standard error
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "function"])]
    stderr: Option<String>,
    /// Further attempts after a failed one
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "file")]
    retries: u32,
    /// A task that takes longer is killed and fails
    #[arg(long, value_name = "DURATION", conflicts_with = "file")]
    time_limit: Option<Timespan>,
    /// The command gets signal S this long before its time limit or its node ends, and at once when
    /// its node is drained, such as USR1@60s or TERM; once in each attempt [default: none]
    #[arg(long, value_name = "S@TIME", conflicts_with_all = ["file", "function"])]
    signal: Option<workloads::Notice>,
    /// Pin the command to the cpus that it gets: taskset by its affinity, omp by the places of
    /// OpenMP [default: it may use all cpus of the node]
    #[arg(long, value_name = "HOW", conflicts_with_all = ["file", "function"])]
    pin: Option<workloads::CpuPin>,
    /// Cancel the job when more than N tasks have failed [default: never]
    #[arg(long, value_name = "N")]
    max_fails: Option<u64>,
    /// Start no task before these jobs have ended without failures; any:JOB: however it has ended.
    /// If one ends otherwise, all tasks are skipped [default: the file's after_job, or none]
    #[arg(long, value_name = "JOB,...", value_delimiter = ',')]
    after_job: Vec<AfterJob>,
    /// A variable that the tasks share: RULE is min, max, last or sum; min,real and max,real have
    /// reals
    #[arg(long = "var", value_name = "NAME=RULE[:INITIAL]")]
    variables: Vec<DeclaredVariable>,
    /// Where lines '#STARLING --OPTION ...' are read, which give options that this command line
    /// does not: the script (auto: if its name ends with .sh), or nowhere
    #[arg(long, value_name = "WHERE", value_enum, default_value_t = Directives::Auto)]
    directives: Directives,
    /// Open a job without tasks, and print its number; --job adds tasks, 'job close' closes it
    #[arg(long, conflicts_with = "wait")]
    open: bool,
    /// Add the tasks to this open job (a number, or last), and print their ids; --in TASK:FILE
    /// reads an output of a task of the job
    #[arg(long, value_name = "JOB")]
    job: Option<Selector>,
    /// Tasks of the open job that must be done first, by id or name, separated by commas
    #[arg(long, value_name = "TASKS", requires = "job")]
    after: Option<String>,
    /// Wait for the end; with --job, for the end of all its tasks so far
    #[arg(long)]
    wait: bool,
    /// Nodes that must have an output before its task counts as done, for a class: all, kept, or
    /// files by the names of tasks. The last that fits counts [default: kept outputs as many as
    /// partitions have replicas]
    #[arg(long, value_name = "[CLASS=]N")]
    replicas: Vec<ReplicasOf>,
    #[command(flatten)]
    timeout: TimeoutArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// The command and its arguments; options precede it, and -- may
    #[arg(trailing_var_arg = true, allow_hyphen_values = false, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Serialize)]
struct Submitted {
    job: String,
    tasks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<KeptRow>,
}

const GANG_NODES_MAX: i64 = proto::limits::GANG_NODES_MAX as i64;

/// The marker of lines in a script that give options of this verb.
const MARKER: &str = "#STARLING";

impl SubmitArgs {
    /// The options in the script that this command line submits; empty: none.
    pub(crate) fn directives(&self) -> Result<Script, Failure> {
        match self.command.first() {
            Some(script) if self.function.is_none() => {
                directives::of_script(self.directives, MARKER, Path::new(script))
            }
            _ => Ok(Script::default()),
        }
    }
}

pub(crate) fn run(context: &Context, args: &SubmitArgs) -> Done {
    check_added(args)?;
    if args.function.is_none() {
        check_lists(&args.command)?;
    }
    let timeout = context.settings.pick_optional(args.timeout.timeout, "timeout")?;
    let bandwidth: Bandwidth = context.settings.pick(None, "bandwidth")?;
    let mut options = submission::submit_options(context, &args.place, &args.load, bandwidth)?;
    options.settings.max_fails = args.max_fails;
    let (array, at_most) = throttled(args.array.as_deref(), args.place.at_most)?;
    options.settings.at_most = at_most;
    options.variables.clone_from(&args.variables);
    options.after.clone_from(&args.after_job);
    if args.open {
        return open(context, args, &options);
    }
    let mut graph = graph(context, args, array)?;
    if args.job.is_some() && *graph.job_options() != workloads::JobOptions::default() {
        return Err(Failure::refused("the table [job] of the file is of a whole job")
            .hint("remove it, or submit the file as a job of its own"));
    }
    replicas::set(&mut graph, &args.replicas)?;
    if let Some(limit) = args.place.crash_limit {
        graph.set_crash_limit(limit);
    }
    options.name = args.name.clone().unwrap_or_else(|| graph.name().to_owned());
    verb::block_on(async {
        let client = context.connect().await?;
        alloc::offers::await_nodes(&client, &mut graph).await?;
        if let Some(job) = &args.job {
            let job = task::one_job(&client, job).await?;
            let (after, inputs) = (args.after.as_deref(), outputs_read(args));
            let what = open::Addition { graph: &graph, inputs, after };
            let wait = args.wait.then(|| waiting::Deadline::after(timeout));
            return open::add(context, &client, job, what, wait).await;
        }
        let job = kept_outputs::send(&client, &graph, &options).await?.job();
        let tasks = graph.len() as u64;
        let number = job.0.to_string();
        if !args.wait {
            if context.output.json {
                context.output.json(&Submitted { job: number, tasks, state: None, kept: None })?;
            } else {
                context.output.line(&number)?;
            }
            return Ok(Exit::Ok);
        }
        if !context.output.json {
            heard(context.output.line(&number))?;
        }
        let deadline = waiting::Deadline::after(timeout);
        let state = waiting::wait(context, &client, job, tasks, &deadline).await?;
        jobs::tell_failures(&context.output, &client, &state).await;
        let kept = KeptRow::of(&client, &state).await;
        KeptRow::tell(kept.as_ref(), context);
        if context.output.json {
            let state = Some(jobs::state_word(&state));
            heard(context.output.json(&Submitted { job: number, tasks, state, kept }))?;
        }
        jobs::tell_more(&state);
        Ok(jobs::exit_of(&state))
    })
}

/// Refuses options of a whole job where tasks are added to one.
fn check_added(args: &SubmitArgs) -> Result<(), Failure> {
    let of_jobs = [
        ("--max-tasks", args.place.max_tasks.is_some()),
        ("--max-fails", args.max_fails.is_some()),
        ("--at-most", args.place.at_most.is_some()),
        ("--array NUMBERS%N", args.array.as_ref().is_some_and(|array| array.contains('%'))),
        ("--after-job", !args.after_job.is_empty()),
        ("--var", !args.variables.is_empty()),
        ("--data", args.place.data.is_some()),
        ("--placement", args.place.placement.is_some()),
        ("--submit", args.place.submit.is_some()),
    ];
    match first_given(&of_jobs) {
        Some(option) if args.job.is_some() => {
            Err(Failure::usage(format!("{option} is an option of a whole job, not of added tasks"))
                .hint("leave it out; submit --open takes --max-tasks and --data"))
        }
        _ => Ok(()),
    }
}

/// Refuses options of tasks where a job without tasks is opened.
fn check_open(args: &SubmitArgs) -> Result<(), Failure> {
    let of_tasks = [
        ("--job", args.job.is_some()),
        ("--array", args.array.is_some()),
        ("--each-line", args.each_line.is_some()),
        ("--from-json", args.from_json.is_some()),
        ("--in", !args.inputs.is_empty()),
        ("--stage-in", !args.stage_in.is_empty()),
        ("--upload", !args.upload.is_empty()),
        ("--out", !args.outputs.is_empty()),
        ("--nodes", args.nodes.is_some()),
        ("--cwd", args.cwd.is_some()),
        ("--env", !args.env.is_empty()),
        ("--stdin", args.stdin.is_some()),
        ("--stdout", args.stdout.is_some()),
        ("--stderr", args.stderr.is_some()),
        ("--retries", args.retries > 0),
        ("--time-limit", args.time_limit.is_some()),
        ("--signal", args.signal.is_some()),
        ("--pin", args.pin.is_some()),
        ("--crash-limit", args.place.crash_limit.is_some()),
        ("--format", args.load.format.is_some()),
        ("--only-job", args.load.only_job.is_some()),
        ("--strict", args.load.strict),
        ("--scale", args.load.scale.is_some()),
    ];
    match args.needs.given().or_else(|| first_given(&of_tasks)) {
        Some(option) => {
            let text = format!("{option} is an option of added tasks, not of a whole job");
            Err(Failure::usage(text)
                .hint("give it when tasks are added: starling submit --job J ... -- COMMAND"))
        }
        None => Ok(()),
    }
}

/// Refuses the lists of `starling run`, unless a program of the command reads them.
fn check_lists(command: &[String]) -> Result<(), Failure> {
    let is_list = |word: &String| [":::", ":::+", "::::", "::::+"].contains(&word.as_str());
    let Some(at) = command.iter().position(is_list) else { return Ok(()) };
    let reads_lists = |word: &String| {
        let name = Path::new(word).file_name();
        name.is_some_and(|name| name == "parallel" || name == "starling")
    };
    let is_meant = command[..at].iter().any(|word| word.contains("{}"));
    if !is_meant || command[..at].iter().any(reads_lists) {
        return Ok(());
    }
    let list = &command[at];
    Err(Failure::usage(format!("'{list}' begins a list, and only 'starling run' takes lists"))
        .hint(
            "write: starling run -- COMMAND {} ::: a b c; or submit a task for each line of a \
               file: starling submit --each-line FILE -- COMMAND",
        ))
}

/// `submit --open`.
fn open(context: &Context, args: &SubmitArgs, options: &SubmitOptions) -> Done {
    if !args.command.is_empty() || args.file.is_some() || args.function.is_some() {
        return Err(Failure::usage("--open opens a job without tasks")
            .hint("then add tasks by 'starling submit --job J -- COMMAND'"));
    }
    check_open(args)?;
    if options.settings.at_most.is_some() {
        let text = "a job with --at-most has all its tasks from the start";
        return Err(Failure::usage(text).hint("leave out --open, or --at-most"));
    }
    if !args.after_job.is_empty() {
        let text = "an open job waits for no other job";
        return Err(Failure::usage(text).hint("leave out --open, or --after-job"));
    }
    let options = OpenOptions {
        name: args.name.clone().unwrap_or_default(),
        // The tasks are not known yet, and commands read and write real bytes.
        settings: JobSettings { real_data: true, ..options.settings },
        job: options.job,
        variables: options.variables.clone(),
        ..OpenOptions::default()
    };
    verb::block_on(async {
        let client = context.connect().await?;
        open::open(context, &client, options).await
    })
}

/// The outputs of tasks of an open job that the new tasks read.
fn outputs_read(args: &SubmitArgs) -> Vec<(String, String)> {
    args.inputs.iter().filter_map(|text| open::output_input(text)).collect()
}

/// True for a file of tasks that no system can start as a program.
fn looks_like_workflow(path: &Path) -> bool {
    let endings = ["toml", "json", "dot", "dax", "xml", "stg", "swf", "gz"];
    let ends = path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known));
    let is_program = |about: std::fs::Metadata| about.permissions().mode() & 0o111 != 0;
    ends && path.is_file() && !std::fs::metadata(path).is_ok_and(is_program)
}

fn graph(context: &Context, args: &SubmitArgs, array: Option<&str>) -> Result<Graph, Failure> {
    if let Some(file) = &args.file {
        if !args.command.is_empty() {
            let text = "--file stands instead of a command";
            return Err(Failure::usage(text).hint("write one of them"));
        }
        if let Some(flag) = args.needs.given() {
            let text = format!("{flag} is for a command, and --file stands instead of one");
            return Err(Failure::usage(text).hint("the needs of each task are in the file"));
        }
        return workload::load(context, file, &args.load);
    }
    if let [one] = &args.command[..]
        && args.function.is_none()
        && looks_like_workflow(Path::new(one))
    {
        return Err(Failure::usage(format!("'{one}' is a workflow, not a program"))
            .hint(format!("write: starling submit --file {one}")));
    }
    let here = std::env::current_dir()
        .map_err(|error| Failure::refused(format!("no working directory: {}", plain(&error))))?;
    let options = workloads::CommandOptions {
        array: array.map(str::to_owned),
        values: entries::read(args.each_line.as_deref(), args.from_json.as_deref())?,
        stdout: args.stdout.clone(),
        stderr: args.stderr.clone(),
        inputs: files(args),
        staged: args.stage_in.clone(),
        uploads: args.upload.clone(),
        outputs: args.outputs.clone(),
        needs: args.needs.needs(),
        priority: args.needs.priority(),
        rank: args.needs.rank(),
        nodes: args.nodes.unwrap_or(0),
        time_request_ns: args.needs.time_request_ns(),
        name: args.name.clone(),
        cwd: text_of_cwd(args.cwd.as_deref())?,
        submit_dir: here,
        env: args.env.iter().map(|text| variable(text)).collect::<Result<_, _>>()?,
        stdin: args.stdin.clone(),
        function: args.function.clone(),
        retries: args.retries,
        time_limit_ns: args.time_limit.map_or(0, |limit| limit.0.as_nanos() as u64),
        notice: args.signal,
        pin: args.pin,
        ..workloads::CommandOptions::default()
    };
    Ok(Graph::command(args.command.clone(), &options)?)
}

/// The numbers of an array, and the most tasks that run at once: `1-1000%10` gives both.
fn throttled(
    array: Option<&str>,
    at_most: Option<u32>,
) -> Result<(Option<&str>, Option<u32>), Failure> {
    let Some((numbers, most)) = array.and_then(|array| array.split_once('%')) else {
        return Ok((array, at_most));
    };
    let wrong = || {
        Failure::usage(format!("--array: '%{most}' is no number of tasks from 1 to 1000000"))
            .hint("write NUMBERS%N, such as 1-1000%10")
    };
    let most: u32 =
        most.parse().ok().filter(|most| (1..=1_000_000).contains(most)).ok_or_else(wrong)?;
    match at_most {
        Some(other) if other != most => {
            Err(Failure::usage(format!("--at-most {other} and --array with %{most} differ"))
                .hint("give one of them"))
        }
        _ => Ok((Some(numbers), Some(most))),
    }
}

/// The files that the command reads, without the outputs of tasks of an open job.
fn files(args: &SubmitArgs) -> Vec<String> {
    let is_file = |text: &&String| args.job.is_none() || open::output_input(text).is_none();
    args.inputs.iter().filter(is_file).cloned().collect()
}

/// The working directory of a command, which must be a text.
pub(crate) fn text_of_cwd(cwd: Option<&Path>) -> Result<Option<String>, Failure> {
    let text = |cwd: &Path| match cwd.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Failure::usage(format!("--cwd: '{}' is not valid UTF-8", cwd.display()))
            .hint("a link to it may have another name")),
    };
    cwd.map(text).transpose()
}

/// `NAME=VALUE`, or only `NAME` for its value here.
pub(crate) fn variable(text: &str) -> Result<(String, String), Failure> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => match std::env::var(text) {
            Ok(value) => (text, value),
            Err(_) => {
                let problem = format!("--env: '{text}' is not set here");
                return Err(Failure::usage(problem).hint("give it a value: --env NAME=VALUE"));
            }
        },
    };
    match name.is_empty() || name.contains('\0') || value.contains('\0') {
        true => Err(Failure::usage(format!("--env: '{text}' names no variable"))),
        false => Ok((name.to_owned(), value)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn a_job_without_tasks_has_no_options_of_tasks() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            submit: SubmitArgs,
        }
        let refused = |words: &str| {
            let words = ["submit", "--open"].into_iter().chain(words.split_whitespace());
            let failure = check_open(&Line::try_parse_from(words).unwrap().submit).err()?;
            assert_eq!(failure.exit, Exit::Usage);
            Some(failure.message)
        };
        for of_tasks in [
            "--gpus 1",
            "--time-request 1s",
            "--array 1-3",
            "--out f",
            "--retries 1",
            "--time-limit 1s",
            "--crash-limit 2",
            "--job 1",
        ] {
            let message = refused(of_tasks).unwrap();
            let option = of_tasks.split(' ').next().unwrap();
            assert!(message.starts_with(&format!("{option} is an option of added")), "{message}");
        }
        assert_eq!(refused("--name n --max-fails 1 --max-tasks 9 --var s=sum --data real"), None);
    }

    #[test]
    fn an_array_may_say_how_many_of_its_tasks_run_at_once() {
        let read = |array, at_most| throttled(array, at_most).ok();
        assert_eq!(read(Some("1-9"), None), Some((Some("1-9"), None)));
        assert_eq!(read(Some("1-9%2"), None), Some((Some("1-9"), Some(2))));
        assert_eq!(read(Some("1-9%2"), Some(2)), Some((Some("1-9"), Some(2))));
        assert_eq!(read(None, Some(3)), Some((None, Some(3))));
        for wrong in ["1-9%", "1-9%0", "1-9%x", "1-9%2%3"] {
            assert_eq!(read(Some(wrong), None), None, "{wrong}");
        }
        assert_eq!(read(Some("1-9%2"), Some(3)), None);
    }

    #[test]
    fn lists_are_for_run_and_for_programs_that_read_them() {
        let is_taken = |words: &[&str]| {
            check_lists(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).is_ok()
        };
        assert!(!is_taken(&["echo", "{}", ":::", "a", "b"]));
        assert!(!is_taken(&["wc", "-l", "{}", "::::", "list"]));
        assert!(is_taken(&["my-parallel", ":::", "a"]), "a program may read them");
        assert!(is_taken(&["sh", "-c", "echo {} ::: a b"]));
        assert!(is_taken(&["nice", "/usr/bin/parallel", "echo", ":::", "a"]));
        assert!(is_taken(&["starling", "run", "--", "echo", "{}", ":::", "a"]));
        assert!(is_taken(&["echo", ":::a", "{}"]) && is_taken(&[]));
    }

    #[test]
    fn variables_have_a_value_here_or_there() {
        let pair = |text: &str| variable(text).ok();
        assert_eq!(pair("A=b=c"), Some(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("A="), Some(("A".to_owned(), String::new())));
        assert_eq!(pair("PATH").map(|(name, _)| name), Some("PATH".to_owned()));
        assert_eq!((pair("=b"), pair("STARLING_NOT_SET_ANYWHERE")), (None, None));
    }
}
