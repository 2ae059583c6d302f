//! The options of a submission, and the check that its tasks fit on the nodes.

use client::{JobSettings, SubmitOptions};
use proto::wire;
use verb::Context;
use verb::errors::Failure;
use verb::flags::{DataKind, LoadArgs, PlaceArgs, PlacementName};
use verb::units::Bandwidth;
use workloads::{Graph, Placement};

/// The options of a submission, by flags and settings.
pub(crate) fn submit_options(
    context: &Context,
    place: &PlaceArgs,
    load: &LoadArgs,
    bandwidth: Bandwidth,
) -> Result<SubmitOptions, Failure> {
    let settings = &context.settings;
    let real_data = settings.pick(place.data, "data")? == DataKind::Real;
    let scale = settings.pick(load.scale, "scale")?.0;
    let placement = match settings.pick(place.placement, "placement")? {
        PlacementName::Hash => Placement::Hash,
        PlacementName::Graph => Placement::Graph,
    };
    // Real bytes take their own time; virtual data waits for the modelled time.
    let transfer_ns_per_byte = if real_data { 0.0 } else { scale * 1e9 / bandwidth.bytes_per_s };
    Ok(SubmitOptions {
        placement,
        submit: settings.pick(place.submit.clone(), "submit")?.0,
        settings: JobSettings {
            real_data,
            transfer_ns_per_byte,
            max_tasks: place.max_tasks.unwrap_or(0),
            max_fails: None,
            at_most: place.at_most,
        },
        ..SubmitOptions::default()
    })
}

/// Refuses a workflow with a task that is wider than every node.
pub(crate) fn check_fit(graph: &Graph, slots: u32) -> Result<(), Failure> {
    let is_wide = |spec: &wire::Spec| spec.cpus > slots && !spec.awaits_nodes;
    if !graph.specs().iter().any(is_wide) {
        return Ok(());
    }
    let waits = |task: u32| graph.task(task).spec.awaits_nodes;
    let is_wide = |task: &u32| graph.cpus(*task) > slots && !waits(*task);
    let Some(task) = graph.indices().find(is_wide) else {
        return Ok(());
    };
    if slots == 0 {
        return Err(Failure::refused("all nodes are keepers (--slots 0), which run nothing")
            .hint("start a node that has slots: 'starling up' with one node more"));
    }
    let (name, cpus) = (graph.task_name(task), graph.cpus(task));
    let text = format!("task '{name}' needs {cpus} slots, no node has more than {slots}");
    Err(Failure::refused(text).hint("give the nodes more --slots, or the task fewer cpus"))
}
