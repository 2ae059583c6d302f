//! `starling run -- COMMAND {} ::: a b c`: a command for each entry of a list, on a cluster of its
//! own.
//!
//! A thread reads the list ([`feed`]), so a list may be of any length or come from a slow program.
//! The [`driver`] submits entries in batches, each a job, and keeps the slots busy. The [`printer`]
//! prints the output of ended entries, and the [`journal`] logs them.

mod driver;
mod feed;
mod journal;
mod printer;
mod record;
mod spawned;

use std::path::PathBuf;

use clap::Args;
use client::Client;
use proto::wire;
use verb::Context;
use verb::errors::{Done, Exit, Failure, plain};
use verb::flags::needs::TaskNeedsArgs;
use verb::local::embed::Cluster;
use verb::units::Timespan;
use workloads::lists::{Again, HaltRule};
use workloads::{CommandOptions, Graph};

use crate::local::run::{self, RunArgs};
use crate::views::waiting::Deadline;

const TASK_NODES_MAX: i64 = proto::limits::GANG_NODES_MAX as i64;

#[derive(Args, Debug)]
#[command(next_help_heading = "Lists of commands")]
pub(crate) struct ListArgs {
    /// A command, run for each entry of its lists: -- gzip {} ::: a.log b.log. {} is the entry,
    /// {.} without its ending, {/} its last part, {//} its directory, {1} of the first list, {#}
    /// the number. Lists: ::: VALUES, :::: FILE; :::+ pairs a list with the one before. Without a
    /// list the entries are the lines of standard input
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Read a list from this file, one entry a line; - is standard input
    #[arg(short = 'a', long = "arg-file", value_name = "FILE")]
    arg_file: Vec<String>,
    /// As --arg-file: read a list from this file, one entry a line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["arg_file", "null"])]
    each_line: Option<String>,
    /// A list of the values of an array in a JSON file, or in standard input (-), as JSON
    #[arg(long, value_name = "FILE", conflicts_with_all = ["arg_file", "each_line"])]
    from_json: Option<PathBuf>,
    /// Entries of files and of standard input end with a NUL byte
    #[arg(short = '0', long)]
    null: bool,
    /// Log each ended entry in GNU parallel's nine columns
    #[arg(long, value_name = "FILE")]
    joblog: Option<PathBuf>,
    /// Leave out the entries that the job log has
    #[arg(long, requires = "joblog", conflicts_with = "resume_failed")]
    resume: bool,
    /// As --resume, but run failed entries again
    #[arg(long, requires = "joblog")]
    resume_failed: bool,
    /// End early: soon,fail=1 starts no further entry after a failed one, now,fail=3 also ends the
    /// running ones; also success=N, done=N, and N% [default: never]
    #[arg(long, value_name = "WHEN")]
    halt: Option<HaltRule>,
    /// Begin each line of output with the entry
    #[arg(long)]
    tag: bool,
    /// Print the output in the order of the list
    #[arg(short, long)]
    keep_order: bool,
    /// Further attempts after a failed one
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Each command gets signal S this long before its node ends, such as USR1@60s or TERM
    /// [default: none]
    #[arg(long, value_name = "S@TIME")]
    signal: Option<workloads::Notice>,
    /// Pin each command to the cpus that it gets: taskset by its affinity, omp by the places of
    /// OpenMP [default: it may use all cpus of the node]
    #[arg(long, value_name = "HOW")]
    pin: Option<workloads::CpuPin>,
    #[command(flatten)]
    needs: TaskNeedsArgs,
    /// Kill each command after this time; its entry has failed [default: none]
    #[arg(long, value_name = "DURATION")]
    task_time_limit: Option<Timespan>,
    /// Nodes that each command holds at once, whole ones without other needs; --nodes is the size
    /// of the cluster
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=TASK_NODES_MAX))]
    task_nodes: Option<u32>,
    /// Print the commands, and run nothing
    #[arg(long)]
    dry_run: bool,
}

impl ListArgs {
    /// Refuses flags of lists beside a workflow.
    pub(super) fn check_unused(&self) -> Result<(), Failure> {
        let given = [
            ("--arg-file", !self.arg_file.is_empty()),
            ("--each-line", self.each_line.is_some()),
            ("--from-json", self.from_json.is_some()),
            ("--null", self.null),
            ("--joblog", self.joblog.is_some()),
            ("--halt", self.halt.is_some()),
            ("--tag", self.tag),
            ("--keep-order", self.keep_order),
            ("--retries", self.retries > 0),
            ("--signal", self.signal.is_some()),
            ("--pin", self.pin.is_some()),
            ("--task-time-limit", self.task_time_limit.is_some()),
            ("--task-nodes", self.task_nodes.is_some()),
            ("--dry-run", self.dry_run),
        ];
        let given = given.iter().find(|(_, is_given)| *is_given).map(|(flag, _)| *flag);
        match given.or_else(|| self.needs.given()) {
            None => Ok(()),
            Some(flag) => Err(Failure::usage(format!("{flag} is for a list of commands"))
                .hint("write the command behind --: starling run -- gzip {} ::: *.log")),
        }
    }

