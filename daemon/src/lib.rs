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
[`instance`] is its directory, [`launcher`] its place in a launch. `tls` authenticates callers,
and [`authorization`] limits their calls.

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

mod addresses;
mod assembly;
pub mod authorization;
mod background;
mod captured;
mod clock;
mod data;
mod error;
mod event_log_lines;
pub mod events;
mod group_commit;
mod handle;
mod inbox;
mod incarnations;
pub mod instance;
mod join;
mod kv_service;
pub mod launcher;
mod links;
mod listen_addresses;
mod listener;
mod log;
mod members;
mod membership_log;
mod open_files;
mod options;
mod output_removal;
mod peers;
mod rendezvous;
mod replies;
mod run_loop;
mod scrub;
mod service;
mod start;
mod stats;
mod step_batch;
pub mod store;
mod store_recovery;
mod store_replacement;
mod tls_context;
mod transfer;
mod unauthenticated;
mod upload;
mod upload_search;

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
pub use listen_addresses::{AddressSelector, Listen, host_name};
pub use options::{CapturedRoom, ConnectionLimits, NodeOptions};
pub use start::{start, start_all};
