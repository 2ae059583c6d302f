//! `starling node set`, `pause` and `resume`: changes the scheduling of running nodes.

use proto::{NodeId, wire};
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::flags::tuning::TuningArgs;
use verb::units;

/// Changes these nodes; all of them if none is named.
pub(crate) fn set(context: &Context, nodes: &[NodeId], args: &TuningArgs) -> Done {
    let change = args.change();
    if change == wire::Tuning::default() {
        return Err(Failure::usage("nothing is to be changed")
            .hint("name a setting, such as --policy flds; see 'starling node set --help'"));
    }
    let count = tune(context, nodes, &change)?;
    context.output.note(&format!("changed {}", units::number_of(count as u64, "node")));
    Ok(Exit::Ok)
}

/// Pauses these nodes, or ends that.
pub(crate) fn pause(context: &Context, nodes: &[NodeId], paused: bool) -> Done {
    let change = wire::Tuning { paused: Some(paused), ..wire::Tuning::default() };
    let count = tune(context, nodes, &change)?;
    let what = if paused { "paused" } else { "resumed" };
    context.output.note(&format!("{what} {}", units::number_of(count as u64, "node")));
    Ok(Exit::Ok)
}

/// Changes these nodes, or all. Returns their number.
fn tune(context: &Context, nodes: &[NodeId], change: &wire::Tuning) -> Result<usize, Failure> {
    verb::block_on(async {
        let client = context.connect().await?;
        let known = client.nodes();
        let nodes = if nodes.is_empty() { &known } else { nodes };
        if let Some(node) = nodes.iter().find(|node| !known.contains(node)) {
            return Err(Failure::refused(format!("no node {node} in this cluster"))
                .hint("'starling node list' shows its nodes"));
        }
        for &node in nodes {
            client.raw().tune(node, change, verb::cluster::survival::PATIENCE).await?;
        }
        Ok(nodes.len())
    })
}
