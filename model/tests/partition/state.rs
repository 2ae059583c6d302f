//! The parts of a state of the model.

use crate::map::{Command, Map};
use crate::small::{NODES, Row, Set};

/// The bounds of the search.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) copies: u8,
    pub(crate) writes: u8,
    /// Epochs of the partition, the first included.
    pub(crate) epochs: u8,
    /// Power failures. Restarts of nodes that the map declared failed are not counted.
    pub(crate) cuts: u8,
    /// How often a running node is declared failed.
    pub(crate) evictions: u8,
    /// The planner's decisions: replicas created and dropped, primaries handed over.
    pub(crate) moves: u8,
    pub(crate) reads: bool,
    /// The number of recent changes that a replica keeps for others.
    pub(crate) recent: u8,
    /// The last member has missed a change that is not kept any more.
    pub(crate) one_lags: bool,
    pub(crate) mutant: Option<Mutant>,
}

/// Seeded bugs.
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

/// The position of a replica: the epoch of its last change, and the number of changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Position {
    pub(crate) epoch: u8,
    pub(crate) len: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Copy {
    pub(crate) log: Row,
    /// Its records are deleted; it accepts only a snapshot transfer.
    pub(crate) is_gone: bool,
    pub(crate) promised: u8,
    /// The number of its last changes that it could send to others.
    pub(crate) recent: u8,
}

/// The replica that the primary of `epoch` found at a member that promised.
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
    /// It may be activated in the map. The nodes that refused its changes are remembered.
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
    /// Its writes as a primary in this incarnation, and the number of acknowledged ones.
    pub(crate) wrote: Row,
    pub(crate) told: u8,
    /// Writes that wait for the map, by their index in `wrote`.
    pub(crate) by_map: Set,
    /// The nodes that received leases from an earlier incarnation which may not have expired.
    pub(crate) given_before: Set,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Way {
    Flying,
    /// It is in the log of the receiver.
    Taken,
    Synced,
    Refused,
    /// Its sender knows that it was refused.
    RefusedTold,
    /// The receiver has restarted.
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum What {
    Change { before: Position, write: u8 },
    Fill { log: Row },
}

/// A change sent to a replica, until its sender knows that it is synced there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ship {
    pub(crate) from: u8,
    pub(crate) to: u8,
    /// The number of writes that its sender had made.
    pub(crate) batch: u8,
    pub(crate) epoch: u8,
    pub(crate) what: What,
    /// With this change a new replica is complete.
    pub(crate) completes: bool,
    pub(crate) way: Way,
}

impl Ship {
    /// An answer may still arrive.
    pub(crate) fn is_awaited(&self) -> bool {
        !matches!(self.way, Way::RefusedTold | Way::Lost)
    }
    pub(crate) fn is_logged(&self) -> bool {
        matches!(self.way, Way::Taken | Way::Synced)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    /// The newest last; older ones only while some node knows no newer one.
    pub(crate) maps: Vec<Map>,
    pub(crate) nodes: [Node; NODES as usize],
    /// In order for each pair of sender and receiver.
    pub(crate) ships: Vec<Ship>,
    /// Proposals that may be agreed on at any time.
    pub(crate) said: Vec<Command>,
    /// By receiver: the nodes that granted a lease which has not expired.
    pub(crate) leases: [Set; NODES as usize],
    /// The epoch in which each write was made, in the order of the writes.
    pub(crate) written: Row,
    pub(crate) cuts: u8,
    pub(crate) evictions: u8,
    pub(crate) moves: u8,
    /// Writes that all replicas of a configuration had logged, so that other nodes received
    /// messages about them.
    pub(crate) spoken: Set,
    /// The writes that a client knows, in this order.
    pub(crate) acknowledged: Row,
    /// Two primaries have acknowledged writes that no single history contains.
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

    /// The position of a log with these changes.
    pub(crate) fn position(&self, log: &Row) -> Position {
        let epoch =
            log.as_slice().last().map_or(0, |&write| self.written.as_slice()[usize::from(write)]);
        Position { epoch, len: log.len() }
    }

    /// The changes from a position to that of `copy`, if they are kept.
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
