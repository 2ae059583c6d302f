/*!
The client library: connect, submit, watch, read, key-value.

A [`Client`] has the map of its cluster and sends each request directly to the node that can answer
it; there is no entry node. It opens one session per node when it first needs it. It repeats
requests that were lost with a connection, and follows nodes to their new addresses after a restart.
It keeps no state that a crash would lose. A committed job belongs to the cluster, and any other
client can watch it by its id.

The library makes no scheduling decisions, except for the partitions that a submission is sent to.

```no_run
# async fn example(graph: &workloads::Graph) -> Result<(), client::ClientError> {
use client::{Client, SubmitOptions};
let client = Client::connect("/run/user/1000/starling/default".as_ref()).await?;
let job = client.submit(graph, SubmitOptions::default()).await?.job;
let end = client.wait_job(job, |state| println!("{} tasks", state.total)).await?;
assert_eq!(end.sum.map(|sum| sum.failed), Some(0));
# Ok(())
# }
```
*/

mod call;
mod data;
mod door;
mod ends;
mod error;
mod instance;
mod job;
mod known_jobs;
mod kv;
mod link;
mod map;
mod nodes;
mod numbered;
mod open;
mod request_groups;
mod retry;
mod submit;

pub use call::{Client, ClientOptions};
pub use data::{NodeEvents, StreamFilter, StreamPlace};
pub use door::{DOOR_VARIABLE, Door, DoorError};
pub use ends::{EndsPosition, EndsWatch, TaskEnd};
pub use error::ClientError;
pub use instance::{AddressFile, ClusterFile, Instance, host_name};
pub use job::{JobWatch, is_ended, round_of};
pub use known_jobs::Jobs;
pub use kv::{Cas, KeyWatch, Kv, Value, check_operation, operation};
pub use open::{NewTask, OpenJob, OpenOptions, Parent};
pub use security::{Bundle, Dialer, Keyring, Role};
pub use submit::{JobHandle, Submit, SubmitOptions, now_ns};
pub use workloads::Placement;
