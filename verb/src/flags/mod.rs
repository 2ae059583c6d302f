//! The arguments that several verbs share, and the flags that pass them to another process.

pub mod life;
pub mod needs;
pub mod tuning;

use std::time::Duration;

use clap::{Args, ValueEnum};
use daemon::CapturedRoom;

use self::life::LifeArgs;
use self::needs::OfferArgs;
use self::tuning::{OrderName, PolicyName, TuningArgs};
use crate::errors::Failure;
use crate::settings::Settings;
use crate::units::{Factor, Size, Timespan};

/// The arguments for the nodes of a cluster.
#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    /// Nodes of the cluster. Of an existing one: how many of its nodes run; if it has fewer, new
    /// ones join [default: 1, or all existing ones]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(proto::limits::NODES_MAX)))]
    pub nodes: Option<u32>,
    /// Executing threads of each node; 0 makes keepers, which keep replicas, vote and run no tasks.
    /// On an existing instance this applies to joining nodes; if none joins, it gives stopped
    /// keepers slots again [default: as before; else a share of the CPUs]
    #[arg(long, short_alias = 'j',
          value_parser = clap::value_parser!(u32).range(..=i64::from(proto::limits::SLOTS_MAX)))]
    pub slots: Option<u32>,
    #[command(flatten)]
    pub offer: OfferArgs,
    #[command(flatten)]
    pub life: LifeArgs,
    /// Replicas of each partition, once there are R nodes; then R-1 of them may fail at once. With
    /// 1 no node can join [default: 2; 1 for a run]
    #[arg(long, value_name = "R", value_parser = replicas_parser())]
    pub replicas: Option<u32>,
    #[command(flatten)]
    pub scrub: ScrubArgs,
    #[command(flatten)]
    pub captured: CapturedArgs,
    #[command(flatten)]
    pub slurm: SlurmArgs,
    /// No keys: connections are not encrypted, and every user of this machine may use the cluster
    #[arg(long)]
    pub insecure: bool,
    // The last one: its heading is for all arguments that follow.
    #[command(flatten)]
    pub tuning: TuningArgs,
}

/// `--scrub-every 24h`.
#[derive(Args, Clone, Debug)]
pub struct ScrubArgs {
    /// The interval at which a node reads all of its records, to find damage on disk; 0: never
    /// [default: 24h]
    #[arg(long, value_name = "DURATION")]
    scrub_every: Option<Timespan>,
}

impl ScrubArgs {
    pub fn is_given(&self) -> bool {
        self.scrub_every.is_some()
    }

    /// `None`: never. With what the settings say where no flag is given.
    pub fn resolve(&self, settings: &Settings) -> Result<Option<Duration>, Failure> {
        let every: Option<Timespan> = settings.pick_optional(self.scrub_every, "scrub_every")?;
        Ok(every.map(|every| every.0).filter(|every| !every.is_zero()))
    }

    /// The flags with which another process gets the same value.
    pub fn flags(every: Option<Duration>) -> [String; 2] {
        let every = every.unwrap_or_default();
        ["--scrub-every".to_owned(), format!("{}ns", every.as_nanos())]
    }
}

/// `--slurm hide`.
#[derive(Args, Clone, Debug)]
pub struct SlurmArgs {
    /// Whether tasks see the Slurm allocation of the node; then srun in a task starts a step of it
    /// [default: keep]
    #[arg(long, value_name = "keep|hide")]
    slurm: Option<Slurm>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slurm {
    Keep,
    Hide,
}

impl std::str::FromStr for Slurm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "keep" => Ok(Self::Keep),
            "hide" => Ok(Self::Hide),
            _ => Err("it is 'keep' or 'hide'".to_owned()),
        }
    }
}

impl SlurmArgs {
    pub fn is_given(&self) -> bool {
        self.slurm.is_some()
    }

    /// Whether it is hidden, with what the settings say where no flag is given.
    pub fn hides(&self, settings: &Settings) -> Result<bool, Failure> {
        Ok(settings.pick(self.slurm, "slurm")? == Slurm::Hide)
    }

    /// The flag with which another process gets the same value.
    pub fn flags(hides: bool) -> [String; 2] {
        ["--slurm".to_owned(), if hides { "hide" } else { "keep" }.to_owned()]
    }
}

/// `--captured-limit 1GiB --captured-store 20GiB`.
#[derive(Args, Clone, Debug)]
pub struct CapturedArgs {
    /// The limit of a task's output, both streams together; a task that prints more is killed and
    /// fails; 0: the limit of its node [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    captured_limit: Option<Size>,
    /// Space on a node for the output of tasks: the oldest output is removed first [default: a
    /// quarter of its store]
    #[arg(long, value_name = "SIZE")]
    captured_store: Option<Size>,
}

impl CapturedArgs {
    pub fn is_given(&self) -> bool {
        self.captured_limit.is_some() || self.captured_store.is_some()
    }

    /// With what the settings say where no flag is given.
    pub fn resolve(&self, settings: &Settings) -> Result<CapturedRoom, Failure> {
        let of_task: Option<Size> =
            settings.pick_optional(self.captured_limit, "captured_limit")?;
        let of_node: Option<Size> =
            settings.pick_optional(self.captured_store, "captured_store")?;
        Ok(CapturedRoom {
            task_bytes: of_task.map(|Size(bytes)| bytes).filter(|&bytes| bytes > 0),
            node_bytes: of_node.map(|Size(bytes)| bytes),
        })
    }

    /// The flags with which another process gets the same values.
    pub fn flags(room: CapturedRoom) -> Vec<String> {
        let of_task = room.task_bytes.unwrap_or(0);
        let mut flags = vec!["--captured-limit".to_owned(), format!("{of_task}B")];
        if let Some(of_node) = room.node_bytes {
            flags.extend(["--captured-store".to_owned(), format!("{of_node}B")]);
        }
        flags
    }
}

