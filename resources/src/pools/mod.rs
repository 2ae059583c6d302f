//! The pools of a node with their free amounts; claims on them.

mod again;

use smallvec::SmallVec;

use crate::amount::Amount;
use crate::fit::{Fit, FitNeed, FitVariant, FitWant};
use crate::groups::{Counts, Need, Set};
use crate::mutant::Mutant;
use crate::name::Name;
use crate::offer::Offer;
use crate::refusal::{Reason, Refusal, VariantRefusal};
use crate::request::{Quantity, Request, Shape};
use crate::select::{Choice, Item, choose};
use crate::state::{IndexState, PoolState};

pub use again::Rested;

/// The pools of a node, and their free part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pools {
    offer: Offer,
    states: Vec<PoolState>,
    /// The position of `cpus`.
    cpus: Option<usize>,
    mutant: Option<Mutant>,
}

/// The resources that an attempt has of its node. [`Pools::free`] returns them.
#[derive(PartialEq, Eq, Debug)]
pub enum Claim {
    /// One cpu, by its position in the pool.
    Cpu(u16),
    Variant(Box<VariantClaim>),
}

/// The claim of one variant.
#[derive(PartialEq, Eq, Debug)]
pub struct VariantClaim {
    variant: u8,
    pools: SmallVec<[PoolClaim; 2]>,
}

/// The claimed part of one pool. Pools and indices are positions in the node's offer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolClaim {
    Sum { pool: u8, amount: Amount },
    Indices { pool: u8, whole: Vec<u16>, part: Option<(u16, Amount)> },
}

impl Claim {
    /// The position of the chosen variant in the request.
    #[must_use]
    pub fn variant(&self) -> u8 {
        match self {
            Self::Cpu(_) => 0,
            Self::Variant(claim) => claim.variant,
        }
    }

    /// The claimed parts, by pool; none for one cpu.
    #[must_use]
    pub fn pools(&self) -> &[PoolClaim] {
        match self {
            Self::Cpu(_) => &[],
            Self::Variant(claim) => &claim.pools,
        }
    }
}

impl PoolClaim {
    #[must_use]
    pub fn pool(&self) -> usize {
        match self {
            Self::Sum { pool, .. } | Self::Indices { pool, .. } => usize::from(*pool),
        }
    }

    #[must_use]
    pub fn amount(&self) -> Amount {
        match self {
            Self::Sum { amount, .. } => *amount,
            Self::Indices { whole, part, .. } => {
                let part = part.map_or(0, |(_, part)| part.units());
                Amount::from_units(Amount::count(whole.len()).units() + part)
            }
        }
    }
}

/// A set of pools of one node, by their positions in its offer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PoolSet(u128);

impl PoolSet {
    pub const EMPTY: Self = Self(0);

    #[must_use]
    pub fn of(pool: usize) -> Self {
        Self(1 << pool.min(127))
    }
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The claimed part of a pool, by names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimedPool<'a> {
    pub name: &'a Name,
    pub amount: Amount,
    /// The names of the indices; none for a sum. The index with a part is the last one.
    pub indices: Vec<&'a str>,
}

/// The groups or amounts for a variant, before anything is claimed.
struct Plan {
    /// In the order of the variant's indexed needs.
    sets: SmallVec<[Set; 4]>,
}

impl Pools {
    #[must_use]
    pub fn new(offer: Offer) -> Self {
        let states = offer.pools().iter().map(|pool| PoolState::new(&pool.kind)).collect();
        let cpus = offer.position(&Name::cpus());
        Self { offer, states, cpus, mutant: None }
    }

    /// With a seeded bug, for tests.
    #[must_use]
    pub fn with_mutant(offer: Offer, mutant: Option<Mutant>) -> Self {
        Self { mutant, ..Self::new(offer) }
    }

    #[must_use]
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Prepares a request for this node, once for each class. An error means that it never fits.
    pub fn resolve(&self, request: &Request) -> Result<Fit, Refusal> {
        self.offer.resolve(request)
    }

