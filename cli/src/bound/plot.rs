//! Throughput against slots.

use analysis::chart::{Axis, Chart};
use proto::limits::NODES_MAX;

use super::Work;
use super::figures::{Assumed, Figures};

/// The maximum of points on a curve: the nodes double from one to the next.
const POINTS_MAX: u32 = NODES_MAX.ilog2();

/// Curves of one workflow over growing clusters: at least up to the given cluster, and until twice
/// as many nodes change nothing.
pub(super) fn against_slots(name: &str, work: &Work, assumed: &Assumed) -> String {
    let mut upper = Vec::new();
    let mut forms: Vec<(&'static str, Vec<(f64, f64)>)> = Vec::new();
    let mut best = 0.0;
    // More nodes than tasks are useless.
    let useful = work.tasks().div_ceil(u64::from(assumed.cluster.slots));
    let asked = u64::from(assumed.cluster.nodes);
    for nodes in (0..=POINTS_MAX).map(|power| 1_u32 << power) {
        let assumed = assumed.on(nodes);
        let figures = match work {
            Work::Stored(graph) => Figures::of_graph(name, graph, &assumed),
            Work::Implicit(shape) => Figures::of_shape(name, shape, &assumed),
        };
        let slots = f64::from(assumed.cluster.total_slots());
        upper.push((slots, figures.lower_throughput_per_s));
        for (at, row) in figures.forms.iter().enumerate() {
            if forms.len() <= at {
                forms.push((row.form, Vec::new()));
            }
            forms[at].1.push((slots, row.throughput_per_s));
        }
        let has_grown = figures.lower_throughput_per_s > best * 1.01;
        best = best.max(figures.lower_throughput_per_s);
        let nodes = u64::from(nodes);
        if nodes >= asked && (nodes >= useful || !has_grown) {
            break;
        }
    }
    let title = format!("Throughput of {name}");
    let mut chart = Chart::new(&title, Axis::new("slots").log(), Axis::new("tasks/s").log())
        .line("no schedule can beat", &upper);
    for (form, points) in &forms {
        chart = chart.line(&format!("the paper's form, {form}"), points);
    }
    chart.svg()
}
