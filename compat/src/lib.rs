/*!
Starling behind the command line of HyperQueue: `starling hq`, or a link to it named `hq`.

The front translates. It submits jobs through `client`, prints the tables that programs of that
command line read, and keeps what Starling does not keep (the texts of a submission, the numbers of
workers) in the cluster's key-value store. Nothing in Starling depends on it.

Start at `args.rs`, then `submit/mod.rs`; `task.rs` runs on a node, between Starling and a command.
*/

mod alloc;
mod args;
mod cluster;
mod explain;
mod ids;
mod jobs;
mod json;
mod output_log;
mod records;
mod submit;
mod table;
mod task;
mod tasks;
mod times;
mod words;
mod worker_start;
mod workers;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use verb::directives::{self, MergeError};
use verb::errors::Failure;
use verb::output::{Output, say_lines};
use verb::settings::Settings;

use args::{Hq, JobVerb, Verb};

/// The hidden verb that starts a task's command on a node.
pub const TASK_VERB: &str = "__hq-task";
/// The name of the program, and of the verb.
pub const NAME: &str = "hq";

/// Runs a command line, of which the first word is the name of the program.
#[must_use]
pub fn run(line: Vec<OsString>) -> ExitCode {
    match parse(line) {
        Ok(Ok(args)) => match dispatch(args) {
            Ok(code) => code,
            Err(failure) => failed(&failure),
        },
        Ok(Err(failure)) => failed(&failure),
        Err(error) => {
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { 2 } else { 0 })
        }
    }
}

/// Runs the command of a task; returns only if it cannot.
#[must_use]
pub fn task(line: &[OsString]) -> ExitCode {
    task::run(line)
}

fn failed(failure: &Failure) -> ExitCode {
    if !failure.message.is_empty() {
        say_lines(failure.render().trim_end());
    }
    ExitCode::from(failure.exit as u8)
}

/// With the options of directives, which stand in the script or in the standard input.
fn parse(mut line: Vec<OsString>) -> Result<Result<Hq, Failure>, clap::Error> {
    if let Some(name) = line.first_mut() {
        *name = NAME.into();
    }
    let mut args = Hq::try_parse_from(&line)?;
    let (Verb::Submit(submit) | Verb::Job { verb: JobVerb::Submit(submit) }) = &mut args.verb
    else {
        return Ok(Ok(args));
    };
    let input = match submit.stdin.then(submit::read_input).transpose() {
        Ok(input) => input,
        Err(failure) => return Ok(Err(failure)),
    };
    let options = match submit.directives_of(input.as_deref()) {
        Ok(options) => options,
        Err(failure) => return Ok(Err(failure)),
    };
    let place = line.iter().position(|word| word == "submit");
    let Some(place) = place.filter(|_| !options.is_empty()) else {
        submit.input = input;
        return Ok(Ok(args));
    };
    let parse = |line: &[OsString]| {
        let matches = Hq::command().try_get_matches_from(line)?;
        let mut verb = matches.subcommand().map(|(_, verb)| verb.clone()).unwrap_or_default();
        if let Some((_, inner)) = verb.subcommand() {
            verb = inner.clone();
        }
        Ok(verb)
    };
    let verb = Hq::command().find_subcommand("submit").cloned().unwrap_or_default();
    let merged = match directives::merge(&line, place, &options, &verb, parse) {
        Ok(merged) => merged,
        Err(MergeError::Script(failure)) => return Ok(Err(failure)),
        Err(MergeError::Line(error)) => return Err(error),
    };
    // Entries of the command line are taken in the place of an array of the script.
    let has_own_entries =
        submit.array.is_none() && (submit.each_line.is_some() || submit.from_json.is_some());
    let mut args = Hq::try_parse_from(merged)?;
    if let Verb::Submit(submit) | Verb::Job { verb: JobVerb::Submit(submit) } = &mut args.verb {
        submit.input = input;
        submit.array = submit.array.take().filter(|_| !has_own_entries);
    }
    Ok(Ok(args))
}

fn dispatch(args: Hq) -> Result<ExitCode, Failure> {
    let output = Output::new(false, false, false);
    let context = verb::Context::new(output, Settings::load()?, args.server_dir.clone());
    let front = cluster::Front { context, form: args.output_mode };
    match args.verb {
        Verb::Submit(submit) => submit::run(&front, &submit),
        Verb::Job { verb } => jobs::run(&front, verb),
        Verb::Task { verb } => tasks::run(&front, &verb),
        Verb::OutputLog { directory, verb } => output_log::run(&front, &directory, &verb),
        Verb::Server { verb } => cluster::server(&front, &verb),
        Verb::Alloc { verb } => alloc::run(&front, verb),
        Verb::Worker { verb } => workers::run(&front, verb),
    }
}
