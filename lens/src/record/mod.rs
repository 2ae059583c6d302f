/*!
A run as a file. `docs/run-record.md` describes the format.

A record is made of sections, each with a checksum of its own. Attempts and tasks are stored by
column in blocks that can be read alone.
*/

mod attempts;
mod printed;
mod sections;
mod tasks;
mod usage;
mod varint;

use proto::work::Used;
use serde::{Deserialize, Serialize};

use crate::attempt::AttemptRow;
use crate::eta::Eta;
use crate::failures::{FailureGroup, FailureKey};
use crate::view::{Lens, Sampling, View};

pub use printed::PrintedReport;
pub use sections::MAGIC;

/// The version of the format that is written.
pub const VERSION: u16 = 1;

/// The reason why a record cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("this is not a run record")]
    NotARecord,
    #[error("the run record has version {0}; this program reads version {VERSION}")]
    Version(u16),
    #[error("the run record is cut: it ends at byte {0} inside a section")]
    Cut(usize),
    #[error("the run record is damaged: the checksum of the section at byte {0} is wrong")]
    Checksum(usize),
    #[error("the run record is damaged: {what} in the section at byte {at}")]
    Malformed { at: usize, what: &'static str },
    #[error("the run record has a section '{0}' of a newer program")]
    UnknownSection(char),
    #[error("the run record is too large: {0}")]
    TooLarge(&'static str),
}

impl RecordError {
    /// The cure.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotARecord => "name a file that 'starling run' or 'starling report' has written",
            Self::Version(_) | Self::UnknownSection(_) => {
                "use the program that wrote it, or a newer one"
            }
            Self::Cut(_) => "copy the file again; it may not have been written to its end",
            Self::Checksum(_) | Self::Malformed { .. } => "copy the file again from its origin",
            Self::TooLarge(_) => "it is over the bounds of a run record",
        }
    }
}

/// A node of the run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MetaNode {
    pub node: u32,
    pub slots: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
}

/// A part of the timeline that is not in the record.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Missing {
    pub node: u32,
    pub why: String,
}

/// The numbers of tasks by end, from the homes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tasks {
    pub total: u64,
    pub done: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub skipped: u64,
}

/// Data that moved between two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MetaLink {
    pub from: u32,
    pub to: u32,
    pub objects: u64,
    pub bytes: u64,
    pub took_us: u64,
}

/// The head of a record: all but tasks and attempts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Meta {
    pub schema: u32,
    /// The program that wrote it.
    pub program: String,
    /// `cluster`, `run` or `sim`.
    pub source: String,
    pub job: String,
    pub name: String,
    pub state: String,
    pub policy: String,
    /// Time 0 of the attempts, in nanoseconds since 1970 by the clock of the source.
    pub origin_ns: u64,
    /// In microseconds since the origin.
    pub submitted_us: u64,
    /// Absent while the job runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_us: Option<u64>,
    /// The end of a job that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Eta>,
    pub tasks: Tasks,
    pub nodes: Vec<MetaNode>,
    pub kinds: Vec<String>,
    /// Empty if the timeline is complete.
    pub missing: Vec<Missing>,
    pub links: Vec<MetaLink>,
    /// Neighbouring nodes that share a link: `2^link_level`.
    #[serde(default)]
    pub link_level: u32,
    pub failures: Vec<(FailureKey, FailureGroup)>,
    pub steals: u64,
    pub pushes: u64,
    /// The report of the run, as `run --json` and `job info --json` print it.
    #[serde(default)]
    pub report: PrintedReport,
}

/// The end of a task.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskRow {
    pub task: proto::LocalId,
    pub name: String,
    /// The number of the state in `TaskPhase`.
    pub state: u8,
    pub exit_code: i32,
    /// CPU time and peak memory of its command; zeros if they were not measured.
    pub used: Used,
}

/// A run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Record {
    pub meta: Meta,
    /// In the order of their ids; empty if names and states are not known.
    pub tasks: Vec<TaskRow>,
    /// In the order of [`AttemptRow::key`].
    pub attempts: Vec<AttemptRow>,
    /// The parts of gangs besides their first ones, which are attempts; in the same order.
    pub parts: Vec<AttemptRow>,
}

impl Record {
    /// Brings tasks and attempts into the order of a record.
    pub fn sort(&mut self) {
        self.tasks.sort_unstable_by_key(|task| task.task);
        self.attempts.sort_unstable_by_key(AttemptRow::key);
        self.parts.sort_unstable_by_key(AttemptRow::key);
    }

    /// The record as a file. Its rows are in order ([`Self::sort`]).
    ///
    /// # Errors
    /// When it exceeds the bounds of a record.
    pub fn write(&self) -> Result<Vec<u8>, RecordError> {
        sections::write(self)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it is no record, cut, damaged, of another version, or too large.
    pub fn read(bytes: &[u8]) -> Result<Self, RecordError> {
        sections::read(bytes)
    }

    /// Reads the head of a file alone.
    ///
    /// # Errors
    /// When it is no record, of another version, or its head is cut or damaged.
    pub fn read_meta(bytes: &[u8]) -> Result<Meta, RecordError> {
        sections::read_meta(bytes)
    }

    /// The end of the run: its recorded end, or the last end of an attempt.
    #[must_use]
    pub fn end_us(&self) -> u64 {
        let last = || self.attempts.iter().map(AttemptRow::end_us).max().unwrap_or(0);
        self.meta.ended_us.unwrap_or_else(last)
    }

    /// The name of a task, or its id.
    #[must_use]
    pub fn task_name(&self, task: proto::LocalId) -> String {
        let found = self.tasks.binary_search_by_key(&task, |row| row.task);
        match found.map(|at| &self.tasks[at].name) {
            Ok(name) if !name.is_empty() => name.clone(),
            _ => task.to_string(),
        }
    }

    #[must_use]
    pub fn kind(&self, number: u32) -> &str {
        self.meta.kinds.get(number as usize).map_or("", String::as_str)
    }

    /// The view of the whole record.
    #[must_use]
    pub fn view(&self) -> View {
        let job = proto::JobId(self.meta.job.trim_start_matches('j').parse().unwrap_or(0));
        let origin = proto::Time(self.meta.origin_ns);
        let names = self.meta.kinds.clone();
        let mut lens = Lens::new(job, origin, Sampling::default(), names, |_| 0);
        self.attempts.iter().chain(&self.parts).for_each(|row| lens.add(row));
        let mut view = lens.finish(None);
        view.counts.stolen = self.meta.steals;
        view.counts.pushed = self.meta.pushes;
        view.slots = self.meta.nodes.iter().map(|node| (node.node, node.slots)).collect();
        for node in &self.meta.missing {
            view.slots.remove(&node.node);
        }
        view
    }

    /// The slots of the nodes without events.
    #[must_use]
    pub fn missing_slots(&self) -> u64 {
        let is_missing = |node: &&MetaNode| self.meta.missing.iter().any(|it| it.node == node.node);
        self.meta.nodes.iter().filter(is_missing).map(|node| u64::from(node.slots)).sum()
    }
}

#[cfg(test)]
pub(crate) mod tests;
