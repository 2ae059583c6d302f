/*!
The client library: describe work, submit it, watch it, read its results; and a key-value store.

A [`Client`] has the map of its cluster and sends each request directly to the node that can answer
it; there is no entry node. It opens one session per node when it first needs it. It repeats
requests that were lost with a connection, and follows nodes to their new addresses after a restart.
It keeps no state that a crash would lose. A committed job belongs to the cluster, and any other
client can watch it by its id.

The library makes no scheduling decisions, except for the partitions that a submission is sent to.

# A graph

A [`GraphBuilder`] takes tasks and edges. A [`TaskSpec`] describes what tasks do, and any number of
tasks share one. [`Client::submit`] returns when the job is durable. It then runs without the
client.

```no_run
use std::path::Path;

use starling_client::{Client, ClientError, GraphBuilder, GraphTask, SubmitOptions, TaskSpec};

# async fn example(dir: &Path) -> Result<(), ClientError> {
let mut graph = GraphBuilder::new("squares");
let square = TaskSpec::command(["sh", "-c", "echo $(({i} * {i})) > {out:n}"]).output("n", "n");
let add = TaskSpec::command(["sh", "-c", "cat $STARLING_INPUTS | paste -sd+ | bc > {out:sum}"])
    .input("n", "one")
    .input("n", "two")
    .kept_output("sum", "sum");
let sum = graph.task(&add, GraphTask::default());
for entry in [3, 4] {
    let task = graph.task(&square, GraphTask { entry, ..GraphTask::default() });
    graph.read(sum, task, 0);
}
let graph = graph.finish()?;

let client = Client::connect(dir).await?;
// The plan knows the id of each task in the job.
let options = SubmitOptions { name: "squares".to_owned(), ..SubmitOptions::default() };
let plan = client.plan(&graph, &options).await?;
let job = client.submit_plan(&plan, &options).await?.job;

let end = client.wait_job(job, |state| println!("{} tasks ended", state.counts.ended())).await?;
assert!(end.is_done(), "{:?}", end.failures);
assert_eq!(client.read_output(job, plan.local_id(sum), 0).await?, "25\n");
# Ok(())
# }
```

# Work that depends on results

[`Client::open_job`] opens a job to which an [`OpenJob`] appends tasks while others run.
[`Client::watch_ends`] returns their ends. The examples `graph` and `open_job` of this crate are
complete programs.

# Units and errors

Names carry the unit: `_ns` are nanoseconds, `_bytes` are bytes, and times of day are nanoseconds
since the Unix epoch. [`ClientError`] is one line of text with the reason;
[`ClientError::hint`] names the next step. Calls wait up to [`ClientOptions::request_timeout`] for
nodes that do not answer.

Reads may be repeated. Repeat [`Client::submit_plan`] with the same plan: it is the same job.
[`Client::submit`] and [`Client::open_job`] without a number take a new number; set
[`SubmitOptions::job`] or [`OpenOptions::job`] to repeat them. After an error an [`OpenJob`] takes
no more tasks. After [`ClientError::Uncertain`] the caller has to look whether the write has
happened.
*/

#![warn(missing_docs)]

mod build;
mod call;
mod data;
mod door;
mod ends;
mod error;
mod info;
mod instance;
mod kv;
mod limits;
mod link;
mod map;
mod open;
#[doc(hidden)]
pub mod raw;
mod records;
mod results;
mod retry;
mod submit;
mod variables;
mod watch;

pub use build::{GraphBuilder, GraphTask, TaskSpec};
pub use call::{Client, ClientOptions};
pub use data::{NodeEvents, StreamFilter, StreamPiece, StreamPlace};
pub use door::{
    Awaited, ChildOutput, DOOR_VARIABLE, Door, DoorError, DoorRefusal, EventPeer, OutputPiece,
    RemoteCommand, RemoteEnd, Spawn, SpawnedTasks, TaskEvent, TaskRef,
};
pub use ends::{EndsPosition, EndsWatch, TaskEnd};
pub use error::ClientError;
pub use info::{
    Cancelled, Counts, Explanation, JobInfo, JobPhase, Jobs, Member, MemberPhase, NodeInfo,
    Openness, TaskFailure, TaskInfo, TaskPhase, Verdict,
};
pub use instance::{AddressFile, ClusterFile, Instance, host_name};
pub use kv::{Cas, KeyWatch, Kv, KvKind, KvNumber, KvOp, KvResult, KvStatus, Value};
pub use open::{NewTask, OpenJob, OpenOptions, Parent};
pub use proto::{Attempt, JobId, LocalId, NodeId, ObjectId, PartitionId, TaskId};
pub use security::{Bundle, Dialer, Keyring, Role};
pub use submit::{AfterJob, JobHandle, JobSettings, Submit, SubmitOptions, now_ns};
pub use variables::{DeclaredVariable, Variable, VariablesWatch};
pub use watch::JobWatch;
pub use workloads::{CpuPin, CrashLimit, Graph, Needs, Notice, Placement, Plan};