    /// The free amount of a pool; `None` for a label or an unknown pool.
    #[must_use]
    pub fn free_amount(&self, pool: &Name) -> Option<Amount> {
        match &self.states[self.offer.position(pool)?] {
            PoolState::Label => None,
            PoolState::Sum { free, .. } => Some(*free),
            PoolState::Indexed(state) => Some(state.free_amount()),
        }
    }

    /// The names of the claimed indices of a pool; the index with a part is the last one.
    #[must_use]
    pub fn indices(&self, claim: &Claim, pool: &Name) -> Vec<&str> {
        let Some(at) = self.offer.position(pool) else { return Vec::new() };
        let pool = &self.offer.pools()[at];
        let name = |&index: &u16| pool.index(index);
        match claim {
            Claim::Cpu(index) if self.cpus == Some(at) => name(index).into_iter().collect(),
            Claim::Cpu(_) => Vec::new(),
            Claim::Variant(claim) => {
                let found = claim.pools.iter().find(|claimed| claimed.pool() == at);
                let Some(PoolClaim::Indices { whole, part, .. }) = found else { return Vec::new() };
                let part = part.as_ref().map(|(index, _)| index);
                whole.iter().chain(part).filter_map(name).collect()
            }
        }
    }

    /// The claimed part of each pool.
    #[must_use]
    pub fn claimed(&self, claim: &Claim) -> Vec<ClaimedPool<'_>> {
        let pools = self.offer.pools();
        let of = |at: usize, amount: Amount, indices: Vec<u16>| {
            let pool = &pools[at];
            let indices = indices.into_iter().filter_map(|index| pool.index(index)).collect();
            ClaimedPool { name: &pool.name, amount, indices }
        };
        match claim {
            Claim::Cpu(index) => {
                self.cpus.map(|at| of(at, Amount::ONE, vec![*index])).into_iter().collect()
            }
            Claim::Variant(claim) => {
                let named = |claimed: &PoolClaim| {
                    let indices = match claimed {
                        PoolClaim::Sum { .. } => Vec::new(),
                        PoolClaim::Indices { whole, part, .. } => {
                            whole.iter().copied().chain(part.map(|(index, _)| index)).collect()
                        }
                    };
                    of(claimed.pool(), claimed.amount(), indices)
                };
                claim.pools.iter().map(named).collect()
            }
        }
    }

    /// The free amounts of the pools with an amount, in units, in the order of [`crate::Totals`].
    #[must_use]
    pub fn free_units(&self) -> Vec<u64> {
        let free = |state: &PoolState| match state {
            PoolState::Label => None,
            PoolState::Sum { free, .. } => Some(free.units()),
            PoolState::Indexed(state) => Some(state.free_amount().units()),
        };
        self.states.iter().filter_map(free).collect()
    }

    /// The pools of the first variant that are short of it now; none if it fits. All indexed pools
    /// of the variant count if only their groups do not fit.
    #[must_use]
    pub fn short(&self, fit: &Fit) -> PoolSet {
        let Some(variant) = fit.variants.first() else { return PoolSet::EMPTY };
        if self.fits_now(fit) {
            return PoolSet::EMPTY;
        }
        let is_short = |want: &&FitWant| self.item(want).is_err();
        let short = variant.wants.iter().filter(is_short).map(|want| PoolSet::of(want.pool));
        let short = short.fold(PoolSet::EMPTY, PoolSet::with);
        if !short.is_empty() {
            return short;
        }
        let indexed = variant.wants.iter().filter(|it| matches!(it.need, FitNeed::Indices(_)));
        indexed.map(|want| PoolSet::of(want.pool)).fold(PoolSet::EMPTY, PoolSet::with)
    }

    /// Claims the resources of a request, or nothing if no variant fits now without these pools.
    pub fn claim_outside(&mut self, fit: &Fit, kept: PoolSet) -> Option<Claim> {
        if kept.is_empty() {
            return self.claim(fit);
        }
        let outside = fit.variants.iter().filter(|it| !it.pools().meets(kept));
        outside.into_iter().find_map(|variant| self.claim_variant(variant))
    }

    /// True if [`Self::claim_outside`] would find something.
    #[must_use]
    pub fn fits_outside(&self, fit: &Fit, kept: PoolSet) -> bool {
        if kept.is_empty() {
            return self.fits_now(fit);
        }
        let mut outside = fit.variants.iter().filter(|it| !it.pools().meets(kept));
        outside.any(|variant| self.plan(variant).is_ok())
    }

    /// The number of the variant that [`Self::claim_outside`] would claim.
    #[must_use]
    pub fn variant_outside(&self, fit: &Fit, kept: PoolSet) -> Option<usize> {
        let mut outside = fit.variants.iter().filter(|it| !it.pools().meets(kept));
        let found = outside.find(|variant| self.plan(variant).is_ok());
        found.map(|variant| variant.number.into())
    }

    /// Whether the claim takes something of these pools.
    #[must_use]
    pub fn meets(&self, claim: &Claim, pools: PoolSet) -> bool {
        match claim {
            Claim::Cpu(_) => self.cpus.is_some_and(|at| PoolSet::of(at).meets(pools)),
            Claim::Variant(claim) => {
                claim.pools.iter().any(|claimed| PoolSet::of(claimed.pool()).meets(pools))
            }
        }
    }

    /// The set of the pool `cpus`.
    #[must_use]
    pub fn cpus_set(&self) -> PoolSet {
        self.cpus.map_or(PoolSet::EMPTY, PoolSet::of)
    }

    /// The names of a set's pools.
    #[must_use]
    pub fn names(&self, set: PoolSet) -> Vec<&Name> {
        let pools = self.offer.pools().iter().enumerate();
        pools.filter(|(at, _)| PoolSet::of(*at).meets(set)).map(|(_, pool)| &pool.name).collect()
    }

    /// Claims the resources of a request, or nothing if no variant fits now.
    #[inline]
    pub fn claim(&mut self, fit: &Fit) -> Option<Claim> {
        if fit.one_cpu {
            return self.claim_cpu();
        }
        fit.variants.iter().find_map(|variant| self.claim_variant(variant))
    }

    /// True if [`Self::claim`] would find something.
    #[must_use]
    pub fn fits_now(&self, fit: &Fit) -> bool {
        if fit.one_cpu {
            return self.cpu_state().is_some_and(|state| state.smallest_group().is_some());
        }
        fit.variants.iter().any(|variant| self.plan(variant).is_ok())
    }

    fn cpu_state(&self) -> Option<&IndexState> {
        match &self.states[self.cpus?] {
            PoolState::Indexed(state) => Some(state),
            PoolState::Label | PoolState::Sum { .. } => None,
        }
    }

    #[inline]
    fn claim_cpu(&mut self) -> Option<Claim> {
        let PoolState::Indexed(state) = &mut self.states[self.cpus?] else { return None };
        let group = state.smallest_group()?;
        state.take_whole(group).map(Claim::Cpu)
    }

    /// Returns a claim.
    #[inline]
    pub fn free(&mut self, claim: Claim) {
        match claim {
            Claim::Cpu(index) => {
                let Some(PoolState::Indexed(state)) =
                    self.cpus.and_then(|at| self.states.get_mut(at))
                else {
                    return;
                };
                state.put_whole(index);
            }
            Claim::Variant(claim) => {
                for pool in claim.pools {
                    self.free_pool(pool);
                }
            }
        }
    }

    fn free_pool(&mut self, claim: PoolClaim) {
        let mutant = self.mutant;
        match (claim, &mut self.states) {
            (PoolClaim::Sum { pool, amount }, states) => {
                let PoolState::Sum { free, total } = &mut states[usize::from(pool)] else { return };
                debug_assert!(mutant.is_some() || free.units() + amount.units() <= total.units());
                *free = free.checked_add(amount).unwrap_or(*total).min(*total);
            }
            (PoolClaim::Indices { pool, mut whole, part }, states) => {
                let PoolState::Indexed(state) = &mut states[usize::from(pool)] else { return };
                if mutant == Some(Mutant::ClaimLeaks) {
                    whole.pop();
                }
                whole.into_iter().for_each(|index| state.put_whole(index));
                if let Some((index, amount)) = part {
                    state.put_part(index, amount.units() as u16, mutant);
                }
            }
        }
    }

    fn claim_variant(&mut self, variant: &FitVariant) -> Option<Claim> {
        match self.plan(variant) {
            Ok(plan) => {
                let pools = self.carry_out(variant, &plan);
                Some(Claim::Variant(Box::new(VariantClaim { variant: variant.number, pools })))
            }
            Err(_) => {
                if self.mutant == Some(Mutant::ClaimHalf) {
                    self.claim_first_sum(variant);
                }
                None
            }
        }
    }

    /// The seeded bug `claim-half`.
    fn claim_first_sum(&mut self, variant: &FitVariant) {
        for want in &variant.wants {
            if let (FitNeed::Sum(amount), PoolState::Sum { free, .. }) =
                (want.need, &mut self.states[want.pool])
            {
                *free = free.checked_sub(amount).unwrap_or(*free);
            }
        }
    }

    /// Checks every pool before anything is claimed.
    fn plan(&self, variant: &FitVariant) -> Result<Plan, Obstacle> {
        let mut items: SmallVec<[Item; 4]> = SmallVec::new();
        for (at, want) in variant.wants.iter().enumerate() {
            let item = self.item(want).map_err(|reason| Obstacle::Pool(at, reason))?;
            items.extend(item);
        }
        // The counts were enough for each item, so that there is a set for each.
        let Some(Choice { sets, strict_weight }) = choose(&items, &variant.links, self.mutant)
        else {
            return Err(Obstacle::Apart);
        };
        let is_near = strict_weight >= variant.optimum || self.ignores_strict();
        if is_near { Ok(Plan { sets }) } else { Err(Obstacle::Apart) }
    }

    fn ignores_strict(&self) -> bool {
        matches!(self.mutant, Some(Mutant::StrictIgnored | Mutant::CouplingIgnored))
    }

    /// The choice of groups that a need leaves open, if any.
    fn item(&self, want: &FitWant) -> Result<Option<Item>, Shortage> {
        match (want.need, &self.states[want.pool]) {
            (FitNeed::All, PoolState::Sum { total, free }) => match free == total {
                true => Ok(None),
                false if self.mutant == Some(Mutant::AllTakesRest) && !free.is_zero() => Ok(None),
                false => Err(Shortage::Amount),
            },
            (FitNeed::All, PoolState::Indexed(state)) => match state.whole_total() {
                all if all == state.total() => Ok(None),
                rest if self.mutant == Some(Mutant::AllTakesRest) && rest > 0 => Ok(None),
                _ => Err(Shortage::Amount),
            },
            (FitNeed::Sum(amount), PoolState::Sum { free, .. }) => {
                let over = u64::from(self.mutant == Some(Mutant::SumOver));
                match free.units() + over >= amount.units() {
                    true => Ok(None),
                    false => Err(Shortage::Amount),
                }
            }
            (FitNeed::Indices(need), PoolState::Indexed(state)) => {
                let counts = Counts::free(state, need);
                let number = counts.group_number(need, want.shape).ok_or(Shortage::Amount)?;
                let is_strict = want.strict && self.mutant != Some(Mutant::StrictIgnored);
                if is_strict && number != want.number {
                    return Err(Shortage::Groups(number));
                }
                Ok(Some(Item { need, shape: want.shape, counts, number }))
            }
            _ => Err(Shortage::Amount),
        }
    }

    fn carry_out(&mut self, variant: &FitVariant, plan: &Plan) -> SmallVec<[PoolClaim; 2]> {
        let mut sets = plan.sets.iter();
        let mut claims = SmallVec::new();
        for want in &variant.wants {
            let pool = want.pool as u8;
            let claim = match (want.need, &mut self.states[want.pool]) {
                (FitNeed::Sum(amount), PoolState::Sum { free, .. }) => {
                    *free = free.checked_sub(amount).unwrap_or_default();
                    PoolClaim::Sum { pool, amount }
                }
                (FitNeed::All, PoolState::Sum { free, .. }) => {
                    PoolClaim::Sum { pool, amount: std::mem::take(free) }
                }
                (FitNeed::All, PoolState::Indexed(state)) => {
                    let groups = 0..state.group_count();
                    let mut whole = Vec::with_capacity(state.total());
                    for group in groups {
                        whole.extend(std::iter::from_fn(|| state.take_whole(group)));
                    }
                    PoolClaim::Indices { pool, whole, part: None }
                }
                (FitNeed::Indices(need), PoolState::Indexed(state)) => {
                    let set = sets.next().expect("one set for each indexed need").groups;
                    let (whole, part) = take(state, need, want.shape, set, self.mutant);
                    PoolClaim::Indices { pool, whole, part }
                }
                _ => unreachable!("needs are resolved by the kind of their pool"),
            };
            claims.push(claim);
        }
        claims
    }
}

