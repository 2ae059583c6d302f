//! Classes: all requests with the same bytes.

use xxhash_rust::xxh3::xxh3_64;

/// The number of a class, which is the same on all nodes: xxh3 of the canonical bytes of its
/// requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClassId(pub u64);

/// The class of a request by its canonical bytes.
#[must_use]
pub fn class_of_bytes(bytes: &[u8]) -> ClassId {
    ClassId(xxh3_64(bytes))
}
