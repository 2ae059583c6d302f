//! Adaptive work stealing: how a node with a surplus of tasks announces it.

use proto::wire::message::Body;
use proto::{Span, Time, wire};
use rand_chacha::rand_core::Rng;

use crate::output::Out;
use crate::{Mutant, Scheduler};

/// A node with more shared tasks than slots sends hints to peers, with an interval that grows up to
/// the maximum.
const HINT_INTERVAL_START: Span = Span::from_millis(2);
const HINT_INTERVAL_MAX: Span = Span::from_secs(1);
const HINT_PEERS: usize = 2;

/// The time of the next hint.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    at: Option<Time>,
    interval: Span,
}

impl Hints {
    /// Stolen tasks have arrived: a surplus is announced without delay.
    pub(crate) fn at_once(&mut self, now: Time) {
        *self = Self { at: Some(now), interval: Span::ZERO };
    }
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.at
    }
}

impl Scheduler {
    /// Announces a surplus of shared tasks to random peers as long as it lasts.
    pub(crate) fn hint(&mut self, now: Time, out: &mut Out) {
        let stealable = self.stealable();
        let waiting = if self.shares_requests() { self.waiting_class() } else { None };
        let surplus = stealable > self.own_use();
        if !(surplus || waiting.is_some()) || self.routing.homes().living_others() == 0 {
            self.stealing.hints = Hints::default();
            return;
        }
        if self.options.mutant == Some(Mutant::StealingRetires) {
            return;
        }
        let due = *self.stealing.hints.at.get_or_insert(now + HINT_INTERVAL_START);
        if now < due {
            return;
        }
        if let Some((class, tasks)) = waiting {
            self.hint_class(class, tasks, out);
        }
        for _ in 0..if surplus { HINT_PEERS } else { 0 } {
            let peer = self.random_peer();
            let shared = u32::try_from(stealable).unwrap_or(u32::MAX);
            out.best_effort.push((peer, Body::StealHint(wire::StealHint { shared })));
        }
        let interval = self.stealing.hints.interval.doubled().max(HINT_INTERVAL_START);
        self.stealing.hints.interval = interval.min(HINT_INTERVAL_MAX);
        self.stealing.hints.at = Some(now + self.stealing.hints.interval);
    }

    /// Announces tasks of a class to random nodes that fit it.
    fn hint_class(&mut self, class: u64, tasks: usize, out: &mut Out) {
        let nodes = self.nodes_of_class(class);
        if nodes.is_empty() {
            return;
        }
        let shared = u32::try_from(tasks).unwrap_or(u32::MAX);
        for _ in 0..HINT_PEERS {
            let drawn = (self.stealing.rng.next_u64() % nodes.len() as u64) as usize;
            out.best_effort.push((nodes[drawn], Body::StealHint(wire::StealHint { shared })));
        }
    }
}
