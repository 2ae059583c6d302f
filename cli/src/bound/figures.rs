//! The bounds of one workflow on one cluster.

use analysis::bounds::{Form, StreamBounds};
use analysis::{Cluster, LowerBounds, Network, PaperBound, PaperModel};
use proto::Span;
use serde::Serialize;
use verb::Context;
use verb::errors::{Failure, heard};
use verb::units;
use workloads::Graph;
use workloads::generate::Implicit;

use super::Compared;
use crate::views::reports;

/// The assumptions of the figures.
#[derive(Clone, Debug)]
pub(super) struct Assumed {
    pub cluster: Cluster,
    /// The bandwidth in the paper's form, whatever the true bounds assume.
    pub bandwidth_bytes_per_s: f64,
    pub spec_bytes: f64,
    /// Forms shown beside the printed one, which is always shown.
    pub forms: Vec<Form>,
}

impl Assumed {
    pub(super) fn model(&self, form: Form) -> PaperModel {
        PaperModel {
            slots: self.cluster.total_slots(),
            bandwidth_bytes_per_s: self.bandwidth_bytes_per_s,
            spec_bytes: self.spec_bytes,
            form,
        }
    }

    /// The printed form, then the requested ones.
    pub(super) fn models(&self) -> Vec<PaperModel> {
        let further = self.forms.iter().filter(|form| **form != Form::Printed);
        std::iter::once(&Form::Printed).chain(further).map(|form| self.model(*form)).collect()
    }

    /// The same on another number of nodes.
    pub(super) fn on(&self, nodes: u32) -> Self {
        Self { cluster: Cluster { nodes, ..self.cluster }, ..self.clone() }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub workflow: String,
    pub tasks: u64,
    edges: u64,
    nodes: u32,
    /// The slots of all nodes.
    slots: u32,
    network: &'static str,
    bandwidth_bytes_per_s: f64,
    latency_s: f64,
    /// The strongest true bound, and its name.
    pub lower_s: f64,
    lower_by: &'static str,
    /// No schedule has a higher throughput.
    pub lower_throughput_per_s: f64,
    critical_path_s: f64,
    area_s: f64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    of_graph: Option<OfGraph>,
    /// The paper's form as printed.
    pub paper_s: f64,
    paper_throughput_per_s: f64,
    pub forms: Vec<FormRow>,
    cpu_s: f64,
    peak_rss_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<Compared>,
}

/// Bounds that need the whole graph.
#[derive(Debug, Serialize)]
struct OfGraph {
    packing_s: f64,
    density_s: f64,
    data_path_s: f64,
    data_density_s: f64,
    data_copies_s: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct FormRow {
    pub form: &'static str,
    /// The queueing time of a task in this form.
    pub wait: &'static str,
    pub timespan_s: f64,
    pub throughput_per_s: f64,
}

impl FormRow {
    pub(super) fn new(form: Form, bound: &PaperBound) -> Self {
        Self {
            form: form.name(),
            wait: form.formula(),
            timespan_s: bound.timespan_s,
            throughput_per_s: bound.throughput_per_s,
        }
    }
}

impl Figures {
    pub(super) fn of_graph(workflow: &str, graph: &Graph, assumed: &Assumed) -> Self {
        let bounds = LowerBounds::of(graph, &assumed.cluster);
        let paper = |model: &PaperModel| PaperBound::of(graph, model);
        let paper: Vec<PaperBound> = assumed.models().iter().map(paper).collect();
        let seconds = |span: Span| span.as_secs_f64();
        let simple = (bounds.critical_path, bounds.area, bounds.lower(), bounds.binding());
        let counts = (graph.len() as u64, graph.edge_pairs());
        let of_graph = OfGraph {
            packing_s: seconds(bounds.packing),
            density_s: seconds(bounds.density),
            data_path_s: seconds(bounds.data_path),
            data_density_s: seconds(bounds.data_density),
            data_copies_s: seconds(bounds.data_copies),
        };
        let of_graph = Some(of_graph);
        Self { of_graph, ..Self::new(workflow, counts, assumed, simple, &paper) }
    }

