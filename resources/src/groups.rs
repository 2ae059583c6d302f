//! Which sets of groups of one pool are enough for a need.

use smallvec::SmallVec;

use crate::limits::GROUP_SETS_MAX;
use crate::mutant::Mutant;
use crate::request::Shape;
use crate::state::IndexState;

/// The need of an indexed pool: whole indices, and a part of one more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Need {
    pub(crate) whole: usize,
    /// In units; 0: no part.
    pub(crate) part: u16,
}

/// The free indices of a pool, by group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    whole: SmallVec<[u16; 16]>,
    /// The groups with a broken index that has room for the part.
    with_part: u64,
}

/// A set of groups, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Set {
    pub(crate) groups: u64,
    /// The smallest is best: whether an index must be broken, then unused indices, then the bits.
    pub(crate) rank: (bool, u32, u64),
}

pub(crate) type Sets = SmallVec<[Set; 8]>;

impl Counts {
    pub(crate) fn free(state: &IndexState, need: Need) -> Self {
        let whole = (0..state.group_count()).map(|group| state.whole(group)).collect();
        let with_part = if need.part == 0 { 0 } else { state.groups_with_part(need.part) };
        Self { whole, with_part }
    }

    /// The counts of the empty node.
    pub(crate) fn empty(state: &IndexState) -> Self {
        let whole = (0..state.group_count()).map(|group| state.len(group)).collect();
        Self { whole, with_part: 0 }
    }

    pub(crate) fn whole_in(&self, set: u64) -> usize {
        let is_in = |(at, _): &(usize, &u16)| set & 1 << at != 0;
        self.whole.iter().enumerate().filter(is_in).map(|(_, &whole)| usize::from(whole)).sum()
    }

    /// All groups with anything free.
    pub(crate) fn usable(&self) -> u64 {
        self.groups_with_whole() | self.with_part
    }

    fn groups_with_whole(&self) -> u64 {
        let free = self.whole.iter().enumerate().filter(|(_, whole)| **whole > 0);
        free.fold(0, |set, (at, _)| set | 1 << at)
    }

    fn is_enough(&self, need: Need, shape: Shape, set: u64) -> bool {
        // Scattered tasks may take their part from any group.
        let parts = if shape == Shape::Scatter { u64::MAX } else { set };
        let whole = self.whole_in(set);
        let spare = if shape == Shape::Scatter { self.whole_in(u64::MAX) } else { whole };
        whole >= need.whole && (need.part == 0 || self.with_part & parts != 0 || spare > need.whole)
    }

    /// The number of groups that a claim takes; `None`: no set of groups is enough.
    pub(crate) fn group_number(&self, need: Need, shape: Shape) -> Option<usize> {
        if !self.is_enough(need, shape, self.usable()) {
            return None;
        }
        if shape == Shape::Scatter {
            let groups = self.groups_with_whole().count_ones() as usize;
            return Some(groups.min(need.whole).max(1));
        }
        let sizes = self.by_size();
        (1..=sizes.len()).find(|&number| self.largest(&sizes, need, number).is_some())
    }

    /// The groups with anything free, the largest first.
    fn by_size(&self) -> SmallVec<[usize; 16]> {
        let usable = self.usable();
        let mut groups: SmallVec<[usize; 16]> =
            (0..self.whole.len()).filter(|at| usable & 1 << at != 0).collect();
        groups.sort_by_key(|&at| (u16::MAX - self.whole[at], at));
        groups
    }

    /// The largest `number` groups if they are enough, else those of them that have the part.
    fn largest(&self, order: &[usize], need: Need, number: usize) -> Option<u64> {
        let first = |groups: &mut dyn Iterator<Item = &usize>, number: usize| {
            groups.take(number).fold(0_u64, |set, at| set | 1 << at)
        };
        let set = first(&mut order.iter(), number);
        if self.is_enough(need, Shape::Compact, set) {
            return Some(set);
        }
        let parts = order.iter().filter(|&&at| self.with_part & 1 << at != 0);
        let mut sets = parts
            .map(|part| first(&mut order.iter().filter(|&at| at != part), number - 1) | 1 << part);
        sets.find(|&set| self.is_enough(need, Shape::Compact, set))
    }

