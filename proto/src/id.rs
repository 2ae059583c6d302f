//! The identifiers of all crates. A task's id contains its partition, so its home is found without
//! a look-up.

use std::fmt;

/// The bits of the index in a [`LocalId`]; the partition takes the 24 bits above.
pub const INDEX_BITS: u32 = 40;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($raw:ty), $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $raw);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    };
}

id!(
    /// One Starling process.
    NodeId(u32), "n"
);
id!(
    /// Increased durably each time a node starts. No live node has 0.
    Incarnation(u32), "i"
);
id!(
    /// One part of the key space; below [`crate::limits::PARTITIONS_MAX`].
    PartitionId(u32), "p"
);
id!(
    /// One submitted task graph; the client chooses the number.
    JobId(u64), "j"
);
id!(
    /// One client connected to one node; the shell chooses the number.
    ClientId(u64), "c"
);

impl Incarnation {
    /// The first start of a node.
    pub const FIRST: Self = Self(1);
}

/// A task within its job: 24 bits of partition, 40 bits of index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LocalId(pub u64);

impl LocalId {
    /// # Panics
    /// When `index` needs more than [`INDEX_BITS`] bits or the partition more than 24.
    #[must_use]
    pub fn new(partition: PartitionId, index: u64) -> Self {
        assert!(index <= INDEX_MASK, "index {index} exceeds {INDEX_BITS} bits");
        assert!(partition.0 < 1 << 24, "{partition} exceeds 24 bits");
        Self(u64::from(partition.0) << INDEX_BITS | index)
    }
    #[must_use]
    pub fn partition(self) -> PartitionId {
        PartitionId((self.0 >> INDEX_BITS) as u32)
    }
    #[must_use]
    pub fn index(self) -> u64 {
        self.0 & INDEX_MASK
    }
}

impl fmt::Debug for LocalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.partition().0, self.index())
    }
}
impl fmt::Display for LocalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
impl std::str::FromStr for LocalId {
    type Err = String;
    /// The inverse of `Display`: `partition.index`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a task id: expected PARTITION.INDEX");
        let (partition, index) = text.split_once('.').ok_or_else(wrong)?;
        let partition: u32 = partition.parse().map_err(|_| wrong())?;
        let index: u64 = index.parse().map_err(|_| wrong())?;
        if partition >= 1 << 24 || index > INDEX_MASK {
            return Err(wrong());
        }
        Ok(Self::new(PartitionId(partition), index))
    }
}

/// A task of any job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TaskId {
    pub job: JobId,
    pub local: LocalId,
}

impl TaskId {
    #[must_use]
    pub fn new(job: u64, local: u64) -> Self {
        Self { job: JobId(job), local: LocalId(local) }
    }
    #[must_use]
    pub fn partition(self) -> PartitionId {
        self.local.partition()
    }
}
impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job, self.local)
    }
}
impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One try at a task: the home's term above a counter. So no number is reused, even if the home's
/// last writes were lost or another node has become home. 0 means "none yet".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Attempt(pub u64);

impl Attempt {
    #[must_use]
    pub fn new(term: u32, number: u32) -> Self {
        Self(u64::from(term) << 32 | u64::from(number))
    }
    /// The epoch of the partition when its home took it over. In clusters without failover it is
    /// the home's incarnation.
    #[must_use]
    pub fn term(self) -> u32 {
        (self.0 >> 32) as u32
    }
    #[must_use]
    pub fn number(self) -> u32 {
        self.0 as u32
    }
}
impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term(), self.number())
    }
}
impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One output of one attempt. The attempt is part of the name, so a late writer can never overwrite
/// the output of the committed attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId {
    pub task: TaskId,
    pub attempt: Attempt,
    pub output: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_id_round_trips() {
        let id = LocalId::new(PartitionId(0xff_ffff), INDEX_MASK);
        assert_eq!((id.partition().0, id.index()), (0xff_ffff, INDEX_MASK));
        assert_eq!(id.to_string().parse::<LocalId>(), Ok(id));
        assert!("4".parse::<LocalId>().is_err());
        assert!("16777216.0".parse::<LocalId>().is_err());
    }

    #[test]
    fn attempts_of_a_later_term_are_larger() {
        let old = Attempt::new(1, u32::MAX);
        let new = Attempt::new(2, 0);
        assert!(new > old);
        assert_eq!((old.term(), old.number()), (1, u32::MAX));
    }
}
