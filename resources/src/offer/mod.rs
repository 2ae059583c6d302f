//! Offers: the pools of a node.

mod preference;
mod text;

use std::fmt;

use thiserror::Error;

use crate::amount::{Amount, AmountError};
use crate::limits::{
    COUPLINGS_MAX, CPUS_MAX, GROUPS_MAX, INDEX_BYTES_MAX, INDICES_MAX, LABELS_MAX, POOLS_MAX,
};
use crate::name::{Name, NameError};

pub use preference::{Pick, Preference, parse_preferences};
pub use text::{parse_coupling, parse_no_pool, parse_pool};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolKind {
    /// A pool without amount.
    Label,
    Sum(Amount),
    /// Indices by name, in groups.
    Indexed(Vec<Vec<String>>),
}

/// A resource of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    pub name: Name,
    pub kind: PoolKind,
}

/// A group of an indexed pool of an offer, by position.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupRef {
    pub pool: Name,
    pub group: usize,
}

/// Two groups that are near each other, such as cpus and gpus of one NUMA node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Coupling {
    pub left: GroupRef,
    pub right: GroupRef,
    /// The strength; groups with the largest sum are claimed together.
    pub weight: u16,
}

/// All pools of a node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Offer {
    /// Sorted by name; the position in this list is the number of a pool.
    pools: Vec<Pool>,
    /// Sorted.
    couplings: Vec<Coupling>,
    /// In order; empty: the ordinary order alone.
    preferences: Vec<Preference>,
}

#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum OfferError {
    #[error(transparent)]
    Amount(#[from] AmountError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(
        "'{0}' is not a pool: write NAME=4, NAME=sum(100), NAME=range(0-7), NAME=[a,b], \
         NAME=[[a,b],[c,d]] or NAME=2x4"
    )]
    Syntax(String),
    #[error("{0} has nothing in it; leave it out")]
    Empty(Name),
    #[error("{pool} lists '{index}' twice")]
    IndexTwice { pool: Name, index: String },
    #[error(
        "'{0}' is not a name of an index: at most {INDEX_BYTES_MAX} characters, no comma and no quote"
    )]
    Index(String),
    #[error("{0} is given twice")]
    PoolTwice(Name),
    #[error("cpus is a list, not a sum: a task gets cpus by number")]
    CpusSum,
    #[error("memory is a sum: write memory=64GiB or memory=sum(64GiB)")]
    MemoryList,
    #[error("'{0}' is not a coupling such as cpus[0]:gpus[0] or cpus[0]:gpus[0]=64")]
    CouplingSyntax(String),
    #[error("there is no group {0}; couplings join groups of the node's own lists")]
    NoGroup(GroupRef),
    #[error("{0} is coupled with itself")]
    SelfCoupled(GroupRef),
    #[error("{0} and {1} are coupled twice")]
    CoupledTwice(GroupRef, GroupRef),
    #[error(
        "'{0}' is not a preference: a pool or a label with biggest, smallest, any or a range of \
         ranks, such as gpus:biggest or cpus:1..9"
    )]
    PreferenceSyntax(String),
    #[error("'any' is last in a list of preferences: '{0}' would never be reached")]
    AnyIsLast(String),
    #[error("the preference {0} is given twice")]
    PreferredTwice(Preference),
    #[error("the node has no pool and no label {0}: it cannot prefer its tasks")]
    NoPreferred(Name),
    #[error("a node has at most {most} {things}, and this one has {count}")]
    TooMany { things: &'static str, count: usize, most: usize },
}

impl Coupling {
    pub const DEFAULT_WEIGHT: u16 = 256;

    /// Both ends in the order of their names.
    #[must_use]
    pub fn new(one: GroupRef, other: GroupRef, weight: u16) -> Self {
        let (left, right) = if one <= other { (one, other) } else { (other, one) };
        Self { left, right, weight }
    }
}

impl Pool {
    #[must_use]
    pub fn label(name: Name) -> Self {
        Self { name, kind: PoolKind::Label }
    }

    pub fn sum(name: Name, amount: Amount) -> Result<Self, OfferError> {
        Self { name, kind: PoolKind::Sum(amount) }.checked()
    }

    pub fn indexed(name: Name, groups: Vec<Vec<String>>) -> Result<Self, OfferError> {
        Self { name, kind: PoolKind::Indexed(groups) }.checked()
    }

