//! Requests of tasks, and their matching with the resources of nodes.

/// The number of requests that a node keeps prepared. Beyond it, those without queued tasks are
/// prepared again when they are needed.
pub const CLASSES_KNOWN_MAX: usize = 512;
/// The number of tasks in line for a slot that are compared with the free resources.
pub const LINE_SCAN_MAX: usize = 256;
/// The number of tasks in line that wait for more free slots. Further tasks stay in their queue.
pub const LINE_BLOCKED_MAX: usize = 4;
/// The number of tasks per slot that may start before a reserved one and take the resources that it
/// lacks.
pub const PASSES_PER_SLOT: u32 = 2;
/// The number of offers that a refusal lists.
pub const OFFERS_SHOWN_MAX: usize = 4;
/// The number of tasks of one queue that are looked at for the demand of a node.
pub const DEMAND_SAMPLES_MAX: usize = 256;
/// The number of classes in the demand of a node.
pub const DEMAND_CLASSES_MAX: usize = 64;
