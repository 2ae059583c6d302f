/*!
What a run was, told from its event logs, and what no run of a graph can beat.

[`events`] reads the logs of the nodes and merges them; [`Fold`] adds them up in one pass and
[`RunReport`] is what `run --json` prints; [`past`] makes it of what
is stored of an ended job; [`TraceWriter`] turns them into a Chrome trace;
[`explain`](explain::explain) tells the story of one task; [`bounds`] are lower bounds of a graph;
[`chart`] draws figures as SVG and puts them into pages.

This room needs no cluster: bytes and graphs go in, figures and sentences come out. It reads no
clock and does no IO of its own (the trace goes to a writer of the caller).

```
use analysis::{Fold, Merged, RunFacts, RunReport};
let logs: [(proto::NodeId, &[u8]); 0] = []; // node and bytes, as the nodes hand them out
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
pub use fold::{Fold, job_of, task_of};
pub use report::{Reads, RunFacts, RunReport, Series};
pub use stages::{Kinds, StageRow};
pub use trace::TraceWriter;
pub use waits::Waits;
