//! Measurements: task durations per kind, with their spread, and transfer rates per source node
//! (section 2.2.3 of the paper assumes the latter).

use std::collections::BTreeMap;

use proto::{NodeId, Span, wire};

use super::duration_models::{Lengths, Moments};

/// Objects of at least this size measure the bandwidth of the sending node. `RATES_KEPT_MAX` bounds
/// the number of nodes with a remembered bandwidth.
const RATE_OBJECT_BYTES_MIN: u64 = 64 << 10;
const RATES_KEPT_MAX: usize = 4096;
/// The number of measured bandwidths, and of measured task kinds, in an answer about the node.
const ESTIMATES_REPORTED_MAX: usize = 64;

/// Durations of tasks: mean and spread (Welford), and a coarse histogram for heavy tails.
#[derive(Clone, Default, Debug)]
struct Seen {
    samples: u64,
    mean_ns: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
    /// Counts by the number of bits of the duration in nanoseconds, up to the longest one.
    octaves: Vec<u32>,
}

impl Seen {
    fn add(&mut self, length: Span) {
        self.samples += 1;
        let length_ns = length.0 as f64;
        let before = length_ns - self.mean_ns;
        self.mean_ns += before / self.samples as f64;
        self.squares += before * (length_ns - self.mean_ns);
        let bits = (64 - length.0.leading_zeros()) as usize;
        if self.octaves.len() <= bits {
            self.octaves.resize(bits + 1, 0);
        }
        self.octaves[bits] = self.octaves[bits].saturating_add(1);
    }
    fn moments(&self) -> Option<Moments> {
        let variance = self.squares / self.samples.max(1) as f64;
        let moments = Moments { mean_ns: self.mean_ns, deviation_ns: variance.sqrt() };
        (self.samples > 0).then_some(moments)
    }
    /// Mean, deviation, median and 95th percentile.
    fn spread(&self) -> Option<[Span; 4]> {
        let moments = self.moments()?;
        let deviation = Span(moments.deviation_ns as u64);
        Some([moments.mean(), deviation, self.quantile(0.5)?, self.quantile(HIGH)?])
    }
    /// The duration that this share of the tasks does not exceed, to within its octave.
    fn quantile(&self, share: f64) -> Option<Span> {
        let total: u64 = self.octaves.iter().map(|&count| u64::from(count)).sum();
        let wanted = share * total as f64;
        let mut before = 0.0;
        for (bits, &count) in self.octaves.iter().enumerate().filter(|(_, count)| **count > 0) {
            let until = before + f64::from(count);
            if until >= wanted {
                let low = if bits == 0 { 0.0 } else { 2_f64.powi(bits as i32 - 1) };
                let within = (wanted - before) / f64::from(count);
                return Some(Span((low + within * low).round() as u64));
            }
            before = until;
        }
        None
    }
}

/// Bytes per second of transfers; the recent ones count most.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    samples: u32,
    bytes_per_s: f64,
}

impl Rate {
    /// The weight of the newest transfer once there are several.
    const NEWEST: f64 = 0.125;
    /// With fewer transfers the rate counts as unknown.
    const SAMPLES_MIN: u32 = 4;

    fn add(&mut self, bytes_per_s: f64) {
        self.samples = self.samples.saturating_add(1);
        let weight = Self::NEWEST.max(1.0 / f64::from(self.samples));
        self.bytes_per_s += weight * (bytes_per_s - self.bytes_per_s);
    }
    fn known(self) -> Option<f64> {
        (self.samples >= Self::SAMPLES_MIN).then_some(self.bytes_per_s)
    }
}

