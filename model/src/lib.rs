//! Models of what must never go wrong, small enough to try everything that can happen.
//!
//! Nothing here is part of Starling: `tests/partition` has the rules by which a partition changes
//! hands, `tests/attempt` those by which one try at a task counts and no other. They are written a
//! second time, without time, bytes and batches, and every order of every event is tried.
//! `docs/design/019-model.md` says what stands for what.
