//! `starling top`: the cluster in the terminal. `tables` has the views, `screen` draws them.

mod screen;
mod tables;

use clap::Args;
use tables::{Tables, View};
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::units::Timespan;

use crate::web::live::Live;

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Print all views once, for scripts
    #[arg(long)]
    once: bool,
    /// The time between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    every: Timespan,
}

/// `starling top`.
pub(crate) fn run(context: &Context, args: &TopArgs) -> Done {
    if args.once {
        return once(context);
    }
    let has_terminal = {
        use std::io::IsTerminal;
        std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
    };
    if !has_terminal || context.output.json {
        return Err(Failure::usage("top needs a terminal")
            .hint("'starling top --once' prints the same as text"));
    }
    verb::block_on(async {
        let live = Live::connect(context, false).await?;
        screen::show(&live, args.every.0.max(std::time::Duration::from_millis(100))).await
    })
}

/// Prints every view that has rows.
fn once(context: &Context) -> Done {
    verb::block_on(async {
        let live = Live::connect(context, false).await?;
        let (overview, json) = live.look().await?;
        if context.output.json {
            context.output.raw_line(&json)?;
            return Ok(Exit::Ok);
        }
        let newest = overview.jobs.last().and_then(|job| job.job.parse().ok()).map(proto::JobId);
        let kinds = match newest {
            // The figures are printed also if this fails.
            Some(job) => live.detail(job).await.map(|shown| shown.progress()).unwrap_or_default(),
            None => Vec::new(),
        };
        let tables = Tables { overview: &overview, kinds: &kinds, job: newest };
        context
            .output
            .text(&tables.summary().iter().map(|it| format!("{it}\n")).collect::<String>())?;
        for view in View::ALL.into_iter().filter(|view| *view != View::Overview) {
            let table = tables.of(view);
            if !table.rows.is_empty() {
                context.output.text(&format!("\n{}\n", table.to_text()))?;
            }
        }
        Ok(Exit::Ok)
    })
}
