//! The encodings of the values of calls, as workers know them (`docs/worker-protocol.md`).

/// Bytes as they are.
pub const RAW: u8 = 0;
/// A Python pickle.
pub const PICKLE: u8 = 1;
/// A pickle with its buffers beside it.
pub const PICKLE_WITH_BUFFERS: u8 = 2;
pub const JSON: u8 = 3;
/// An Arrow IPC stream.
pub const ARROW: u8 = 4;
/// Text in UTF-8, such as the `module:name` of a function.
pub const TEXT: u8 = 5;
