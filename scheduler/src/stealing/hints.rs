//! Adaptive work stealing: how a node with a surplus of tasks announces it.

use proto::limits::{HINT_INTERVAL_MAX, HINT_INTERVAL_START, HINT_PEERS};
use proto::wire::message::Body;
use proto::{Span, Time, wire};

use crate::output::Out;
use crate::{Mutant, Scheduler};

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
        let surplus = stealable > self.own_use();
        if !surplus || self.homes.living_others() == 0 {
            self.hints = Hints::default();
            return;
        }
        if self.options.mutant == Some(Mutant::StealingRetires) {
            return;
        }
        let due = *self.hints.at.get_or_insert(now + HINT_INTERVAL_START);
        if now < due {
            return;
        }
        for _ in 0..HINT_PEERS {
            let peer = self.random_peer();
            let shared = u32::try_from(stealable).unwrap_or(u32::MAX);
            out.best_effort.push((peer, Body::StealHint(wire::StealHint { shared })));
        }
        let interval = self.hints.interval.doubled().max(HINT_INTERVAL_START);
        self.hints.interval = interval.min(HINT_INTERVAL_MAX);
        self.hints.at = Some(now + self.hints.interval);
    }
}
