//! The times of packets and objects between simulated nodes.

use proto::{Span, Time};

use crate::maxmin::{MaxMin, Racks};

/// Smaller packets and objects take their time of an idle card and slow nothing else down.
const FLOW_BYTES_MIN: u64 = 64 << 10;

/// The model of the network between nodes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum NetworkModel {
    /// Each transfer takes the latency, plus its bytes over the bandwidth. Transfers do not slow
    /// each other down.
    Flat { latency: Span, bytes_per_s: f64 },
    /// Each node has a full-duplex card of this bandwidth. Transfers share it, max-min fair.
    /// Between the cards there is no bottleneck.
    MaxMin { latency: Span, bytes_per_s: f64 },
    /// Like [`Self::MaxMin`], but transfers between racks also share the racks' links up and down.
    Tree { latency: Span, bytes_per_s: f64, racks: Racks },
}

impl NetworkModel {
    /// The paper's testbed: 1 Gbit/s full duplex a node. The latency of 100 us is our assumption.
    pub const KODIAK: Self = Self::MaxMin { latency: Span::from_micros(100), bytes_per_s: 125e6 };

    #[must_use]
    pub fn latency(&self) -> Span {
        let (Self::Flat { latency, .. }
        | Self::MaxMin { latency, .. }
        | Self::Tree { latency, .. }) = *self;
        latency
    }
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        let (Self::Flat { bytes_per_s, .. }
        | Self::MaxMin { bytes_per_s, .. }
        | Self::Tree { bytes_per_s, .. }) = *self;
        bytes_per_s
    }
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Flat { .. } => "flat",
            Self::MaxMin { .. } => "maxmin",
            Self::Tree { .. } => "tree",
        }
    }
}

/// The network of a run. `T` identifies a transfer.
#[derive(Debug)]
pub(super) struct Transport<T> {
    model: NetworkModel,
    shared: Option<MaxMin<T>>,
}

impl<T> Transport<T> {
    pub(super) fn new(model: NetworkModel, nodes: u32) -> Self {
        let limited = model.bytes_per_s().is_finite();
        let shared = match model {
            NetworkModel::MaxMin { bytes_per_s, .. } if limited => {
                Some(MaxMin::new(nodes as usize, bytes_per_s))
            }
            NetworkModel::Tree { bytes_per_s, racks, .. } if limited => {
                Some(MaxMin::tree(nodes as usize, bytes_per_s, racks))
            }
            _ => None,
        };
        Self { model, shared }
    }

    pub(super) fn latency(&self) -> Span {
        self.model.latency()
    }

    /// True if a transfer of this size shares a card with others.
    pub(super) fn is_shared(&self, bytes: u64) -> bool {
        self.shared.is_some() && bytes >= FLOW_BYTES_MIN
    }

    /// The time of the bytes without other traffic.
    pub(super) fn alone(&self, bytes: u64) -> Span {
        Span((bytes as f64 / self.model.bytes_per_s() * 1e9) as u64)
    }

    pub(super) fn start(&mut self, now: Time, from: usize, to: usize, bytes: u64, what: T) {
        let shared = self.shared.as_mut().expect("only asked for where cards are shared");
        shared.start(now.0, from, to, bytes, what);
    }

    pub(super) fn start_from_outside(&mut self, now: Time, to: usize, bytes: u64, what: T) {
        let shared = self.shared.as_mut().expect("only asked for where cards are shared");
        shared.start_from_outside(now.0, to, bytes, what);
    }

    pub(super) fn next_end(&mut self) -> Option<Time> {
        self.shared.as_mut()?.next_end_ns().map(Time)
    }

    pub(super) fn take_ended(&mut self, now: Time) -> Option<T> {
        self.shared.as_mut()?.take_ended(now.0)
    }
}
