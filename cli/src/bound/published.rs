//! The forms of the paper's bound beside the published figures.

use std::path::Path;

use analysis::bounds::{Form, PUBLISHED, PUBLISHED_SLOTS, Published, StreamBounds};
use analysis::chart::{Axis, Chart};
use analysis::{Cluster, PaperModel};
use proto::Span;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::units;

use super::figures::Assumed;
use crate::views::reports;

/// The maximum of slots for which table 4's efficiency was measured.
const MEASURED_SLOTS: u32 = 200;

#[derive(Serialize)]
struct BoundReport {
    slots: u32,
    rows: Vec<Row>,
    cpu_s: f64,
    peak_rss_bytes: u64,
}

/// One form for one of the four graphs.
#[derive(Serialize)]
struct Row {
    graph: &'static str,
    form: &'static str,
    wait: &'static str,
    timespan_s: f64,
    throughput_per_s: f64,
    published_per_s: f64,
    /// The calculated figure over the published one.
    ratio: f64,
    /// Table 4 gives the share of the bound's performance that was reached. This is the implied
    /// share of work over slots if this form were the bound on 200 slots. Above 1 it is impossible.
    reached_of_area: f64,
}

pub(super) fn run(context: &Context, assumed: &Assumed, plot: Option<&Path>) -> Done {
    let mut rows = Vec::new();
    for published in &PUBLISHED {
        let large = all_forms(published, PUBLISHED_SLOTS, assumed)?;
        let small = all_forms(published, MEASURED_SLOTS, assumed)?;
        for (at, form) in Form::ALL.into_iter().enumerate() {
            let bound = large.paper[at];
            let reached_s = small.paper[at].timespan_s / published.reached_share;
            rows.push(Row {
                graph: published.name,
                form: form.name(),
                wait: form.formula(),
                timespan_s: bound.timespan_s,
                throughput_per_s: bound.throughput_per_s,
                published_per_s: published.throughput_per_s,
                ratio: bound.throughput_per_s / published.throughput_per_s,
                reached_of_area: small.area.as_secs_f64() / reached_s,
            });
        }
        rows.push(area_row(published, &large, &small));
    }
    if let Some(path) = plot {
        super::write(path, &chart(assumed)?)?;
    }
    let shown = BoundReport {
        slots: PUBLISHED_SLOTS,
        rows,
        cpu_s: reports::own_cpu().as_secs_f64(),
        peak_rss_bytes: reports::own_peak_rss_bytes(),
    };
    match context.output.json {
        true => context.output.json(&shown)?,
        false => context.output.bytes(text(&shown).as_bytes())?,
    }
    Ok(Exit::Ok)
}

/// The true bound, for the same comparison.
fn area_row(published: &Published, large: &StreamBounds, small: &StreamBounds) -> Row {
    let tasks = f64::from(PUBLISHED_SLOTS) * 1000.0;
    let timespan_s = large.lower().as_secs_f64();
    let throughput_per_s = tasks / timespan_s;
    let reached_s = small.lower().as_secs_f64() / published.reached_share;
    Row {
        graph: published.name,
        form: "lower",
        wait: "true bound: the larger of area and critical path",
        timespan_s,
        throughput_per_s,
        published_per_s: published.throughput_per_s,
        ratio: throughput_per_s / published.throughput_per_s,
        reached_of_area: small.area.as_secs_f64() / reached_s,
    }
}

fn all_forms(
    published: &Published,
    slots: u32,
    assumed: &Assumed,
) -> Result<StreamBounds, Failure> {
    let models: Vec<PaperModel> =
        Form::ALL.into_iter().map(|form| model(assumed, slots, form)).collect();
    bounds(published, slots, &models)
}

fn model(assumed: &Assumed, slots: u32, form: Form) -> PaperModel {
    let cluster = Cluster { nodes: slots, slots: 1, ..assumed.cluster };
    Assumed { cluster, ..assumed.clone() }.model(form)
}

fn bounds(
    published: &Published,
    slots: u32,
    models: &[PaperModel],
) -> Result<StreamBounds, Failure> {
    let shape = super::shape(&published.workload(slots))?;
    let shape = shape.expect("the benchmark graphs are shapes");
    Ok(StreamBounds::of(&shape, slots, models))
}

/// The printed form over growing clusters, 1,000 tasks a slot, as in figure 12.
fn chart(assumed: &Assumed) -> Result<String, Failure> {
    let axis = Axis::new("tasks/s").log();
    let mut chart =
        Chart::new("The bound as printed, 1,000 tasks a slot", Axis::new("slots").log(), axis);
    for published in &PUBLISHED {
        let mut points = Vec::new();
        for slots in [1, 10, 100, 1000, 10_000, PUBLISHED_SLOTS] {
            let found = bounds(published, slots, &[model(assumed, slots, Form::Printed)])?;
            points.push((f64::from(slots), found.paper[0].throughput_per_s));
        }
        chart = chart.line(published.name, &points);
    }
    let slots = f64::from(PUBLISHED_SLOTS);
    for published in &PUBLISHED {
        let name = format!("{}, published", published.name);
        chart = chart.points(&name, &[(slots, published.throughput_per_s)]);
    }
    // One task after the other in every slot, without any overhead.
    let mean_s = Span::from_millis(50).as_secs_f64();
    let ideal: Vec<(f64, f64)> =
        [1.0, slots].into_iter().map(|slots| (slots, slots / mean_s)).collect();
    Ok(chart.line("no schedule can beat", &ideal).svg())
}

fn text(shown: &BoundReport) -> String {
    let mut text = format!(
        "{} slots, 1,000 tasks each, as in table 3\n{:9} {:12} {:>9} {:>12} {:>12} {:>7} {:>9}\n",
        units::count(u64::from(shown.slots)),
        "graph",
        "form",
        "span, s",
        "tasks/s",
        "published",
        "ratio",
        "table 4",
    );
    for row in &shown.rows {
        text += &format!(
            "{:9} {:12} {:9.2} {:>12} {:>12} {:7.3} {:7.1} %\n",
            row.graph,
            row.form,
            row.timespan_s,
            units::count(row.throughput_per_s as u64),
            units::count(row.published_per_s as u64),
            row.ratio,
            row.reached_of_area * 100.0,
        );
    }
    text + "table 4: the share of work over slots that the published efficiency would be if this \
            form were the bound; above 100 % it cannot be\n"
}
