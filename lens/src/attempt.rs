//! An attempt that ran, in the precision of a run record.

use proto::LocalId;
use proto::event::End;

/// The slot of an attempt without a start in the log.
pub const SLOT_UNKNOWN: u32 = 1 << 20;

/// The end of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Outcome {
    #[default]
    Done = 0,
    Failed = 1,
    Cancelled = 2,
    /// The log has no end of it: it was stopped, or its node died.
    Stopped = 3,
}

impl Outcome {
    pub const ALL: [Self; 4] = [Self::Done, Self::Failed, Self::Cancelled, Self::Stopped];

    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Stopped => "stopped",
        }
    }
}

impl From<End> for Outcome {
    fn from(end: End) -> Self {
        match end {
            End::Done => Self::Done,
            End::Failed => Self::Failed,
            End::Cancelled | End::Skipped => Self::Cancelled,
        }
    }
}

/// One attempt, or a further part of a gang on another node. Times are in microseconds since the
/// origin of the record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AttemptRow {
    pub node: u32,
    pub slot: u32,
    /// The further slots of a wide task.
    pub more: Box<[u32]>,
    pub start_us: u64,
    pub ran_us: u64,
    /// From the entry into a ready queue of the node to the start; as [`coarse`].
    pub wait_us: u64,
    /// The part of the wait in which inputs were fetched; as [`coarse`].
    pub fetch_us: u64,
    pub task: LocalId,
    /// The number of the attempt: in a record among those of its task, from 1; before, as its home
    /// has given it, without the term.
    pub number: u32,
    /// The number of the kind, as in the list of kinds.
    pub kind: u32,
    pub outcome: Outcome,
    pub moved_bytes: u64,
    pub local_bytes: u64,
    /// The part of a gang that another node leads: it has slots, and is no attempt.
    pub is_part: bool,
}

impl AttemptRow {
    #[must_use]
    pub fn end_us(&self) -> u64 {
        self.start_us.saturating_add(self.ran_us)
    }
    /// The number of slots.
    #[must_use]
    pub fn width(&self) -> u32 {
        1 + self.more.len() as u32
    }
    /// The order in a record.
    #[must_use]
    pub fn key(&self) -> (u32, u64, u32, u64, u32) {
        (self.node, self.start_us, self.slot, self.task.0, self.number)
    }
}

/// Codes that keep a number to a part in `1 << BITS`, and numbers below `2 << BITS` exactly.
struct Codes<const BITS: u32>;

impl<const BITS: u32> Codes<BITS> {
    const STEPS: u64 = 1 << BITS;
    const EXACT: u64 = 2 << BITS;

    fn code(value: u64) -> u32 {
        if value < Self::EXACT {
            return value as u32;
        }
        let shift = value.ilog2() - BITS;
        let step = (value >> shift) & (Self::STEPS - 1);
        (Self::EXACT + u64::from(shift - 1) * Self::STEPS + step) as u32
    }

    /// The smallest number with this code; the largest number for a code that is too large.
    fn of_code(code: u32) -> u64 {
        let code = u64::from(code);
        let Some(above) = code.checked_sub(Self::EXACT) else { return code };
        let shift = 1 + above / Self::STEPS;
        let is_too_large = shift > u64::from(u64::BITS - 1 - BITS);
        if is_too_large { u64::MAX } else { (Self::STEPS + above % Self::STEPS) << shift }
    }
}

/// The code of a number that is kept to an eighth: one byte for values up to four hours.
#[must_use]
pub fn code(value: u64) -> u32 {
    Codes::<3>::code(value)
}

/// The smallest number with this code; the largest number for a code that is too large.
#[must_use]
pub fn of_code(code: u32) -> u64 {
    Codes::<3>::of_code(code)
}

/// The code of a number that is kept to a 64th and rounded up.
#[must_use]
pub fn fine_code(value: u64) -> u32 {
    let code = Codes::<6>::code(value);
    code + u32::from(of_fine_code(code) < value)
}

/// The largest number with this code.
#[must_use]
pub fn of_fine_code(code: u32) -> u64 {
    Codes::<6>::of_code(code)
}

/// Rounds down by at most an eighth.
#[must_use]
pub fn coarse(value: u64) -> u64 {
    of_code(code(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_code_keeps_a_number_to_an_eighth(value in any::<u64>(), bits in 0u32..64) {
            let value = value >> bits;
            let back = coarse(value);
            prop_assert!(back <= value && value - back <= value / 8, "{value} {back}");
            prop_assert_eq!(coarse(back), back);
            prop_assert!(code(value) <= code(value.saturating_add(1)));
        }
    }

    proptest! {
        #[test]
        fn a_fine_code_keeps_a_number_to_a_64th(value in any::<u64>(), bits in 0u32..64) {
            let value = value >> bits;
            let back = of_fine_code(fine_code(value));
            prop_assert!(back >= value && back - value <= value / 64, "{value} {back}");
            prop_assert_eq!(of_fine_code(fine_code(back)), back);
        }
    }

    #[test]
    fn a_code_is_one_byte_for_four_hours() {
        assert!(code(4 * 3_600_000_000) < 256);
        assert_eq!(of_code(u32::MAX), u64::MAX);
    }
}
