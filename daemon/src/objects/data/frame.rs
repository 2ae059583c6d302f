//! The byte format of a data connection. All integers are little-endian.
//!
//! ```text
//! requesting side                                  sending side
//! hello    magic version cluster from to        ─▶
//!                                               ◀─ welcome  magic code
//! request  job task attempt output ─▶           (any number, ahead of the answers)
//!                                               ◀─ head     status size
//!                                                  then the bytes of the object, their checksum
//!                                                  or a text
//! ```
//! All fields except object bytes and texts have a fixed size, and sizes are checked before memory
//! is allocated.

use proto::{ObjectId, limits, wire};

use super::{object_of, request_of};

const MAGIC: [u8; 4] = *b"SDT2";
pub(super) const HELLO_BYTES: usize = 24;
pub(super) const WELCOME_BYTES: usize = 8;
pub(super) const REQUEST_BYTES: usize = 28;
pub(super) const HEAD_BYTES: usize = 12;
pub(super) const CHECKSUM_BYTES: usize = 8;

/// The greeting: the cluster, the asking node, and the node that it asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) cluster: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// Reads fixed fields one after another.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk::<N>().expect("frames have a fixed size");
        self.0 = rest;
        *field
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

impl Hello {
    pub(super) fn to_bytes(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.version.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.cluster.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.from.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.to.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are no greeting.
    pub(super) fn from_bytes(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.take() == MAGIC).then(|| Self {
            version: fields.u32(),
            cluster: fields.u64(),
            from: fields.u32(),
            to: fields.u32(),
        })
    }
}

/// The answer to a greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Welcome {
    Come,
    OtherVersion,
    OtherNode,
    Busy,
}

impl Welcome {
    const ALL: [Self; 4] = [Self::Come, Self::OtherVersion, Self::OtherNode, Self::Busy];

    pub(super) fn to_bytes(self) -> [u8; WELCOME_BYTES] {
        let mut bytes = [0; WELCOME_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        let code = Self::ALL.iter().position(|it| *it == self).expect("all are listed");
        bytes[4] = code as u8;
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; WELCOME_BYTES]) -> Option<Self> {
        let mut fields = Fields(&bytes);
        if fields.take() != MAGIC {
            return None;
        }
        Self::ALL.get(fields.u32() as usize).copied()
    }
}

pub(super) fn request_to_bytes(object: ObjectId) -> [u8; REQUEST_BYTES] {
    let wire::ObjectRequest { job, task, attempt, output } = request_of(object);
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..8].copy_from_slice(&job.to_le_bytes());
    bytes[8..16].copy_from_slice(&task.to_le_bytes());
    bytes[16..24].copy_from_slice(&attempt.to_le_bytes());
    bytes[24..].copy_from_slice(&output.to_le_bytes());
    bytes
}

pub(super) fn request_from_bytes(bytes: &[u8; REQUEST_BYTES]) -> ObjectId {
    let mut fields = Fields(bytes);
    let (job, task, attempt) = (fields.u64(), fields.u64(), fields.u64());
    object_of(&wire::ObjectRequest { job, task, attempt, output: fields.u32() })
}

/// The beginning of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Head {
    /// This number of object bytes follows, and their checksum.
    Object(u64),
    /// As `Object`; the file of the object has the executable bit.
    Program(u64),
    /// This number of text bytes follows: the reason for the refusal.
    Refusal(u32),
    /// The object does not exist.
    Absent,
}

impl Head {
    pub(super) fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let (status, size): (u32, u64) = match self {
            Self::Object(size_bytes) => (0, size_bytes),
            Self::Refusal(text_bytes) => (1, text_bytes.into()),
            Self::Absent => (2, 0),
            Self::Program(size_bytes) => (3, size_bytes),
        };
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&status.to_le_bytes());
        bytes[4..].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are no beginning of an answer.
    pub(super) fn from_bytes(bytes: [u8; HEAD_BYTES]) -> Option<Self> {
        let mut fields = Fields(&bytes);
        match (fields.u32(), fields.u64()) {
            (0, size_bytes) => Some(Self::Object(size_bytes)),
            (1, text) if text <= limits::ERROR_BYTES_MAX as u64 => Some(Self::Refusal(text as u32)),
            (2, 0) => Some(Self::Absent),
            (3, size_bytes) => Some(Self::Program(size_bytes)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::{Attempt, TaskId};

    use super::*;

    #[test]
    fn frames_survive_and_garbage_does_not() {
        let hello = Hello { version: 1, cluster: 2, from: 3, to: 4 };
        let mut bytes = hello.to_bytes();
        assert_eq!(Hello::from_bytes(&bytes), Some(hello));
        bytes[0] ^= 1;
        assert_eq!(Hello::from_bytes(&bytes), None);
        for welcome in Welcome::ALL {
            assert_eq!(Welcome::from_bytes(welcome.to_bytes()), Some(welcome));
        }
        assert_eq!(Welcome::from_bytes([0; 8]), None);
        assert_eq!(Welcome::from_bytes(*b"SDT2\x04\0\0\0"), None);
        let task = TaskId::new(u64::MAX, 7);
        let object = ObjectId { task, attempt: Attempt(5 << 32), output: u32::MAX };
        assert_eq!(request_from_bytes(&request_to_bytes(object)), object);
        let (object, program) = (Head::Object(u64::MAX), Head::Program(7));
        let heads = [object, Head::Object(0), program, Head::Refusal(4096), Head::Absent];
        for head in heads {
            assert_eq!(Head::from_bytes(head.to_bytes()), Some(head));
        }
        assert_eq!(Head::from_bytes(Head::Refusal(4097).to_bytes()), None);
        assert_eq!(Head::from_bytes([0xff; 12]), None);
        assert_eq!(Head::from_bytes([2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
