//! Leases: a primary that was cut off and replaced must not answer reads from its old state.
//!
//! A primary answers only while each of its backups has given it a lease that has not expired,
//! counted from the time of the request. A node that gave a lease promises no epoch of another
//! primary until it has expired, counted from the time of the grant. A margin covers clocks of
//! different speed (after Gray and Cheriton, "Leases", 1989).

use std::collections::BTreeMap;

use crate::replica::limits::LEASE_GIVEN;
use proto::{Incarnation, NodeId, Span, Time};

/// After its lease requests a primary may answer reads for this long.
const LEASE: Span = Span::from_millis(300);

/// The interval of a primary's requests.
const ASK_EVERY: Span = Span(LEASE.0 / 4);

#[derive(Debug)]
pub(crate) struct Leases {
    /// The time of the request that each peer has confirmed last.
    had: BTreeMap<NodeId, Time>,
    asked_at: Option<Time>,
    /// The leases given: to which incarnation, and until when.
    given: BTreeMap<NodeId, (Incarnation, Time)>,
    /// The end of leases that an earlier incarnation may have given.
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

    /// Whether the next request for leases is due, `ASK_EVERY` after the last. If so, notes the
    /// request.
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

    /// The time from which another primary may be promised an epoch. Only the leases of primaries
    /// that may still have one count.
    pub(crate) fn free_at(&self, counts: impl Fn(NodeId, Incarnation) -> bool) -> Time {
        let given =
            self.given.iter().filter(|&(&peer, &(incarnation, _))| counts(peer, incarnation));
        given.map(|(_, &(_, until))| until).max().unwrap_or(Time::ZERO).max(self.given_before)
    }
}
