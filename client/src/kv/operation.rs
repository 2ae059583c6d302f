//! Operations on keys, and their results.

use bytes::Bytes;
use proto::{limits, wire};

use crate::ClientError;

/// The value of a key. Versions grow with every change of the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// The bytes of the value.
    pub bytes: Bytes,
    /// The version of the key.
    pub version: u64,
}

/// The result of a compare-and-swap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cas {
    /// The key has the new value.
    Swapped {
        /// The new version of the key.
        version: u64,
    },
    /// The key had another value; nothing changed.
    Conflict {
        /// The value that it has; `None`: it is absent.
        present: Option<Value>,
    },
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum KvKind {
    /// Sets the key.
    Insert,
    /// Returns the value.
    Lookup,
    /// Removes the key.
    Remove,
    /// Appends to the value; an absent one is empty.
    Append,
    /// Sets the key if its value is the expected one.
    Cas,
}

/// One operation of [`crate::Kv::batch`] or [`crate::Kv::each`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KvOp {
    /// The kind of the operation.
    pub kind: KvKind,
    /// 1 byte to 64 KiB.
    pub key: Bytes,
    /// At most 8 MiB; not used by a lookup or a removal.
    pub value: Bytes,
    /// Of a swap: the expected value; `None`: the key is absent.
    pub expected: Option<Bytes>,
}

/// What an operation found or did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KvStatus {
    /// It took effect, or found the key.
    #[default]
    Ok,
    /// There was no such key.
    Absent,
    /// A swap found another value.
    Conflict,
    /// Nothing was done, because another operation of the batch was not possible.
    Aborted,
}

/// The result of one operation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KvResult {
    /// Whether it took effect.
    pub status: KvStatus,
    /// Of a lookup, and of a swap with a conflict: the present value.
    pub value: Bytes,
    /// The version of the key; 0 if it is absent.
    pub version: u64,
}

/// The number of a batch, under which it may be repeated and happens once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvNumber {
    /// A random number of the writer.
    pub client: u64,
    /// Grows with each batch of the writer.
    pub sequence: u64,
    /// 0 at first, otherwise from [`ClientError::Forgotten`].
    pub ticket: u64,
}

impl KvOp {
    /// An operation without an expected value.
    #[must_use]
    pub fn new(kind: KvKind, key: &[u8], value: &[u8]) -> Self {
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        Self { kind, key, value, expected: None }
    }

    /// Sets a key.
    #[must_use]
    pub fn insert(key: &[u8], value: &[u8]) -> Self {
        Self::new(KvKind::Insert, key, value)
    }
    /// Returns the value of a key.
    #[must_use]
    pub fn lookup(key: &[u8]) -> Self {
        Self::new(KvKind::Lookup, key, b"")
    }
    /// Removes a key.
    #[must_use]
    pub fn remove(key: &[u8]) -> Self {
        Self::new(KvKind::Remove, key, b"")
    }
    /// Appends to the value of a key; an absent one is empty.
    #[must_use]
    pub fn append(key: &[u8], value: &[u8]) -> Self {
        Self::new(KvKind::Append, key, value)
    }
    /// `expected`: `None` means that the key is absent.
    #[must_use]
    pub fn cas(key: &[u8], expected: Option<&[u8]>, value: &[u8]) -> Self {
        let expected = expected.map(Bytes::copy_from_slice);
        Self { expected, ..Self::new(KvKind::Cas, key, value) }
    }

    /// Checks the sizes of the key and the value, as [`crate::Kv`] does before it sends them.
    ///
    /// # Errors
    /// [`ClientError::Refused`] names the violated limit.
    pub fn check(&self) -> Result<(), ClientError> {
        check_sizes(&self.key, &self.value)
    }
}

pub(super) fn check_sizes(key: &[u8], value: &[u8]) -> Result<(), ClientError> {
    let refuse = |text: String| Err(ClientError::Refused(text));
    let (key, value) = (key.len(), value.len());
    if key == 0 {
        return refuse("the key is empty".to_owned());
    }
    if key > limits::KEY_BYTES_MAX {
        return refuse(format!("a key of {key} bytes; {} may be", limits::KEY_BYTES_MAX));
    }
    if value > limits::VALUE_BYTES_MAX {
        return refuse(format!("a value of {value} bytes; {} may be", limits::VALUE_BYTES_MAX));
    }
    Ok(())
}

/// The value that an operation has found.
pub(super) fn present(result: KvResult) -> Option<Value> {
    (result.status == KvStatus::Ok)
        .then_some(Value { bytes: result.value, version: result.version })
}

impl KvOp {
    pub(crate) fn into_record(self) -> wire::KvOp {
        let kind = match self.kind {
            KvKind::Insert => wire::KvKind::Insert,
            KvKind::Lookup => wire::KvKind::Lookup,
            KvKind::Remove => wire::KvKind::Remove,
            KvKind::Append => wire::KvKind::Append,
            KvKind::Cas => wire::KvKind::Cas,
        };
        wire::KvOp {
            kind: kind.into(),
            key: self.key,
            value: self.value,
            expect_absent: self.kind == KvKind::Cas && self.expected.is_none(),
            expected: self.expected.unwrap_or_default(),
        }
    }
}

impl KvResult {
    pub(crate) fn of_record(result: wire::KvResult) -> Self {
        let status = match result.status() {
            wire::KvStatus::Ok => KvStatus::Ok,
            wire::KvStatus::Absent => KvStatus::Absent,
            wire::KvStatus::Conflict => KvStatus::Conflict,
            wire::KvStatus::Aborted => KvStatus::Aborted,
        };
        Self { status, value: result.value, version: result.version }
    }

    pub(crate) fn into_record(self) -> wire::KvResult {
        let status = match self.status {
            KvStatus::Ok => wire::KvStatus::Ok,
            KvStatus::Absent => wire::KvStatus::Absent,
            KvStatus::Conflict => wire::KvStatus::Conflict,
            KvStatus::Aborted => wire::KvStatus::Aborted,
        };
        wire::KvResult { status: status.into(), value: self.value, version: self.version }
    }
}

impl KvNumber {
    pub(crate) fn to_record(self) -> wire::KvNumber {
        wire::KvNumber { client: self.client, sequence: self.sequence, ticket: self.ticket }
    }
}