pub fn replicas_parser() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(proto::limits::COPIES_MAX))
}

/// The arguments for reading a workflow.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// Kind of the file: wfformat, toml, dot, stg, estee, ... [default: by its content]
    #[arg(long, value_name = "KIND")]
    pub format: Option<workloads::Format>,
    /// Slots of recorded tasks: one, or as many as recorded
    #[arg(long, value_enum, value_name = "CORES", default_value_t = Cores::One)]
    pub cores: Cores,
    /// Flop/s of a slot, for formats that count flops; durations in seconds are unaffected
    #[arg(long, value_name = "F", default_value = "1e9")]
    pub speed: Factor,
    /// Only this job of a trace of many jobs
    #[arg(long, value_name = "JOB")]
    pub only_job: Option<String>,
    /// Refuse a file that breaks its format, even if its meaning is clear
    #[arg(long)]
    pub strict: bool,
    /// Multiplies recorded durations and modelled transfers; 0: neither waits [default: 1]
    #[arg(long, value_name = "X")]
    pub scale: Option<Factor>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Cores {
    One,
    Recorded,
}

/// The arguments for submitting a workflow.
#[derive(Args, Clone, Debug)]
pub struct PlaceArgs {
    /// Files of recorded tasks: real bytes, or only sizes [default: virtual]
    #[arg(long)]
    pub data: Option<DataKind>,
    /// How tasks are spread over partitions [default: graph]
    #[arg(long)]
    pub placement: Option<PlacementName>,
    /// Nodes the tasks are submitted to: best (all), worst (one), or n1,n2 [default: best]
    #[arg(long, value_name = "WHERE")]
    pub submit: Option<SubmitTo>,
    /// Fail a task when its node or spawner has died this often, whatever the cause: a number,
    /// never-restart (the first time) or unlimited [default: 3 deaths that the task may have
    /// caused]
    #[arg(long, value_name = "LIMIT")]
    pub crash_limit: Option<workloads::CrashLimit>,
    /// Tasks of the job, with those that its tasks make; beyond them the job stops [default:
    /// 100000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tasks: Option<u64>,
    /// Run at most N tasks of the job at once [default: the file's at_most, or no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub at_most: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DataKind {
    Real,
    Virtual,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PlacementName {
    /// Even pieces of consecutive tasks
    Hash,
    /// Connected pieces: chains and subtrees stay together
    Graph,
}

/// Parses settings, which use the same words as the command line.
macro_rules! from_str_as_value {
    ($($name:ty),*) => {$(
        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                <$name as ValueEnum>::from_str(text, false)
            }
        }
    )*};
}
from_str_as_value!(PolicyName, OrderName, DataKind, PlacementName);

/// `best | worst | n1,n2`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubmitTo(pub client::Submit);

impl std::str::FromStr for SubmitTo {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let nodes = match text {
            "best" => return Ok(Self(client::Submit::Best)),
            "worst" => return Ok(Self(client::Submit::Worst)),
            _ => text.split(',').map(parse_node).collect::<Result<Vec<_>, _>>(),
        };
        let nodes = nodes.map_err(|_| {
            format!("'{text}' is neither best, worst nor a list of nodes such as n0,n2")
        })?;
        Ok(Self(client::Submit::Nodes(nodes)))
    }
}

/// `n2` or `2`.
pub fn parse_node(text: &str) -> Result<proto::NodeId, String> {
    let number = text.strip_prefix('n').unwrap_or(text);
    number.parse().map(proto::NodeId).map_err(|_| format!("'{text}' is not a node such as n2"))
}

/// `--timeout 10m`.
#[derive(Args, Clone, Debug)]
pub struct TimeoutArgs {
    /// Give up after this long
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<Timespan>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn nodes_to_submit_to() {
        let nodes = |text: &str| text.parse::<SubmitTo>().map(|to| to.0);
        assert_eq!(nodes("best"), Ok(client::Submit::Best));
        let two = vec![proto::NodeId(0), proto::NodeId(2)];
        assert_eq!(nodes("n0,2"), Ok(client::Submit::Nodes(two)));
        assert!(nodes("middle").is_err());
    }

    #[test]
    fn a_node_scrubs_at_the_given_interval() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            scrub: ScrubArgs,
        }
        let every = |words: &[&str]| {
            let words = ["starling"].iter().chain(words);
            let line = Line::try_parse_from(words).unwrap();
            line.scrub.resolve(&Settings::none()).unwrap()
        };
        assert_eq!(every(&[]), Some(Duration::from_nanos(proto::limits::SCRUB_INTERVAL.0)));
        assert_eq!(every(&["--scrub-every", "0"]), None);
        for told in [None, Some(Duration::from_secs(90)), Some(Duration::from_nanos(7))] {
            let [flag, value] = ScrubArgs::flags(told);
            assert_eq!(every(&[&flag, &value]), told);
        }
    }

    #[test]
    fn output_limits_follow_the_flags() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            captured: CapturedArgs,
        }
        let room = |words: &[String]| {
            let words = std::iter::once("starling").chain(words.iter().map(String::as_str));
            let line = Line::try_parse_from(words).unwrap();
            line.captured.resolve(&Settings::none()).unwrap()
        };
        assert_eq!(room(&[]), CapturedRoom::default());
        for told in [
            CapturedRoom::default(),
            CapturedRoom { task_bytes: None, node_bytes: Some(0) },
            CapturedRoom { task_bytes: Some(1), node_bytes: Some(1 << 40) },
        ] {
            assert_eq!(room(&CapturedArgs::flags(told)), told);
        }
    }
}
