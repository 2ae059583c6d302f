//! Queues: what to ask a batch system for, and what the owner knows of it.

use std::fmt;
use std::str::FromStr;

use resources::{Name, Offer, Pool, Totals, parse_no_pool, parse_pool};
use serde::{Deserialize, Serialize};

use crate::Learned;
use crate::limits::{
    ARGUMENTS_MAX, NAME_LENGTH_MAX, NODES_MAX, PAUSES_MS, TEXT_BYTES_MAX, TIME_LIMIT_S_MAX,
    TIME_LIMIT_S_MIN,
};

/// A batch system. All queues of one system have one owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    Slurm,
    Pbs,
}

impl System {
    pub const ALL: [Self; 2] = [Self::Slurm, Self::Pbs];
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slurm => "slurm",
            Self::Pbs => "pbs",
        })
    }
}

impl FromStr for System {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|system| system.to_string() == text);
        known.ok_or_else(|| format!("'{text}' is no batch system: slurm and pbs are known"))
    }
}

/// What to ask a batch system for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueueConfig {
    pub name: String,
    pub system: System,
    pub time_limit_s: u64,
    /// Its nodes end after this time, if that is before the end of the allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_time_limit_s: Option<u64>,
    /// The cpus of each node; absent: learned from the first node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Further pools and labels of each node, as its flags.
    #[serde(default)]
    pub resources: Vec<String>,
    #[serde(default)]
    pub labels: Vec<String>,
    pub max_nodes_per_alloc: u32,
    /// The nodes of all its allocations, queued and running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    /// The allocations that may wait in the batch system at once.
    pub backlog: u32,
    /// The part of new nodes that ready tasks must fill at once, from 0 to 1.
    #[serde(default)]
    pub min_utilization: f64,
    pub idle_timeout_s: u64,
    /// For the batch system, as they were given.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// For `starling node`, as they were given.
    #[serde(default)]
    pub node_arguments: Vec<String>,
    /// Commands of a shell on each node, before the node starts and after it has ended.
    #[serde(default)]
    pub node_init: String,
    #[serde(default)]
    pub node_fini: String,
    /// Words before the program of the node, such as `numactl --interleave=all`.
    #[serde(default)]
    pub wrap: String,
    /// The mask of the user's new files, for the tasks of its nodes.
    #[serde(default = "usual_umask")]
    pub umask: u32,
    #[serde(default)]
    pub paused: bool,
}

fn usual_umask() -> u32 {
    0o022
}

/// The reason why a queue cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueueError {
    #[error("'{0}' is no name of a queue: letters, digits, '-' and '_', at most 32 of them")]
    Name(String),
    #[error("'{0}' is a name of the store's own: choose another one")]
    Reserved(String),
    #[error("the time limit of an allocation is from one minute to a year")]
    TimeLimit,
    #[error("the time limit of nodes is at least one minute")]
    NodeTimeLimit,
    #[error("the time limit of nodes is longer than that of their allocation")]
    NodeOutlives,
    #[error("the idle timeout of nodes is longer than 0 s")]
    IdleTimeout,
    #[error("an allocation has up to {nodes} nodes, and all allocations have at most {most}")]
    Nodes { nodes: u32, most: u32 },
    #[error("{what} is from 1 to {most}")]
    Count { what: &'static str, most: u32 },
    #[error("the minimum utilization is from 0 to 1")]
    Utilization,
    #[error("at most {ARGUMENTS_MAX} further arguments, each of at most {TEXT_BYTES_MAX} bytes")]
    Arguments,
    #[error("{0}")]
    Offer(String),
}

