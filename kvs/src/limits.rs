//! The bounds of this crate.

/// The maximum number of voters.
pub(crate) const VOTERS_MAX: usize = 5;
/// The maximum number of commands in one plan, and of learners in the whole cluster.
pub(crate) const PLAN_COMMANDS_MAX: usize = 256;
pub(crate) const PLAN_LEARNERS_MAX: usize = 256;
/// The number and bytes of changes that a replica keeps in memory for replicas that lag.
pub(crate) const COPY_RECENT_CHANGES: usize = 256;
pub(crate) const COPY_RECENT_BYTES: usize = 1 << 20;
/// The share of the memory for keys and values that batch numbers may take. Above it answers are
/// not kept, and a partition remembers fewer clients by the factor `KV_NUMBERED_SCARCE`.
pub(crate) const KV_NUMBERS_SHARE: u64 = 8;
pub(crate) const KV_NUMBERED_SCARCE: usize = 8;
/// The memory for keys, values and their overhead on one node.
pub(crate) const KV_NODE_BYTES_MAX: u64 = 8 << 30;
