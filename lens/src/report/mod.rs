//! A record for people and for other programs: text, JSON, tables, one page.

mod compare;
mod csv;
mod page;
mod svg;
mod text;
mod units;
mod usage;

use proto::LocalId;
use serde::Serialize;

use crate::attempt::Outcome;
use crate::causes::Causes;
use crate::eta::Eta;
use crate::failures::{FailureGroup, FailureKey};
use crate::groups::LinkKey;
use crate::histogram::Percentiles;
use crate::record::{MetaLink, Missing, PrintedReport, Record, Tasks};
use crate::view::{KindView, View};

use crate::limits::VIEW_EXAMPLES_MAX;
pub use compare::{Comparison, Difference};
pub use units::count;
pub use usage::KindUsage;

/// The largest number of groups of failures, links and slow tasks in a report.
const ROWS_MAX: usize = 64;

/// The content of a report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report<'r> {
    pub schema: u32,
    pub job: &'r str,
    pub name: &'r str,
    pub state: &'r str,
    pub source: &'r str,
    pub policy: &'r str,
    /// The remaining time of a job that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta: Option<&'r Eta>,
    pub tasks: Tasks,
    pub attempts: u64,
    pub nodes: usize,
    pub slots: u64,
    /// Nanoseconds since 1970 by the clock of the source.
    pub origin_ns: u64,
    /// From the submission to the end.
    pub makespan_s: f64,
    /// As the client measured it, from its first byte to the last end that it was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_makespan_s: Option<f64>,
    /// Busy slot time over all slot time; attempts that failed are busy too.
    pub utilization: f64,
    pub busy_s: f64,
    pub lost_s: f64,
    pub bytes_moved: u64,
    pub bytes_read_local: u64,
    pub steals: u64,
    pub pushes: u64,
    pub causes: Causes,
    pub kinds: Vec<KindRow>,
    pub failures: Vec<FailureRow<'r>>,
    /// Failures beyond those listed.
    pub more_failures: u64,
    pub per_node: Vec<NodeRow>,
    pub links: Vec<MetaLink>,
    /// `2^link_level` neighbours, of which a link has the first, share it.
    pub link_level: u32,
    pub slowest: Vec<SlowRow>,
    /// Parts of the timeline that are not known.
    pub missing: &'r [Missing],
    /// The report of the run from its homes, with more figures.
    pub summary: &'r PrintedReport,
    #[serde(skip)]
    record: &'r Record,
}

/// The tasks of one kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct KindRow {
    pub kind: String,
    pub attempts: u64,
    pub done: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub stopped: u64,
    pub busy_s: f64,
    /// Of the busy time of all kinds.
    pub share: f64,
    pub ran: Percentiles,
    pub waited: Percentiles,
    pub bytes_moved: u64,
    pub first_start_s: f64,
    pub last_end_s: f64,
    /// Absent where no command of this kind was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<KindUsage>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FailureRow<'r> {
    #[serde(flatten)]
    pub key: &'r FailureKey,
    #[serde(flatten)]
    pub group: &'r FailureGroup,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct NodeRow {
    pub node: u32,
    pub slots: u32,
    pub attempts: u64,
    pub failed: u64,
    pub busy_s: f64,
    pub utilization: f64,
    pub bytes_moved: u64,
    pub bytes_read_local: u64,
}

/// One of the slowest attempts of a kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct SlowRow {
    pub kind: String,
    pub task: String,
    pub name: String,
    pub node: u32,
    pub start_s: f64,
    pub ran_s: f64,
    pub end: &'static str,
}

/// Bytes in base64.
#[must_use]
pub fn base64_of(bytes: &[u8]) -> String {
    let mut text = String::new();
    page::base64(&mut text, bytes);
    text
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl<'r> Report<'r> {
    #[must_use]
    pub fn of(record: &'r Record) -> Self {
        let (meta, view) = (&record.meta, record.view());
        let window = (meta.submitted_us, record.end_us());
        let causes = Causes::of(&view, window, record.missing_slots());
        let makespan_s = seconds(window.1.saturating_sub(window.0));
        let slots = causes.slots;
        let mut links = meta.links.clone();
        links.sort_by_key(|link| (std::cmp::Reverse(link.bytes), link.from, link.to));
        links.truncate(ROWS_MAX);
        let mut failures: Vec<_> =
            meta.failures.iter().map(|(key, group)| FailureRow { key, group }).collect();
        failures.sort_by_key(|row| (std::cmp::Reverse(row.group.tasks), row.key));
        let more = failures.split_off(failures.len().min(ROWS_MAX));
        let listed: u64 = failures.iter().map(|row| row.group.tasks).sum();
        let other: u64 = more.iter().map(|row| row.group.tasks).sum();
        Self {
            schema: 1,
            job: &meta.job,
            name: &meta.name,
            state: &meta.state,
            source: &meta.source,
            policy: &meta.policy,
            eta: meta.eta.as_ref(),
            tasks: meta.tasks,
            attempts: view.attempts(),
            nodes: meta.nodes.len(),
            slots,
            origin_ns: meta.origin_ns,
            makespan_s,
            client_makespan_s: meta.report.number("makespan_s"),
            utilization: ratio(seconds(view.work.busy_us), slots as f64 * makespan_s),
            busy_s: seconds(view.work.busy_us),
            lost_s: seconds(view.work.lost_us),
            bytes_moved: view.work.moved_bytes,
            bytes_read_local: view.work.local_bytes,
            steals: meta.steals,
            pushes: meta.pushes,
            causes,
            kinds: kinds(record, &view, window.0),
            failures,
            more_failures: other.max(meta.tasks.failed.saturating_sub(listed)),
            per_node: nodes(record, &view, makespan_s),
            links,
            link_level: meta.link_level,
            slowest: slowest(record, &view),
            missing: &meta.missing,
            summary: &meta.report,
            record,
        }
    }

    /// One line, `schema` first.
    ///
    /// # Panics
    /// Never: numbers and strings always serialise.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings always serialise")
    }

    /// A table of all attempts.
    #[must_use]
    pub fn to_csv(&self) -> String {
        csv::attempts(self.record)
    }

    #[must_use]
    pub fn to_text(&self) -> String {
        text::report(self)
    }

    /// One file without references to others. `file`: the record; `hash`: SHA-256 in base64, for
    /// the rules that let the page run its own script only.
    #[must_use]
    pub fn to_page(
        &self,
        file: &[u8],
        comparison: Option<&Comparison>,
        hash: &dyn Fn(&[u8]) -> String,
    ) -> String {
        page::page(self, file, comparison, hash)
    }
}