impl QueueConfig {
    pub fn check(&self) -> Result<(), QueueError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_short = (1..=NAME_LENGTH_MAX).contains(&self.name.len());
        if !is_short || !self.name.chars().all(is_plain) || self.name.starts_with('-') {
            return Err(QueueError::Name(self.name.clone()));
        }
        if ["queues", "owner"].contains(&&*self.name) {
            return Err(QueueError::Reserved(self.name.clone()));
        }
        if !(TIME_LIMIT_S_MIN..=TIME_LIMIT_S_MAX).contains(&self.time_limit_s) {
            return Err(QueueError::TimeLimit);
        }
        if self.node_time_limit_s.is_some_and(|limit| limit < TIME_LIMIT_S_MIN) {
            return Err(QueueError::NodeTimeLimit);
        }
        if self.node_time_limit_s.is_some_and(|limit| limit > self.time_limit_s) {
            return Err(QueueError::NodeOutlives);
        }
        if self.idle_timeout_s == 0 {
            return Err(QueueError::IdleTimeout);
        }
        let counts = [
            ("the number of nodes of an allocation", Some(self.max_nodes_per_alloc)),
            ("the number of nodes", self.max_nodes),
            ("the backlog", Some(self.backlog)),
            ("the number of cpus", self.cpus),
        ];
        for (what, count) in counts {
            let most = NODES_MAX;
            if count.is_some_and(|count| !(1..=most).contains(&count)) {
                return Err(QueueError::Count { what, most });
            }
        }
        let nodes = self.max_nodes_per_alloc;
        if let Some(most) = self.max_nodes.filter(|&most| most < nodes) {
            return Err(QueueError::Nodes { nodes, most });
        }
        if !(0.0..=1.0).contains(&self.min_utilization) {
            return Err(QueueError::Utilization);
        }
        let texts = [&self.node_init, &self.node_fini, &self.wrap];
        let lists = [&self.arguments, &self.node_arguments, &self.resources, &self.labels];
        let all = lists.iter().flat_map(|list| list.iter()).chain(texts);
        if lists.iter().any(|list| list.len() > ARGUMENTS_MAX)
            || all.clone().any(|text| text.len() > TEXT_BYTES_MAX || text.contains('\0'))
        {
            return Err(QueueError::Arguments);
        }
        self.offer(&Learned::default()).map(|_| ())
    }

    /// The longest life of a node.
    #[must_use]
    pub fn life_s(&self) -> u64 {
        self.node_time_limit_s.map_or(self.time_limit_s, |limit| limit.min(self.time_limit_s))
    }

    /// The offer of each node, as far as it is known: what the queue names, and what is learned.
    pub fn offer(&self, learned: &Learned) -> Result<Totals, QueueError> {
        let wrong = |text: String| QueueError::Offer(text);
        let mut pools: Vec<Pool> = Vec::new();
        for text in self.resources.iter().filter(|text| parse_no_pool(text).is_none()) {
            pools.push(parse_pool(text).map_err(|error| wrong(error.to_string()))?);
        }
        for text in &self.labels {
            let name = Name::label(text).map_err(|error| wrong(error.to_string()))?;
            pools.push(Pool::label(name));
        }
        if pools.iter().any(|pool| pool.name == Name::cpus()) {
            return Err(wrong("the cpus of a queue are given by --cpus".to_owned()));
        }
        let offer = Offer::new(pools, Vec::new()).map_err(|error| wrong(error.to_string()))?;
        let offer = match self.cpus {
            Some(cpus) => offer.with_cpus(cpus).ok_or_else(|| wrong("too many cpus".to_owned()))?,
            None => offer,
        };
        Ok(learned.complete(Totals::from(&offer)))
    }

    /// Whether its nodes offer no pool of that name, although it may be found on them.
    pub(crate) fn leaves_out(&self, pool: &Name) -> bool {
        let mut left_out = self.resources.iter().filter_map(|text| parse_no_pool(text));
        left_out.any(|name| name.covers(pool))
    }
}

