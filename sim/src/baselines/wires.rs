//! The transfers of objects in a run of a global scheduler.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::routes::{Routed, Routes};
use crate::MaxMin;

/// The network. Machine `w` is worker `w`; the one after the last worker is the origin.
#[derive(Clone, PartialEq, Debug)]
pub enum Wiring {
    /// Each transfer takes its latency and bytes / bandwidth, without contention.
    Flat { latency_ns: u64, bytes_per_s: f64 },
    /// The same, but all transfers of a machine share its full-duplex card, max-min fair.
    MaxMin { latency_ns: u64, bytes_per_s: f64 },
    /// As flat, with latency (ns) and bandwidth (bytes/s) of each pair: `[from][to]`.
    Matrix { latency_ns: Vec<Vec<u64>>, bytes_per_s: Vec<Vec<f64>> },
    /// Links that several pairs share, max-min fair.
    Routed(Routes),
}

impl Wiring {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Flat { .. } => "flat",
            Self::MaxMin { .. } => "maxmin",
            Self::Matrix { .. } => "matrix",
            Self::Routed(_) => "routed",
        }
    }

    /// The time of these bytes without other traffic, in ns.
    #[must_use]
    pub fn alone_ns(&self, from: usize, to: usize, bytes: f64) -> f64 {
        if from == to {
            return 0.0;
        }
        let (latency_ns, bytes_per_s) = self.between(from, to);
        latency_ns as f64 + wire_ns(bytes, bytes_per_s)
    }

    /// The mean over all pairs of the first `machines` machines, in ns.
    #[must_use]
    pub fn mean_ns(&self, machines: usize, bytes: f64) -> f64 {
        if machines < 2 {
            return 0.0;
        }
        match self {
            Self::Flat { .. } | Self::MaxMin { .. } => self.alone_ns(0, 1, bytes),
            Self::Matrix { .. } | Self::Routed(_) => {
                let pairs = (0..machines).flat_map(|from| (0..machines).map(move |to| (from, to)));
                let sum: f64 = pairs.map(|(from, to)| self.alone_ns(from, to, bytes)).sum();
                sum / (machines * (machines - 1)) as f64
            }
        }
    }

    fn between(&self, from: usize, to: usize) -> (u64, f64) {
        match self {
            Self::Flat { latency_ns, bytes_per_s } | Self::MaxMin { latency_ns, bytes_per_s } => {
                (*latency_ns, *bytes_per_s)
            }
            Self::Matrix { latency_ns, bytes_per_s } => {
                (latency_ns[from][to], bytes_per_s[from][to])
            }
            Self::Routed(routes) => routes.alone(from, to),
        }
    }
}

fn wire_ns(bytes: f64, bytes_per_s: f64) -> f64 {
    if bytes_per_s > 0.0 { bytes * 1e9 / bytes_per_s } else { 0.0 }
}

/// An object in transfer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Transfer {
    pub object: u32,
    pub from: u32,
    pub to: u32,
}

/// Current transfers.
#[derive(Debug)]
pub(super) struct Wires {
    wiring: Wiring,
    sequence: u64,
    /// Transfers with an end that is known beforehand.
    alone: BinaryHeap<Reverse<(u64, u64, Transfer)>>,
    /// Transfers still in their latency, with their bytes.
    coming: BinaryHeap<Reverse<(u64, u64, Transfer, u64)>>,
    cards: Option<MaxMin<Transfer>>,
    routed: Option<Routed<Transfer>>,
}

impl Wires {
    pub(super) fn new(wiring: &Wiring, machines: usize) -> Self {
        let cards = match wiring {
            Wiring::MaxMin { bytes_per_s, .. } => Some(MaxMin::new(machines, *bytes_per_s)),
            _ => None,
        };
        let routed = match wiring {
            Wiring::Routed(routes) => Some(Routed::new(routes.clone())),
            _ => None,
        };
        let wiring = wiring.clone();
        let (alone, coming) = (BinaryHeap::new(), BinaryHeap::new());
        Self { wiring, sequence: 0, alone, coming, cards, routed }
    }

    pub(super) fn start(&mut self, now_ns: u64, transfer: Transfer, bytes: u64) {
        self.sequence += 1;
        let (from, to) = (transfer.from as usize, transfer.to as usize);
        let (latency_ns, bytes_per_s) = self.wiring.between(from, to);
        match self.wiring {
            Wiring::Flat { .. } | Wiring::Matrix { .. } => {
                let wire_ns = wire_ns(bytes as f64, bytes_per_s).round() as u64;
                let at_ns = now_ns.saturating_add(latency_ns).saturating_add(wire_ns);
                self.alone.push(Reverse((at_ns, self.sequence, transfer)));
            }
            Wiring::MaxMin { .. } | Wiring::Routed(_) => {
                let at_ns = now_ns.saturating_add(latency_ns);
                self.coming.push(Reverse((at_ns, self.sequence, transfer, bytes)));
                self.begin(now_ns);
            }
        }
    }

    /// Starts the transfers that have passed their latency on shared links.
    fn begin(&mut self, now_ns: u64) {
        while let Some(&Reverse((at_ns, _, transfer, bytes))) = self.coming.peek() {
            if at_ns > now_ns {
                break;
            }
            self.coming.pop();
            let (from, to) = (transfer.from as usize, transfer.to as usize);
            if let Some(cards) = &mut self.cards {
                cards.start(at_ns, from, to, bytes, transfer);
            } else if let Some(routed) = &mut self.routed {
                routed.start(at_ns, from, to, bytes, transfer);
            }
        }
    }

    /// The time of the next event.
    pub(super) fn next_ns(&mut self) -> Option<u64> {
        let alone = self.alone.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let coming = self.coming.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let cards = self.cards.as_mut().and_then(MaxMin::next_end_ns);
        let routed = self.routed.as_ref().and_then(Routed::next_end_ns);
        [alone, coming, cards, routed].into_iter().flatten().min()
    }

    /// Removes one transfer that has ended by now.
    pub(super) fn take_ended(&mut self, now_ns: u64) -> Option<Transfer> {
        if let Some(&Reverse((at_ns, _, transfer))) = self.alone.peek()
            && at_ns <= now_ns
        {
            self.alone.pop();
            return Some(transfer);
        }
        self.begin(now_ns);
        if let Some(cards) = &mut self.cards {
            return cards.take_ended(now_ns);
        }
        self.routed.as_mut().and_then(|routed| routed.take_ended(now_ns))
    }
}
