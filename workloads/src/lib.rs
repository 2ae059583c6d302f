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

mod alibaba;
mod builder;
mod command;
mod crash_limit;
mod dax;
mod detect;
mod deviations;
mod dot;
mod error;
mod estee;
mod file_graph;
pub mod generate;
mod graph;
mod info;
mod json_guard;
mod layout;
mod math;
mod names;
mod pieces;
mod place;
mod plan;
pub mod quantity;
mod random;
mod recorded;
mod spread;
mod stg;
mod swf;
mod text;
mod toml_file;
mod unicode;
mod urgency;
mod weighted;
pub mod wfformat;
mod write;

pub use builder::{GraphBuilder, TaskInit};
pub use command::CommandOptions;
pub use crash_limit::CrashLimit;
pub use detect::{Format, LoadOptions, load, read};
pub use error::{GeneratorError, GraphError, LoadError, Problem};
pub use generate::generate;
pub use graph::{Edge, Graph, KIND_LOAD, TaskView, expand};
pub use info::Info;
pub use layout::{Layout, PartitionUse};
pub use place::Placement;
pub use plan::{Chunks, Plan};
pub use spread::Spread;
pub use write::{OutputFormat, write, write_run, write_to};