    pub(crate) fn checked(self) -> Result<Self, OfferError> {
        match &self.kind {
            PoolKind::Label => {}
            PoolKind::Sum(_) if self.name == Name::cpus() => return Err(OfferError::CpusSum),
            PoolKind::Sum(Amount::ZERO) => return Err(OfferError::Empty(self.name)),
            PoolKind::Sum(_) => {}
            PoolKind::Indexed(_) if self.name.is_bytes() => return Err(OfferError::MemoryList),
            PoolKind::Indexed(groups) => check_groups(&self.name, groups)?,
        }
        Ok(self)
    }

    /// The whole amount; `None` for a label.
    #[must_use]
    pub fn amount(&self) -> Option<Amount> {
        match &self.kind {
            PoolKind::Label => None,
            PoolKind::Sum(amount) => Some(*amount),
            PoolKind::Indexed(groups) => Some(Amount::count(groups.iter().map(Vec::len).sum())),
        }
    }

    /// The name of an index, counted over all groups.
    #[must_use]
    pub fn index(&self, number: u16) -> Option<&str> {
        let PoolKind::Indexed(groups) = &self.kind else { return None };
        groups.iter().flatten().nth(number.into()).map(String::as_str)
    }

    /// The number of groups; 0 for a label and for a sum.
    #[must_use]
    pub fn group_count(&self) -> usize {
        match &self.kind {
            PoolKind::Indexed(groups) => groups.len(),
            PoolKind::Label | PoolKind::Sum(_) => 0,
        }
    }
}

fn check_groups(name: &Name, groups: &[Vec<String>]) -> Result<(), OfferError> {
    check_count("groups of a pool", groups.len(), GROUPS_MAX)?;
    let most = if *name == Name::cpus() { CPUS_MAX } else { INDICES_MAX };
    check_count("indices of a pool", groups.iter().map(Vec::len).sum(), most)?;
    if groups.is_empty() || groups.iter().any(Vec::is_empty) {
        return Err(OfferError::Empty(name.clone()));
    }
    let mut all: Vec<&String> = groups.iter().flatten().collect();
    let fits = |index: &str| {
        let plain = |c: char| c != ',' && c != '"' && !c.is_control();
        let size = 1..=INDEX_BYTES_MAX;
        size.contains(&index.len()) && index.trim() == index && index.chars().all(plain)
    };
    if let Some(odd) = all.iter().find(|index| !fits(index)) {
        return Err(OfferError::Index((*odd).clone()));
    }
    all.sort();
    match all.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(OfferError::IndexTwice { pool: name.clone(), index: pair[0].clone() }),
        None => Ok(()),
    }
}

impl Offer {
    /// The offer of a node of cpus alone.
    pub fn of_cpus(cpus: u32) -> Result<Self, OfferError> {
        let indices = (0..cpus).map(|index| index.to_string()).collect();
        Self::new(vec![Pool::indexed(Name::cpus(), vec![indices])?], Vec::new())
    }

