//! Figure 12: the paper's bound at 128K cores, which the paper only calculates.

use serde_json::Value;

use super::paper::DAGS;
use super::point::Point;
use super::results::Results;
use super::scale::Scale;
use super::section::{Grid, Section, Unit};

/// Takes a minute of CPU time at any scale, so it is left out of quick runs.
pub(super) fn points(scale: &Scale) -> Vec<(Point, u32)> {
    if scale.quick { Vec::new() } else { vec![(Point::published(), 1)] }
}

/// A figure of one graph in one form.
fn figure(report: &Value, graph: &str, form: &str, name: &str) -> Option<f64> {
    let rows = report.get("rows")?.as_array()?;
    let row = rows.iter().find(|row| row["graph"] == graph && row["form"] == form)?;
    row.get(name)?.as_f64()
}

pub(super) fn tell(scale: &Scale, results: &Results) -> Section {
    let mut section = Section::new("fig12", "Figure 12: the paper's bound at 128K cores");
    section.text(
        "128,000 slots with table 3's 1,000 tasks each. The paper calculates a throughput from \
         its bound and runs nothing. Its form as printed gives 25.1 s for BOT, but its work alone \
         takes 50 s on that number of slots. It gives about 250 s for Pipeline, since each of ten \
         levels waits again. So it is no bound, and not what the published figures were made \
         with. Every other reading that was tried, and how far each is from them, is in the \
         document on bounds.",
    );
    let columns = [
        ("DAG", None),
        ("published", Some(Unit::PerSecond)),
        ("printed form", Some(Unit::PerSecond)),
        ("true bound", Some(Unit::PerSecond)),
        ("printed form, timespan", Some(Unit::Seconds)),
        ("true bound, timespan", Some(Unit::Seconds)),
        ("published over the true bound", Some(Unit::Percent)),
    ];
    let mut grid = Grid::new("fig12", &columns);
    let point = Point::published();
    for (dag, published) in DAGS.iter().zip(&analysis::bounds::PUBLISHED) {
        let of = |form: &str, name: &str| {
            results.spread(&point, |report| figure(report, published.name, form, name))
        };
        let bound = of("lower", "throughput_per_s");
        let share = bound.map(|bound| published.throughput_per_s / bound.median);
        grid.row(vec![
            dag.name.into(),
            Some(published.throughput_per_s).into(),
            of("printed", "throughput_per_s").into(),
            bound.into(),
            of("printed", "timespan_s").into(),
            of("lower", "timespan_s").into(),
            share.into(),
        ]);
    }
    section.grid(grid);
    match scale.quick {
        true => section.note("Ours are left out where things are to be quick."),
        false => section.missing(results, &[point]),
    }
    section
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn published_figures_stand_beside_ours() {
        assert!(analysis::bounds::PUBLISHED.iter().zip(&DAGS).all(|(it, dag)| it.name == dag.name));
        let report = json!({"rows": [
            {"graph": "BOT", "form": "printed", "timespan_s": 25.1},
            {"graph": "BOT", "form": "lower", "timespan_s": 50.0},
        ]});
        assert_eq!(figure(&report, "BOT", "lower", "timespan_s"), Some(50.0));
        assert_eq!(figure(&report, "FanIn", "lower", "timespan_s"), None);
        let text = tell(&Scale::full(1), &Results::default()).markdown();
        for published in ["2,330,000", "1,850,000", "1,160,000", "852,1"] {
            assert!(text.contains(published), "{published}: {text}");
        }
    }
}
