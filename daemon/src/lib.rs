/*!
The tokio shell of one node: streams to peers and clients, the log on disk, the clock, timers, the
executor, the event log, and the instance directory by which the nodes of a cluster find each other.

The shell decides nothing; [`node::Node`] does. The shell turns sockets and timers into
[`node::Input`]s, and carries [`node::Effect`]s out in their order: a batch is in the log before any
message that depends on it is sent. One loop owns a node, on a thread with a current-thread runtime,
so the core needs no locks. Several nodes in one process run the same code several times.

The files in reading order: [`start()`] opens a node's directories and ports. `life` assembles its
parts, and `run_loop` drives it. `links` and `service` are its streams. `rendezvous` waits for the
other nodes. `transfer` and `data` fetch objects. [`events`] and [`store`] are its files,
[`instance`] is its directory, [`launcher`] its place in a launch. `doors` authenticates callers,
and [`rules`] limits their calls.

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

mod accept;
mod addresses;
mod background;
mod captured;
mod clock;
mod data;
mod doors;
mod erase;
mod error;
pub mod events;
mod handle;
mod hunt;
mod inbox;
pub mod instance;
mod join;
mod kv_service;
pub mod launcher;
mod life;
mod links;
mod listen;
mod log;
mod map_news;
mod members;
mod notable;
mod open_files;
mod options;
mod parts;
mod peers;
mod portion;
mod refill;
mod rendezvous;
mod renew;
mod replies;
pub mod rules;
mod run_loop;
mod scrub;
mod service;
mod start;
mod stats;
pub mod store;
mod strangers;
mod sync;
mod transfer;
mod upload;

/// The protocol: a `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The stubs of the service `Peer`; the messages are [`proto::wire`]'s.
pub mod rpc {
    #![expect(
        clippy::allow_attributes,
        clippy::too_many_lines,
        unused_qualifications,
        reason = "generated code"
    )]
    include!(concat!(env!("OUT_DIR"), "/starling.v1.rs"));
}

pub use clock::Clock;
pub use error::{NodeError, StartError};
pub use handle::{NodeHandle, Stopper};
pub use listen::{Listen, Which, host_name};
pub use options::{CapturedRoom, NodeOptions, Places};
pub use start::{start, start_all};
