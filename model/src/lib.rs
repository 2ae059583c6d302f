//! Models of Starling's critical protocols, small enough for an exhaustive search of all event
//! orders.
//!
//! No part of Starling depends on this crate. `tests/partition` models the failover of a partition.
//! `tests/attempt` models the attempts at a task, of which only one may count. `tests/turns` models
//! the turns of a task that makes tasks, and `tests/weight` the end of a job with such tasks. All
//! are independent implementations of the rules without time and bytes. `docs/design/019-model.md`
//! maps the first two to the code; `docs/design/032-turns.md` describes the others.
