//! `starling var`: values that the tasks of a job share. Inside a task the verbs reach its node,
//! and with `--job` the job's home.

use clap::{Args, Subcommand};
use client::{Client, JobId};
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard};

use crate::common::selector::Selector;
use crate::inside::{door, failure};
use crate::views::jobs;
use crate::views::variables::{VariableRow, end_with_reader, find, follow, print};

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
