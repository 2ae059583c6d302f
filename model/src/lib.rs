//! Models of Starling's critical protocols, small enough for an exhaustive search of all event
//! orders.
//!
//! No part of Starling depends on this crate. `tests/partition` models the failover of a partition.
//! `tests/attempt` models the attempts at a task, of which only one may count. Both are independent
//! implementations of the rules without time, bytes and batches. `docs/design/019-model.md` maps
//! them to the code.