    pub fn new(mut pools: Vec<Pool>, couplings: Vec<Coupling>) -> Result<Self, OfferError> {
        let labels = pools.iter().filter(|pool| pool.kind == PoolKind::Label).count();
        check_count("labels", labels, LABELS_MAX)?;
        check_count("pools", pools.len() - labels, POOLS_MAX)?;
        check_count("couplings", couplings.len(), COUPLINGS_MAX)?;
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = pools.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(OfferError::PoolTwice(pair[0].name.clone()));
        }
        let mut offer = Self { pools, couplings: Vec::new(), preferences: Vec::new() };
        for coupling in &couplings {
            let Coupling { left, right, .. } = coupling;
            if left == right {
                return Err(OfferError::SelfCoupled(left.clone()));
            }
            let has = |end: &GroupRef| offer.groups_of(&end.pool) > end.group;
            if let Some(end) = [left, right].into_iter().find(|end| !has(end)) {
                return Err(OfferError::NoGroup(end.clone()));
            }
        }
        offer.couplings =
            couplings.into_iter().map(|it| Coupling::new(it.left, it.right, it.weight)).collect();
        offer.couplings.sort();
        let ends = |it: &Coupling| (it.left.clone(), it.right.clone());
        match offer.couplings.windows(2).find(|pair| ends(&pair[0]) == ends(&pair[1])) {
            Some(pair) => {
                Err(OfferError::CoupledTwice(pair[0].left.clone(), pair[0].right.clone()))
            }
            None => Ok(offer),
        }
    }

    /// The same offer with this number of cpus; `None` if it has them already, or if they are more
    /// than [`CPUS_MAX`]. If it has more, the first ones stay; if it has fewer, all are numbered
    /// from 0. The groups of cpus are lost, and couplings with them.
    #[must_use]
    pub fn with_cpus(&self, cpus: u32) -> Option<Self> {
        let own = self.pool(&Name::cpus()).and_then(Pool::amount);
        if own == Some(Amount::count(cpus as usize)) {
            return None;
        }
        let indices: Vec<String> = match self.pool(&Name::cpus()).map(|pool| &pool.kind) {
            Some(PoolKind::Indexed(groups)) if own > Some(Amount::count(cpus as usize)) => {
                groups.iter().flatten().take(cpus as usize).cloned().collect()
            }
            _ => (0..cpus).map(|index| index.to_string()).collect(),
        };
        let pools = self.pools.iter().filter(|pool| pool.name != Name::cpus()).cloned();
        let cpus = Pool { name: Name::cpus(), kind: PoolKind::Indexed(vec![indices]) };
        let is_of_cpus = |end: &GroupRef| end.pool == Name::cpus();
        let others =
            self.couplings.iter().filter(|it| !is_of_cpus(&it.left) && !is_of_cpus(&it.right));
        let offer = Self::new(pools.chain([cpus]).collect(), others.cloned().collect()).ok()?;
        Some(offer.keep_preferences(self.preferences.clone()))
    }

    /// The part of one of several nodes that share the pools which `is_shared` accepts: an equal
    /// part of a sum, and every index with this remainder.
    #[must_use]
    pub fn part(&self, at: usize, of: usize, is_shared: impl Fn(&Name) -> bool) -> Self {
        if of <= 1 {
            return self.clone();
        }
        let mut pools = Vec::new();
        for pool in &self.pools {
            let mut pool = pool.clone();
            if is_shared(&pool.name) {
                match &mut pool.kind {
                    PoolKind::Label => {}
                    PoolKind::Sum(sum) => {
                        let whole = sum.whole_part() / of as u64;
                        *sum = Amount::whole(whole).unwrap_or_default();
                    }
                    PoolKind::Indexed(groups) => {
                        let mut number = 0;
                        for group in groups.iter_mut() {
                            group.retain(|_| {
                                number += 1;
                                (number - 1) % of == at % of
                            });
                        }
                        groups.retain(|group| !group.is_empty());
                    }
                }
            }
            let is_empty = match &pool.kind {
                PoolKind::Label => false,
                PoolKind::Sum(sum) => sum.is_zero(),
                PoolKind::Indexed(groups) => groups.is_empty(),
            };
            pools.extend((!is_empty).then_some(pool));
        }
        // The numbers of groups may have changed.
        Self { pools, couplings: Vec::new(), preferences: self.preferences.clone() }
    }

    #[must_use]
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    #[must_use]
    pub fn couplings(&self) -> &[Coupling] {
        &self.couplings
    }

    /// Which ready tasks the node takes first.
    #[must_use]
    pub fn preferences(&self) -> &[Preference] {
        &self.preferences
    }

    pub(crate) fn keep_preferences(self, preferences: Vec<Preference>) -> Self {
        Self { preferences, ..self }
    }

    #[must_use]
    pub fn pool(&self, name: &Name) -> Option<&Pool> {
        self.position(name).map(|at| &self.pools[at])
    }

    pub(crate) fn position(&self, name: &Name) -> Option<usize> {
        self.pools.binary_search_by(|pool| pool.name.cmp(name)).ok()
    }

    fn groups_of(&self, name: &Name) -> usize {
        self.pool(name).map_or(0, Pool::group_count)
    }
}

fn check_count(things: &'static str, count: usize, most: usize) -> Result<(), OfferError> {
    match count > most {
        true => Err(OfferError::TooMany { things, count, most }),
        false => Ok(()),
    }
}

impl fmt::Display for GroupRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.pool, self.group)
    }
}

impl fmt::Display for Coupling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.left, self.right)?;
        match self.weight {
            Self::DEFAULT_WEIGHT => Ok(()),
            weight => write!(f, "={weight}"),
        }
    }
}