/// The quantile above which a duration counts as long.
const HIGH: f64 = 0.95;
/// Kinds beyond this many share the mean over all tasks.
const KINDS_MAX: usize = 4096;
/// The assumption while nothing is known at all.
const LENGTH_UNKNOWN: Span = Span::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Estimates {
    /// By name. Most nodes know few kinds, and a tree would keep room for many.
    kinds: Vec<(Box<str>, Seen)>,
    all: Seen,
    rates: BTreeMap<NodeId, Rate>,
    rate: Rate,
    /// The mean input bytes of tasks with inputs that were placed or taken in here; the recent ones
    /// count most.
    input_bytes: f64,
    with_inputs: u32,
    /// The mean number of slots of a task.
    width: f64,
    widths: u32,
}

impl Estimates {
    /// The weight of the newest task's inputs once there are many.
    const NEWEST: f64 = 1.0 / 32.0;

    pub(crate) fn completed(&mut self, kind: &str, length: Span) {
        self.all.add(length);
        match self.place(kind) {
            Ok(at) => self.kinds[at].1.add(length),
            Err(at) if self.kinds.len() < KINDS_MAX => {
                if self.kinds.is_empty() {
                    self.kinds.reserve_exact(1);
                }
                self.kinds.insert(at, (kind.into(), Seen::default()));
                self.kinds[at].1.add(length);
            }
            Err(_) => {}
        }
    }
    /// The index of a kind, or the index where it belongs.
    fn place(&self, kind: &str) -> Result<usize, usize> {
        self.kinds.binary_search_by(|(name, _)| (**name).cmp(kind))
    }

    /// An object arrived from another node. Small objects measure delays, not bandwidth.
    pub(crate) fn transferred(&mut self, from: NodeId, bytes: u64, took: Span) {
        if bytes < RATE_OBJECT_BYTES_MIN || took == Span::ZERO {
            return;
        }
        let bytes_per_s = bytes as f64 / took.as_secs_f64();
        self.rate.add(bytes_per_s);
        if self.rates.len() < RATES_KEPT_MAX || self.rates.contains_key(&from) {
            self.rates.entry(from).or_default().add(bytes_per_s);
        }
    }

    /// The mean of the kind; before any task of it has ended, the declared duration; else the
    /// assumption for all; else the mean of all.
    #[must_use]
    pub(crate) fn length(&self, spec: &wire::Spec, declared: Span, assumed: Lengths) -> Span {
        let seen = self.place(&spec.kind).ok().and_then(|at| self.kinds[at].1.moments());
        if let Some(moments) = seen {
            return moments.mean();
        }
        if declared > Span::ZERO {
            return declared;
        }
        assumed.moments().map_or_else(|| self.moments(assumed).mean(), Moments::mean)
    }
    /// Over all tasks that ended here; before the first, by the assumption.
    fn moments(&self, assumed: Lengths) -> Moments {
        let unknown = Moments { mean_ns: LENGTH_UNKNOWN.0 as f64, deviation_ns: 0.0 };
        self.all.moments().or_else(|| assumed.moments()).unwrap_or(unknown)
    }
    #[must_use]
    pub(crate) fn mean_length(&self, assumed: Lengths) -> Span {
        self.moments(assumed).mean()
    }
    /// The mean remaining time of a running task. A few very long tasks are no evidence for those
    /// that run now: the result is at most the 95th percentile of all durations.
    #[must_use]
    pub(crate) fn rest(&self, assumed: Lengths) -> Span {
        let rest = self.moments(assumed).rest();
        self.all.quantile(HIGH).map_or(rest, |high| rest.min(high))
    }
    /// Mean, deviation, median and 95th percentile of the tasks that ended here.
    #[must_use]
    pub(crate) fn spread(&self) -> Option<[Span; 4]> {
        self.all.spread()
    }
    /// The same for one kind.
    #[must_use]
    pub(crate) fn spread_of(&self, kind: &str) -> Option<[Span; 4]> {
        self.place(kind).ok().and_then(|at| self.kinds[at].1.spread())
    }

