//! Sums by key with a bounded number of keys. Merging is associative and commutative.

use std::collections::BTreeMap;

/// A sum.
pub trait Merge {
    fn merge(&mut self, other: &Self);
}

/// The sums of the smallest keys; those of all others are added together.
///
/// A key among the smallest of all was among the smallest in each part, so its sum is complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bounded<K, V, const MAX: usize> {
    pub kept: BTreeMap<K, V>,
    pub rest: Option<V>,
}

impl<K, V, const MAX: usize> Default for Bounded<K, V, MAX> {
    fn default() -> Self {
        Self { kept: BTreeMap::new(), rest: None }
    }
}

impl<K: Ord + Clone, V: Merge + Clone, const MAX: usize> Bounded<K, V, MAX> {
    pub fn add(&mut self, key: K, value: &V) {
        match self.kept.get_mut(&key) {
            Some(sum) => sum.merge(value),
            None => drop(self.kept.insert(key, value.clone())),
        }
        while self.kept.len() > MAX {
            if let Some((_, value)) = self.kept.pop_last() {
                self.add_rest(&value);
            }
        }
    }

    fn add_rest(&mut self, value: &V) {
        match &mut self.rest {
            Some(rest) => rest.merge(value),
            None => self.rest = Some(value.clone()),
        }
    }
}

impl<K: Ord + Clone, V: Merge + Clone, const MAX: usize> Merge for Bounded<K, V, MAX> {
    fn merge(&mut self, other: &Self) {
        for (key, value) in &other.kept {
            self.add(key.clone(), value);
        }
        if let Some(rest) = &other.rest {
            self.add_rest(rest);
        }
    }
}

/// A key that has coarser forms: level 0 is the finest.
pub trait Coarsen: Ord + Copy {
    /// The level above which all keys are equal.
    const LEVELS: u32;
    /// The form at a level, from the form at any lower level.
    #[must_use]
    fn at(self, level: u32) -> Self;
}

/// Sums by key. Neighbouring keys share a sum at the lowest level at which all keys fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Levelled<K, V, const MAX: usize> {
    pub level: u32,
    pub sums: BTreeMap<K, V>,
}

impl<K, V, const MAX: usize> Default for Levelled<K, V, MAX> {
    fn default() -> Self {
        Self { level: 0, sums: BTreeMap::new() }
    }
}

impl<K: Coarsen, V: Merge + Default, const MAX: usize> Levelled<K, V, MAX> {
    /// Changes the sum of a key.
    pub fn change(&mut self, key: K, change: impl FnOnce(&mut V)) {
        change(self.sums.entry(key.at(self.level)).or_default());
        self.fit();
    }

    fn fit(&mut self) {
        while self.sums.len() > MAX && self.level < K::LEVELS {
            self.level += 1;
            for (key, value) in std::mem::take(&mut self.sums) {
                self.sums.entry(key.at(self.level)).or_default().merge(&value);
            }
        }
    }
}

impl<K: Coarsen, V: Merge + Default, const MAX: usize> Merge for Levelled<K, V, MAX> {
    fn merge(&mut self, other: &Self) {
        let level = self.level.max(other.level);
        if self.level < level {
            self.level = level;
            for (key, value) in std::mem::take(&mut self.sums) {
                self.sums.entry(key.at(level)).or_default().merge(&value);
            }
        }
        for (key, value) in &other.sums {
            self.sums.entry(key.at(self.level)).or_default().merge(value);
            self.fit();
        }
    }
}

/// A node or, at a higher level, 2, 4, 8... neighbours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct NodeKey(pub u32);

impl Coarsen for NodeKey {
    const LEVELS: u32 = 32;
    fn at(self, level: u32) -> Self {
        Self(floor(self.0, level))
    }
}

/// Two nodes between which data moved: (from, to).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LinkKey(pub u32, pub u32);

impl Coarsen for LinkKey {
    const LEVELS: u32 = 32;
    fn at(self, level: u32) -> Self {
        Self(floor(self.0, level), floor(self.1, level))
    }
}

/// The first of the 2^level numbers that share a key.
fn floor(number: u32, level: u32) -> u32 {
    number.checked_shr(level).and_then(|high| high.checked_shl(level)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Merge for u64 {
        fn merge(&mut self, other: &Self) {
            *self += other;
        }
    }

    type Rows = Levelled<LinkKey, u64, 5>;
    type Few = Bounded<u32, u64, 4>;
    type Part = Vec<(u32, u32, u64)>;

    fn rows(parts: &[&Part]) -> Rows {
        let mut rows = Rows::default();
        for &(node, slot, n) in parts.iter().copied().flatten() {
            rows.change(LinkKey(node, slot), |sum| *sum += n);
        }
        rows
    }
    fn few(parts: &[&Part]) -> Few {
        let mut few = Few::default();
        parts.iter().copied().flatten().for_each(|(node, slot, n)| few.add(node + slot, n));
        few
    }
    fn part() -> impl Strategy<Value = Part> {
        prop::collection::vec((0u32..40, 0u32..3, 1u64..9), 0..12)
    }

    proptest! {
        #[test]
        fn merging_is_associative_and_commutative(a in part(), b in part(), c in part()) {
            let total: u64 = [&a, &b, &c].into_iter().flatten().map(|it| it.2).sum();
            let (mut one, mut two) = (rows(&[&c]), rows(&[&a]));
            one.merge(&rows(&[&a, &b]));
            let mut inner = rows(&[&b]);
            inner.merge(&rows(&[&c]));
            two.merge(&inner);
            let all = rows(&[&a, &b, &c]);
            prop_assert_eq!((&one, &two), (&all, &all));
            prop_assert!(all.sums.len() <= 5);
            prop_assert_eq!(all.sums.values().sum::<u64>(), total);

            let (mut one, mut two) = (few(&[&c]), few(&[&a]));
            one.merge(&few(&[&b, &a]));
            let mut inner = few(&[&b]);
            inner.merge(&few(&[&c]));
            two.merge(&inner);
            let all = few(&[&a, &b, &c]);
            prop_assert_eq!((&one, &two), (&all, &all));
            prop_assert_eq!(all.kept.values().sum::<u64>() + all.rest.unwrap_or(0), total);
        }
    }
}
