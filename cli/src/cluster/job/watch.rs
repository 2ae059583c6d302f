//! `starling job watch`: each new value of variables of a job.

use clap::Args;
use client::Client;
use verb::Context;
use verb::errors::{Done, Failure};

use crate::common::selector::Selector;
use crate::views::{jobs, variables};

#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    /// The job: last, or its number
    job: Selector,
    /// A variable; may be repeated: each line is then the name, a tab and the value
    #[arg(long = "var", value_name = "NAME", required = true)]
    names: Vec<String>,
}

pub(crate) async fn run(context: &Context, client: &Client, args: &WatchArgs) -> Done {
    let [job] = jobs::select(client, &args.job).await?[..] else {
        return Err(Failure::usage("variables are of one job: name one"));
    };
    let names: Vec<&str> = args.names.iter().map(String::as_str).collect();
    variables::follow(context, client, job, &names).await
}
