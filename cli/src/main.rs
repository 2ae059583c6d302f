//! The one binary. Each verb has its file; this one reads the command line and selects it.
//! `cluster` has the verbs for a running cluster, `inside` those for commands in a task. `local`
//! has those that start nodes, `alloc` those for allocations, and `common` serves all verbs.

mod alloc;
mod args;
mod bound;
mod cluster;
mod common;
mod complete;
mod examples;
mod generated;
mod inside;
mod limits;
mod local;
mod report;
mod search;
mod sim;
mod top;
mod usage;
mod views;
mod web;
mod workload;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use args::{Cli, Verb};
use cluster::node::token;
use cluster::{config, job, kv, submit, task};
use local::{doctor, example, node, run, up};
use verb::Context;
use verb::directives::{self, MergeError};
use verb::errors::{Done, Exit, Failure};
use verb::output::{self, Output};
use verb::settings::Settings;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything is opened or started.
    executor::inherited::close_on_exec();
    // The helper that starts commands must not read settings or arguments of its own.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "__spawner") {
        executor::spawner::main()
    }
    if let Some(code) = complete::front(Cli::command).or_else(compat_front) {
        return code;
    }
    let failure = match parse().and_then(with_directives) {
        Ok(cli) => match cli.and_then(dispatch) {
            Ok(exit) => return ExitCode::from(exit as u8),
            Err(failure) => usage::or_hint(failure, &words()),
        },
        Err(error) if !error.use_stderr() => {
            // Help and version; a missing reader is no error.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return ExitCode::from(Exit::Usage as u8);
        }
        Err(error) => usage::usage_of_clap(&error, &words()),
    };
    if !failure.message.is_empty() {
        output::say_lines(failure.render().trim_end());
    }
    ExitCode::from(failure.exit as u8)
}

/// Reads the command line. The help of a verb ends with its examples.
fn parse() -> Result<Cli, clap::Error> {
    let mut matches = examples::in_help(Cli::command(), "").try_get_matches()?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut Cli::command()))
}

/// The front of another command line: by a link of that name, or as a verb.
fn compat_front() -> Option<ExitCode> {
    let line: Vec<OsString> = std::env::args_os().collect();
    let program = std::path::Path::new(line.first()?).file_name();
    if line.get(1).is_some_and(|verb| verb == compat::TASK_VERB) {
        return Some(compat::task(&line[2..]));
    }
    if program.is_some_and(|name| name == compat::NAME) {
        return Some(compat::run(line));
    }
    let is_verb = line.get(1).is_some_and(|verb| verb == compat::NAME);
    is_verb.then(|| compat::run(line[1..].to_vec()))
}

/// Adds the options that a submitted script gives.
fn with_directives(cli: Cli) -> Result<Result<Cli, Failure>, clap::Error> {
    let options = match &cli.verb {
        Verb::Submit(args) => args.directives(),
        _ => Ok(directives::Script::default()),
    };
    let options = match options {
        Ok(options) if options.is_empty() => return Ok(Ok(cli)),
        Ok(options) => options,
        Err(failure) => return Ok(Err(failure)),
    };
    let line: Vec<OsString> = std::env::args_os().collect();
    let Some(verb) = line.iter().position(|word| word == "submit") else { return Ok(Ok(cli)) };
    let parse = |line: &[OsString]| {
        let matches = Cli::command().try_get_matches_from(line)?;
        Ok(matches.subcommand().map(|(_, verb)| verb.clone()).unwrap_or_default())
    };
    let command = Cli::command();
    let submit = command.find_subcommand("submit").cloned().unwrap_or_default();
    match directives::merge(&line, verb, &options, &submit, parse) {
        Ok(merged) => Cli::try_parse_from(merged).map(Ok),
        Err(MergeError::Script(failure)) => Ok(Err(failure)),
        Err(MergeError::Line(error)) => Err(error),
    }
}

/// The command line after the program's name.
fn words() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into()).collect()
}

fn dispatch(cli: Cli) -> Done {
    let output = Output::new(cli.json, cli.quiet, cli.verbose > 0);
    let context = Context::new(output, Settings::load()?, cli.dir);
    let context = &context;
    match cli.verb {
        Verb::Run(args) => run::run(context, &args),
        Verb::Up(args) => up::up(context, &args),
        Verb::Down(args) => up::down(context, &args),
        Verb::Node(args) => node::run(context, *args),
        Verb::Submit(args) => submit::run(context, &args),
        Verb::Spawn(args) => inside::spawn::run(context, &args),
        Verb::Await(args) => inside::awaiting::run(context, &args),
        Verb::Commit(args) => inside::commit::run(context, &args),
        Verb::Event(verb) => inside::event::run(context, &verb),
        Verb::Rsh(args) => inside::rsh::run(&args),
        Verb::Var(verb) => inside::var::run(context, &verb),
        Verb::Job(verb) => job::run(context, &verb),
        Verb::Task(verb) => task::run(context, &verb),
        Verb::Kv(verb) => kv::run(context, &verb),
        Verb::Token(verb) => token::run(context, &verb),
        Verb::Alloc(verb) => alloc::run(context, *verb),
        Verb::Workload(verb) => workload::run(context, &verb),
        Verb::Sim(args) => sim::run(context, &args),
        Verb::Bound(args) => bound::run(context, &args),
        Verb::Search(args) => search::run(context, &args),
        #[cfg(feature = "lab")]
        Verb::Check(args) => lab::check(context, &args),
        #[cfg(feature = "bench")]
        Verb::Bench(args) => bench::run(context, &args),
        #[cfg(feature = "lab")]
        Verb::Eval(args) => lab::eval(context, &args),
        Verb::Report(args) => report::run(context, &args),
        Verb::Trace(args) => report::trace::run(context, &args),
        Verb::Web(args) => web::run(context, &args),
        Verb::Top(args) => top::run(context, &args),
        Verb::Metrics(args) => web::metrics::run(context, &args),
        Verb::Config(verb) => config::run(context, &verb),
        Verb::Doctor(args) => doctor::run(context, &args),
        Verb::Example(args) => example::example(context, &args),
        Verb::Init(args) => example::init(context, &args),
        Verb::Completion(args) => generated::completion(context, &args, Cli::command()),
        Verb::Man(args) => generated::man(context, &args, Cli::command()),
    }
}
