//! A figure's part of the page: text, tables, charts, and its claims.

use analysis::chart::{Bars, Chart, Page, Table};

use super::point::Point;
use super::results::{Results, Spread};

/// The unit in which a figure is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Percent,
    Milliseconds,
    Seconds,
    Microseconds,
    PerSecond,
    Count,
    Gigabytes,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Percent => "%",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Microseconds => "us",
            Self::PerSecond => "/s",
            Self::Count => "",
            Self::Gigabytes => "GB",
        }
    }

    /// The factor from the units of reports: shares, seconds, bytes.
    fn scale(self) -> f64 {
        match self {
            Self::Percent => 100.0,
            Self::Milliseconds => 1e3,
            Self::Gigabytes => 1e-9,
            Self::Seconds | Self::Microseconds | Self::PerSecond | Self::Count => 1.0,
        }
    }

    pub(super) fn show(self, value: f64) -> String {
        let value = value * self.scale();
        match self {
            Self::Percent | Self::Milliseconds => format!("{value:.1}"),
            Self::Seconds | Self::Microseconds => format!("{value:.2}"),
            Self::PerSecond | Self::Count | Self::Gigabytes => analysis::chart::figure(value),
        }
    }

    /// The median, with least and most if they differ.
    pub(super) fn spread(self, spread: Spread) -> String {
        let (median, min, max) =
            (self.show(spread.median), self.show(spread.min), self.show(spread.max));
        match min == max {
            true => median,
            false => format!("{median} ({min} to {max})"),
        }
    }
}

/// A cell of a table.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Cell {
    Text(String),
    Figure(Option<Spread>),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}
impl From<Option<Spread>> for Cell {
    fn from(spread: Option<Spread>) -> Self {
        Self::Figure(spread)
    }
}
impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        Self::Figure(value.and_then(|value| Spread::of(vec![value])))
    }
}
impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Self::Text(value.to_string())
    }
}

/// A table with a name; a column with a unit holds figures.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) name: &'static str,
    columns: Vec<(&'static str, Option<Unit>)>,
    rows: Vec<Vec<Cell>>,
}

impl Grid {
    pub(super) fn new(name: &'static str, columns: &[(&'static str, Option<Unit>)]) -> Self {
        Self { name, columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row of '{}' has all columns", self.name);
        self.rows.push(cells);
    }

    /// For people: medians with their spread.
    pub(super) fn table(&self) -> Table {
        let header: Vec<String> = self
            .columns
            .iter()
            .map(|(name, unit)| match unit.map(Unit::name) {
                None | Some("") => (*name).to_owned(),
                Some(unit) => format!("{name}, {unit}"),
            })
            .collect();
        let shown = |(cell, (_, unit)): (&Cell, &(&str, Option<Unit>))| match cell {
            Cell::Text(text) => text.clone(),
            Cell::Figure(None) => "-".to_owned(),
            Cell::Figure(Some(spread)) => unit.unwrap_or(Unit::Count).spread(*spread),
        };
        self.rows.iter().fold(Table::new(&header), |table, row| {
            let cells: Vec<String> = row.iter().zip(&self.columns).map(shown).collect();
            table.row(&cells)
        })
    }

    /// For programs: median, least and most of each figure, in the unit of its column.
    pub(super) fn csv(&self) -> String {
        let mut header = Vec::new();
        for (name, unit) in &self.columns {
            match unit.map(Unit::name) {
                None => header.push((*name).to_owned()),
                Some(unit) => {
                    let name = format!("{name} {unit}");
                    let name = name.trim_end();
                    header.extend([name.to_owned(), format!("{name} min"), format!("{name} max")]);
                }
            }
        }
        let table = self.rows.iter().fold(Table::new(&header), |table, row| {
            let mut cells = Vec::new();
            for (cell, (_, unit)) in row.iter().zip(&self.columns) {
                let scale = unit.map_or(1.0, Unit::scale);
                match (cell, unit) {
                    (Cell::Figure(Some(spread)), Some(_)) => {
                        let values = [spread.median, spread.min, spread.max];
                        cells.extend(values.map(|value| (value * scale).to_string()));
                    }
                    (Cell::Text(text), None) => cells.push(text.clone()),
                    (Cell::Text(text), Some(_)) => {
                        cells.extend([text.clone(), String::new(), String::new()]);
                    }
                    (Cell::Figure(_), Some(_)) => cells.extend([const { String::new() }; 3]),
                    (Cell::Figure(spread), None) => {
                        cells.push(spread.map_or_else(String::new, |s| s.median.to_string()));
                    }
                }
            }
            table.row(&cells)
        });
        table.csv()
    }
}