    pub(super) fn of_shape(workflow: &str, shape: &Implicit, assumed: &Assumed) -> Self {
        let slots = assumed.cluster.total_slots();
        let bounds = StreamBounds::of(shape, slots, &assumed.models());
        let by = if bounds.area > bounds.critical_path { "area" } else { "critical path" };
        let simple = (bounds.critical_path, bounds.area, bounds.lower(), by);
        Self::new(workflow, (shape.tasks(), shape.edges()), assumed, simple, &bounds.paper)
    }

    fn new(
        workflow: &str,
        (tasks, edges): (u64, u64),
        assumed: &Assumed,
        (critical_path, area, lower, lower_by): (Span, Span, Span, &'static str),
        paper: &[PaperBound],
    ) -> Self {
        let cluster = &assumed.cluster;
        let (network, latency) = match cluster.network {
            Network::Free => ("free", Span::ZERO),
            Network::Flat { latency, .. } => ("flat", latency),
            Network::Shared { latency, .. } => ("maxmin", latency),
        };
        let lower_s = lower.as_secs_f64();
        let models = assumed.models();
        let forms = models.iter().zip(paper).map(|(model, bound)| FormRow::new(model.form, bound));
        Self {
            workflow: workflow.to_owned(),
            tasks,
            edges,
            nodes: cluster.nodes,
            slots: cluster.total_slots(),
            network,
            bandwidth_bytes_per_s: assumed.bandwidth_bytes_per_s,
            latency_s: latency.as_secs_f64(),
            lower_s,
            lower_by,
            lower_throughput_per_s: if lower_s > 0.0 { tasks as f64 / lower_s } else { 0.0 },
            critical_path_s: critical_path.as_secs_f64(),
            area_s: area.as_secs_f64(),
            of_graph: None,
            paper_s: paper[0].timespan_s,
            paper_throughput_per_s: paper[0].throughput_per_s,
            forms: forms.collect(),
            cpu_s: reports::own_cpu().as_secs_f64(),
            peak_rss_bytes: reports::own_peak_rss_bytes(),
            run: None,
        }
    }
}

pub(super) fn print(
    context: &Context,
    mut figures: Figures,
    run: Option<Compared>,
) -> Result<(), Failure> {
    figures.run = run;
    heard(match context.output.json {
        true => context.output.json(&figures),
        false => context.output.bytes(text(&figures).as_bytes()),
    })
}

fn text(figures: &Figures) -> String {
    let mut text = String::new();
    let mut row = |key: &str, value: String| text += &format!("{key:16} {value}\n");
    let rate = |per_s: f64| format!("{} tasks/s", units::count(per_s as u64));
    let (tasks, edges) = (units::count(figures.tasks), units::count(figures.edges));
    row("workflow", format!("{}, {tasks} tasks, {edges} edges", figures.workflow));
    row(
        "cluster",
        format!("{}, {} slots", units::number_of(u64::from(figures.nodes), "node"), figures.slots),
    );
    let (lower, by) = (units::seconds(figures.lower_s), figures.lower_by);
    row(
        "no sooner than",
        format!("{lower} ({by}), at most {}", rate(figures.lower_throughput_per_s)),
    );
    row("  critical path", units::seconds(figures.critical_path_s));
    row("  area", units::seconds(figures.area_s));
    if let Some(more) = &figures.of_graph {
        row("  packing", units::seconds(more.packing_s));
        row("  density", units::seconds(more.density_s));
        row("  data path", units::seconds(more.data_path_s));
        row("  data density", units::seconds(more.data_density_s));
        row("  data copies", units::seconds(more.data_copies_s));
    }
    row("the paper's form", "an estimate, no bound".to_owned());
    for form in &figures.forms {
        let (span, rate) = (units::seconds(form.timespan_s), rate(form.throughput_per_s));
        row(&format!("  {}", form.form), format!("{span}, {rate}; wait {}", form.wait));
    }
    if let Some(run) = &figures.run {
        let share = |share: f64| format!("{:.1} %", share * 100.0);
        row(&run.run, units::seconds(run.makespan_s));
        row("  of the bound", share(run.share_of_lower));
        row("  of the paper's", share(run.share_of_paper));
    }
    text
}
