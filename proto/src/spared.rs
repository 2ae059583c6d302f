//! Deaths that are not counted, in words.

/// Why the end of what ran a command, or had it, is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spared {
    /// It was held, and had not started as far as its home knows.
    Held,
    /// Too few of the other nodes lived through it, or its host started again, or it lives.
    Apart,
    /// It was the only node, and other tasks ran beside this one.
    Beside,
    /// It stopped in order.
    Stopped,
}

impl Spared {
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Held => "it had not started there as far as its home knows",
            Self::Apart => {
                "it is not shown to be the task's doing: its host was started again, or too few \
                 other nodes lived through it"
            }
            Self::Beside => {
                "others ran beside it on the only node: it counts once these have ended well"
            }
            Self::Stopped => "that node was stopped in order",
        }
    }
    pub(crate) fn of_number(number: u64) -> Option<Self> {
        let all = [Self::Held, Self::Apart, Self::Beside, Self::Stopped];
        all.get(usize::try_from(number).ok()?).copied()
    }
}
