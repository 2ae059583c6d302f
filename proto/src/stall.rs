//! What keeps a job from getting on.

/// Why a task blocks its job; what is nearer to a cause comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Stall {
    /// It has all it waits for, and was not placed.
    NotPlaced = 0,
    /// Its home believes that it is queued or runs here, and it does not.
    NotHere = 1,
    /// It is queued, slots are free, and it is not started.
    NotStarted = 2,
    /// It waits for an answer of its home before it starts.
    NotAllowed = 3,
    /// What it reads does not come.
    NotFetched = 4,
    /// Its holder does not answer.
    HolderSilent = 5,
    /// Its home does not answer.
    HomeSilent = 6,
    /// Its parent has ended, and it has not heard of that.
    NotTold = 7,
    /// It waits for a parent of another home.
    WaitsElsewhere = 8,
    /// All its tasks have ended, and the job has not.
    NotCounted = 9,
}

impl Stall {
    pub const ALL: [Self; 10] = [
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
    ];
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
    /// What is said of the task.
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
        }
    }
}
