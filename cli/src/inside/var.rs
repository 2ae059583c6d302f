//! `starling var`: values that the tasks of a job share. Inside a task the verbs reach its node,
//! and with `--job` the job's home.

use clap::{Args, Subcommand};
use client::{Client, JobId, Variable};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard};
use verb::terminal_text::shown;

use crate::common::selector::Selector;
use crate::inside::{door, failure};
use crate::views::jobs;
use crate::views::variables::VariableRow;

#[derive(Subcommand, Debug)]
pub(crate) enum VarVerb {
    /// Print the value of a variable; exit 1 when it has none
    Get(NamedArgs),
    /// Set a variable at once; of min and max only a better value counts
    Set(SetArgs),
    /// Inside a task: add to a sum, which counts once the task commits or is done
    Add(AddArgs),
    /// Print the value, and each later one, until the task or the job ends
    Watch(NamedArgs),
}

#[derive(Args, Debug)]
pub(crate) struct NamedArgs {
    /// The name of the variable
    name: String,
    /// A job by its number, or last [default: the job of this task]
    #[arg(long)]
    job: Option<Selector>,
}

#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// The name of the variable
    name: String,
    /// A number, or for the rule last a text of at most 1 KiB
    #[arg(allow_hyphen_values = true)]
    value: String,
    /// What proves the value, at most 4 KiB: a tour, or the name of a file
    #[arg(long, value_name = "TEXT", default_value = "")]
    witness: String,
    /// A job by its number, or last [default: the job of this task]
    #[arg(long)]
    job: Option<Selector>,
}

#[derive(Args, Debug)]
pub(crate) struct AddArgs {
    /// The name of the variable
    name: String,
    /// An integer
    #[arg(allow_hyphen_values = true)]
    number: String,
}

pub(crate) fn run(context: &Context, verb: &VarVerb) -> Done {
    match verb {
        VarVerb::Get(NamedArgs { name, job: None }) => {
            let variable = door()?.variable(name).map_err(failure)?;
            print(context, variable)
        }
        VarVerb::Watch(NamedArgs { name, job: None }) => {
            let door = door()?;
            end_with_reader();
            let mut watch = door.watch_variable(name);
            loop {
                print(context, watch.next().map_err(failure)?)?;
            }
        }
        VarVerb::Set(SetArgs { name, value, witness, job: None }) => {
            let witness = witness.clone().into_bytes();
            let variable = door()?.set_variable(name, value, witness).map_err(failure)?;
            if context.output.json {
                heard(context.output.json(&VariableRow::from(variable)))?;
            }
            Ok(Exit::Ok)
        }
        VarVerb::Add(AddArgs { name, number }) => {
            door()?.add_to_variable(name, number).map_err(failure)?;
            Ok(Exit::Ok)
        }
        VarVerb::Get(NamedArgs { job: Some(job), .. })
        | VarVerb::Watch(NamedArgs { job: Some(job), .. })
        | VarVerb::Set(SetArgs { job: Some(job), .. }) => verb::block_on(async {
            let client = context.connect().await?;
            let [job] = jobs::select(&client, job).await?[..] else {
                return Err(Failure::usage("--job names one job"));
            };
            outside(context, &client, job, verb).await
        }),
    }
}

/// From outside, at the job's home.
async fn outside(context: &Context, client: &Client, job: JobId, verb: &VarVerb) -> Done {
    match verb {
        VarVerb::Get(args) => {
            let all = client.variables(job).await?;
            print(context, find(all, job, &args.name)?)
        }
        VarVerb::Watch(args) => follow(context, client, job, &[args.name.as_str()]).await,
        VarVerb::Set(args) => {
            let witness = args.witness.clone().into_bytes();
            client.set_variable(job, &args.name, &args.value, witness).await?;
            Ok(Exit::Ok)
        }
        VarVerb::Add(_) => Err(Failure::usage("'var add' works inside a task only")),
    }
}

/// Prints the values of these variables, and each later one, until the job has ended. Lines have
/// the name before the value if there are several variables.
pub(crate) async fn follow(context: &Context, client: &Client, job: JobId, names: &[&str]) -> Done {
    end_with_reader();
    let mut watch = client.watch_variables(job);
    let mut told: Vec<Variable> = Vec::new();
    while let Some(all) = watch.next().await? {
        let is_new =
            |(at, now): (usize, &Variable)| told.get(at).is_none_or(|told| told.value != now.value);
        let mut now = find_all(&all, job, names)?;
        if context.output.json && now.iter().enumerate().any(is_new) {
            // Lines in JSON have the witness.
            now = find_all(&client.variables(job).await?, job, names)?;
        }
        for (_, variable) in now.iter().enumerate().filter(|it| is_new(*it)) {
            match names.len() {
                1 => print(context, variable.clone()).map(drop)?,
                _ => print_named(context, variable.clone())?,
            }
        }
        told = now;
    }
    Ok(Exit::Ok)
}

fn find(all: Vec<Variable>, job: JobId, name: &str) -> Result<Variable, Failure> {
    all.into_iter().find(|it| it.name == name).ok_or_else(|| {
        Failure::refused(format!("job {job} has no variable '{name}'"))
            .hint("declare it: starling submit --var NAME=RULE[:INITIAL]")
    })
}

fn find_all(all: &[Variable], job: JobId, names: &[&str]) -> Result<Vec<Variable>, Failure> {
    names.iter().map(|name| find(all.to_vec(), job, name)).collect()
}

/// Ends this process when nothing reads its output any more, as after `| head -n 1`. A later value
/// may never come.
fn end_with_reader() {
    std::thread::spawn(|| {
        let stdout = std::io::stdout();
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        loop {
            match poll(&mut watched, None) {
                Ok(_) if watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => {
                    std::process::exit(0)
                }
                Err(Errno::INTR) => {}
                _ => return, // There is no output at all.
            }
        }
    });
}

fn print(context: &Context, variable: Variable) -> Done {
    let has_value = variable.value.is_some();
    if context.output.json {
        heard(context.output.json(&VariableRow::from(variable)))?;
    } else if let Some(value) = &variable.value {
        // Programs get a text as it was set.
        heard(match context.output.is_table() {
            true => context.output.line(value),
            false => context.output.raw_line(value),
        })?;
    }
    Ok(if has_value { Exit::Ok } else { Exit::Failed })
}

/// A line of several variables. A text keeps its control characters only if programs read it.
fn print_named(context: &Context, variable: Variable) -> Result<(), Failure> {
    match &variable.value {
        Some(value) if !context.output.json => {
            let value = if context.output.is_table() { shown(value) } else { value.into() };
            heard(context.output.raw_line(&format!("{}\t{value}", variable.name)))
        }
        _ => print(context, variable).map(drop),
    }
}