/// What the owner of a queue knows of it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueState {
    /// The first intent that is kept, and the first one that may not be over. Both are at least 1.
    pub first: u64,
    pub settled: u64,
    /// Failures one after another, and the end of the pause after the last one.
    pub failures: u32,
    pub not_before_ms: u64,
    /// The cpus that the first node offered, and all that it offered.
    pub cpus: u32,
    pub offer: Learned,
    /// Counts since the queue was made.
    pub submissions: u64,
    pub refusals: u64,
    pub ended: u64,
    pub unknown: u64,
    pub duplicates: u64,
    pub last_error: String,
    /// The nodes that the last plan asked for, and its reasons.
    pub wanted_nodes: u32,
    pub lines: Vec<String>,
}

impl QueueState {
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first.max(1)
    }
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.settled.max(self.first())
    }
    pub(crate) fn fail(&mut self, now_ms: u64, error: &str) {
        let at = (self.failures as usize).min(PAUSES_MS.len() - 1);
        self.failures = self.failures.saturating_add(1);
        self.not_before_ms = now_ms.saturating_add(PAUSES_MS[at]);
        error.clone_into(&mut self.last_error);
    }
    pub(crate) fn succeed(&mut self) {
        (self.failures, self.not_before_ms) = (0, 0);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn config(name: &str, cpus: u32) -> QueueConfig {
        QueueConfig {
            name: name.to_owned(),
            system: System::Pbs,
            time_limit_s: 3600,
            node_time_limit_s: None,
            cpus: Some(cpus),
            resources: Vec::new(),
            labels: Vec::new(),
            max_nodes_per_alloc: 1,
            max_nodes: None,
            backlog: 1,
            min_utilization: 0.0,
            idle_timeout_s: 300,
            arguments: Vec::new(),
            node_arguments: Vec::new(),
            node_init: String::new(),
            node_fini: String::new(),
            wrap: String::new(),
            umask: 0o027,
            paused: false,
        }
    }

    #[test]
    fn wrong_queues_are_refused() {
        let good = config("q", 4);
        assert_eq!(good.check(), Ok(()));
        let with = |change: fn(&mut QueueConfig)| {
            let mut queue = good.clone();
            change(&mut queue);
            queue.check().unwrap_err()
        };
        assert_eq!(with(|q| q.name = "a/b".into()), QueueError::Name("a/b".into()));
        assert_eq!(with(|q| q.name = "owner".into()), QueueError::Reserved("owner".into()));
        assert_eq!(with(|q| q.time_limit_s = 5), QueueError::TimeLimit);
        assert_eq!(with(|q| q.node_time_limit_s = Some(5)), QueueError::NodeTimeLimit);
        assert_eq!(with(|q| q.node_time_limit_s = Some(3601)), QueueError::NodeOutlives);
        assert_eq!(with(|q| q.idle_timeout_s = 0), QueueError::IdleTimeout);
        let few = |q: &mut QueueConfig| (q.max_nodes_per_alloc, q.max_nodes) = (5, Some(2));
        assert_eq!(with(few), QueueError::Nodes { nodes: 5, most: 2 });
        assert_eq!(with(|q| q.min_utilization = 1.5), QueueError::Utilization);
        assert!(matches!(with(|q| q.backlog = 0), QueueError::Count { .. }));
        assert!(matches!(with(|q| q.resources = vec!["gpus".into()]), QueueError::Offer(_)));
        assert!(matches!(with(|q| q.resources = vec!["cpus=4".into()]), QueueError::Offer(_)));
        assert!("lsf".parse::<System>().unwrap_err().contains("slurm and pbs"));
    }

    #[test]
    fn pauses_grow_and_end_with_a_success() {
        let mut state = QueueState::default();
        let pauses: Vec<u64> = (0..7)
            .map(|_| {
                state.fail(1000, "no");
                state.not_before_ms - 1000
            })
            .collect();
        let minute = 60_000;
        let hour = 60 * minute;
        assert_eq!(pauses, [0, minute, 15 * minute, 30 * minute, hour, hour, hour]);
        state.succeed();
        assert_eq!((state.failures, state.not_before_ms), (0, 0));
    }
}
