//! The network between simulated nodes: it loses, repeats, delays, reorders, clogs and cuts.

use std::collections::BTreeMap;

use proto::{Span, Time};

use crate::rng::SimRng;

/// The properties of the network while faults are on.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    pub latency_min: Span,
    pub latency_max: Span,
    /// Per thousand packets.
    pub lost_permille: u64,
    pub repeated_permille: u64,
    /// The share of packets delayed by up to `late_max`, so that later packets overtake them.
    pub late_permille: u64,
    pub late_max: Span,
    /// With 0, bytes take no time.
    pub bytes_per_s: f64,
}

impl NetworkOptions {
    /// A network without faults: flat latency, bandwidth per transfer.
    #[must_use]
    pub fn flat(latency: Span, bytes_per_s: f64) -> Self {
        Self {
            latency_min: latency,
            latency_max: latency,
            lost_permille: 0,
            repeated_permille: 0,
            late_permille: 0,
            late_max: Span::ZERO,
            bytes_per_s,
        }
    }
}

/// The state of all directed pairs.
#[derive(Debug)]
pub(crate) struct Network {
    pub options: NetworkOptions,
    /// Directed pairs that lose all packets until this time (one-way cuts).
    cut: BTreeMap<(usize, usize), Time>,
    /// Directed pairs that hold all packets back until this time, in order.
    clogged: BTreeMap<(usize, usize), Time>,
    pub lost: u64,
    pub repeated: u64,
    pub late: u64,
    pub carried: u64,
}

impl Network {
    pub(crate) fn new(options: NetworkOptions) -> Self {
        Self {
            options,
            cut: BTreeMap::new(),
            clogged: BTreeMap::new(),
            lost: 0,
            repeated: 0,
            late: 0,
            carried: 0,
        }
    }

    /// The arrivals of a packet sent now: none, one or two.
    pub(crate) fn arrivals(
        &mut self,
        dice: &mut SimRng,
        now: Time,
        from: usize,
        to: usize,
    ) -> [Option<Time>; 2] {
        self.carried += 1;
        if self.is_cut(now, from, to) || dice.chance(self.options.lost_permille) {
            self.lost += 1;
            return [None, None];
        }
        let first = Some(self.arrival(dice, now, from, to));
        let second = dice.chance(self.options.repeated_permille).then(|| {
            self.repeated += 1;
            self.arrival(dice, now, from, to)
        });
        [first, second]
    }

    fn arrival(&mut self, dice: &mut SimRng, now: Time, from: usize, to: usize) -> Time {
        let mut at = now + dice.span(self.options.latency_min, self.options.latency_max);
        if dice.chance(self.options.late_permille) {
            self.late += 1;
            at = at + dice.span(Span::ZERO, self.options.late_max);
        }
        match self.clogged.get(&(from, to)) {
            Some(&until) if until > at => until + at.since(now),
            _ => at,
        }
    }

    /// The transfer time of `bytes` beyond the latency.
    pub(crate) fn transfer(&self, bytes: u64) -> Span {
        if self.options.bytes_per_s <= 0.0 {
            return Span::ZERO;
        }
        Span((bytes as f64 / self.options.bytes_per_s * 1e9) as u64)
    }

    pub(crate) fn is_cut(&self, now: Time, from: usize, to: usize) -> bool {
        self.cut.get(&(from, to)).is_some_and(|&until| until > now)
    }
    pub(crate) fn cut(&mut self, from: usize, to: usize, until: Time) {
        self.cut.insert((from, to), until);
    }
    pub(crate) fn clog(&mut self, from: usize, to: usize, until: Time) {
        self.clogged.insert((from, to), until);
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        self.cut.clear();
        self.clogged.clear();
        self.options.lost_permille = 0;
        self.options.repeated_permille = 0;
        self.options.late_permille = 0;
    }
}
