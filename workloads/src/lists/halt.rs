//! `--halt soon,fail=1`: the early end of a run over a list.

use std::str::FromStr;

/// With fewer counted entries no share is reached, as for GNU parallel.
const SHARE_COUNTED_MIN: u64 = 3;

/// The treatment of running entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HaltKind {
    /// No further entry starts.
    Soon,
    /// Running entries are ended as well.
    Now,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counted {
    Fail,
    Success,
    Done,
}

/// The condition of an early end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Halt {
    pub kind: HaltKind,
    counted: Counted,
    number: u64,
    is_share: bool,
}

/// The ended entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub done: u64,
    pub failed: u64,
}

impl Halt {
    /// True if the run ends here.
    #[must_use]
    pub fn is_reached(&self, tally: Tally) -> bool {
        let ended = tally.done + tally.failed;
        let counted = match self.counted {
            Counted::Fail => tally.failed,
            Counted::Success => tally.done,
            Counted::Done => ended,
        };
        match self.is_share {
            false => counted >= self.number,
            true => {
                let share =
                    u128::from(counted) * 100 >= u128::from(self.number) * u128::from(ended);
                counted >= SHARE_COUNTED_MIN && share
            }
        }
    }

    /// True if the end is the wanted one: enough entries have succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.counted == Counted::Success
    }
}

/// A condition, or none: `never`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HaltRule(pub Option<Halt>);

impl HaltRule {
    /// More than this many failed entries end the run, and the running ones.
    #[must_use]
    pub fn max_fails(most: u64) -> Self {
        let number = most.saturating_add(1);
        Self(Some(Halt { kind: HaltKind::Now, counted: Counted::Fail, number, is_share: false }))
    }
}

impl FromStr for HaltRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self(None));
        }
        let wrong = || {
            format!(
                "'{text}' is no condition such as soon,fail=1 or now,fail=30% or soon,success=1"
            )
        };
        let (kind, condition) = text.split_once(',').ok_or_else(wrong)?;
        let kind = match kind {
            "soon" => HaltKind::Soon,
            "now" => HaltKind::Now,
            _ => return Err(wrong()),
        };
        let (counted, number) = condition.split_once('=').ok_or_else(wrong)?;
        let counted = match counted {
            "fail" => Counted::Fail,
            "success" => Counted::Success,
            "done" => Counted::Done,
            _ => return Err(wrong()),
        };
        let share = number.strip_suffix('%');
        let number: u64 = share.unwrap_or(number).parse().map_err(|_| wrong())?;
        if number == 0 || share.is_some() && number > 100 {
            return Err(wrong());
        }
        Ok(Self(Some(Halt { kind, counted, number, is_share: share.is_some() })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_reached() {
        let reached = |text: &str, done, failed| {
            text.parse::<HaltRule>().unwrap().0.unwrap().is_reached(Tally { done, failed })
        };
        assert_eq!("never".parse(), Ok(HaltRule(None)));
        assert!(reached("soon,fail=1", 0, 1) && !reached("soon,fail=1", 9, 0));
        assert!(reached("now,success=2", 2, 9) && !reached("now,success=2", 1, 9));
        assert!(reached("now,done=3", 2, 1) && !reached("now,done=3", 2, 0));
        assert!(!reached("soon,fail=30%", 0, 2), "too few");
        assert!(!reached("soon,fail=30%", 1, 2), "three have ended, and two failed");
        assert!(reached("soon,fail=30%", 0, 3));
        assert!(reached("soon,fail=30%", 7, 3) && !reached("soon,fail=30%", 8, 3));
        assert_eq!("now,fail=3".parse(), Ok(HaltRule::max_fails(2)));
        assert!("now,success=1".parse::<HaltRule>().unwrap().0.unwrap().is_success());
        for wrong in
            ["", "soon", "soon,fail", "later,fail=1", "now,fail=0", "now,fail=101%", "now,x=1"]
        {
            assert!(wrong.parse::<HaltRule>().is_err(), "{wrong}");
        }
    }
}