/// The result of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Met,
    Missed,
    /// There is no goal; the figure is only shown.
    Shown,
    /// The figure is missing.
    Absent,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::Shown => "shown",
            Self::Absent => "absent",
        }
    }

    pub(super) fn of(holds: bool) -> Self {
        if holds { Self::Met } else { Self::Missed }
    }
}

/// A row of the table of claims.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) what: String,
    pub(super) paper: String,
    pub(super) asked: String,
    pub(super) ours: String,
    pub(super) verdict: Verdict,
}

impl Claim {
    /// A figure that must be at least `asked`; both shares.
    pub(super) fn at_least(
        what: &str,
        paper: &str,
        asked_percent: f64,
        ours: Option<Spread>,
        why: &str,
    ) -> Self {
        let (ours, verdict) = match ours {
            // The median counts; its spread is shown.
            Some(spread) => (
                format!("{} %", Unit::Percent.spread(spread)),
                Verdict::of(spread.median * 100.0 >= asked_percent),
            ),
            None => (why.to_owned(), Verdict::Absent),
        };
        let asked = format!("{asked_percent} %");
        Self { what: what.to_owned(), paper: paper.to_owned(), asked, ours, verdict }
    }
}

/// A figure's part of the page.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) id: &'static str,
    title: &'static str,
    parts: Vec<Part>,
    pub(super) claims: Vec<Claim>,
}

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Note(String),
    Grid(Grid),
    Picture { name: String, svg: String, caption: String },
}

impl Section {
    pub(super) fn new(id: &'static str, title: &'static str) -> Self {
        Self { id, title, parts: Vec::new(), claims: Vec::new() }
    }

    pub(super) fn text(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Text(text.into()));
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Note(text.into()));
    }

    pub(super) fn grid(&mut self, grid: Grid) {
        self.parts.push(Part::Grid(grid));
    }

    pub(super) fn chart(&mut self, name: &str, chart: &Chart, caption: &str) {
        let (name, caption) = (name.to_owned(), caption.to_owned());
        self.parts.push(Part::Picture { name, svg: chart.svg(), caption });
    }

    pub(super) fn bars(&mut self, name: &str, bars: &Bars, caption: &str) {
        let (name, caption) = (name.to_owned(), caption.to_owned());
        self.parts.push(Part::Picture { name, svg: bars.svg(), caption });
    }

    pub(super) fn claim(&mut self, claim: Claim) {
        self.claims.push(claim);
    }

    /// Notes the reason for each point without a figure.
    pub(super) fn missing(&mut self, results: &Results, points: &[Point]) {
        for point in points {
            if results.reports(point).next().is_none() {
                let (command, why) = (point.command(1), results.why(point));
                self.note(format!("Not to be had: {why} ({command})."));
            }
        }
    }

    pub(super) fn put(&self, mut page: Page) -> Page {
        page = page.heading(self.title);
        for part in &self.parts {
            page = match part {
                Part::Text(text) => page.text(text),
                Part::Note(text) => page.note(text),
                Part::Grid(grid) => page.table(&grid.table()),
                Part::Picture { svg, caption, .. } => page.figure(svg, caption),
            };
        }
        page
    }

    /// Names and contents of the files beside the page.
    pub(super) fn files(&self) -> Vec<(String, String)> {
        let file = |part: &Part| match part {
            Part::Grid(grid) => Some((format!("{}.csv", grid.name), grid.csv())),
            Part::Picture { name, svg, .. } => Some((format!("{name}.svg"), svg.clone())),
            Part::Text(_) | Part::Note(_) => None,
        };
        self.parts.iter().filter_map(file).collect()
    }

    /// The tables, for a terminal or a document.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n", self.title);
        for part in &self.parts {
            match part {
                Part::Grid(grid) => text.push_str(&format!("{}\n", grid.table().markdown())),
                Part::Text(line) | Part::Note(line) => text.push_str(&format!("{line}\n\n")),
                Part::Picture { name, caption, .. } => {
                    text.push_str(&format!("![{caption}]({name}.svg)\n\n"));
                }
            }
        }
        text
    }
}
