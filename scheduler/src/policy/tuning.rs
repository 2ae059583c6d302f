//! The settings that may be changed on a running node: policy, stealing, order of the queues, byte
//! budgets.

use std::str::FromStr;

use proto::limits::{
    STEAL_INTERVAL_BOUND, STEAL_INTERVAL_START, STORE_HARD_PERCENT, STORE_SOFT_PERCENT,
};
use proto::{Span, wire};

use super::{Lengths, Rules};
use crate::Policy;
use crate::policy::limits::TUNED_SPAN_MAX;

/// The largest number of neighbours that a user may set.
const STEAL_NEIGHBOURS_SET_MAX: u32 = 4096;
/// The default maximum wait of a dedicated task in FLDS (`tt`).
const WAIT_MAX_DEFAULT: Span = Span::from_secs(10);
/// The default size of the cache for copies of objects from other nodes.
const CACHE_BYTES_DEFAULT: u64 = 6 << 30;
/// The default size of events and records of ended jobs on a node.
const HISTORY_BYTES_DEFAULT: u64 = 2 << 30;

/// The order of the tasks in a ready queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The task with the most input bytes is first, as in the paper.
    Bytes,
    /// The task with the longest path to an end of its graph (b-level) is first.
    Urgency,
    /// Tasks with a path that may decide when the job ends go first, by length; then others by
    /// bytes.
    Critical,
}

impl Order {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Urgency => "urgency",
            Self::Critical => "critical",
        }
    }
}

impl FromStr for Order {
    type Err = TuningError;
    fn from_str(name: &str) -> Result<Self, TuningError> {
        match name {
            "bytes" => Ok(Self::Bytes),
            "urgency" => Ok(Self::Urgency),
            "critical" => Ok(Self::Critical),
            _ => Err(TuningError::Order { name: name.to_owned() }),
        }
    }
}

/// How a node decides, steals and keeps objects. Each node has its own settings, which may change
/// at any time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tuning {
    pub policy: Policy,
    /// `t` of Algorithm 1, for policies that do not fix it.
    pub threshold: f64,
    /// `tt`: the longest wait of a dedicated task under FLDS. This is its start; FLDS changes its
    /// own.
    pub wait_max: Span,
    /// The assumed bandwidth between any two nodes until transfers are measured, in bytes per
    /// second.
    pub bandwidth_bytes_per_s: f64,
    /// The assumed durations of tasks that declare none, until their kind is measured.
    pub lengths: Lengths,
    pub steal_interval_start: Span,
    pub steal_interval_bound: Span,
    /// The share of a victim's shared queue that one steal may take.
    pub steal_share: f64,
    /// The number of nodes that a thief probes; 0: the square root of all, up to a limit.
    pub steal_neighbours: u32,
    pub order: Order,
    /// The budget for copies of objects made on other nodes.
    pub cache_bytes: u64,
    /// The soft limit for all objects: above it copies are evicted, and tasks wait while others
    /// run.
    pub store_soft_bytes: u64,
    /// The hard limit for all objects: nothing is stored above it.
    pub store_hard_bytes: u64,
    /// The budget for events and records of ended jobs: above it the oldest are removed.
    pub history_bytes: u64,
    /// The age above which history is removed; [`UNLIMITED_AGE`]: no age.
    pub history_age: Span,
    /// The node starts no task and steals none; a restart ends that.
    pub paused: bool,
}

/// An age that nothing reaches.
pub const UNLIMITED_AGE: Span = Span(u64::MAX);
/// A byte budget that bounds nothing.
pub const UNLIMITED_BYTES: u64 = u64::MAX;

/// The soft limit when only the hard one is given.
fn soft_below(hard_bytes: u64) -> u64 {
    if hard_bytes == UNLIMITED_BYTES {
        return UNLIMITED_BYTES;
    }
    let share = u128::from(hard_bytes) * u128::from(STORE_SOFT_PERCENT);
    u64::try_from(share / u128::from(STORE_HARD_PERCENT)).expect("less than what it is a share of")
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            policy: Policy::Eft,
            threshold: 0.5,
            wait_max: WAIT_MAX_DEFAULT,
            bandwidth_bytes_per_s: 125e6,
            lengths: Lengths::Measured,
            steal_interval_start: STEAL_INTERVAL_START,
            steal_interval_bound: STEAL_INTERVAL_BOUND,
            steal_share: 0.5,
            steal_neighbours: 0,
            order: Rules::of(Policy::Eft).order,
            cache_bytes: CACHE_BYTES_DEFAULT,
            store_soft_bytes: UNLIMITED_BYTES,
            store_hard_bytes: UNLIMITED_BYTES,
            history_bytes: HISTORY_BYTES_DEFAULT,
            history_age: UNLIMITED_AGE,
            paused: false,
        }
    }
}

