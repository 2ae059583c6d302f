//! The outcomes of the runs, and figures from their reports.

use std::collections::BTreeMap;
use std::path::PathBuf;

use analysis::chart::Page;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::point::{FigureSource, Point};

/// One run of a point.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) arm: FigureSource,
    pub(super) command: String,
    /// The number of the repeat.
    pub(super) round: u32,
    /// The duration of the run.
    pub(super) wall_s: f64,
    /// Taken from an earlier evaluation.
    pub(super) reused: bool,
    /// The file of its run record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) record: Option<PathBuf>,
    /// The report of the run, or the reason why there is none.
    #[serde(serialize_with = "told")]
    pub(super) report: Result<Value, String>,
}

/// A report as it is; for a failure its reason.
fn told<S: Serializer>(report: &Result<Value, String>, serializer: S) -> Result<S::Ok, S::Error> {
    match report {
        Ok(report) => report.serialize(serializer),
        Err(why) => serde_json::json!({ "error": why }).serialize(serializer),
    }
}

/// Adds the runs to a page, and the command lines that make a page of each run with a record.
pub(super) fn add_runs(page: Page, outcomes: &[&Outcome]) -> Page {
    let commands: Vec<&str> = outcomes.iter().map(|outcome| outcome.command.as_str()).collect();
    let page = page.heading("Every run").text("Each line gives its report with --json.");
    let page = page.code(&commands.join("\n"));
    let of_record = |outcome: &&Outcome| {
        let record = outcome.record.as_ref()?;
        let (from, to) = (record.display(), record.with_extension("html"));
        Some(format!("starling report --from {from} -o {}  # {}", to.display(), outcome.command))
    };
    let records: Vec<String> = outcomes.iter().filter_map(of_record).collect();
    if records.is_empty() {
        return page;
    }
    let text = "Each line makes a page of one run, with the cause of each idle slot.";
    page.heading("Run records").text(text).code(&records.join("\n"))
}

/// Median, least and most of a figure over the repeats of a point.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    pub(super) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else { return None };
        let median = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        Some(Self { median, min, max })
    }
}

#[derive(Debug, Default)]
pub(super) struct Results {
    by_point: BTreeMap<Point, Vec<Outcome>>,
}

impl Results {
    pub(super) fn add(&mut self, point: Point, outcome: Outcome) {
        let outcomes = self.by_point.entry(point).or_default();
        outcomes.push(outcome);
        outcomes.sort_by_key(|outcome| outcome.round);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Outcome> {
        self.by_point.values().flatten()
    }

    /// The reports of a point's successful runs.
    pub(super) fn reports(&self, point: &Point) -> impl Iterator<Item = &Value> {
        let outcomes = self.by_point.get(point).into_iter().flatten();
        outcomes.filter_map(|outcome| outcome.report.as_ref().ok())
    }

    /// A figure of each run, and its spread.
    pub(super) fn spread(
        &self,
        point: &Point,
        of: impl Fn(&Value) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(self.reports(point).filter_map(of).collect())
    }

    /// The figure at a path such as `/data/bytes_moved`.
    pub(super) fn at(&self, point: &Point, path: &str) -> Option<Spread> {
        self.spread(point, |report| number(report, path))
    }

    pub(super) fn median(&self, point: &Point, path: &str) -> Option<f64> {
        self.at(point, path).map(|spread| spread.median)
    }

    /// The reason why a point has no figure.
    pub(super) fn why(&self, point: &Point) -> String {
        let outcomes = self.by_point.get(point).map(Vec::as_slice).unwrap_or_default();
        let failed = outcomes.iter().find_map(|outcome| outcome.report.as_ref().err());
        match (failed, outcomes) {
            (Some(why), _) => why.clone(),
            (None, []) => "not run".to_owned(),
            (None, _) => "its report has no such figure".to_owned(),
        }
    }

    /// Busy slots over time of the first successful run: seconds and percent.
    pub(super) fn utilization(&self, point: &Point) -> Option<Vec<(f64, f64)>> {
        let series = self.reports(point).next()?.get("utilization_series")?;
        let step_s = series.get("step_s")?.as_f64()?;
        let values = series.get("values")?.as_array()?;
        let percent = values.iter().map(|value| value.as_f64().unwrap_or(0.0) * 100.0);
        Some(percent.enumerate().map(|(step, value)| (step as f64 * step_s, value)).collect())
    }
}

pub(super) fn number(report: &Value, path: &str) -> Option<f64> {
    report.pointer(path)?.as_f64()
}

/// The time at which the last task of a kind ended, on the run's clock.
pub(super) fn stage_end_s(report: &Value, kind: &str) -> Option<f64> {
    stage(report, kind)?.get("last_end_s")?.as_f64()
}

pub(super) fn stage<'v>(report: &'v Value, kind: &str) -> Option<&'v Value> {
    let stages = report.get("stages")?.as_array()?;
    stages.iter().find(|stage| stage.get("kind").and_then(Value::as_str) == Some(kind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(round: u32, report: Result<Value, String>) -> Outcome {
        let (arm, command) = (FigureSource::Simulated, String::new());
        Outcome { arm, command, round, wall_s: 0.0, reused: false, record: None, report }
    }

    #[test]
    fn figures_of_repeats_spread_and_failures_say_why() {
        let mut results = Results::default();
        let point = Point::real("bag:tasks=1", 1, 1);
        assert_eq!(results.why(&point), "not run");
        for (round, value) in [(2, 3.0), (0, 1.0), (1, 7.0)] {
            results.add(point.clone(), outcome(round, Ok(json!({"a": {"b": value}}))));
        }
        let spread = results.at(&point, "/a/b");
        assert_eq!(spread, Some(Spread { median: 3.0, min: 1.0, max: 7.0 }));
        assert_eq!(results.at(&point, "/a/c"), None);
        let bad = point.with(&["--x"]);
        results.add(bad.clone(), outcome(0, Err("it broke".to_owned())));
        assert_eq!((results.at(&bad, "/a"), results.why(&bad)), (None, "it broke".to_owned()));
    }

    #[test]
    fn stages_and_utilization_are_found() {
        let mut results = Results::default();
        let point = Point::real("bag:tasks=1", 1, 1);
        let report = json!({
            "stages": [{"kind": "load", "last_end_s": 1.0}, {"kind": "pair", "last_end_s": 9.0}],
            "utilization_series": {"step_s": 0.5, "values": [0.25, 1.0]},
        });
        assert_eq!(stage_end_s(&report, "pair"), Some(9.0));
        assert_eq!(stage_end_s(&report, "none"), None);
        results.add(point.clone(), outcome(0, Ok(report)));
        assert_eq!(results.utilization(&point), Some(vec![(0.0, 25.0), (0.5, 100.0)]));
    }
}
