//! A report for a terminal.

use super::units::{bytes, count, percent, seconds, shown};
use super::{Comparison, Report};
use crate::causes::CAUSES;
use crate::eta::Eta;

/// The largest number of rows of a table in a text.
const ROWS_MAX: usize = 16;

pub(super) fn report(report: &Report<'_>) -> String {
    let mut text = String::new();
    for (key, value) in lines(report) {
        text += &format!("{key:12} {value}\n");
    }
    text += &format!("\n{}", causes(report));
    if !report.kinds.is_empty() {
        text += &format!("\n{}", table(&kind_header(report), &kind_cells(report)));
    }
    let failures = failure_lines(report);
    if !failures.is_empty() {
        text += &format!("\nfailures\n{failures}");
    }
    text
}

impl Comparison {
    #[must_use]
    pub fn to_text(&self) -> String {
        let rows: Vec<Vec<String>> = self.figures.iter().map(|row| row.cells().to_vec()).collect();
        let header = ["figure", "this", "against", "change"];
        format!("against      {}\n\n{}", shown(&self.against), table(&header, &rows))
    }
}

/// The summary by line.
pub(super) fn lines(report: &Report<'_>) -> Vec<(&'static str, String)> {
    let tasks = &report.tasks;
    let mut ended = format!("{} of {} done", count(tasks.done), count(tasks.total));
    let others =
        [(tasks.failed, "failed"), (tasks.skipped, "skipped"), (tasks.cancelled, "cancelled")];
    for (number, word) in others.into_iter().filter(|(number, _)| *number > 0) {
        ended += &format!(", {} {word}", count(number));
    }
    // Without the events of a node its work is not counted.
    let least = if report.missing.is_empty() { "" } else { "at least " };
    let data = format!(
        "{least}{} moved between nodes, {} read locally",
        bytes(report.bytes_moved),
        bytes(report.bytes_read_local)
    );
    let cluster = format!(
        "{} nodes, {} slots, {}",
        count(report.nodes as u64),
        count(report.slots),
        shown(report.policy)
    );
    let busy = format!("{least}{} of all slot time was busy", percent(report.utilization));
    let mut lines = vec![
        ("job", format!("{} {}", shown(report.job), shown(report.name))),
        ("state", shown(report.state)),
        ("tasks", ended),
        ("attempts", format!("{least}{}", count(report.attempts))),
        ("cluster", cluster),
        ("makespan", makespan(report)),
        ("utilization", busy),
        ("data", data),
        (
            "moves",
            format!("{least}{} stolen, {} pushed", count(report.steals), count(report.pushes)),
        ),
    ];
    lines.extend(report.eta.map(|eta| ("ends", end(eta))));
    for missing in report.missing {
        lines.push(("missing", format!("n{}: {}", missing.node, shown(&missing.why))));
    }
    lines
}

/// `341.8 ms; 364.8 ms as the client measured it`.
fn makespan(report: &Report<'_>) -> String {
    let by_client = |client_s| format!("; {} as the client measured it", seconds(client_s));
    seconds(report.makespan_s) + &report.client_makespan_s.map(by_client).unwrap_or_default()
}

/// `in 9.0 min to 14.0 min`.
fn end(eta: &Eta) -> String {
    match eta {
        Eta::Range(range) => format!("in {} to {}", seconds(range.low_s), seconds(range.high_s)),
        Eta::NotMeasured(kinds) => {
            format!("not known: no task has ended of kind '{}'", shown(&kinds.join("', '")))
        }
        Eta::Done => "now".to_owned(),
    }
}

fn causes(report: &Report<'_>) -> String {
    let whole = report.slots as f64 * report.makespan_s;
    let row = |((_, word), part): (&(&str, &str), f64)| {
        vec![(*word).to_owned(), percent(super::ratio(part, whole)), seconds(part)]
    };
    let parts = CAUSES.iter().zip(report.causes.seconds.all());
    let rows: Vec<_> = parts.filter(|(_, part)| *part > 0.0).map(row).collect();
    table(&["slot time", "share", "sum"], &rows)
}

const KIND_HEADER: [&str; 8] =
    ["kind", "attempts", "failed", "share", "median", "95 %", "longest", "waited"];
/// Further columns where commands were measured.
const USAGE_HEADER: [&str; 3] = ["cpu", "memory", "most memory"];

fn is_measured(report: &Report<'_>) -> bool {
    report.kinds.iter().any(|row| row.used.is_some())
}

pub(super) fn kind_header(report: &Report<'_>) -> Vec<&'static str> {
    match is_measured(report) {
        true => [&KIND_HEADER[..], &USAGE_HEADER].concat(),
        false => KIND_HEADER.to_vec(),
    }
}

fn usage_cells(row: &super::KindRow) -> [String; 3] {
    match &row.used {
        Some(used) => {
            [percent(used.cpu_share), bytes(used.memory_p50_bytes), bytes(used.memory_max_bytes)]
        }
        None => ["-"; 3].map(str::to_owned),
    }
}

pub(super) fn kind_cells(report: &Report<'_>) -> Vec<Vec<String>> {
    let is_measured = is_measured(report);
    let row = |row: &super::KindRow| {
        let mut cells = vec![
            shown(&row.kind),
            count(row.attempts),
            count(row.failed),
            percent(row.share),
            seconds(row.ran.p50_s),
            seconds(row.ran.p95_s),
            seconds(row.ran.max_s),
            seconds(row.waited.p50_s),
        ];
        if is_measured {
            cells.extend(usage_cells(row));
        }
        cells
    };
    report.kinds.iter().map(row).collect()
}

/// `300 alike: ...`, each with its first example.
fn failure_lines(report: &Report<'_>) -> String {
    let mut text = String::new();
    for row in report.failures.iter().take(ROWS_MAX) {
        text += &format!("  {}\n", shown(&headline(row)));
        if let Some(example) = row.group.examples.first() {
            let name = if example.name.is_empty() { &example.task } else { &example.name };
            text += &format!("    such as '{}' on n{}\n", shown(name), example.node);
            for line in example.stderr.lines().rev().take(3).collect::<Vec<_>>().iter().rev() {
                text += &format!("    | {}\n", shown(line));
            }
        }
    }
    let skipped: u64 = report.failures.iter().skip(ROWS_MAX).map(|row| row.group.tasks).sum();
    if skipped + report.more_failures > 0 {
        text += &format!("  and {} more\n", count(skipped + report.more_failures));
    }
    text
}

/// `300 alike: exit code 1, kind 'align': cannot open <path>`.
pub(super) fn headline(row: &super::FailureRow<'_>) -> String {
    let number = match row.group.tasks {
        1 => "1 task".to_owned(),
        tasks => format!("{} alike", count(tasks)),
    };
    let text = match row.key.text.as_str() {
        "" => String::new(),
        text => format!(": {text}"),
    };
    format!("{number}: exit code {}, kind '{}'{text}", row.key.exit_code, row.key.kind)
}

/// Columns of equal width; numbers on the right.
fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let pad = |(column, cell): (usize, &&str)| {
            let blank = " ".repeat(widths[column] - cell.chars().count());
            if column == 0 { format!("{cell}{blank}") } else { format!("{blank}{cell}") }
        };
        let cells: Vec<String> = cells.iter().enumerate().map(pad).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    let mut text = line(header.to_vec());
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}
