//! The causes that block a job.

/// The cause that makes a task block its job. Causes closer to the root come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Stall {
    /// It has everything that it waits for, and was not placed.
    NotPlaced = 0,
    /// Its home's record names this node as its holder, and this node does not hold it.
    NotHere = 1,
    /// It is queued, slots are free, and it does not start.
    NotStarted = 2,
    /// It waits for an answer of its home before it starts.
    NotAllowed = 3,
    /// An input cannot be fetched.
    NotFetched = 4,
    /// Its holder does not answer.
    HolderSilent = 5,
    /// Its home does not answer.
    HomeSilent = 6,
    /// Its parent has ended, but its credit is missing.
    NotTold = 7,
    /// It waits for a parent at another home.
    WaitsElsewhere = 8,
    /// All its tasks have ended, and the job has not.
    NotCounted = 9,
    /// It waits for an event that no task of the job can send at present.
    NoEvent = 10,
}

impl Stall {
    pub const ALL: [Self; 11] = [
        Self::NotPlaced,
        Self::NotHere,
        Self::NotStarted,
        Self::NotAllowed,
        Self::NotFetched,
        Self::HolderSilent,
        Self::HomeSilent,
        Self::NotTold,
        Self::WaitsElsewhere,
        Self::NotCounted,
        Self::NoEvent,
    ];
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
    /// The text for users.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::NotPlaced => "its parents have ended and it was not placed",
            Self::NotHere => "the record of its home names a node that does not hold it",
            Self::NotStarted => "it is queued while slots are free and was not started",
            Self::NotTold => "its parent has ended and it did not receive the end",
            Self::HolderSilent => "its holder does not answer",
            Self::HomeSilent => "its home does not answer",
            Self::NotAllowed => "its holder waits for the permission of its home to start it",
            Self::NotFetched => "an input cannot be fetched",
            Self::WaitsElsewhere => "it waits for a parent of another home",
            Self::NotCounted => "all tasks have ended and the job has not",
            Self::NoEvent => {
                "it waits for an event, and no task of the job runs that could send one"
            }
        }
    }
}
