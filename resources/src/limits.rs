//! The limits of offers and requests. Each is checked before memory is taken.

/// Pools of a node with an amount.
pub const POOLS_MAX: usize = 16;
/// Groups of a pool. Machines with accelerators have more than 30 NUMA nodes.
pub const GROUPS_MAX: usize = 64;
/// Indices of a pool other than cpus, over all groups.
pub const INDICES_MAX: usize = 4096;
/// Cpus of a node with an offer. The number of an index has 16 bits.
pub const CPUS_MAX: usize = u16::MAX as usize;
/// Bytes of the name of one index. The names of GPU partitions have about 60.
pub const INDEX_BYTES_MAX: usize = 128;
/// Labels of a node, and labels of a variant.
pub const LABELS_MAX: usize = 64;
/// Bytes of the name of a pool or of a label.
pub const NAME_BYTES_MAX: usize = 64;
/// Couplings of a node.
pub const COUPLINGS_MAX: usize = 1024;
/// Variants of a request.
pub const VARIANTS_MAX: usize = 8;
/// Weight of a variant.
pub const VARIANT_WEIGHT_MAX: u16 = 10_000;
/// Sets of groups of one pool that are compared; with eight groups this is every set of a size.
pub const GROUP_SETS_MAX: usize = 256;
/// Combinations of such sets over coupled pools that are compared.
pub const COMBINATIONS_MAX: usize = 4096;
/// Bytes of an encoded request.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Bytes of an encoded offer.
pub const OFFER_BYTES_MAX: usize = 1 << 20;