/// Claims the indices of a need in a set of groups that is enough.
fn take(
    state: &mut IndexState,
    need: Need,
    shape: Shape,
    set: u64,
    mutant: Option<Mutant>,
) -> (Vec<u16>, Option<(u16, Amount)>) {
    let mut whole = Vec::with_capacity(need.whole);
    for (group, share) in Counts::free(state, need).share(set, need, shape) {
        whole.extend((0..share).filter_map(|_| state.take_whole(group)));
    }
    debug_assert_eq!(whole.len(), need.whole, "the set is enough");
    if need.part == 0 {
        return (whole, None);
    }
    let anywhere = if shape == Shape::Scatter { u64::MAX } else { set };
    let index = state.take_part(set, need.part, mutant).or_else(|| {
        let others = state.take_part(anywhere, need.part, mutant);
        others.or_else(|| {
            let free = (0..state.group_count()).filter(|&group| state.whole(group) > 0);
            let in_set = |group: &usize| set & 1 << *group != 0;
            // The rest of a group that the claim uses, and only then another group.
            let group = free.min_by_key(|group| (!in_set(group), state.whole(*group)))?;
            state.break_one(group, need.part)
        })
    });
    debug_assert!(index.is_some(), "the set is enough");
    (whole, index.map(|index| (index, Amount::from_units(need.part.into()))))
}