/// All policy names, as part of a sentence.
fn policy_names() -> String {
    let [first @ .., last] = Policy::ALL.map(Policy::name);
    format!("{} or {last}", first.join(", "))
}

/// An impossible setting.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum TuningError {
    #[error("there is no policy '{name}': choose {}", policy_names())]
    Policy { name: String },
    #[error("there is no order '{name}' of ready queues: choose critical, bytes or urgency")]
    Order { name: String },
    #[error("a threshold of {given} is not possible: give a number of at least 0")]
    Threshold { given: f64 },
    #[error("a longest wait of {given:?} is not possible: give more than 0 and at most {max:?}")]
    WaitMax { given: Span, max: Span },
    #[error("a bandwidth of {given} bytes/s is not possible: give a finite number above 0")]
    Bandwidth { given: f64 },
    #[error("lengths of {given} are not possible: {why}")]
    Lengths { given: Lengths, why: &'static str },
    #[error(
        "a stealing interval from {start:?} to {bound:?} is not possible: it starts above 0, not \
         above its bound, which is at most {max:?}"
    )]
    Interval { start: Span, bound: Span, max: Span },
    #[error("a share of {given} to steal is not possible: give a number above 0, at most 1")]
    Share { given: f64 },
    #[error("{given} neighbours to ask is too many: give at most {max}, or 0 for the square root")]
    Neighbours { given: u32, max: u32 },
    #[error("a soft mark of {soft} bytes above the hard one of {hard} is not possible: lower it")]
    Store { soft: u64, hard: u64 },
}

