//! The free part of one pool.

use smallvec::SmallVec;

use crate::amount::Amount;
use crate::mutant::Mutant;
use crate::offer::PoolKind;

const WHOLE: u16 = Amount::PER_ONE as u16;
const WORD: u16 = u64::BITS as u16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PoolState {
    Label,
    Sum { total: Amount, free: Amount },
    Indexed(IndexState),
}

impl PoolState {
    pub(crate) fn new(kind: &PoolKind) -> Self {
        match kind {
            PoolKind::Label => Self::Label,
            PoolKind::Sum(total) => Self::Sum { total: *total, free: *total },
            PoolKind::Indexed(groups) => {
                Self::Indexed(IndexState::new(groups.iter().map(Vec::len)))
            }
        }
    }
}

/// Free indices of an indexed pool: whole ones as bits, parts in a short list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IndexState {
    groups: Vec<GroupState>,
    /// The group of each index.
    group_of: Vec<u8>,
    /// Indices of which a part is claimed, sorted.
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct GroupState {
    first: u16,
    len: u16,
    /// Free whole indices.
    whole: u16,
    /// A bit for each free whole index, from `first`.
    bits: SmallVec<[u64; 2]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    index: u16,
    free: u16,
}

impl IndexState {
    pub(crate) fn new(sizes: impl Iterator<Item = usize>) -> Self {
        let (mut groups, mut group_of) = (Vec::new(), Vec::new());
        for (number, size) in sizes.enumerate() {
            let (first, len) = (group_of.len() as u16, size as u16);
            let bits = (0..len.div_ceil(WORD)).map(|word| {
                let used = (len - word * WORD).min(WORD);
                u64::MAX >> (WORD - used)
            });
            groups.push(GroupState { first, len, whole: len, bits: bits.collect() });
            group_of.extend(std::iter::repeat_n(number as u8, size));
        }
        Self { groups, group_of, parts: Vec::new() }
    }

    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Indices of a group, claimed or free.
    pub(crate) fn len(&self, group: usize) -> u16 {
        self.groups[group].len
    }

    /// Free whole indices of a group.
    pub(crate) fn whole(&self, group: usize) -> u16 {
        self.groups[group].whole
    }

    pub(crate) fn total(&self) -> usize {
        self.group_of.len()
    }

    pub(crate) fn whole_total(&self) -> usize {
        self.groups.iter().map(|group| usize::from(group.whole)).sum()
    }

    /// The free amount, parts included.
    pub(crate) fn free_amount(&self) -> Amount {
        let parts: u64 = self.parts.iter().map(|part| u64::from(part.free)).sum();
        Amount::from_units(Amount::count(self.whole_total()).units() + parts)
    }

    /// The largest free part of a broken index, in units.
    pub(crate) fn largest_part(&self) -> u16 {
        self.parts.iter().map(|part| part.free).max().unwrap_or(0)
    }

    /// The groups that have a broken index with this much free.
    pub(crate) fn groups_with_part(&self, units: u16) -> u64 {
        let fitting = self.parts.iter().filter(|part| part.free >= units);
        fitting.fold(0, |set, part| set | 1 << self.group_of[usize::from(part.index)])
    }

    /// The smallest group that has a free whole index.
    #[inline]
    pub(crate) fn smallest_group(&self) -> Option<usize> {
        if let [group] = &self.groups[..] {
            return (group.whole > 0).then_some(0);
        }
        let free = (0..self.groups.len()).filter(|&at| self.groups[at].whole > 0);
        free.min_by_key(|&at| self.groups[at].whole)
    }

    /// Claims the first free whole index of a group that has one.
    #[inline]
    pub(crate) fn take_whole(&mut self, group: usize) -> Option<u16> {
        let group = &mut self.groups[group];
        let at = group.bits.iter().position(|word| *word != 0)?;
        let word = &mut group.bits[at];
        let bit = word.trailing_zeros() as u16;
        *word &= *word - 1;
        group.whole -= 1;
        Some(group.first + at as u16 * WORD + bit)
    }

    /// Returns a whole index.
    #[inline]
    pub(crate) fn put_whole(&mut self, index: u16) {
        let group = match &mut self.groups[..] {
            [group] => group,
            groups => &mut groups[usize::from(self.group_of[usize::from(index)])],
        };
        let at = index - group.first;
        let (word, bit) = (&mut group.bits[usize::from(at / WORD)], 1_u64 << (at % WORD));
        debug_assert!(*word & bit == 0, "index {index} is free already");
        *word |= bit;
        group.whole += 1;
    }

    /// Claims a part of a broken index in these groups: the smallest free part that is enough.
    pub(crate) fn take_part(
        &mut self,
        groups: u64,
        units: u16,
        mutant: Option<Mutant>,
    ) -> Option<u16> {
        let is_in = |part: &Part| groups & 1 << self.group_of[usize::from(part.index)] != 0;
        let fitting = (0..self.parts.len())
            .filter(|&at| self.parts[at].free >= units && is_in(&self.parts[at]));
        let at = fitting.min_by_key(|&at| self.parts[at].free)?;
        if mutant != Some(Mutant::FractionGivenTwice) {
            self.parts[at].free -= units;
        }
        Some(self.parts[at].index)
    }

    /// Breaks a whole index of a group and claims a part of it.
    pub(crate) fn break_one(&mut self, group: usize, units: u16) -> Option<u16> {
        let index = self.take_whole(group)?;
        let at = self.parts.partition_point(|part| part.index < index);
        self.parts.insert(at, Part { index, free: WHOLE - units });
        Some(index)
    }

    /// Whether this index is free as a whole.
    pub(crate) fn has_whole(&self, index: u16) -> bool {
        let group = &self.groups[usize::from(self.group_of[usize::from(index)])];
        let at = index - group.first;
        group.bits[usize::from(at / WORD)] & 1 << (at % WORD) != 0
    }

    /// The free part of a broken index, in units.
    pub(crate) fn part_of(&self, index: u16) -> u16 {
        let found = self.parts.binary_search_by_key(&index, |part| part.index);
        found.map_or(0, |at| self.parts[at].free)
    }

    /// Claims this index, which is free as a whole.
    pub(crate) fn take_index(&mut self, index: u16) {
        debug_assert!(self.has_whole(index), "index {index} is claimed already");
        let group = &mut self.groups[usize::from(self.group_of[usize::from(index)])];
        let at = index - group.first;
        group.bits[usize::from(at / WORD)] &= !(1 << (at % WORD));
        group.whole -= 1;
    }

    /// Claims a part of this index, of which as much is free.
    pub(crate) fn take_part_of(&mut self, index: u16, units: u16) {
        match self.parts.binary_search_by_key(&index, |part| part.index) {
            Ok(at) => self.parts[at].free = self.parts[at].free.saturating_sub(units),
            Err(at) => {
                self.take_index(index);
                self.parts.insert(at, Part { index, free: WHOLE - units });
            }
        }
    }

    /// Returns a part of an index. A complete index is whole again.
    pub(crate) fn put_part(&mut self, index: u16, units: u16, mutant: Option<Mutant>) {
        let found = self.parts.binary_search_by_key(&index, |part| part.index);
        debug_assert!(found.is_ok(), "no part of index {index} is claimed");
        let Ok(at) = found else { return };
        let part = &mut self.parts[at];
        debug_assert!(mutant.is_some() || part.free + units <= WHOLE, "more than was claimed");
        part.free = part.free.saturating_add(units).min(WHOLE);
        if part.free == WHOLE && mutant != Some(Mutant::PartStaysBroken) {
            self.parts.remove(at);
            self.put_whole(index);
        }
    }
}
