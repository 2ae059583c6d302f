//! The key-value store: its operations, and the requests that carry them.

mod numbered;
mod operation;
mod request_groups;
mod store;

pub use operation::{Cas, KvKind, KvNumber, KvOp, KvResult, KvStatus, Value};
pub use store::{KeyWatch, Kv};
