//! Work stealing: the thief, the victim, and the hints that wake thieves.

pub(crate) mod hints;
pub(crate) mod share;
pub(crate) mod thief;
pub(crate) mod victim;

use std::collections::BTreeMap;

use proto::NodeId;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::scheduler::Options;
use crate::stealing::hints::Hints;
use crate::stealing::thief::{Move, Thief};
use crate::stealing::victim::UnackedGrant;

/// The state of both sides of steals.
#[derive(Debug)]
pub(crate) struct Stealing {
    pub(crate) thief: Thief,
    pub(crate) hints: Hints,
    pub(crate) unacked_grants: BTreeMap<(NodeId, u64), UnackedGrant>,
    /// The last answered steal of each thief: a repeated request gets no second grant.
    pub(crate) granted: BTreeMap<NodeId, u64>,
    /// The number of unanswered reports about each steal, by victim and number; and the reports.
    pub(crate) pending_moves: BTreeMap<(NodeId, u64), usize>,
    pub(crate) moves: BTreeMap<u64, Move>,
    /// Boxed: only thieves draw random numbers.
    pub(crate) rng: Box<ChaCha8Rng>,
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
}
