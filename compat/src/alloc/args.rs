//! The arguments of `hq alloc`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use verb::units::Timespan;

use crate::args::{OfferArgs, WorkerArgs};

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
    #[arg(long, short, value_parser = walltime)]
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
    #[arg(long, value_parser = walltime, default_value = "5m")]
    pub(crate) idle_timeout: Timespan,
    /// No effect: nodes report no overviews
    #[arg(long, hide = true)]
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
    #[arg(long, value_parser = walltime)]
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

/// `HH:MM:SS`, or a duration with units.
fn walltime(text: &str) -> Result<Timespan, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else { return text.parse() };
    let wrong = || format!("'{text}' is not a time such as 01:30:00");
    let number = |part: &str| part.parse::<u32>().map(u64::from).map_err(|_| wrong());
    let (hours, minutes, seconds) = (number(hours)?, number(minutes)?, number(seconds)?);
    match minutes < 60 && seconds < 60 {
        true => Ok(Timespan(Duration::from_secs(hours * 3600 + minutes * 60 + seconds))),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_forms() {
        let seconds = |text: &str| walltime(text).map(|time| time.0.as_secs());
        assert_eq!(seconds("01:10:15"), Ok(4215));
        assert_eq!(seconds("3h 15m 10s"), Ok(11_710));
        assert_eq!(seconds("100:00:00"), Ok(360_000));
        for wrong in ["01:60:00", "1:2", "a:b:c", "", "-1:00:00", "90"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(backlog("0"), Err("Backlog has to be at least 1".to_owned()));
    }
}
