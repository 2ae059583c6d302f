/*!
The words of Starling: ids, time, tasks, messages, events and every bound.

This room holds what all others agree on. The messages come from `proto/starling.proto`, generated
by prost into [`wire`]; ids are newtypes in [`id`]; [`event`] is the compact event log's record.

It never does IO, reads no clock, and holds no behaviour but encoding.

```
use proto::{LocalId, PartitionId};
let task = LocalId::new(PartitionId(7), 42);
assert_eq!(task.partition(), PartitionId(7)); // the home is found with no look-up
```
*/

pub mod busy;
pub mod entry;
pub mod event;
pub mod id;
pub mod limits;
pub mod marks;
mod past;
pub mod policy;
pub mod spared;
mod stall;
pub mod tally;
pub mod time;
pub mod work;

/// Messages as they travel and as they are stored.
pub mod wire {
    include!(concat!(env!("OUT_DIR"), "/starling.v1.rs"));
}

pub use event::Event;
pub use id::{
    Attempt, ClientId, Incarnation, JobId, LocalId, NodeId, ObjectId, PartitionId, TaskId,
};
pub use policy::Policy;
pub use time::{Span, Time};