    /// Refuses flags of workflow files beside a command.
    fn check_load(run: &RunArgs) -> Result<(), Failure> {
        let given = [
            ("--scale", run.load.scale.is_some()),
            ("--data", run.place.data.is_some()),
            ("--at-most", run.place.at_most.is_some()),
            ("--max-tasks", run.place.max_tasks.is_some()),
            ("--format", run.load.format.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((flag, _)) => Err(Failure::usage(format!("{flag} is for a workflow file"))
                .hint(format!("a list of commands runs without {flag}"))),
        }
    }

    /// The entries of an existing job log that run again; `None`: the log must be new.
    fn again(&self) -> Option<Again> {
        match (self.resume, self.resume_failed) {
            (false, false) => None,
            (true, _) => Some(Again::None),
            (false, true) => Some(Again::Failed),
        }
    }
}

pub(super) fn run(context: &Context, run: &RunArgs, args: &ListArgs) -> Done {
    ListArgs::check_load(run)?;
    let list = feed::List::open(args)?;
    let (journal, seen) = match &args.joblog {
        Some(path) if args.dry_run => (None, journal::read(path, args.again())?),
        Some(path) => {
            let (journal, seen) = journal::Journal::open(path, args.again())?;
            (Some(journal), seen)
        }
        None => (None, None),
    };
    if args.dry_run {
        return dry_run(context, list, seen);
    }
    let (plan, options) = run::cluster_of(context, run)?;
    let timeout = context.settings.pick_optional(run.timeout.timeout, "timeout")?;
    let spec = spec_of(list.program(), args)?;
    run::check_nodes([&spec], plan.nodes)?;
    run::check_times([&spec], plan.life.end)?;
    verb::block_on(async {
        let mut cluster = Cluster::start(&plan, run.processes).await?;
        let client = Client::connect(cluster.dir()).await?;
        let setup = driver::Setup {
            spec,
            options,
            slots: plan.total_slots(),
            nodes: plan.nodes,
            policy: plan.policy.name(),
            crash_limit: run.place.crash_limit,
            halt: run
                .max_fails
                .map_or_else(|| args.halt.unwrap_or_default(), HaltRule::max_fails)
                .0,
            style: printer::Style { has_tags: args.tag, keeps_order: args.keep_order },
        };
        let feed = list.start(seen);
        let driver = driver::Driver::new(context, &client, setup, journal);
        let deadline = Deadline::after(timeout);
        let done = tokio::select! {
            done = deadline.cut(driver.run(feed)) => done.and_then(|done| done),
            failure = cluster.lost_node() => Err(failure),
        };
        drop(client);
        cluster.stop().await;
        done
    })
}

fn dry_run(
    context: &Context,
    list: feed::List,
    seen: Option<workloads::lists::SeenCommands>,
) -> Done {
    for work in list.into_works(seen) {
        let work = work?;
        match context.output.json {
            true => context.output.json(&printer::Planned::of(&work))?,
            false => context.output.line(&work.command)?,
        }
    }
    Ok(Exit::Ok)
}

/// The description that the tasks of all entries share. Commands run in the current directory.
fn spec_of(program: &str, args: &ListArgs) -> Result<wire::Spec, Failure> {
    let here = std::env::current_dir()
        .map_err(|error| Failure::refused(format!("no working directory: {}", plain(&error))))?;
    let cwd = here.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::refused(format!("'{}' is not valid UTF-8", here.display()))
            .hint("start the run in another directory")
    })?;
    let options = CommandOptions {
        cwd: Some(cwd),
        submit_dir: here,
        retries: args.retries,
        time_limit_ns: args.task_time_limit.map_or(0, |limit| limit.0.as_nanos() as u64),
        notice: args.signal,
        pin: args.pin,
        nodes: args.task_nodes.unwrap_or(0),
        needs: args.needs.needs(),
        priority: args.needs.priority(),
        rank: args.needs.rank(),
        time_request_ns: args.needs.time_request_ns(),
        ..CommandOptions::default()
    };
    let graph = Graph::command(vec![program.to_owned()], &options)?;
    Ok(graph.specs()[0].clone())
}
