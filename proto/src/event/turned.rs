//! The verdict of a turn in the event log.

/// The verdict of a turn; the numbers are those of [`crate::wire::TurnVerdict`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Turned {
    /// The task is done; its last turn may have spawned tasks.
    Done = 0,
    /// The attempt is over, and the task waits for others.
    Wait = 1,
    /// The attempt goes on.
    More = 2,
    /// The attempt is over, and the task waits for a slot.
    Yield = 3,
}

impl Turned {
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        [Self::Done, Self::Wait, Self::More, Self::Yield].get(number as usize).copied()
    }
}
