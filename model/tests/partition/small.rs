//! Sets and rows of small numbers, of which all states consist.

pub(crate) const NODES: u8 = 3;
const ROW_MAX: usize = 4;

/// A set of nodes, of writes, or of batches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Set(u8);

impl Set {
    pub(crate) fn of(items: impl IntoIterator<Item = u8>) -> Self {
        items.into_iter().fold(Self::default(), Self::with)
    }
    pub(crate) fn with(self, item: u8) -> Self {
        Self(self.0 | 1 << item)
    }
    pub(crate) fn without(self, item: u8) -> Self {
        Self(self.0 & !(1 << item))
    }
    pub(crate) fn has(self, item: u8) -> bool {
        self.0 & 1 << item != 0
    }
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    pub(crate) fn is_within(self, other: Self) -> bool {
        self.and(other) == self
    }
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }
    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        (0..8).filter(move |&item| self.has(item))
    }
}

impl std::fmt::Debug for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// A short sequence of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Row {
    len: u8,
    at: [u8; ROW_MAX],
}

impl Row {
    pub(crate) fn of(items: impl IntoIterator<Item = u8>) -> Self {
        items.into_iter().fold(Self::default(), |mut row, item| {
            row.push(item);
            row
        })
    }
    pub(crate) fn push(&mut self, item: u8) {
        self.at[usize::from(self.len)] = item;
        self.len += 1;
    }
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.at[..usize::from(self.len)]
    }
    pub(crate) fn len(&self) -> u8 {
        self.len
    }
    pub(crate) fn first(&self) -> Option<u8> {
        self.as_slice().first().copied()
    }
    pub(crate) fn has(&self, item: u8) -> bool {
        self.as_slice().contains(&item)
    }
    pub(crate) fn without(&self, item: u8) -> Self {
        Self::of(self.as_slice().iter().copied().filter(|&other| other != item))
    }
    pub(crate) fn up_to(&self, len: u8) -> Self {
        Self::of(self.as_slice()[..usize::from(len)].iter().copied())
    }
    pub(crate) fn set(&self) -> Set {
        Set::of(self.as_slice().iter().copied())
    }
    pub(crate) fn is_prefix_of(&self, other: &Self) -> bool {
        other.as_slice().starts_with(self.as_slice())
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}
