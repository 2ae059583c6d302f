//! The log entries after the snapshot, and the voters that they determine.

use std::collections::{BTreeMap, VecDeque};

use proto::wire;
use proto::wire::map_command::Body;

use super::DamagedGroup;

#[derive(Debug)]
pub(super) struct Log {
    snapshot_index: u64,
    snapshot_term: u64,
    snapshot_voters: Vec<u32>,
    entries: VecDeque<wire::GroupEntry>,
    /// The voters by the last change in the log, committed or not.
    voters: Vec<u32>,
    /// The index of that change; the snapshot's index if the log has none.
    voters_index: u64,
}

/// The voters that an entry sets.
pub(super) fn voters_of(entry: &wire::GroupEntry) -> Option<&Vec<u32>> {
    entry.commands.iter().find_map(|command| match &command.body {
        Some(Body::SetVoters(set)) => Some(&set.voters),
        _ => None,
    })
}

impl Log {
    pub(super) fn new(
        snapshot_index: u64,
        snapshot_term: u64,
        snapshot_voters: Vec<u32>,
        entries: BTreeMap<u64, wire::GroupEntry>,
    ) -> Result<Self, DamagedGroup> {
        let entries: VecDeque<_> = entries.into_values().collect();
        for (entry, expected) in entries.iter().zip(snapshot_index + 1..) {
            if entry.index != expected {
                return Err(DamagedGroup(format!(
                    "entry {expected} is missing, entry {} follows",
                    entry.index
                )));
            }
        }
        let voters = snapshot_voters.clone();
        let mut log = Self {
            snapshot_index,
            snapshot_term,
            snapshot_voters,
            entries,
            voters,
            voters_index: snapshot_index,
        };
        log.find_voters();
        Ok(log)
    }

    pub(super) fn snapshot_index(&self) -> u64 {
        self.snapshot_index
    }
    pub(super) fn voters(&self) -> &[u32] {
        &self.voters
    }
    pub(super) fn voters_index(&self) -> u64 {
        self.voters_index
    }
    pub(super) fn last_index(&self) -> u64 {
        self.snapshot_index + self.entries.len() as u64
    }
    pub(super) fn last_term(&self) -> u64 {
        self.entries.back().map_or(self.snapshot_term, |entry| entry.term)
    }

    fn at(&self, index: u64) -> Option<usize> {
        let at = usize::try_from(index.checked_sub(self.snapshot_index + 1)?).ok()?;
        (at < self.entries.len()).then_some(at)
    }

    pub(super) fn entry(&self, index: u64) -> Option<&wire::GroupEntry> {
        self.at(index).map(|at| &self.entries[at])
    }

    /// The term of an entry. Of compacted entries only the snapshot's last term is known.
    pub(super) fn term(&self, index: u64) -> Option<u64> {
        if index == self.snapshot_index {
            return Some(self.snapshot_term);
        }
        self.entry(index).map(|entry| entry.term)
    }

    pub(super) fn from(&self, index: u64, most: usize) -> Vec<wire::GroupEntry> {
        let Some(at) = self.at(index) else { return Vec::new() };
        self.entries.range(at..).take(most).cloned().collect()
    }

    pub(super) fn push(&mut self, entry: wire::GroupEntry) {
        assert_eq!(entry.index, self.last_index() + 1, "the log has no gaps");
        if let Some(voters) = voters_of(&entry) {
            self.voters.clone_from(voters);
            self.voters_index = entry.index;
        }
        self.entries.push_back(entry);
    }

    /// Removes the entries from `index` on and returns their number.
    pub(super) fn truncate(&mut self, index: u64) -> u64 {
        let Some(at) = self.at(index) else { return 0 };
        let gone = self.entries.len() - at;
        self.entries.truncate(at);
        self.find_voters();
        gone as u64
    }

    /// Replaces all entries up to `index` with a snapshot. Later entries remain if they match it.
    /// Returns the indices of the removed entries.
    pub(super) fn replace(&mut self, index: u64, term: u64, voters: Vec<u32>) -> Vec<u64> {
        let fits = self.term(index) == Some(term);
        let is_gone = |entry: &wire::GroupEntry| !fits || entry.index <= index;
        let gone = self.entries.iter().filter(|entry| is_gone(entry)).map(|entry| entry.index);
        let gone = gone.collect();
        self.entries.retain(|entry| !is_gone(entry));
        self.snapshot_index = index;
        self.snapshot_term = term;
        self.snapshot_voters = voters;
        self.find_voters();
        gone
    }

    /// True if an entry after index `after` makes this node a voter.
    pub(super) fn names(&self, node: u32, after: u64) -> bool {
        let later = self.entries.iter().rev().take_while(|entry| entry.index > after);
        later.filter_map(voters_of).any(|voters| voters.contains(&node))
    }

    /// True if an entry after index `after` contains a start of this node.
    pub(super) fn has_up_of(&self, node: u32, after: u64) -> bool {
        let later = self.entries.iter().rev().take_while(|entry| entry.index > after);
        let mut commands = later.flat_map(|entry| &entry.commands);
        commands.any(|command| matches!(&command.body, Some(Body::Up(up)) if up.node == node))
    }

    /// True if an entry after index `after` contains this command.
    pub(super) fn holds(&self, command: &wire::MapCommand, after: u64) -> bool {
        let later = self.entries.iter().rev().take_while(|entry| entry.index > after);
        later.flat_map(|entry| &entry.commands).any(|known| known == command)
    }

    fn find_voters(&mut self) {
        let last = self
            .entries
            .iter()
            .rev()
            .find_map(|entry| voters_of(entry).map(|voters| (entry.index, voters.clone())));
        let first = || (self.snapshot_index, self.snapshot_voters.clone());
        (self.voters_index, self.voters) = last.unwrap_or_else(first);
    }
}
