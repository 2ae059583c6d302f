//! The state: one parent, its home, the part of its children, and two nodes that may run it.

use std::collections::BTreeSet;

pub(crate) const HOLDERS: usize = 2;
/// The parent ends with this turn. The children of the turns before are prepared in their part; the
/// child of the last is born there: its `Adopt` carries it.
pub(crate) const LAST: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Attempt {
    pub(crate) term: u8,
    pub(crate) number: u8,
}

/// A turn, and its chunk of children: other attempts make other children.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Turn {
    pub(crate) attempt: Attempt,
    pub(crate) seq: u8,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.term, self.number)
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}#{}", self.attempt, self.seq)
    }
}

impl Turn {
    pub(crate) fn is_carried(self) -> bool {
        self.seq == LAST
    }
}

/// The records of the parent: `TURN`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Parent {
    /// All committed turns; the records keep only the last.
    pub(crate) committed: Vec<Turn>,
    /// Numbered chunks that the part of the children has not acknowledged.
    pub(crate) outbox: BTreeSet<(u8, Turn)>,
    pub(crate) given: u8,
    /// No attempt up to this one commits a turn any more.
    pub(crate) fence: Attempt,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Placement {
    /// A new home asks the nodes for attempts that they hold: bits of those that have not answered.
    Asking {
        unheard: u8,
    },
    Ready,
    Placed {
        attempt: Attempt,
        holder: usize,
    },
    Ended,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Home {
    pub(crate) live: Parent,
    /// What is synced on all copies.
    pub(crate) disk: Parent,
    pub(crate) term: u8,
    // In memory.
    pub(crate) placement: Placement,
    pub(crate) issued: u8,
}

/// The records of the part of the children.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Children {
    pub(crate) prepared: BTreeSet<Turn>,
    pub(crate) visible: BTreeSet<Turn>,
    /// Ended and merged: the records no longer name them.
    pub(crate) merged: BTreeSet<Turn>,
    /// The last `Adopt` taken.
    pub(crate) taken: u8,
}

/// An attempt at a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Runner {
    pub(crate) attempt: Attempt,
    /// The turns that its state comes from.
    pub(crate) view: Vec<Turn>,
    /// It has staged the children of its next turn.
    pub(crate) staged: bool,
    /// It has sent its next turn: `true` gives the slot back.
    pub(crate) sent: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Push {
    pub(crate) attempt: Attempt,
    pub(crate) to: usize,
    pub(crate) view: Vec<Turn>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) home: Home,
    pub(crate) live: Children,
    pub(crate) disk: Children,
    pub(crate) runners: [Option<Runner>; HOLDERS],
    /// The map declares the node failed. It may still run.
    pub(crate) failed: [bool; HOLDERS],
    pub(crate) pushes: BTreeSet<Push>,
    /// All `Adopt` and `Drop` ever sent. Each may arrive late, repeatedly, or never.
    pub(crate) adopts: BTreeSet<(u8, Turn)>,
    pub(crate) drops: BTreeSet<Turn>,
    // What has gone wrong.
    pub(crate) forked: bool,
    pub(crate) adopted_twice: bool,
    pub(crate) answered_wrongly: bool,
    pub(crate) fenced_the_living: bool,
    // What has happened.
    pub(crate) take_overs: u8,
    pub(crate) cuts: u8,
    pub(crate) child_cuts: u8,
}

impl State {
    pub(crate) fn first() -> Self {
        let home = Home {
            live: Parent::default(),
            disk: Parent::default(),
            term: 1,
            placement: Placement::Ready,
            issued: 0,
        };
        Self {
            home,
            live: Children::default(),
            disk: Children::default(),
            runners: [None, None],
            failed: [false; HOLDERS],
            pushes: BTreeSet::new(),
            adopts: BTreeSet::new(),
            drops: BTreeSet::new(),
            forked: false,
            adopted_twice: false,
            answered_wrongly: false,
            fenced_the_living: false,
            take_overs: 0,
            cuts: 0,
            child_cuts: 0,
        }
    }
}

impl Runner {
    /// The turn that it makes next, or has sent.
    pub(crate) fn next(&self) -> Turn {
        Turn { attempt: self.attempt, seq: self.view.len() as u8 + 1 }
    }
}

impl Parent {
    pub(crate) fn has_ended(&self) -> bool {
        self.committed.len() >= usize::from(LAST)
    }
    pub(crate) fn decides(&self, seq: u8) -> bool {
        self.committed.len() >= usize::from(seq)
    }
    pub(crate) fn owes(&self, chunk: Turn) -> bool {
        self.outbox.iter().any(|&(_, it)| it == chunk)
    }
}
