//! The report of a benchmark, for people and as JSON.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Resolved;

/// The figures of one round, by name.
pub(super) type Round = Vec<(&'static str, f64)>;

/// Median, least and most of a figure over the rounds.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let median = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        Self { median, min: values[0], max: values[values.len() - 1] }
    }
}

#[derive(Debug)]
pub(super) struct Report {
    bench: &'static str,
    setting: Resolved,
    rounds: Vec<Round>,
    /// Remarks that a reader of the figures needs.
    notes: Vec<String>,
}

/// This figure is one number in JSON: its median.
const CPU: &str = "cpu_us_per_task";

impl Report {
    pub(super) fn new(bench: &'static str, setting: Resolved) -> Self {
        Self { bench, setting, rounds: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn add(&mut self, round: Round) {
        self.rounds.push(round);
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Each figure's spread, in the order in which figures first appeared.
    fn spreads(&self) -> Vec<(&'static str, Spread)> {
        let mut names: Vec<&'static str> = Vec::new();
        for (name, _) in self.rounds.iter().flatten() {
            if !names.contains(name) {
                names.push(name);
            }
        }
        names.into_iter().map(|name| (name, self.spread(name))).collect()
    }

    fn spread(&self, name: &str) -> Spread {
        let of_name = self.rounds.iter().flatten().filter(|(other, _)| *other == name);
        Spread::of(of_name.map(|(_, value)| *value).collect())
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings always serialise")
    }

    pub(super) fn to_text(&self) -> String {
        let Resolved { nodes, slots, tasks, processes, .. } = self.setting;
        let place = if processes { "processes" } else { "one process" };
        let mut text =
            format!("{}: {tasks} a round, {nodes} nodes of {slots} slots, {place}\n", self.bench);
        text.push_str(&row("", ["median", "least", "most"].map(str::to_owned)));
        for (name, spread) in self.spreads() {
            text.push_str(&row(name, [spread.median, spread.min, spread.max].map(figure)));
        }
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        text
    }
}

fn row(name: &str, [median, min, max]: [String; 3]) -> String {
    format!("{name:<32} {median:>14} {min:>14} {max:>14}\n")
}

/// Four significant digits exceed the precision of a benchmark.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", &1)?;
        map.serialize_entry("bench", self.bench)?;
        map.serialize_entry("tasks", &self.setting.tasks)?;
        map.serialize_entry("nodes", &self.setting.nodes)?;
        map.serialize_entry("slots", &self.setting.slots)?;
        map.serialize_entry("processes", &self.setting.processes)?;
        map.serialize_entry("insecure", &self.setting.insecure)?;
        map.serialize_entry("replicas", &self.setting.replicas)?;
        for (name, spread) in self.spreads() {
            match name {
                CPU => {
                    map.serialize_entry(CPU, &spread.median)?;
                    map.serialize_entry("cpu_us_per_task_spread", &spread)?;
                }
                _ => map.serialize_entry(name, &spread)?,
            }
        }
        map.serialize_entry("runs", &self.rounds.iter().map(AsMap).collect::<Vec<_>>())?;
        map.serialize_entry("notes", &self.notes)?;
        map.end()
    }
}

struct AsMap<'a>(&'a Round);

impl Serialize for AsMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rounds: &[f64]) -> Report {
        let setting = Resolved {
            nodes: 1,
            slots: 2,
            tasks: 3,
            rounds: 1,
            processes: true,
            replicas: 2,
            insecure: false,
        };
        let mut report = Report::new("noop", setting);
        for &value in rounds {
            report.add(vec![("per_s", value), (CPU, value / 2.0)]);
        }
        report
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let spread = report(&[8.0, 2.0, 4.0, 100.0]).spread("per_s");
        assert_eq!(spread, Spread { median: 6.0, min: 2.0, max: 100.0 });
    }

    #[test]
    fn the_json_has_the_promised_fields_in_order() {
        let json = report(&[4.0]).to_json();
        let expected = concat!(
            r#"{"schema":1,"bench":"noop","tasks":3,"nodes":1,"slots":2,"processes":true,"#,
            r#""insecure":false,"replicas":2,"#,
            r#""per_s":{"median":4.0,"min":4.0,"max":4.0},"cpu_us_per_task":2.0,"#,
            r#""cpu_us_per_task_spread":{"median":2.0,"min":2.0,"max":2.0},"#,
            r#""runs":[{"per_s":4.0,"cpu_us_per_task":2.0}],"notes":[]}"#,
        );
        assert_eq!(json, expected);
    }
}
