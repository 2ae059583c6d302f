//! The longest attempts.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::attempt::{AttemptRow, Outcome};

/// An attempt that is shown by itself, in the order of its length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shown {
    pub ran_us: Reverse<u64>,
    pub task: u64,
    pub number: u32,
    pub node: u32,
    pub slot: u32,
    pub start_us: u64,
    pub kind: u32,
    pub outcome: Outcome,
}

/// The `MAX` longest attempts of all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Top<const MAX: usize> {
    pub shown: BTreeSet<Shown>,
}

impl<const MAX: usize> Top<MAX> {
    pub(crate) fn add(&mut self, row: &AttemptRow) {
        let is_full = self.shown.len() == MAX;
        if is_full && self.shown.last().is_some_and(|last| row.ran_us < last.ran_us.0) {
            return;
        }
        self.insert(Shown {
            ran_us: Reverse(row.ran_us),
            task: row.task.0,
            number: row.number,
            node: row.node,
            slot: row.slot,
            start_us: row.start_us,
            kind: row.kind,
            outcome: row.outcome,
        });
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.shown.iter().for_each(|&shown| self.insert(shown));
    }

    fn insert(&mut self, shown: Shown) {
        self.shown.insert(shown);
        if self.shown.len() > MAX {
            self.shown.pop_last();
        }
    }
}
