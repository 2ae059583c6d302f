//! The map of one partition, and the commands that change it: a model of `kvs/src/membership/`.

use crate::small::{NODES, Row, Set};
use crate::state::{Mutant, Options};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Member {
    pub(crate) incarnation: u8,
    pub(crate) up: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Map {
    pub(crate) epoch: u8,
    /// The configuration; the first is the primary.
    pub(crate) replicas: Row,
    pub(crate) learners: Set,
    /// The members that left since a primary was active.
    pub(crate) former: Set,
    pub(crate) active: bool,
    pub(crate) members: [Member; NODES as usize],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Command {
    Up { node: u8, incarnation: u8 },
    Down { node: u8 },
    Activated { node: u8, incarnation: u8, epoch: u8 },
    CaughtUp { node: u8, incarnation: u8, epoch: u8 },
    Drop { node: u8, epoch: u8 },
    AddLearner { node: u8 },
    Handover { to: u8 },
}

impl Command {
    /// The epoch of the partition in which it was decided, if that matters.
    pub(crate) fn epoch(self) -> Option<u8> {
        match self {
            Self::Activated { epoch, .. } | Self::CaughtUp { epoch, .. } => Some(epoch),
            Self::Drop { epoch, .. } => Some(epoch),
            _ => None,
        }
    }
}

impl Map {
    pub(crate) fn first(options: &Options) -> Self {
        Self {
            epoch: 1,
            replicas: Row::of(0..options.copies),
            learners: Set::default(),
            former: Set::default(),
            active: true,
            members: [Member { incarnation: 1, up: true }; NODES as usize],
        }
    }

    pub(crate) fn primary(&self) -> u8 {
        self.replicas.first().expect("the last copy never leaves")
    }
    pub(crate) fn member(&self, node: u8) -> Member {
        self.members[usize::from(node)]
    }
    /// The configuration without this node.
    pub(crate) fn others(&self, node: u8) -> Set {
        self.replicas.set().without(node)
    }

    /// The map after a command; `None` if a precondition of the command does not hold.
    pub(crate) fn after(&self, command: Command, mutant: Option<Mutant>) -> Option<Self> {
        let mut map = *self;
        if command.epoch().is_some_and(|epoch| epoch != self.epoch) {
            return None;
        }
        let is_backup = |node: u8| self.active && self.others(self.primary()).has(node);
        match command {
            Command::Up { node, incarnation } => {
                if incarnation <= self.member(node).incarnation {
                    return None;
                }
                map.up(node, incarnation, mutant);
            }
            Command::Down { node } => {
                if !self.member(node).up {
                    return None;
                }
                map.down(node, mutant);
            }
            Command::Activated { node, incarnation, .. } => {
                let is_open = !self.active || !self.former.is_empty();
                let is_current = self.member(node) == Member { incarnation, up: true };
                if !is_open || !is_current || self.primary() != node {
                    return None;
                }
                map.active = true;
                map.former = Set::default();
            }
            Command::CaughtUp { node, incarnation, .. } => {
                let is_current = self.member(node) == Member { incarnation, up: true };
                if !self.active || !self.learners.has(node) || !is_current {
                    return None;
                }
                map.learners = map.learners.without(node);
                map.former = map.former.without(node);
                map.replicas.push(node);
                map.epoch += 1;
            }
            Command::Drop { node, .. } => {
                if !is_backup(node) && !self.learners.has(node) {
                    return None;
                }
                map.learners = map.learners.without(node);
                map.replicas = map.replicas.without(node);
                map.epoch += 1;
            }
            Command::AddLearner { node } => {
                let has = self.replicas.has(node) || self.learners.has(node);
                if has || !self.member(node).up {
                    return None;
                }
                map.learners = map.learners.with(node);
            }
            Command::Handover { to } => {
                if !is_backup(to) || !self.member(to).up {
                    return None;
                }
                let rest = self.replicas.without(to);
                map.replicas = Row::of([to].into_iter().chain(rest.as_slice().iter().copied()));
                map.epoch += 1;
                map.active = false;
            }
        }
        Some(map)
    }

    fn up(&mut self, node: u8, incarnation: u8, mutant: Option<Mutant>) {
        self.members[usize::from(node)] = Member { incarnation, up: true };
        let is_other_up = self.others(node).iter().any(|other| self.member(other).up);
        let stays = mutant == Some(Mutant::RestartedMemberStays) && node != self.primary();
        if self.replicas.has(node) && is_other_up {
            if !stays {
                self.leave(node);
                self.learners = self.learners.with(node);
            }
        } else if self.replicas.has(node) || self.former.has(node) && !is_other_up {
            self.take_over(node);
        }
    }

    fn down(&mut self, node: u8, mutant: Option<Mutant>) {
        self.members[usize::from(node)].up = false;
        let learners = self.learners;
        self.learners = self.learners.without(node);
        if !self.replicas.has(node) {
            return;
        }
        let is_up = |other: &u8| self.member(*other).up;
        let former = self.former.iter().find(is_up);
        let learner = learners.iter().find(is_up);
        if self.others(node).iter().any(|other| is_up(&other)) {
            self.leave(node);
        } else if let Some(former) = former {
            self.take_over(former);
        } else if let Some(heir) = learner.filter(|_| mutant == Some(Mutant::LastFullCopyGoes)) {
            self.take_over(heir);
            self.former = Set::default();
        } else {
            self.epoch += 1;
            self.active = false;
        }
    }

    fn leave(&mut self, node: u8) {
        let was_primary = self.primary() == node;
        self.replicas = self.replicas.without(node);
        self.epoch += 1;
        self.active &= !was_primary;
        if !self.active || self.replicas.len() == 1 {
            self.former = self.former.with(node);
        }
    }

    fn take_over(&mut self, node: u8) {
        self.former = self.former.or(self.replicas.set()).without(node);
        self.replicas = Row::of([node]);
        self.learners = self.learners.without(node);
        self.epoch += 1;
        self.active = false;
    }

    /// True if this incarnation may serve according to this map.
    pub(crate) fn is_current(&self, node: u8, incarnation: u8) -> bool {
        self.member(node) == Member { incarnation, up: true }
    }
    /// True if a process of this incarnation may still consider itself primary.
    pub(crate) fn may_still_run(&self, node: u8, incarnation: u8) -> bool {
        let member = self.member(node);
        member.incarnation <= incarnation && !member.up
    }
    pub(crate) fn may_have_lease(&self, node: u8, incarnation: u8) -> bool {
        let member = self.member(node);
        member.up && incarnation >= member.incarnation
    }
}
