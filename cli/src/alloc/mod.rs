//! `starling alloc`: queues of a batch system, from which nodes come when tasks wait for them.
//!
//! The decisions are in the crate `allocation`. Here are its effects: keys of the store, and
//! commands of the batch system.

mod add;
mod calls;
mod change;
mod demand;
mod dry_run;
mod inside;
pub(crate) mod learn;
pub(crate) mod offers;
pub(crate) mod owner;
mod records;
mod round;
mod show;
mod tick;

use clap::Subcommand;
use verb::Context;
use verb::errors::Done;

#[derive(Subcommand, Debug)]
pub(crate) enum AllocVerb {
    /// Make a queue: allocations that a node of the cluster may ask the batch system for
    Add(Box<add::AddArgs>),
    /// List the queues
    List,
    /// Show a queue with its allocations, and the owner that submits them
    Info {
        #[arg(value_name = "QUEUE")]
        queue: String,
    },
    /// Print the output of an allocation's batch job
    Log {
        #[arg(value_name = "QUEUE")]
        queue: String,
        /// The number of the allocation [default: the last one]
        number: Option<u64>,
    },
    /// Explain how many nodes each queue wants, and why
    Explain {
        /// Only this queue
        queue: Option<String>,
    },
    /// Submit nothing more for a queue
    Pause {
        #[arg(value_name = "QUEUE")]
        queue: String,
    },
    /// Submit for a queue again, also if it rests after failures
    Resume {
        #[arg(value_name = "QUEUE")]
        queue: String,
    },
    /// Remove a queue, and cancel its waiting batch jobs; running ones end when they are idle
    Remove {
        #[arg(value_name = "QUEUE")]
        queue: String,
        /// Cancel its running batch jobs too
        #[arg(long)]
        running: bool,
    },
    /// Check the batch job of a queue with the batch system; nothing is started
    DryRun {
        #[arg(value_name = "QUEUE")]
        queue: String,
    },
    /// One round of an owner, without a node that stays: for cron and login nodes
    Tick,
    /// In a batch job: ask whether it may work; prints an address of the cluster, or 'taken'
    #[command(hide = true)]
    Claim(inside::ClaimArgs),
    /// In a batch job: report its end
    #[command(hide = true)]
    Ended(inside::EndedArgs),
}

pub(crate) fn run(context: &Context, verb: AllocVerb) -> Done {
    verb::block_on(async {
        match verb {
            AllocVerb::Add(args) => add::run(context, *args).await,
            AllocVerb::List => show::list(context).await,
            AllocVerb::Info { queue } => show::info(context, &queue).await,
            AllocVerb::Log { queue, number } => show::log(context, &queue, number).await,
            AllocVerb::Explain { queue } => show::explain(context, queue.as_deref()).await,
            AllocVerb::Pause { queue } => change::pause(context, &queue, true).await,
            AllocVerb::Resume { queue } => change::pause(context, &queue, false).await,
            AllocVerb::Remove { queue, running } => change::remove(context, &queue, running).await,
            AllocVerb::DryRun { queue } => dry_run::run(context, &queue).await,
            AllocVerb::Tick => tick::run(context).await,
            AllocVerb::Claim(args) => inside::claim(context, &args).await,
            AllocVerb::Ended(args) => inside::ended(context, &args).await,
        }
    })
}
