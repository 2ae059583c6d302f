/*!
Task graphs: where they come from, what they look like, and how they are cut up for submission.

A [`Graph`] is a checked, acyclic task graph in flat columns, good to 10^7 tasks. It comes from a
generator's text ([`generate()`]), from a file ([`load`]: WfFormat JSON or Starling's own TOML),
from one command line ([`Graph::command`]), or from a [`GraphBuilder`]. A [`Plan`] gives every task
its home and yields the chunks a client submits. [`write()`] turns a graph back into text.

This room never runs anything, never opens a connection, and holds no order of execution but the
edges. It reads files, because workflows are files; it reads no clock.

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
