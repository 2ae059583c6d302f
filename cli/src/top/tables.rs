//! The views of `starling top` as tables.

use proto::JobId;
use verb::units;

use crate::web::live::Overview;
use crate::web::record_rows::Progress;

/// The newest jobs in the overview.
const NEWEST_MAX: usize = 8;
/// The newest changes that are shown.
const CHANGES_MAX: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum View {
    Overview,
    Jobs,
    Kinds,
    Nodes,
    Stalls,
    Events,
}

impl View {
    pub(super) const ALL: [Self; 6] =
        [Self::Overview, Self::Jobs, Self::Kinds, Self::Nodes, Self::Stalls, Self::Events];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Jobs => "jobs",
            Self::Kinds => "kinds",
            Self::Nodes => "nodes",
            Self::Stalls => "stalls",
            Self::Events => "events",
        }
    }
}

/// One view. Text of users is in it as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Table {
    pub(super) title: String,
    pub(super) header: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    /// Shown in place of rows if there are none.
    pub(super) empty: &'static str,
}

impl Table {
    pub(super) fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.header.iter().map(|cell| cell.len()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    /// The title, the header and the rows in columns.
    pub(super) fn to_text(&self) -> String {
        let widths = self.widths();
        let line = |cells: &[&str]| {
            let padded: Vec<String> =
                cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            padded.join("  ").trim_end().to_owned()
        };
        let mut lines = vec![self.title.clone(), line(&self.header)];
        for row in &self.rows {
            lines.push(line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        lines.join("\n")
    }
}

/// What the views are made of.
#[derive(Clone, Copy)]
pub(super) struct Tables<'o> {
    pub(super) overview: &'o Overview,
    pub(super) kinds: &'o [Progress],
    pub(super) job: Option<JobId>,
}

/// Text of a user in a cell: one line, without control characters.
fn clean(text: &str) -> String {
    lens::terminal_text::shown(text).into_owned()
}

/// A bar of letters.
pub(super) fn bar(done: u64, total: u64, width: usize) -> String {
    let full = if total == 0 { 0 } else { (done as f64 / total as f64 * width as f64) as usize };
    let full = full.min(width);
    format!("{}{}", "#".repeat(full), ".".repeat(width - full))
}

impl Tables<'_> {
    /// The first lines of every view.
    pub(super) fn summary(&self) -> Vec<String> {
        let overview = self.overview;
        if let Some(text) = overview.records_text() {
            return vec![clean(&text)];
        }
        let nodes = &overview.list.nodes;
        let up: Vec<_> = nodes.iter().filter(|node| node.state == "up").collect();
        let slots: u64 = up.iter().map(|node| u64::from(node.slots)).sum();
        let running: u64 = up.iter().map(|node| node.running).sum();
        let ready: u64 = up.iter().map(|node| node.ready_local + node.ready_shared).sum();
        let active = overview.jobs.iter().filter(|job| job.ended_s.is_none()).count();
        let mut lines = vec![format!(
            "nodes {} of {} up · {} running on {} · {} ready · {} of {} active",
            up.len(),
            nodes.len(),
            units::number_of(running, "task"),
            units::number_of(slots, "slot"),
            units::count(ready),
            active,
            units::number_of(overview.jobs.len() as u64, "job"),
        )];
        let stalled = overview.jobs.iter().filter(|job| job.stall.is_some()).count();
        if stalled > 0 {
            lines.push(format!("! {} without progress", units::number_of(stalled as u64, "job")));
        }
        lines.extend(overview.list.waits().map(|text| format!("! {text}")));
        lines.extend(overview.jobs_missing.as_ref().map(|text| format!("! {}", clean(text))));
        lines
    }

    pub(super) fn of(&self, view: View) -> Table {
        match view {
            View::Overview => self.jobs(NEWEST_MAX),
            View::Jobs => self.jobs(usize::MAX),
            View::Kinds => self.kinds(),
            View::Nodes => self.nodes(),
            View::Stalls => self.stalls(),
            View::Events => self.events(),
        }
    }

    /// The newest jobs, the newest first.
    fn jobs(&self, most: usize) -> Table {
        let jobs = self.overview.jobs.iter().rev().take(most);
        let row = |job: &crate::views::jobs::JobRow| {
            let took_s = job.took_s(self.overview.now_s);
            let ended = job.done + job.failed + job.cancelled + job.skipped;
            vec![
                job.job.clone(),
                job.word().to_owned(),
                bar(ended, job.total, 10),
                units::count(job.total),
                units::count(job.done),
                units::count(job.failed),
                units::count(job.skipped),
                units::seconds(took_s.max(0.0)),
                clean(&job.name),
            ]
        };
        Table {
            title: "jobs, the newest first".to_owned(),
            header: vec![
                "job", "state", "ended", "tasks", "done", "failed", "skipped", "time", "name",
            ],
            rows: jobs.map(row).collect(),
            empty: "no job; 'starling submit' submits one",
        }
    }

    fn kinds(&self) -> Table {
        let row = |kind: &Progress| {
            vec![
                clean(&kind.kind),
                bar(kind.done, kind.total, 10),
                units::count(kind.total),
                units::count(kind.waiting),
                units::count(kind.ready),
                units::count(kind.running),
                units::count(kind.done),
                units::count(kind.failed),
            ]
        };
        let of = self.job.map_or_else(String::new, |job| format!(" of job {}", job.0));
        Table {
            title: format!("kinds{of}"),
            header: vec!["kind", "share", "tasks", "waiting", "ready", "running", "done", "failed"],
            rows: self.kinds.iter().map(row).collect(),
            empty: "no job is selected, or its tasks are not known",
        }
    }

    fn nodes(&self) -> Table {
        let row = |node: &crate::cluster::node::NodeRow| {
            let state = format!("{}{}", node.state, if node.slow { ", slow" } else { "" });
            vec![
                format!("n{}", node.id),
                state,
                bar(node.running, node.slots.into(), 8),
                node.slots.to_string(),
                units::count(node.running),
                units::count(node.ready_local),
                units::count(node.ready_shared),
                units::count(node.waiting),
                node.homes.to_string(),
                clean(&node.host),
            ]
        };
        Table {
            title: "nodes".to_owned(),
            header: vec![
                "node", "state", "busy", "slots", "running", "local", "shared", "waiting", "homes",
                "host",
            ],
            rows: self.overview.list.nodes.iter().map(row).collect(),
            empty: match self.overview.records_text() {
                Some(_) => "run records have no states of nodes",
                None => "no node answers",
            },
        }
    }

    fn stalls(&self) -> Table {
        let stalled = self.overview.jobs.iter().filter_map(|job| {
            let stall = job.stall.as_ref()?;
            Some(vec![job.job.clone(), clean(&stall.line(self.overview.now_s))])
        });
        Table {
            title: "jobs without progress".to_owned(),
            header: vec!["job", "reason"],
            rows: stalled.collect(),
            empty: "every job makes progress",
        }
    }

    fn events(&self) -> Table {
        let row = |change: &crate::web::changes::Change| {
            let subject = match (&change.node, &change.job) {
                (Some(node), _) => format!("n{node}"),
                (None, Some(job)) => format!("job {job}"),
                (None, None) => String::new(),
            };
            let ago = units::seconds((self.overview.now_s - change.time_s).max(0.0));
            vec![format!("{ago} ago"), subject, change.text.clone()]
        };
        Table {
            title: "changes seen by this program".to_owned(),
            header: vec!["time", "subject", "change"],
            rows: self.overview.changes.iter().rev().take(CHANGES_MAX).map(row).collect(),
            empty: "no change yet",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_never_longer_than_its_width() {
        assert_eq!(bar(0, 0, 4), "....");
        assert_eq!(bar(1, 2, 4), "##..");
        assert_eq!(bar(9, 2, 4), "####");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["long name".to_owned(), "1".to_owned()]];
        let table = Table { title: "t".to_owned(), header: vec!["a", "b"], rows, empty: "" };
        assert_eq!(table.to_text(), "t\na          b\nlong name  1");
    }
}
