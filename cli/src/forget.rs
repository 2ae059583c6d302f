//! `starling job forget`: removes what is known of ended jobs.

use clap::Args;
use client::Client;
use serde::Serialize;

use crate::Context;
use crate::errors::{Done, Exit, Failure};
use crate::jobs;
use crate::selector::Selector;

#[derive(Args, Debug)]
pub(crate) struct ForgetArgs {
    /// all, last, 5 or 1-3,7
    jobs: Selector,
    /// Remove what their tasks keep as well
    #[arg(long)]
    results: bool,
}

#[derive(Serialize)]
struct ForgottenRow {
    job: String,
    forgotten: bool,
    results: bool,
}

/// Nothing is forgotten unless all of it can be.
pub(crate) async fn run(context: &Context, client: &Client, args: &ForgetArgs) -> Done {
    let selected = jobs::select(client, &args.jobs).await?;
    for &job in &selected {
        let state = client.job(job).await?;
        if !client::is_ended(&state) || state.ended_ns == 0 {
            let job = job.0;
            let text = format!("job {job} has not ended: only an ended job can be forgotten");
            return Err(Failure::refused(text).hint(format!(
                "'starling job wait {job}' waits for its end, 'starling job cancel {job}' ends it"
            )));
        }
    }
    for &job in &selected {
        client.forget(job, args.results).await?;
        let (number, results) = (job.0.to_string(), args.results);
        if context.output.json {
            context.output.json(&ForgottenRow { job: number, forgotten: true, results })?;
        } else {
            let what = if results { ", with its results" } else { "" };
            context.output.note(&format!("job {number} is forgotten{what}"));
        }
    }
    Ok(Exit::Ok)
}
