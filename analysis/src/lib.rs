/*!
Analysis of runs from their event logs, and lower bounds of graphs. The command line uses it.

* [`events`] reads and merges the logs of the nodes.
* [`Fold`] sums them in one pass, and [`RunReport`] is the report that `run --json` prints.
* [`past`] makes the same report from the stored summary of an ended job.
* [`TraceWriter`] converts logs to a Chrome trace.
* [`explain`](explain::explain) explains the state of one task.
* [`bounds`] computes lower bounds of a graph.
* [`chart`] draws figures as SVG and builds pages.

This crate needs no cluster: its inputs are bytes and graphs, its outputs figures and sentences. It
reads no clock and does no IO itself (the trace goes to the caller's writer).

```
use analysis::{Fold, Merged, RunFacts, RunReport};
let logs: [(proto::NodeId, &[u8]); 0] = []; // node and bytes, as returned by the nodes
let mut fold = Fold::default();
Merged::new(logs).for_each(|entry| fold.push(&entry));
let report = RunReport::new(&fold, &RunFacts::default());
assert!(report.to_json().starts_with(r#"{"schema":1,"#));
```
*/

pub mod bounds;
pub mod chart;
pub mod events;
pub mod explain;
pub mod fold;
pub mod past;
pub mod report;
pub mod stages;
pub mod trace;
pub mod waits;

pub use bounds::{Bounds, Cluster, Form, LowerBounds, Network, PaperBound, PaperModel};
pub use events::{Entry, Merged, NodeLog, ReadError};
pub use fold::Fold;
pub use report::{Reads, RunFacts, RunReport, Series};
pub use stages::{Kinds, StageRow};
pub use trace::{Edges, Label, TraceWriter};
pub use waits::Waits;
