//! Interpretations of the paper's mean queue wait, used by [`super::PaperModel`].

/// The part of a queue that a task waits for, and the queue.
///
/// With k tasks per slot of mean length l, a task behind i tasks waits i·l. The paper uses the mean
/// over the queue, (k-1)·l/2, for every task. Its published figures do not follow from that. These
/// are the interpretations that the figures can distinguish.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Form {
    /// As printed: every task waits (k-1)·l/2.
    Printed,
    /// Every task waits for the whole queue: (k-1)·l.
    Full,
    /// The mean wait once on each path: only tasks without parents wait.
    Once,
    /// The whole queue once on each path.
    FullOnce,
    /// One queue per level: k is divided by the number of levels.
    Shared,
    FullShared,
    /// k is computed separately for each level: its tasks over the slots.
    Level,
    FullLevel,
}

impl Form {
    pub const ALL: [Self; 8] = [
        Self::Printed,
        Self::Full,
        Self::Once,
        Self::FullOnce,
        Self::Shared,
        Self::FullShared,
        Self::Level,
        Self::FullLevel,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Printed => "printed",
            Self::Full => "full",
            Self::Once => "once",
            Self::FullOnce => "full-once",
            Self::Shared => "shared",
            Self::FullShared => "full-shared",
            Self::Level => "level",
            Self::FullLevel => "full-level",
        }
    }

    /// The wait of a task as a formula.
    #[must_use]
    pub fn formula(self) -> &'static str {
        match self {
            Self::Printed => "(k-1)·l/2 at every task",
            Self::Full => "(k-1)·l at every task",
            Self::Once => "(k-1)·l/2 at roots only",
            Self::FullOnce => "(k-1)·l at roots only",
            Self::Shared => "(k/levels-1)·l/2 at every task",
            Self::FullShared => "(k/levels-1)·l at every task",
            Self::Level => "(k of the level-1)·l/2 at every task",
            Self::FullLevel => "(k of the level-1)·l at every task",
        }
    }

    /// The wait of a task on each level, in seconds. Never below zero: a queue shorter than one
    /// task causes no wait.
    pub(super) fn waits_s(self, level_tasks: &[u64], slots: u32, mean_s: f64) -> Vec<f64> {
        let slots = f64::from(slots);
        let tasks = level_tasks.iter().sum::<u64>() as f64;
        let levels = level_tasks.len() as f64;
        let before = |queued: f64| match self {
            Self::Printed | Self::Once | Self::Shared | Self::Level => (queued - 1.0) / 2.0,
            Self::Full | Self::FullOnce | Self::FullShared | Self::FullLevel => queued - 1.0,
        };
        let wait_s = |level: usize, of_level: u64| {
            let queued = match self {
                Self::Printed | Self::Full => tasks / slots,
                Self::Once | Self::FullOnce if level == 0 => tasks / slots,
                Self::Once | Self::FullOnce => 1.0,
                Self::Shared | Self::FullShared => tasks / slots / levels,
                Self::Level | Self::FullLevel => of_level as f64 / slots,
            };
            (before(queued) * mean_s).max(0.0)
        };
        level_tasks.iter().enumerate().map(|(level, of_level)| wait_s(level, *of_level)).collect()
    }
}

impl std::str::FromStr for Form {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|form| form.name() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|form| form.name()).collect();
            format!("'{text}' is no form of the paper's bound; known are {}", known.join(", "))
        })
    }
}
