/*!
The zero-hop store: the map of who holds which partition, the hash that finds a key's partition,
the operations on keys, and the atomic batches in which a node writes everything it must not lose.

A client hashes its key to a partition, looks the partition up in the map it already has, and
talks to the one node that owns it: no hop in between. One owner applies all operations of a
partition in one order, which makes each key linearizable. Every request carries the partition's
epoch, so that a client with an old map is told so instead of being served by the wrong node.

This room never knows what a task is, never does IO, reads no clock: the shell turns a [`Batch`]
into a durable write and hands the [`Record`]s back at the next start.

```
use std::sync::Arc;
use kvs::{Store, key_partition, make_map};
use proto::{NodeId, wire};

let map = Arc::new(make_map(0xc0ffee, 1, 8));
let mut store = Store::new(NodeId(0), map);
let partition = key_partition(b"city", 8);
let insert = wire::KvOp {
    kind: wire::KvKind::Insert as i32,
    key: "city".into(),
    value: "Chicago".into(),
    ..wire::KvOp::default()
};
let batch = wire::KvBatch { partition: partition.0, epoch: 1, ops: vec![insert], number: None };
let mut writes = Vec::new();
let results = store.apply(&batch, &mut writes)?;
assert_eq!(results[0].status(), wire::KvStatus::Ok);
assert_eq!(writes.len(), 1); // what has to be durable before the answer leaves
# Ok::<(), kvs::StoreError>(())
```
*/

mod batch;
pub mod group;
mod hash;
pub mod keys;
mod map;
pub mod membership;
pub mod replica;
mod store;

pub use batch::{Batch, Page, PageRequest, Record, Write};
pub use hash::{job_partition, key_partition};
pub use map::{
    MapError, check_map, default_partitions, home, make_map, make_replicated_map,
    partitions_by_node,
};
pub use store::{DamagedRecord, Store, StoreError};