    /// Sets of `number` groups that are enough. All of them, unless they are too many: then one
    /// that is large, or near to groups that are chosen already, by `bonus`.
    pub(crate) fn sets(
        &self,
        need: Need,
        shape: Shape,
        number: usize,
        bonus: impl Fn(usize) -> u64,
        mutant: Option<Mutant>,
    ) -> Sets {
        let usable = match shape {
            Shape::Scatter if need.whole > 0 => self.groups_with_whole(),
            _ => self.usable(),
        };
        let groups: SmallVec<[usize; 16]> =
            (0..self.whole.len()).filter(|at| usable & 1 << at != 0).collect();
        if mutant == Some(Mutant::CompactTakesFirst) && shape != Shape::Scatter {
            let first = (1..=groups.len()).map(|n| groups[..n].iter().fold(0, |s, at| s | 1 << at));
            let found = first.into_iter().find(|&set| self.is_enough(need, shape, set));
            return found.map(|set| self.set(need, shape, set)).into_iter().collect();
        }
        if binomial(groups.len(), number) > GROUP_SETS_MAX {
            return self.large_set(need, shape, number, groups, bonus).into_iter().collect();
        }
        let mut sets = Sets::new();
        each_choice(&groups, number, 0, &mut |set| {
            if self.is_enough(need, shape, set) {
                sets.push(self.set(need, shape, set));
            }
        });
        sets
    }

    fn large_set(
        &self,
        need: Need,
        shape: Shape,
        number: usize,
        mut groups: SmallVec<[usize; 16]>,
        bonus: impl Fn(usize) -> u64,
    ) -> Option<Set> {
        groups.sort_by_key(|&at| (u64::MAX - bonus(at), u16::MAX - self.whole[at], at));
        let near = groups[..number].iter().fold(0_u64, |set, at| set | 1 << at);
        let set = match self.is_enough(need, shape, near) {
            true => Some(near),
            false if shape == Shape::Scatter => {
                groups.sort_by_key(|&at| (u16::MAX - self.whole[at], at));
                Some(groups[..number].iter().fold(0_u64, |set, at| set | 1 << at))
            }
            false => self.largest(&self.by_size(), need, number),
        };
        set.map(|set| self.set(need, shape, set))
    }

    fn set(&self, need: Need, shape: Shape, groups: u64) -> Set {
        let parts = if shape == Shape::Scatter { u64::MAX } else { groups };
        let breaks = need.part > 0 && self.with_part & parts == 0;
        let rest = (self.whole_in(groups) - need.whole) as u32;
        // The fewest indices stay unused in packed groups; scattered tasks go where most are free.
        let rest = if shape == Shape::Scatter { u32::MAX - rest } else { rest };
        Set { groups, rank: (breaks, rest, groups) }
    }

    /// How many whole indices each group of a set gives, in the order of claiming.
    pub(crate) fn share(
        &self,
        set: u64,
        need: Need,
        shape: Shape,
    ) -> SmallVec<[(usize, usize); 8]> {
        let mut groups: SmallVec<[usize; 8]> =
            (0..self.whole.len()).filter(|at| set & 1 << at != 0).collect();
        let mut shares: SmallVec<[(usize, usize); 8]> = SmallVec::new();
        let mut left = need.whole;
        if shape == Shape::Tight {
            groups.sort_by_key(|&at| (u16::MAX - self.whole[at], at));
            for group in groups {
                let share = left.min(self.whole[group].into());
                shares.push((group, share));
                left -= share;
            }
            return shares;
        }
        shares.extend(groups.into_iter().map(|group| (group, 0)));
        while left > 0 {
            let before = left;
            for (group, share) in &mut shares {
                if left > 0 && *share < usize::from(self.whole[*group]) {
                    (*share, left) = (*share + 1, left - 1);
                }
            }
            debug_assert!(left < before, "the set is enough");
        }
        shares
    }
}

fn binomial(n: usize, k: usize) -> usize {
    let k = k.min(n.saturating_sub(k));
    (0..k)
        .try_fold(1_usize, |all, at| all.checked_mul(n - at).map(|all| all / (at + 1)))
        .unwrap_or(usize::MAX)
}

fn each_choice(groups: &[usize], number: usize, set: u64, visit: &mut impl FnMut(u64)) {
    if number == 0 {
        return visit(set);
    }
    for (at, group) in groups.iter().enumerate() {
        if groups.len() - at < number {
            return;
        }
        each_choice(&groups[at + 1..], number - 1, set | 1 << group, visit);
    }
}
