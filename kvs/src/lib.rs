/*!
The key-value store and its replication. It contains the map of partitions to nodes, the hash that
finds a key's partition, and the operations on keys. It also contains the Raft group, the replicas,
and the atomic batches that a node makes durable.

A client hashes its key to a partition, looks up the primary in its map, and sends the request to
that primary directly. The primary applies all operations of a partition in one order, so each key
is linearizable. Every request carries the partition's epoch. A request made with an old map is
therefore refused and never served by the wrong node.

This crate knows no tasks, does no IO and reads no clock. The shell makes each [`Batch`] durable and
returns the [`Record`]s at the next start.

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
assert_eq!(writes.len(), 1); // must be durable before the answer is sent
# Ok::<(), kvs::StoreError>(())
```
*/

mod batch;
pub mod group;
mod hash;
pub mod keys;
mod limits;
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
