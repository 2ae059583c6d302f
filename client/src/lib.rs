/*!
The client's library: connect, submit, watch, read, key-value.

A [`Client`] knows the map of its cluster and talks straight to the node that holds what it asks
for; there is no entry node. It opens one session per node, when first needed, repeats what a broken
connection swallowed, and follows nodes to their new addresses when they restart. It keeps no state
that a crash would lose: a job belongs to the cluster from the moment it is committed, and any other
client can watch it by its id.

It decides nothing about where or when a task runs, beyond which partitions a submission goes to.

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
mod error;
mod instance;
mod job;
mod known_jobs;
mod kv;
mod link;
mod nodes;
mod numbered;
mod request_groups;
mod retry;
mod submit;

pub use call::{Client, ClientOptions};
pub use data::{NodeEvents, StreamFilter};
pub use error::ClientError;
pub use instance::{AddressFile, ClusterFile, Instance};
pub use job::{JobWatch, is_ended, round_of};
pub use known_jobs::Jobs;
pub use kv::{Cas, KeyWatch, Kv, Value, check_operation, operation};
pub use security::{Bundle, Dialer, Keyring, Role};
pub use submit::{JobHandle, Submit, SubmitOptions, now_ns};
pub use workloads::Placement;