    /// Adds the measurements to this node's state.
    pub(crate) fn fill_state(&self, state: &mut wire::NodeState) {
        state.bandwidth_bytes_per_s = self.rate.known().unwrap_or(0.0);
        let source = |(node, rate): (&NodeId, &Rate)| wire::SourceRate {
            node: node.0,
            objects: rate.samples,
            bytes_per_s: rate.bytes_per_s,
        };
        state.sources = self.rates.iter().map(source).collect();
        state.sources.sort_by_key(|source| std::cmp::Reverse(source.objects));
        state.sources.truncate(ESTIMATES_REPORTED_MAX);
        let length = |(kind, seen): &(Box<str>, Seen)| {
            let [mean, deviation, median, high] = seen.spread()?;
            Some(wire::KindLength {
                kind: kind.to_string(),
                tasks: seen.samples,
                mean_ns: mean.0,
                deviation_ns: deviation.0,
                median_ns: median.0,
                high_ns: high.0,
            })
        };
        state.kinds = self.kinds.iter().filter_map(length).collect();
        state.kinds.sort_by_key(|kind| std::cmp::Reverse(kind.tasks));
        state.kinds.truncate(ESTIMATES_REPORTED_MAX);
    }

    /// The rate from one node: measured there, else over all nodes, else assumed.
    #[must_use]
    pub(crate) fn bandwidth_from(&self, node: NodeId, assumed: f64) -> f64 {
        let of_node = self.rates.get(&node).copied().and_then(Rate::known);
        of_node.unwrap_or_else(|| self.bandwidth(assumed))
    }
    #[must_use]
    pub(crate) fn bandwidth(&self, assumed: f64) -> f64 {
        self.rate.known().unwrap_or(assumed)
    }

