//! The one binary. Each verb has its file; this one reads the command line and selects it.
//! `cluster` has the verbs for a running cluster, `inside` those for commands in a task. `local`
//! has those that start nodes, and `common` serves all verbs.

mod args;
mod bench;
mod bound;
mod campaign;
mod check;
mod cluster;
mod common;
mod eval;
mod generated;
mod inside;
mod local;
mod report;
mod search;
mod sim;
mod top;
mod web;
mod workload;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Verb};
use cluster::{config, job, kv, submit, task, token};
use common::errors::{self, Done, Exit, Failure};
use common::output::{self, Output};
use common::path_templates;
use common::settings::{self, Settings};
use local::{doctor, example, node, processes, run, up};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The context of every verb beside its own arguments.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) output: Output,
    pub(crate) settings: Settings,
    /// `--dir` as given; see [`Context::dir`].
    dir: Option<std::path::PathBuf>,
}

/// The reason why an instance directory cannot contain the place of a node.
const ALL_SHARE: &str = "all nodes share the directory";

impl Context {
    /// The instance's directory, by flag, setting or default; absolute. A directory that other
    /// users could have made is refused: they would know its keys.
    pub(crate) fn dir(&self) -> Result<std::path::PathBuf, Failure> {
        let user = rustix::process::geteuid().as_raw();
        let dir = self.dir_path()?;
        if self.chosen_dir()?.is_none() {
            // Lies where others write too.
            settings::check_owner(dir.parent().unwrap_or(&dir), user)?;
        }
        settings::check_owner(&dir, user)?;
        Ok(dir)
    }

    /// A flag or a setting. The variable may hold a name that is no text.
    fn chosen_dir(&self) -> Result<Option<std::path::PathBuf>, Failure> {
        match settings::odd_variable(settings::DIR_VARIABLE).filter(|_| self.dir.is_none()) {
            Some(name) => Ok(Some(name.into())),
            None => self.settings.pick_optional(self.dir.clone(), "dir"),
        }
    }

    /// Where [`Self::dir`] is, under any owner.
    pub(crate) fn dir_path(&self) -> Result<std::path::PathBuf, Failure> {
        let chosen = self.chosen_dir()?;
        // A variable holds a path as it is: nodes tell it to tasks. A user's text has placeholders.
        let origin = self.settings.get("dir").map(|(_, origin)| origin);
        let is_odd = settings::odd_variable(settings::DIR_VARIABLE).is_some();
        let is_text = self.dir.is_some() || !is_odd && origin != Some(settings::DIR_VARIABLE);
        let dir = match chosen {
            Some(text) if is_text => path_templates::expand(
                &text,
                path_templates::Scope { flag: "--dir", rank: Err(ALL_SHARE) },
            )?,
            Some(dir) => dir,
            None => {
                let user = rustix::process::getuid().as_raw();
                settings::default_dir(|name| std::env::var(name).ok(), user)
            }
        };
        std::path::absolute(&dir).map_err(|error| Failure::file(&dir, &error))
    }

    /// A client of the instance.
    pub(crate) async fn connect(&self) -> Result<client::Client, Failure> {
        let dir = self.dir()?;
        client::Client::connect(&dir).await.map_err(|error| with_reason(&dir, error))
    }

    /// A client of the instance that can change nothing. It gives up a request after this long.
    pub(crate) async fn connect_to_read(
        &self,
        request_timeout: std::time::Duration,
    ) -> Result<client::Client, Failure> {
        let dir = self.dir()?;
        let options = client::ClientOptions { request_timeout };
        let connected = client::Client::connect_to_read(&dir, options).await;
        connected.map_err(|error| with_reason(&dir, error))
    }
}

/// Nodes that ran in the background have the reason of their end in their logs.
fn with_reason(dir: &std::path::Path, error: client::ClientError) -> Failure {
    match error {
        client::ClientError::ClusterUnreachable(_) => match processes::last_error(dir) {
            Some(reason) => Failure::from(error).because(&reason),
            None => error.into(),
        },
        _ => error.into(),
    }
}

fn main() -> ExitCode {
    // Before anything is opened or started.
    executor::inherited::close_on_exec();
    // The helper that starts commands must not read settings or arguments of its own.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == "__spawner") {
        executor::spawner::main()
    }
    let failure = match Cli::try_parse() {
        Ok(cli) => match dispatch(cli) {
            Ok(exit) => return ExitCode::from(exit as u8),
            Err(failure) => failure.or_hint(&words()),
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
        Err(error) => errors::usage_of_clap(&error, &words()),
    };
    if !failure.message.is_empty() {
        output::say_lines(failure.render().trim_end());
    }
    ExitCode::from(failure.exit as u8)
}

/// The command line after the program's name.
fn words() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into()).collect()
}

fn dispatch(cli: Cli) -> Done {
    let output = Output::new(cli.json, cli.quiet, cli.verbose > 0);
    let context = Context { output, settings: Settings::load()?, dir: cli.dir };
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
        Verb::Job(verb) => job::run(context, &verb),
        Verb::Task(verb) => task::run(context, &verb),
        Verb::Kv(verb) => kv::run(context, &verb),
        Verb::Token(verb) => token::run(context, &verb),
        Verb::Workload(verb) => workload::run(context, &verb),
        Verb::Sim(args) => sim::run(context, &args),
        Verb::Bound(args) => bound::run(context, &args),
        Verb::Search(args) => search::run(context, &args),
        Verb::Check(args) => check::run(context, &args),
        Verb::Bench(args) => bench::run(context, &args),
        Verb::Eval(args) => eval::run(context, &args),
        Verb::Report(args) => report::run(context, &args),
        Verb::Trace(args) => report::trace::run(context, &args),
        Verb::Web(args) => web::run(context, &args),
        Verb::Top(args) => top::run(context, &args),
        Verb::Metrics(args) => web::metrics::run(context, &args),
        Verb::Config(verb) => config::run(context, &verb),
        Verb::Doctor(args) => doctor::run(context, &args),
        Verb::Example(args) => example::example(context, &args),
        Verb::Init(args) => example::init(context, &args),
        Verb::Completion(args) => generated::completion(context, &args),
        Verb::Man(args) => generated::man(context, &args),
    }
}

/// Runs a verb's future on this thread; an interrupt ends it.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failure::lost(format!("cannot start the runtime: {}", errors::plain(&error)))
        })?;
    runtime.block_on(async {
        tokio::select! {
            // The handlers are installed before the verb does anything.
            biased;
            () = interrupted() => Err(Failure::interrupted()),
            done = future => done,
        }
    })
}

/// Returns on Ctrl-C or a request to terminate.
pub(crate) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let both = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = both else {
        // Without handlers the signals end the process in the default way.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