fn kinds(record: &Record, view: &View, submitted_us: u64) -> Vec<KindRow> {
    let mut used = usage::by_kind(record);
    let all = seconds(view.work.busy_us);
    let since = |us: Option<u64>| seconds(us.unwrap_or(0).saturating_sub(submitted_us));
    let mut row = |name: &str, kind: &KindView| {
        let work = &kind.work;
        let of = |outcome: Outcome| work.attempts[outcome as usize];
        KindRow {
            kind: name.to_owned(),
            attempts: work.attempts.iter().sum(),
            done: of(Outcome::Done),
            failed: of(Outcome::Failed),
            cancelled: of(Outcome::Cancelled),
            stopped: of(Outcome::Stopped),
            busy_s: seconds(work.busy_us),
            share: ratio(seconds(work.busy_us), all),
            ran: work.ran.percentiles(),
            waited: kind.waited.percentiles(),
            bytes_moved: work.moved_bytes,
            first_start_s: since(work.first_start_us),
            last_end_s: since(work.last_end_us),
            used: used.remove(name),
        }
    };
    let mut rows: Vec<_> = view.kinds.kept.iter().map(|(name, kind)| row(name, kind)).collect();
    rows.sort_by_key(|row| row.kind.clone());
    rows.sort_by(|a, b| a.first_start_s.total_cmp(&b.first_start_s));
    rows.extend(view.kinds.rest.as_ref().map(|rest| row("others", rest)));
    rows
}

fn nodes(record: &Record, view: &View, makespan_s: f64) -> Vec<NodeRow> {
    let row = |node: &crate::record::MetaNode| {
        let work = view.nodes.sums.get(&crate::groups::NodeKey(node.node));
        let work = work.map(|node| node.work.clone()).unwrap_or_default();
        NodeRow {
            node: node.node,
            slots: node.slots,
            attempts: work.attempts.iter().sum(),
            failed: work.attempts[Outcome::Failed as usize],
            busy_s: seconds(work.busy_us),
            utilization: ratio(seconds(work.busy_us), f64::from(node.slots) * makespan_s),
            bytes_moved: work.moved_bytes,
            bytes_read_local: work.local_bytes,
        }
    };
    // Above this number neighbours share their sums.
    if view.nodes.level > 0 { Vec::new() } else { record.meta.nodes.iter().map(row).collect() }
}

fn slowest(record: &Record, view: &View) -> Vec<SlowRow> {
    let submitted = record.meta.submitted_us;
    let of_kind = |(name, kind): (&String, &KindView)| {
        let shown = kind.slowest.shown.iter().take(VIEW_EXAMPLES_MAX);
        let row = shown.map(|it| SlowRow {
            kind: name.clone(),
            task: LocalId(it.task).to_string(),
            name: record.task_name(LocalId(it.task)),
            node: it.node,
            start_s: seconds(it.start_us.saturating_sub(submitted)),
            ran_s: seconds(it.ran_us.0),
            end: it.outcome.word(),
        });
        row.collect::<Vec<_>>()
    };
    view.kinds.kept.iter().flat_map(of_kind).take(ROWS_MAX).collect()
}

impl Record {
    /// Stores the links of a view, for a record that is being made.
    pub fn set_links(&mut self, view: &View) {
        let of = |(&LinkKey(from, to), link): (&LinkKey, &crate::view::Link)| MetaLink {
            from,
            to,
            objects: link.objects,
            bytes: link.bytes,
            took_us: link.took_us,
        };
        self.meta.links = view.links.sums.iter().map(of).collect();
        self.meta.link_level = view.links.level;
    }
}

#[cfg(test)]
mod tests;
