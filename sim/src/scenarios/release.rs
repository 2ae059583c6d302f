//! Tasks with release times.

use crate::Mutant;
use crate::{NodeFailures, SimulationOptions, Violation, simulate};
use proto::{Span, wire};
use workloads::{Graph, GraphBuilder, TaskInit};

/// Tasks of 2 s, each released 10 s after the previous one. The last one reads the first.
pub(crate) fn arrivals(tasks: u64) -> Graph {
    let mut builder = GraphBuilder::new("arrivals");
    let body = Some(wire::spec::Body::Sleep(wire::Sleep::default()));
    let spec = builder.spec(wire::Spec { cpus: 1, body, ..Default::default() });
    for number in 0..tasks {
        let (duration_ns, release_ns) = (Span::from_secs(2).0, Span::from_secs(10 * number).0);
        builder.task(TaskInit { duration_ns, release_ns, ..TaskInit::of(spec) });
    }
    builder.edge(0, tasks as u32 - 1, 0);
    builder.finish().expect("the graph makes sense")
}

/// Every home dies while most tasks wait for their release. It must still know the release times
/// afterwards.
pub(crate) fn homes_die_before_the_release(mutant: Option<Mutant>) -> Result<(), Violation> {
    let mut options = SimulationOptions::new(3, 2);
    options.node_failures = NodeFailures { kills: 3, ..NodeFailures::default() };
    options.mutant = mutant.and_then(Mutant::of_node);
    simulate(&arrivals(12), &options).map(|_| ())
}
