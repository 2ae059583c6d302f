//! The line of gangs on one node, without IO and without knowledge of resources.
//!
//! Every part that waits for this node has a place in the line, by the stamp of its gang. A stamp
//! is final over all attempts, so the line has the same order on every node. The oldest part gets
//! the node as soon as it is free. An older part takes the holds of younger ones, unless they are
//! locked. Locks never wait for anything, and what runs ends: so every wait leads to older gangs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::holder::limits::GANG_LAPSE;
use proto::{Attempt, Incarnation, NodeId, TaskId, Time};

/// The place of a gang in every line; the least is first. Numbers of jobs grow with the time of
/// their submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Stamp {
    priority: Reverse<i32>,
    pub(crate) task: TaskId,
}

impl Stamp {
    pub(crate) fn new(priority: i32, task: TaskId) -> Self {
        Self { priority: Reverse(priority), task }
    }
    pub(crate) fn priority(&self) -> i32 {
        self.priority.0
    }
}

/// The resources of a node, as its line of gangs sees them.
pub(crate) trait Room {
    type Need;
    type Seat;
    /// Whether something other than a gang is before this one, and waits for the node too.
    fn yields(&self, stamp: Stamp) -> bool;
    /// `None`: the needs are not free now.
    fn take(&mut self, need: &Self::Need) -> Option<Self::Seat>;
    fn give_back(&mut self, seat: Self::Seat);
    /// The oldest part that waits: nothing younger takes what it needs.
    fn keep(&mut self, stamp: Stamp, need: &Self::Need);
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PartState<S> {
    Waits,
    Held(S),
    /// Locked for a round; nothing but its leader or its lapse ends that.
    Locked(S),
    /// The gang starts or runs. The first part has handed its seat to the attempt that runs.
    Joined(Option<S>),
}

/// The part of a gang that this node holds or waits to hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Part<N, S> {
    pub(crate) attempt: Attempt,
    pub(crate) leader: (NodeId, Incarnation),
    need: N,
    pub(crate) state: PartState<S>,
    /// Unless its leader renews it before, the part lapses.
    until: Time,
}

/// What a node says to the leader of a gang.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Answer {
    Held,
    Revoked,
    Locked(u32),
    Refused(u32),
    Joined,
}

/// An answer, with its receiver and the attempt.
pub(crate) type Told = (NodeId, (TaskId, Attempt), Answer);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Line<N, S> {
    parts: BTreeMap<Stamp, Part<N, S>>,
    /// Of a mutant: an older gang takes no hold away.
    pub(crate) ignores_age: bool,
}

impl<N, S> Line<N, S> {
    pub(crate) fn new(ignores_age: bool) -> Self {
        Self { parts: BTreeMap::new(), ignores_age }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Stamp, &Part<N, S>)> {
        self.parts.iter().map(|(&stamp, part)| (stamp, part))
    }
    fn of(&mut self, task: TaskId, attempt: Attempt) -> Option<&mut Part<N, S>> {
        let mut parts = self.parts.iter_mut();
        let found = parts.find(|(stamp, part)| stamp.task == task && part.attempt == attempt);
        found.map(|(_, part)| part)
    }

    /// A leader asks for this node, or renews that. Returns what an earlier attempt had.
    pub(crate) fn reserve(
        &mut self,
        now: Time,
        stamp: Stamp,
        (attempt, leader): (Attempt, (NodeId, Incarnation)),
        need: N,
    ) -> Option<S> {
        let until = now + GANG_LAPSE;
        if let Some(part) = self.parts.get_mut(&stamp)
            && part.attempt >= attempt
        {
            if part.attempt == attempt && !matches!(part.state, PartState::Locked(_)) {
                part.until = until;
            }
            return None;
        }
        let fresh = Part { attempt, leader, need, state: PartState::Waits, until };
        self.parts.insert(stamp, fresh).and_then(seat_of)
    }

    pub(crate) fn lock(&mut self, now: Time, task: TaskId, attempt: Attempt, round: u32) -> Answer {
        let Some(part) = self.of(task, attempt) else { return Answer::Refused(round) };
        match std::mem::replace(&mut part.state, PartState::Waits) {
            PartState::Held(seat) | PartState::Locked(seat) => {
                part.state = PartState::Locked(seat);
                part.until = now + GANG_LAPSE;
                Answer::Locked(round)
            }
            other => {
                part.state = other;
                Answer::Refused(round)
            }
        }
    }

    pub(crate) fn unlock(&mut self, now: Time, task: TaskId, attempt: Attempt) {
        let Some(part) = self.of(task, attempt) else { return };
        part.state = match std::mem::replace(&mut part.state, PartState::Waits) {
            PartState::Locked(seat) => PartState::Held(seat),
            other => other,
        };
        part.until = now + GANG_LAPSE;
    }

    /// The gang starts, if its lock is still here.
    pub(crate) fn join(&mut self, task: TaskId, attempt: Attempt) -> Answer {
        let Some(part) = self.of(task, attempt) else { return Answer::Refused(0) };
        match std::mem::replace(&mut part.state, PartState::Waits) {
            PartState::Locked(seat) => part.state = PartState::Joined(Some(seat)),
            PartState::Joined(seat) => part.state = PartState::Joined(seat),
            other => {
                part.state = other;
                return Answer::Refused(0);
            }
        }
        Answer::Joined
    }