impl Tuning {
    /// The default settings with this policy.
    #[must_use]
    pub fn of(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Whether every task may be stolen, whatever it reads.
    #[must_use]
    pub fn shares_every_task(&self) -> bool {
        Rules::of(self.policy).threshold.is_some_and(f64::is_infinite)
    }

    /// Refuses impossible values.
    ///
    /// # Errors
    /// Names the first such value, and the possible ones.
    pub fn check(&self) -> Result<(), TuningError> {
        let max = TUNED_SPAN_MAX;
        // Infinity is a threshold: everything is small.
        if self.threshold.is_nan() || self.threshold < 0.0 {
            return Err(TuningError::Threshold { given: self.threshold });
        }
        if self.wait_max == Span::ZERO || self.wait_max > max {
            return Err(TuningError::WaitMax { given: self.wait_max, max });
        }
        let given = self.bandwidth_bytes_per_s;
        if !(given.is_finite() && given > 0.0) {
            return Err(TuningError::Bandwidth { given });
        }
        self.lengths.check()?;
        let (start, bound) = (self.steal_interval_start, self.steal_interval_bound);
        if start == Span::ZERO || start > bound || bound > max {
            return Err(TuningError::Interval { start, bound, max });
        }
        if !(self.steal_share > 0.0 && self.steal_share <= 1.0) {
            return Err(TuningError::Share { given: self.steal_share });
        }
        if self.steal_neighbours > STEAL_NEIGHBOURS_SET_MAX {
            let given = self.steal_neighbours;
            return Err(TuningError::Neighbours { given, max: STEAL_NEIGHBOURS_SET_MAX });
        }
        let (soft, hard) = (self.store_soft_bytes, self.store_hard_bytes);
        // A soft limit that was not given follows from the hard one.
        if soft > hard && soft != UNLIMITED_BYTES {
            return Err(TuningError::Store { soft, hard });
        }
        Ok(())
    }

    /// These settings with the given fields changed.
    ///
    /// # Errors
    /// As [`Self::check`]; then nothing is changed.
    pub fn with(mut self, change: &wire::Tuning) -> Result<Self, TuningError> {
        fn set<T: Copy>(field: &mut T, change: Option<T>) {
            *field = change.unwrap_or(*field);
        }
        if let Some(name) = &change.policy {
            let known = Policy::named(name);
            self.policy = known.ok_or_else(|| TuningError::Policy { name: name.clone() })?;
            // The policy determines the order, unless another one is named.
            self.order = Rules::of(self.policy).order;
        }
        if let Some(name) = &change.order {
            self.order = name.parse()?;
        }
        set(&mut self.threshold, change.threshold);
        set(&mut self.wait_max, change.wait_max_ns.map(Span));
        set(&mut self.bandwidth_bytes_per_s, change.bandwidth_bytes_per_s);
        set(&mut self.lengths, change.lengths.as_ref().map(Lengths::from_wire));
        set(&mut self.steal_interval_start, change.steal_interval_ns.map(Span));
        set(&mut self.steal_interval_bound, change.steal_bound_ns.map(Span));
        set(&mut self.steal_share, change.steal_share);
        set(&mut self.steal_neighbours, change.steal_neighbours);
        set(&mut self.cache_bytes, change.cache_bytes);
        set(&mut self.store_soft_bytes, change.store_soft_bytes);
        set(&mut self.store_hard_bytes, change.store_hard_bytes);
        set(&mut self.history_bytes, change.history_bytes);
        set(&mut self.history_age, change.history_age_ns.map(Span));
        set(&mut self.paused, change.paused);
        if let (Some(hard), None) = (change.store_hard_bytes, change.store_soft_bytes) {
            self.store_soft_bytes = self.store_soft_bytes.min(soft_below(hard));
        }
        self.check()?;
        Ok(self)
    }

    /// All fields in wire form.
    #[must_use]
    pub fn to_wire(&self) -> wire::Tuning {
        wire::Tuning {
            policy: Some(self.policy.name().to_owned()),
            threshold: Some(self.threshold),
            wait_max_ns: Some(self.wait_max.0),
            bandwidth_bytes_per_s: Some(self.bandwidth_bytes_per_s),
            lengths: Some(self.lengths.to_wire()),
            steal_interval_ns: Some(self.steal_interval_start.0),
            steal_bound_ns: Some(self.steal_interval_bound.0),
            steal_share: Some(self.steal_share),
            steal_neighbours: Some(self.steal_neighbours),
            order: Some(self.order.name().to_owned()),
            cache_bytes: Some(self.cache_bytes),
            store_soft_bytes: Some(self.store_soft_bytes),
            store_hard_bytes: Some(self.store_hard_bytes),
            history_bytes: Some(self.history_bytes),
            history_age_ns: Some(self.history_age.0),
            paused: Some(self.paused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_travels_comes_back() {
        let tuning = Tuning {
            policy: Policy::Flds,
            threshold: f64::INFINITY,
            wait_max: Span::from_secs(7),
            lengths: Lengths::Gamma { shape: 0.5, mean: Span::from_secs(3) },
            order: Order::Urgency,
            steal_share: 0.25,
            steal_neighbours: 9,
            cache_bytes: 1,
            store_soft_bytes: 2,
            store_hard_bytes: 3,
            history_bytes: 4,
            history_age: Span::from_secs(5),
            paused: true,
            ..Tuning::default()
        };
        assert_eq!(Tuning::default().with(&tuning.to_wire()), Ok(tuning));
        assert_eq!(tuning.with(&wire::Tuning::default()), Ok(tuning), "absent: as it was");
        assert_eq!(tuning.with(&Tuning::default().to_wire()), Ok(Tuning::default()));
    }

    #[test]
    fn a_hard_mark_alone_takes_the_soft_one_along() {
        let store_hard_bytes = Some(950);
        let change = wire::Tuning { store_hard_bytes, ..wire::Tuning::default() };
        let marks = |soft: u64| {
            let before = Tuning { store_soft_bytes: soft, ..Tuning::default() };
            before.with(&change).unwrap().store_soft_bytes
        };
        assert_eq!([marks(2_000), marks(UNLIMITED_BYTES), marks(500)], [900, 900, 500]);
    }

    #[test]
    fn impossible_values_are_refused_by_name() {
        let refused = |change: wire::Tuning| Tuning::default().with(&change).unwrap_err();
        let none = wire::Tuning::default;
        let text = |change: wire::Tuning| refused(change).to_string();
        let policy = Some("best".to_owned());
        assert!(
            text(wire::Tuning { policy, ..none() })
                .contains("no policy 'best': choose mlb, mdl, rlds, ")
        );
        let order = Some("size".to_owned());
        assert!(text(wire::Tuning { order, ..none() }).contains("no order 'size'"));
        assert!(text(wire::Tuning { threshold: Some(-1.0), ..none() }).contains("threshold"));
        assert!(text(wire::Tuning { threshold: Some(f64::NAN), ..none() }).contains("threshold"));
        assert!(text(wire::Tuning { wait_max_ns: Some(0), ..none() }).contains("wait"));
        let bandwidth_bytes_per_s = Some(0.0);
        assert!(text(wire::Tuning { bandwidth_bytes_per_s, ..none() }).contains("bandwidth"));
        let lengths = Lengths::Uniform { low: Span(2), high: Span(1) };
        let lengths = Some(lengths.to_wire());
        assert!(text(wire::Tuning { lengths, ..none() }).contains("lengths of uniform(2ns,1ns)"));
        assert!(text(wire::Tuning { steal_bound_ns: Some(1), ..none() }).contains("interval"));
        assert!(text(wire::Tuning { steal_share: Some(1.5), ..none() }).contains("share"));
        let steal_neighbours = Some(u32::MAX);
        assert!(text(wire::Tuning { steal_neighbours, ..none() }).contains("neighbours"));
        let (store_soft_bytes, store_hard_bytes) = (Some(6), Some(5));
        let marks = wire::Tuning { store_soft_bytes, store_hard_bytes, ..none() };
        assert!(text(marks).contains("soft mark"));
    }
}
