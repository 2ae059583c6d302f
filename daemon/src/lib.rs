/*!
The tokio shell of one node: streams to peers and clients, the log on disk, the clock, timers, the
executor, the event log, and the instance directory by which the nodes of a cluster find each other.

The shell decides nothing; [`node::Node`] does. The shell turns sockets and timers into
[`node::Input`]s, and carries [`node::Effect`]s out in their order: a batch is in the log before any
message that depends on it is sent. One loop owns a node, on a thread with a current-thread runtime,
so the core needs no locks. Several nodes in one process run the same code several times.

The folders in reading order: [`start()`] opens a node's directories and ports. `lifecycle`
assembles its parts, and `event_loop` drives it. `lifecycle` also waits for the other nodes, and has
the node's directory ([`instance`]) and its place in a launch ([`launcher`]). `rpc` has its streams:
it authenticates callers, and [`authorization`] limits their calls. `door` serves the commands that
run on the node, and `rpc::rsh` those in parts of gangs. `objects` fetches objects.
[`events`] and [`store`] are its files.

```no_run
use daemon::{NodeOptions, start};
use proto::NodeId;

let dir = std::path::Path::new("/tmp/starling-example");
let nodes: Vec<_> = (0..3)
    .map(|rank| start(NodeOptions::new(dir, NodeId(rank), 3)))
    .collect::<Result<_, _>>()?;
for node in &nodes {
    node.wait_ready()?; // all three have found each other
}
for node in nodes {
    node.request_stop();
    node.join()?;
}
# Ok::<(), Box<dyn std::error::Error>>(())
```
*/

mod clock;
mod door;
mod error;
mod event_loop;
pub mod events;
mod handle;
mod lifecycle;
mod limits;
mod log;
mod nested;
mod objects;
mod options;
pub mod rpc;
mod start;
pub mod store;

/// The protocol: a `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

pub use clock::Clock;
pub use error::{NodeError, StartError};
pub use handle::{NodeHandle, Stopper};
pub use lifecycle::{instance, launcher};
pub use options::{CapturedRoom, NodeOptions};
pub use rpc::listen_addresses::{AddressSelector, Listen};
pub use rpc::{ConnectionLimits, authorization};
pub use start::{start, start_all};
