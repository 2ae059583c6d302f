//! Leases: a primary that was cut off and replaced must not answer reads from what it knew.
//!
//! A primary answers only while each node that keeps copies for it gave it a lease that has not
//! run out, counted from the moment it asked. Who gave a lease promises no epoch of another
//! primary until it has run out, counted from the moment it gave it, with a margin for clocks that
//! do not run alike (after Gray and Cheriton, "Leases", 1989).

use std::collections::BTreeMap;

use proto::limits::{LEASE, LEASE_GIVEN};
use proto::{Incarnation, NodeId, Span, Time};

/// As a primary asks again.
const ASK_EVERY: Span = Span(LEASE.0 / 4);

#[derive(Debug)]
pub(crate) struct Leases {
    /// When what each peer has confirmed last was asked.
    had: BTreeMap<NodeId, Time>,
    asked_at: Option<Time>,
    /// What was given: to which incarnation, and when it runs out.
    given: BTreeMap<NodeId, (Incarnation, Time)>,
    /// An earlier incarnation may have given some.
    given_before: Time,
}

impl Leases {
    pub(crate) fn new(now: Time, forgets: bool) -> Self {
        Self {
            had: BTreeMap::new(),
            asked_at: None,
            given: BTreeMap::new(),
            given_before: if forgets { Time::ZERO } else { now + LEASE_GIVEN },
        }
    }

    pub(crate) fn confirmed(&mut self, peer: NodeId, asked_at: Time) {
        let had = self.had.entry(peer).or_insert(asked_at);
        *had = asked_at.max(*had);
    }

    /// Whether a read may be answered now.
    pub(crate) fn holds(&self, now: Time, backups: &[NodeId]) -> bool {
        backups.iter().all(|peer| self.had.get(peer).is_some_and(|&asked| now < asked + LEASE))
    }

    /// Whether it is time to ask, for answers that wait or will come.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let due = self.asked_at.is_none_or(|asked| asked + ASK_EVERY <= now);
        if due {
            self.asked_at = Some(now);
        }
        due
    }
    pub(crate) fn next_ask(&self) -> Time {
        self.asked_at.map_or(Time::ZERO, |asked| asked + ASK_EVERY)
    }

    pub(crate) fn give(&mut self, now: Time, peer: NodeId, incarnation: Incarnation) {
        self.given.insert(peer, (incarnation, now + LEASE_GIVEN));
    }

    /// From when on another primary may be promised an epoch; leases of those who may still have
    /// one count.
    pub(crate) fn free_at(&self, counts: impl Fn(NodeId, Incarnation) -> bool) -> Time {
        let given =
            self.given.iter().filter(|&(&peer, &(incarnation, _))| counts(peer, incarnation));
        given.map(|(_, &(_, until))| until).max().unwrap_or(Time::ZERO).max(self.given_before)
    }
}
