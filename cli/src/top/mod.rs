//! `starling top`: the cluster in the terminal. `tables` has the views, `screen` draws them.

mod records;
mod screen;
mod tables;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use proto::JobId;
use records::Records;
use tables::{Tables, View};
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::units::Timespan;

use crate::web::live::{Live, Overview};
use crate::web::record_rows::Progress;

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Print all views once, for scripts
    #[arg(long)]
    once: bool,
    /// The time between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    every: Timespan,
    /// Show run records instead of a cluster: of a file, a run, or a directory of runs
    #[arg(long, value_name = "DIR|FILE")]
    from: Option<PathBuf>,
}

/// What is shown.
#[derive(Clone)]
enum Feed {
    Live(Live),
    Records(Arc<Records>),
}

impl Feed {
    async fn open(context: &Context, args: &TopArgs) -> Result<Self, Failure> {
        Ok(match &args.from {
            Some(from) => Self::Records(Arc::new(Records::open(from)?)),
            None => Self::Live(Live::connect(context, false).await?),
        })
    }

    async fn look(&self) -> Result<Arc<Overview>, Failure> {
        match self {
            Self::Live(live) => live.look().await.map(|(overview, _)| overview),
            Self::Records(records) => Ok(records.overview()),
        }
    }

    /// The tasks of a job by kind.
    async fn kinds(&self, job: JobId) -> Result<Vec<Progress>, Failure> {
        match self {
            Self::Live(live) => live.detail(job).await.map(|shown| shown.progress()),
            Self::Records(records) => records.kinds(job).await,
        }
    }
}

/// `starling top`.
pub(crate) fn run(context: &Context, args: &TopArgs) -> Done {
    if args.once {
        return once(context, args);
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
        let feed = Feed::open(context, args).await?;
        screen::show(&feed, args.every.0.max(std::time::Duration::from_millis(100))).await
    })
}

/// Prints every view that has rows.
fn once(context: &Context, args: &TopArgs) -> Done {
    verb::block_on(async {
        let feed = Feed::open(context, args).await?;
        let overview = feed.look().await?;
        if context.output.json {
            context.output.json_with_schema(&*overview)?;
            return Ok(Exit::Ok);
        }
        let newest = overview.jobs.last().and_then(|job| job.job.parse().ok()).map(JobId);
        let kinds = match newest {
            // The figures are printed also if this fails.
            Some(job) => feed.kinds(job).await.unwrap_or_default(),
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
