//! The arguments of `hq alloc`.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};
use verb::units::Timespan;

use crate::args::{OfferArgs, WorkerArgs};
use crate::times;

#[derive(Subcommand, Debug)]
pub(crate) enum AllocVerb {
    /// List the queues
    List,
    /// List the allocations of a queue
    Info {
        queue: u64,
        /// Only allocations in this state
        #[arg(long, value_enum)]
        filter: Option<State>,
    },
    /// Print the output of an allocation, by its number in the batch system
    Log {
        allocation: String,
        #[arg(value_enum)]
        channel: Channel,
    },
    /// Make a queue
    Add {
        #[command(subcommand)]
        system: System,
    },
    /// Submit nothing more for a queue
    Pause { queue: u64 },
    /// Submit for a queue again
    Resume { queue: u64 },
    /// Check with the batch system whether it would take an allocation
    DryRun {
        #[command(subcommand)]
        system: System,
    },
    /// Remove a queue
    Remove {
        queue: u64,
        /// Also with running allocations, which are cancelled
        #[arg(long)]
        force: bool,
    },
    /// On a node of an allocation: add a worker, and become its node
    #[command(hide = true)]
    Worker {
        #[command(flatten)]
        worker: Box<WorkerArgs>,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// The state of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum State {
    Queued,
    Running,
    Finished,
    Failed,
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
        }
    }
}

/// A batch job has one file for both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Channel {
    Stdout,
    Stderr,
}

#[derive(Subcommand, Debug)]
pub(crate) enum System {
    Pbs(Box<QueueArgs>),
    Slurm(Box<QueueArgs>),
}

impl System {
    pub(crate) fn args(&self) -> &QueueArgs {
        match self {
            Self::Pbs(args) | Self::Slurm(args) => args,
        }
    }
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Pbs(_) => "pbs",
            Self::Slurm(_) => "slurm",
        }
    }
    /// The program that submits.
    pub(crate) fn submitter(&self) -> &'static str {
        match self {
            Self::Pbs(_) => "qsub",
            Self::Slurm(_) => "sbatch",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct QueueArgs {
    /// The most allocations that wait in the batch system at once
    #[arg(long, short, default_value_t = 1, value_parser = backlog)]
    pub(crate) backlog: u32,
    /// The time limit of an allocation: 01:30:00 or '1h 30m'
    #[arg(long, short, value_parser = times::parse)]
    pub(crate) time_limit: Timespan,
    /// The most workers of one allocation
    #[arg(long, short, default_value_t = 1)]
    pub(crate) max_workers_per_alloc: u32,
    /// The most workers of all allocations
    #[arg(long)]
    pub(crate) max_worker_count: Option<u32>,
    #[arg(long, short)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) offer: OfferArgs,
    #[arg(long, value_parser = times::parse, default_value = "5m")]
    pub(crate) idle_timeout: Timespan,
    /// No effect: nodes report no overviews
    #[arg(long, hide = true, value_parser = times::parse)]
    pub(crate) overview_interval: Option<Timespan>,
    /// The part of new workers that ready tasks must fill at once, from 0 to 1
    #[arg(long, default_value_t = 0.0)]
    pub(crate) min_utilization: f64,
    /// No effect: there is no server to lose
    #[arg(long, default_value = "finish-running")]
    pub(crate) on_server_lost: String,
    /// Make the queue without a dry run
    #[arg(long)]
    pub(crate) no_dry_run: bool,
    /// A command of a shell before each worker
    #[arg(long)]
    pub(crate) worker_start_cmd: Option<String>,
    /// A command of a shell after each worker
    #[arg(long)]
    pub(crate) worker_stop_cmd: Option<String>,
    /// Words before the program of each worker
    #[arg(long)]
    pub(crate) worker_wrap_cmd: Option<String>,
    /// Workers end after this time [default: the time limit of the allocation]
    #[arg(long, value_parser = times::parse)]
    pub(crate) worker_time_limit: Option<Timespan>,
    /// Further arguments of sbatch or qsub
    #[arg(trailing_var_arg = true)]
    pub(crate) additional_args: Vec<String>,
}

fn backlog(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("Backlog has to be at least 1".to_owned()),
        Ok(backlog) => Ok(backlog),
        Err(_) => Err(format!("'{text}' is not a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_a_backlog() {
        assert_eq!(backlog("0"), Err("Backlog has to be at least 1".to_owned()));
    }
}
