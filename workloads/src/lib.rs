/*!
Task graphs: their sources, their structure, and their division for submission. The client, the
command line and the simulators use them.

A [`Graph`] is a checked, acyclic task graph in flat columns, suitable for 10^7 tasks. It comes from
a generator's text ([`generate()`]), from a file ([`load`]: Starling's own TOML, WfFormat JSON and
other formats), from one command line ([`Graph::command`]), or from a [`GraphBuilder`]. A [`Plan`]
assigns every task to a home and yields the chunks that a client submits. [`write()`] converts a
graph back to text.

This crate never runs tasks, never opens a connection, and has no execution order except the edges.
It reads workflow files, but no clock.

```
use proto::{JobId, PartitionId};
use workloads::{Placement, Plan, generate};

let graph = generate("fan-out:tasks=1000,degree=10,duration=5ms").expect("the text is right");
assert_eq!((graph.len(), graph.edge_pairs()), (1000, 999));

let homes = [vec![PartitionId(0), PartitionId(1)], vec![PartitionId(2)]];
let plan = Plan::new(&graph, JobId(7), Placement::Graph, &homes);
let submitted: usize = plan.chunks().map(|chunk| chunk.tasks.len()).sum();
assert_eq!(submitted, 1000);
```
*/

mod formats;
pub mod generate;
mod graph;
mod limits;
pub mod lists;
mod placement;

pub use formats::command::{CommandOptions, output_form};
pub use formats::detect::{Format, LoadOptions, load, read};
pub use formats::error::{LoadError, Problem};
pub use formats::wfformat;
pub use formats::write::{OutputFormat, write, write_run, write_to};
pub use generate::generate;
pub use graph::builder::{GraphBuilder, TaskInit};
pub use graph::crash_limit::CrashLimit;
pub use graph::error::{GeneratorError, GraphError, nearest};
pub use graph::info::Info;
pub use graph::job_options::JobOptions;
pub use graph::layout::{Layout, PartitionUse};
pub use graph::needs::{Needs, Requested, TIME_REQUEST_OF_0};
pub use graph::notice::Notice;
pub use graph::pin::CpuPin;
pub use graph::quantity;
pub use graph::{Edge, Graph, KIND_LOAD, TaskView, expand};
pub use placement::place::Placement;
pub use placement::plan::{Chunks, Plan};
pub use placement::spread::Spread;