    /// The seat of the first part, for the attempt that runs.
    pub(crate) fn take_seat(&mut self, task: TaskId, attempt: Attempt) -> Option<S> {
        match &mut self.of(task, attempt)?.state {
            PartState::Joined(seat) => seat.take(),
            _ => None,
        }
    }

    /// Returns the seat of the part, if it has one.
    pub(crate) fn release(&mut self, task: TaskId, attempt: Attempt) -> Option<S> {
        let mut parts = self.parts.iter();
        let (&stamp, _) = parts.find(|(stamp, it)| stamp.task == task && it.attempt == attempt)?;
        self.parts.remove(&stamp).and_then(seat_of)
    }

    /// When the next part lapses.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let waits = self.parts.values().filter(|part| part.may_lapse());
        waits.map(|part| part.until).min()
    }

    /// Removes parts that have lapsed and parts of leaders that are gone. Gives the node to the
    /// oldest parts.
    pub(crate) fn settle<R>(
        &mut self,
        now: Time,
        room: &mut R,
        is_gone: impl Fn((NodeId, Incarnation)) -> bool,
    ) -> Vec<Told>
    where
        R: Room<Need = N, Seat = S>,
    {
        let mut told = Vec::new();
        let ends = |_: &Stamp, part: &mut Part<N, S>| {
            is_gone(part.leader) || part.may_lapse() && part.until <= now
        };
        for (stamp, part) in self.parts.extract_if(.., ends) {
            if !is_gone(part.leader) && !matches!(part.state, PartState::Waits) {
                told.push((part.leader.0, (stamp.task, part.attempt), Answer::Revoked));
            }
            if let Some(seat) = seat_of(part) {
                room.give_back(seat);
            }
        }
        let waiting = |(_, part): &(&Stamp, &Part<N, S>)| part.is_waiting() || part.is_held();
        let stamps: Vec<Stamp> = self.parts.iter().filter(waiting).map(|(&it, _)| it).collect();
        for stamp in stamps {
            if room.yields(stamp) {
                self.revoke(stamp, room, &mut told);
                continue;
            }
            if self.parts[&stamp].is_held() {
                continue;
            }
            if !self.hold(stamp, room, &mut told) {
                room.keep(stamp, &self.parts[&stamp].need);
                break;
            }
        }
        told
    }

    /// Gives the node to a part. If that takes more than is free, younger holds end.
    fn hold<R>(&mut self, stamp: Stamp, room: &mut R, told: &mut Vec<Told>) -> bool
    where
        R: Room<Need = N, Seat = S>,
    {
        let mut seat = room.take(&self.parts[&stamp].need);
        if seat.is_none() && !self.ignores_age {
            let younger = self.parts.range(stamp..).filter(|(_, part)| part.is_held());
            let younger: Vec<Stamp> = younger.map(|(&it, _)| it).collect();
            younger.into_iter().for_each(|it| self.revoke(it, room, told));
            seat = room.take(&self.parts[&stamp].need);
        }
        let part = self.parts.get_mut(&stamp).expect("it is in the line");
        let Some(seat) = seat else { return false };
        part.state = PartState::Held(seat);
        told.push((part.leader.0, (stamp.task, part.attempt), Answer::Held));
        true
    }

    /// Ends a hold that is not locked.
    fn revoke<R>(&mut self, stamp: Stamp, room: &mut R, told: &mut Vec<Told>)
    where
        R: Room<Need = N, Seat = S>,
    {
        let part = self.parts.get_mut(&stamp).expect("it is in the line");
        match std::mem::replace(&mut part.state, PartState::Waits) {
            PartState::Held(seat) => {
                room.give_back(seat);
                // A hold of this step is not told yet.
                let held = (part.leader.0, (stamp.task, part.attempt), Answer::Held);
                match told.iter().position(|it| *it == held) {
                    Some(at) => _ = told.remove(at),
                    None => told.push((held.0, held.1, Answer::Revoked)),
                }
            }
            other => part.state = other,
        }
    }
}

fn seat_of<N, S>(part: Part<N, S>) -> Option<S> {
    match part.state {
        PartState::Held(seat) | PartState::Locked(seat) => Some(seat),
        PartState::Joined(seat) => seat,
        PartState::Waits => None,
    }
}

impl<N, S> Part<N, S> {
    pub(crate) fn seat(&self) -> Option<&S> {
        match &self.state {
            PartState::Held(seat) | PartState::Locked(seat) => Some(seat),
            PartState::Joined(seat) => seat.as_ref(),
            PartState::Waits => None,
        }
    }
    fn is_waiting(&self) -> bool {
        matches!(self.state, PartState::Waits)
    }
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, PartState::Held(_))
    }
    pub(crate) fn is_joined(&self) -> bool {
        matches!(self.state, PartState::Joined(_))
    }
    /// What has started ends with its leader, not by time.
    fn may_lapse(&self) -> bool {
        !self.is_joined()
    }
}
