//! What a state of the model consists of.

use crate::map::{Command, Map};
use crate::small::{NODES, Row, Set};

/// How much of everything is tried.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) copies: u8,
    pub(crate) writes: u8,
    /// Epochs of the partition, the first included.
    pub(crate) epochs: u8,
    /// Power cuts; a node that the map takes for dead starts anew besides.
    pub(crate) cuts: u8,
    /// How often a node that runs is taken for dead.
    pub(crate) evictions: u8,
    /// What the planner decides: copies made and dropped, homes handed over.
    pub(crate) moves: u8,
    pub(crate) reads: bool,
    /// How many of the latest changes a copy has at hand for others.
    pub(crate) recent: u8,
    /// The last member has missed a change that is not at hand any more.
    pub(crate) one_lags: bool,
    pub(crate) mutant: Option<Mutant>,
}

/// Bugs on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutant {
    PromiseToldBeforeDurable,
    NoLeaseWait,
    MajorityIsAsked,
    LastFullCopyGoes,
    RestartedMemberStays,
    LonePrimaryGoesOn,
    WhoLeftIsForgotten,
    LearnerPromisesNothing,
    AcknowledgedBeforeSynced,
    AcknowledgedBeforeCopied,
    EarlierEpochsTaken,
    RefusalForgotten,
    WhoIsDroppedGoesOn,
}

/// Where a copy stands: the epoch of its last change, and how many there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Position {
    pub(crate) epoch: u8,
    pub(crate) len: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Copy {
    pub(crate) log: Row,
    /// Its records have gone; only a snapshot is taken.
    pub(crate) is_gone: bool,
    pub(crate) promised: u8,
    /// How many of its last changes it could give to others.
    pub(crate) recent: u8,
}

/// What the primary of `epoch` found at a member that promised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Told {
    pub(crate) node: u8,
    pub(crate) copy: Copy,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Role {
    Idle,
    Draining {
        epoch: u8,
        waiting: Set,
    },
    Promising {
        epoch: u8,
        waiting: Set,
        told: Vec<Told>,
    },
    /// It may be called active. Who refused what it brought is remembered.
    Ready {
        epoch: u8,
        refusing: Set,
    },
    Serving {
        epoch: u8,
        caught: Set,
        ready: Set,
        refusing: Set,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Node {
    pub(crate) incarnation: u8,
    pub(crate) running: bool,
    /// The newest map it knows, as an index of the history.
    pub(crate) seen: u8,
    pub(crate) live: Copy,
    pub(crate) disk: Copy,
    pub(crate) role: Role,
    /// What it has written as a primary in this life, and how much of it was acknowledged.
    pub(crate) wrote: Row,
    pub(crate) told: u8,
    /// Writes, by their place in `wrote`, that wait for the map.
    pub(crate) by_map: Set,
    /// To whom an earlier life gave leases that may not have run out.
    pub(crate) given_before: Set,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Way {
    Flying,
    /// By the log of the receiver.
    Taken,
    Synced,
    Refused,
    /// Its sender knows that it was refused.
    RefusedTold,
    /// The receiver has begun anew.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum What {
    Change { before: Position, write: u8 },
    Fill { log: Row },
}

/// A change on its way to a copy, until its sender knows that it is synced there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ship {
    pub(crate) from: u8,
    pub(crate) to: u8,
    /// How many writes its sender had made.
    pub(crate) batch: u8,
    pub(crate) epoch: u8,
    pub(crate) what: What,
    /// With this one a new copy has all there is.
    pub(crate) completes: bool,
    pub(crate) way: Way,
}

impl Ship {
    /// An answer may still come.
    pub(crate) fn is_awaited(&self) -> bool {
        !matches!(self.way, Way::RefusedTold | Way::Lost)
    }
    pub(crate) fn is_logged(&self) -> bool {
        matches!(self.way, Way::Taken | Way::Synced)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    /// The newest last; older ones only as long as somebody knows no newer one.
    pub(crate) maps: Vec<Map>,
    pub(crate) nodes: [Node; NODES as usize],
    /// By sender and receiver, in their order.
    pub(crate) ships: Vec<Ship>,
    /// Proposals that somebody made and that may be agreed on at any time.
    pub(crate) said: Vec<Command>,
    /// By receiver of the lease: who gave one that has not run out.
    pub(crate) leases: [Set; NODES as usize],
    /// The epoch in which each write was made, in the order of the writes.
    pub(crate) written: Row,
    pub(crate) cuts: u8,
    pub(crate) evictions: u8,
    pub(crate) moves: u8,
    /// What every copy of a configuration had logged, so that other nodes were told of it.
    pub(crate) spoken: Set,
    /// What a client knows, in this order.
    pub(crate) acknowledged: Row,
    /// Two primaries have acknowledged what no single history contains.
    pub(crate) is_split: bool,
}

impl State {
    pub(crate) fn first(options: &Options) -> Self {
        let log = Row::of(options.one_lags.then_some(0));
        let copy =
            |lags: bool| Copy { log: if lags { Row::default() } else { log }, ..Copy::default() };
        let node = |number: u8| {
            let copy = copy(number + 1 == options.copies);
            let is_primary = number == 0;
            Node {
                incarnation: 1,
                running: true,
                seen: 0,
                live: copy,
                disk: copy,
                role: if is_primary { serving(1, Set::default()) } else { Role::Idle },
                wrote: Row::default(),
                told: 0,
                by_map: Set::default(),
                given_before: Set::default(),
            }
        };
        Self {
            maps: vec![Map::first(options)],
            nodes: std::array::from_fn(|number| node(number as u8)),
            ships: Vec::new(),
            said: Vec::new(),
            leases: [Set::default(); NODES as usize],
            written: Row::of(options.one_lags.then_some(1)),
            cuts: 0,
            evictions: 0,
            moves: 0,
            spoken: Set::default(),
            acknowledged: Row::default(),
            is_split: false,
        }
    }

    pub(crate) fn map(&self) -> &Map {
        self.maps.last().expect("there is a first one")
    }
    pub(crate) fn node(&self, node: u8) -> &Node {
        &self.nodes[usize::from(node)]
    }
    pub(crate) fn node_mut(&mut self, node: u8) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }
    /// The map as a node knows it.
    pub(crate) fn seen(&self, node: u8) -> &Map {
        &self.maps[usize::from(self.node(node).seen)]
    }

    /// Where a log of these changes stands.
    pub(crate) fn position(&self, log: &Row) -> Position {
        let epoch =
            log.as_slice().last().map_or(0, |&write| self.written.as_slice()[usize::from(write)]);
        Position { epoch, len: log.len() }
    }

    /// The changes that lead a copy from there to where this one stands, if they are at hand.
    pub(crate) fn since(&self, copy: &Copy, from: Position) -> Option<Vec<(Position, u8)>> {
        let log = copy.log.as_slice();
        if self.position(&copy.log) == from {
            return Some(Vec::new());
        }
        let at = |len: usize| self.position(&copy.log.up_to(len as u8));
        let first = log.len() - usize::from(copy.recent);
        let begin = (first..log.len()).find(|&len| at(len) == from)?;
        Some((begin..log.len()).map(|len| (at(len), log[len])).collect())
    }

    pub(crate) fn push_ship(&mut self, ship: Ship) {
        let key = |ship: &Ship| (ship.from, ship.to);
        let at = self.ships.partition_point(|other| key(other) <= key(&ship));
        self.ships.insert(at, ship);
    }
}

pub(crate) fn serving(epoch: u8, refusing: Set) -> Role {
    Role::Serving { epoch, caught: Set::default(), ready: Set::default(), refusing }
}
