//! The leader of one gang, without IO: it reserves nodes, locks them when all are held, and lets
//! the gang start when all have joined.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::holder::limits::GANG_RENEW;
use proto::{Attempt, Incarnation, NodeId, Time};

use crate::holder::gangs::line::{Answer, Stamp};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Grip {
    Asked,
    Held,
    Locked,
    Joined,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Phase {
    Gathering,
    Locking,
    Joining,
    /// All have joined: the attempt starts, or runs.
    Whole,
}

/// What a leader asks of the node of a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Ask {
    Reserve,
    Lock(u32),
    Unlock,
    Join,
    Release,
}

/// What becomes of the gang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Waits,
    Starts,
    /// A part refused the start: the attempt ends, and its home begins the next one.
    Fails,
}

pub(crate) type Asks = Vec<(NodeId, Ask)>;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lead {
    pub(crate) attempt: Attempt,
    pub(crate) stamp: Stamp,
    pub(crate) size: usize,
    leader: NodeId,
    members: BTreeMap<NodeId, (Incarnation, Grip)>,
    pub(crate) phase: Phase,
    round: u32,
    renew_at: Time,
    /// Of a mutant.
    pub(crate) starts_without_lock: bool,
}

impl Lead {
    pub(crate) fn new(leader: NodeId, attempt: Attempt, stamp: Stamp, size: usize) -> Self {
        Self {
            leader,
            attempt,
            stamp,
            size,
            members: BTreeMap::new(),
            phase: Phase::Gathering,
            round: 0,
            renew_at: Time::ZERO,
            starts_without_lock: false,
        }
    }
    pub(crate) fn members(&self) -> impl Iterator<Item = (NodeId, Incarnation, Grip)> + '_ {
        self.members.iter().map(|(&node, &(incarnation, grip))| (node, incarnation, grip))
    }
    /// The nodes of the gang, that of the leader first.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        let others = self.members.keys().copied().filter(|&node| node != self.leader);
        std::iter::once(self.leader).chain(others).collect()
    }
    pub(crate) fn deadline(&self) -> Option<Time> {
        (self.phase == Phase::Gathering).then_some(self.renew_at)
    }
    /// Whether nodes have been asked to start.
    pub(crate) fn has_joined(&self) -> bool {
        matches!(self.phase, Phase::Joining | Phase::Whole)
    }
    fn all(&self, grip: Grip) -> bool {
        self.members.len() == self.size && self.members.values().all(|&(_, it)| it == grip)
    }

    /// Nodes are chosen, and replaced while nothing has joined. Without enough nodes none is kept.
    /// `fits`: nodes that may have a part, the preferred first.
    pub(crate) fn choose(&mut self, now: Time, fits: &[(NodeId, Incarnation)], asks: &mut Asks) {
        if !matches!(self.phase, Phase::Gathering | Phase::Locking) {
            return;
        }
        let enough = fits.len() >= self.size;
        let lost = self.members.extract_if(.., |node, (incarnation, _)| {
            !enough || !fits.contains(&(*node, *incarnation))
        });
        let lost: Vec<NodeId> = lost.map(|(node, _)| node).collect();
        if !lost.is_empty() {
            asks.extend(lost.into_iter().map(|node| (node, Ask::Release)));
            self.gather(asks);
        }
        if self.phase == Phase::Gathering && self.renew_at <= now {
            asks.extend(self.members.keys().map(|&node| (node, Ask::Reserve)));
        }
        for &(node, incarnation) in fits.iter().filter(|_| enough) {
            if self.members.len() >= self.size {
                break;
            }
            if let Entry::Vacant(entry) = self.members.entry(node) {
                entry.insert((incarnation, Grip::Asked));
                asks.push((node, Ask::Reserve));
            }
        }
        if self.renew_at <= now {
            self.renew_at = now + GANG_RENEW;
        }
    }

    /// Ends a round of locks: what is locked is held again. A lock may still be underway to a node
    /// that has revoked its hold and holds again by then, so that all are told.
    fn gather(&mut self, asks: &mut Asks) {
        if self.phase != Phase::Locking {
            return;
        }
        self.phase = Phase::Gathering;
        for (&node, (_, grip)) in &mut self.members {
            if *grip != Grip::Asked {
                *grip = Grip::Held;
            }
            asks.push((node, Ask::Unlock));
        }
    }

    pub(crate) fn on_answer(
        &mut self,
        (from, incarnation): (NodeId, Incarnation),
        answer: Answer,
        asks: &mut Asks,
    ) -> Verdict {
        let Some((known, grip)) = self.members.get_mut(&from) else { return Verdict::Waits };
        if *known != incarnation {
            return Verdict::Waits;
        }
        match (self.phase, answer) {
            (Phase::Gathering | Phase::Locking, Answer::Held) if *grip == Grip::Asked => {
                *grip = Grip::Held;
            }
            (Phase::Gathering, Answer::Revoked) => *grip = Grip::Asked,
            (Phase::Locking, Answer::Revoked) => {
                *grip = Grip::Asked;
                self.gather(asks);
            }
            (Phase::Locking, Answer::Refused(round)) if round == self.round => {
                *grip = Grip::Asked;
                self.gather(asks);
            }
            (Phase::Locking, Answer::Locked(round)) if round == self.round => {
                *grip = Grip::Locked;
            }
            (Phase::Joining, Answer::Joined) => *grip = Grip::Joined,
            (Phase::Joining, Answer::Refused(0) | Answer::Revoked) => return Verdict::Fails,
            _ => return Verdict::Waits,
        }
        self.advance(asks)
    }

    fn advance(&mut self, asks: &mut Asks) -> Verdict {
        let nodes: Vec<NodeId> = self.members.keys().copied().collect();
        let all = |ask: Ask| nodes.iter().map(move |&node| (node, ask));
        match self.phase {
            Phase::Gathering if self.all(Grip::Held) && self.starts_without_lock => {
                self.phase = Phase::Whole;
                asks.extend(all(Ask::Lock(0)).chain(all(Ask::Join)));
                Verdict::Starts
            }
            Phase::Gathering if self.all(Grip::Held) => {
                self.phase = Phase::Locking;
                self.round += 1;
                asks.extend(all(Ask::Lock(self.round)));
                Verdict::Waits
            }
            Phase::Locking if self.all(Grip::Locked) => {
                self.phase = Phase::Joining;
                asks.extend(all(Ask::Join));
                Verdict::Waits
            }
            Phase::Joining if self.all(Grip::Joined) => {
                self.phase = Phase::Whole;
                Verdict::Starts
            }
            _ => Verdict::Waits,
        }
    }
}