    /// A task was placed or taken in here.
    pub(crate) fn placed(&mut self, input_bytes: u64, cpus: u32) {
        self.widths = self.widths.saturating_add(1);
        let weight = Self::NEWEST.max(1.0 / f64::from(self.widths));
        self.width += weight * (f64::from(cpus) - self.width);
        if input_bytes > 0 {
            self.with_inputs = self.with_inputs.saturating_add(1);
            let weight = Self::NEWEST.max(1.0 / f64::from(self.with_inputs));
            self.input_bytes += weight * (input_bytes as f64 - self.input_bytes);
        }
    }
    /// The mean number of slots of the tasks that were placed or taken in here.
    #[must_use]
    pub(crate) fn width(&self) -> f64 {
        self.width.max(1.0)
    }
    /// The approximate input bytes of a task with inputs.
    #[must_use]
    pub(crate) fn input_bytes(&self) -> f64 {
        self.input_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_then_declaration_then_assumption_then_all() {
        let spec = |kind: &str| wire::Spec { kind: kind.into(), ..Default::default() };
        let mut estimates = Estimates::default();
        let none = Lengths::Measured;
        let law = Lengths::Gamma { shape: 2.0, mean: Span(40) };
        assert_eq!(estimates.length(&spec("a"), Span::ZERO, none), LENGTH_UNKNOWN);
        assert_eq!(estimates.length(&spec("a"), Span::ZERO, law), Span(40));
        assert_eq!((estimates.mean_length(law), estimates.rest(law)), (Span(40), Span(30)));
        estimates.completed("a", Span(10));
        estimates.completed("a", Span(20));
        for assumed in [none, law] {
            assert_eq!(estimates.length(&spec("a"), Span(99), assumed), Span(15), "measured");
            assert_eq!(estimates.length(&spec("b"), Span(99), assumed), Span(99), "declared");
            assert_eq!(estimates.mean_length(assumed), Span(15));
        }
        assert_eq!(estimates.length(&spec("b"), Span::ZERO, law), Span(40), "assumed");
        assert_eq!(estimates.length(&spec("b"), Span::ZERO, none), Span(15), "as the others");
    }

    #[test]
    fn lengths_have_spread_and_tail() {
        let mut estimates = Estimates::default();
        assert_eq!(estimates.spread(), None);
        for length_s in (0..90).map(|_| 1).chain((0..10).map(|_| 1_000)) {
            estimates.completed("a", Span::from_secs(length_s));
        }
        let [mean, deviation, median, high] = estimates.spread().unwrap();
        assert_eq!(mean.as_secs_f64().round(), 101.0);
        assert_eq!(deviation.as_secs_f64().round(), 300.0, "0.9 * 100^2 + 0.1 * 899^2");
        assert!((0.5..=2.0).contains(&median.as_secs_f64()), "{median:?}");
        assert!((500.0..=2_000.0).contains(&high.as_secs_f64()), "{high:?}");
    }

    #[test]
    fn a_few_endless_tasks_do_not_make_all_that_run_endless() {
        let mut estimates = Estimates::default();
        let second = Span::from_secs(1);
        (0..999).for_each(|_| estimates.completed("a", second));
        estimates.completed("a", Span::from_secs(100_000));
        assert!(estimates.rest(Lengths::Measured) <= Span::from_secs(2), "not over an hour");
        // If one task in ten is long, a running task is most often one of these.
        (0..110).for_each(|_| estimates.completed("a", Span::from_secs(100_000)));
        assert!(estimates.rest(Lengths::Measured) > Span::from_secs(10_000));
        assert!(estimates.rest(Lengths::Measured) > estimates.mean_length(Lengths::Measured));
    }

    #[test]
    fn measurements_are_reported_by_kind_and_by_source() {
        let mut estimates = Estimates::default();
        (0..3).for_each(|_| estimates.completed("short", Span::from_millis(10)));
        for length_s in (0..90).map(|_| 1).chain((0..10).map(|_| 1_000)) {
            estimates.completed("tailed", Span::from_secs(length_s));
        }
        for node in 0..2 * ESTIMATES_REPORTED_MAX as u32 {
            estimates.transferred(NodeId(node), 1_000_000, Span::from_secs(1));
            estimates.transferred(NodeId(7), 2_000_000, Span::from_secs(1));
        }
        let mut state = wire::NodeState::default();
        estimates.fill_state(&mut state);
        let kinds: Vec<_> = state.kinds.iter().map(|it| (it.kind.as_str(), it.tasks)).collect();
        assert_eq!(kinds, [("tailed", 100), ("short", 3)]);
        assert_eq!(state.kinds[1].mean_ns, Span::from_millis(10).0);
        assert!(state.kinds[0].high_ns > Span::from_secs(500).0, "its own tail");
        assert!(state.kinds[1].high_ns < Span::from_millis(20).0, "not that of the others");
        assert_eq!((state.sources.len(), state.sources[0].node), (ESTIMATES_REPORTED_MAX, 7));
        assert!((state.sources[0].bytes_per_s - 2e6).abs() < 1e3);
        assert!(state.bandwidth_bytes_per_s > 1e6 && state.bandwidth_bytes_per_s < 2e6);
    }

    #[test]
    fn bandwidth_is_assumed_then_measured_then_known_by_node() {
        let (near, far) = (NodeId(1), NodeId(2));
        let mut estimates = Estimates::default();
        let second = Span::from_secs(1);
        estimates.transferred(near, 10, second);
        assert_eq!(estimates.bandwidth_from(near, 7.0), 7.0, "small objects tell nothing");
        for _ in 0..Rate::SAMPLES_MIN {
            assert_eq!(estimates.bandwidth_from(near, 7.0), 7.0, "too few to know");
            estimates.transferred(near, 100_000_000, second);
        }
        assert_eq!(estimates.bandwidth_from(near, 7.0), 1e8);
        assert_eq!(estimates.bandwidth_from(far, 7.0), 1e8, "as the others");
        for _ in 0..100 {
            estimates.transferred(far, 10_000_000, second);
        }
        assert_eq!(estimates.bandwidth_from(near, 7.0), 1e8);
        assert!((estimates.bandwidth_from(far, 7.0) - 1e7).abs() < 1e3);
    }
}