/// The reason why a variant does not fit now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Obstacle {
    /// The need at a position.
    Pool(usize, Shortage),
    Apart,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shortage {
    Amount,
    /// The number of groups now.
    Groups(usize),
}

impl Pools {
    /// The reasons why a request does not fit now; `None`: it fits.
    #[must_use]
    pub fn refusal(&self, request: &Request) -> Option<Refusal> {
        let fit = match self.resolve(request) {
            Ok(fit) => fit,
            Err(refusal) => return Some(refusal),
        };
        if self.fits_now(&fit) {
            return None;
        }
        let mut variants = fit.never.clone();
        for variant in &fit.variants {
            let number = variant.number;
            let wants = request.variants()[usize::from(number)].wants();
            let mut reasons: Vec<Reason> = Vec::new();
            for want in &variant.wants {
                if let Err(shortage) = self.item(want) {
                    reasons.push(self.reason(want, &wants[want.position], shortage));
                }
            }
            if reasons.is_empty() {
                let strict = variant.wants.iter().filter(|want| want.strict);
                let pools = strict.map(|want| wants[want.position].pool.clone()).collect();
                reasons.push(Reason::Apart { pools });
            }
            variants.push(VariantRefusal { variant: number, reasons });
        }
        variants.sort_by_key(|refusal| refusal.variant);
        Some(Refusal { variants })
    }

    fn reason(&self, fit: &FitWant, want: &crate::Want, shortage: Shortage) -> Reason {
        let want = want.clone();
        if let Shortage::Groups(now) = shortage {
            return Reason::Groups { want, now, best: fit.number };
        }
        let total = self.offer.pools()[fit.pool].amount().unwrap_or_default();
        let (free, largest) = match &self.states[fit.pool] {
            PoolState::Label => (Amount::ZERO, 0),
            PoolState::Sum { free, .. } => (*free, 0),
            PoolState::Indexed(state) => (state.free_amount(), state.largest_part()),
        };
        let is_enough = matches!(want.quantity, Quantity::Amount(amount) if amount <= free);
        match is_enough {
            true => Reason::InParts { want, largest: Amount::from_units(largest.into()) },
            false => Reason::Taken { want, free, total },
        }
    }
}
