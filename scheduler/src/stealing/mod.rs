//! Work stealing: the thief, the victim, and the hints that wake thieves.

pub(crate) mod hints;
pub(crate) mod share;
pub(crate) mod thief;
pub(crate) mod victim;

use std::collections::BTreeMap;

use proto::{NodeId, Span, Time};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::scheduler::Options;
use crate::stealing::hints::Hints;
use crate::stealing::thief::{Move, Thief};
use crate::stealing::victim::UnackedGrant;

/// The state of both sides of steals.
#[derive(Debug)]
pub(crate) struct Stealing {
    thief: Thief,
    hints: Hints,
    unacked_grants: BTreeMap<(NodeId, u64), UnackedGrant>,
    /// The last answered steal of each thief: a repeated request gets no second grant.
    granted: BTreeMap<NodeId, u64>,
    /// The number of unanswered reports about each steal, by victim and number; and the reports.
    pending_moves: BTreeMap<(NodeId, u64), usize>,
    moves: BTreeMap<u64, Move>,
    /// Boxed: only thieves draw random numbers.
    rng: Box<ChaCha8Rng>,
}

impl Stealing {
    pub(crate) fn new(options: &Options) -> Self {
        let seed = options.seed ^ u64::from(options.incarnation.0) << 32 ^ u64::from(options.me.0);
        Self {
            thief: Thief::new(options.tuning.steal_interval_start),
            hints: Hints::default(),
            unacked_grants: BTreeMap::new(),
            granted: BTreeMap::new(),
            pending_moves: BTreeMap::new(),
            moves: BTreeMap::new(),
            rng: Box::new(ChaCha8Rng::seed_from_u64(seed)),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.thief.deadline().into_iter().chain(self.hints.deadline()).min()
    }

    /// Whether no steal waits for an answer.
    pub(crate) fn is_settled(&self) -> bool {
        self.unacked_grants.is_empty() && self.pending_moves.is_empty()
    }

    /// A peer has restarted or is gone: it repeats no request and answers none.
    pub(crate) fn forget_peer(&mut self, peer: NodeId, now: Time) {
        self.granted.remove(&peer);
        self.thief.forget_peer(peer, now);
    }

    /// More nodes than before may take the tasks here.
    pub(crate) fn announce(&mut self, now: Time) {
        self.hints.at_once(now);
    }
    /// See [`Thief::rest`].
    pub(crate) fn rest(&mut self) {
        self.thief.rest();
    }
    /// See [`Thief::rearm`].
    pub(crate) fn rearm(&mut self, retry_at: Time) {
        self.thief.rearm(retry_at);
    }
    /// See [`Thief::restart`].
    pub(crate) fn restart(&mut self, interval: Span) {
        self.thief.restart(interval);
    }
}
