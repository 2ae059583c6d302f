//! Requests prepared for one node: pools by position, and the best groups of the empty node.

use crate::amount::Amount;
use crate::groups::{Counts, Need};
use crate::name::Name;
use crate::offer::{Offer, Pool, PoolKind};
use crate::pools::PoolSet;
use crate::refusal::{Reason, Refusal, VariantRefusal};
use crate::request::{Quantity, Request, Shape, Variant, Want};
use crate::select::{Item, Link, choose};
use crate::state::PoolState;

/// A request that fits the empty node, prepared for its pools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fit {
    pub(crate) one_cpu: bool,
    /// Those that fit the empty node, the largest weight first.
    pub(crate) variants: Vec<FitVariant>,
    /// Those that never fit.
    pub(crate) never: Vec<VariantRefusal>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FitVariant {
    /// The position in the request.
    pub(crate) number: u8,
    pub(crate) weight: u16,
    pub(crate) wants: Vec<FitWant>,
    /// Couplings between its indexed needs.
    pub(crate) links: Vec<Link>,
    /// The sum of strict links on the empty node.
    pub(crate) optimum: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FitWant {
    /// The position in the variant.
    pub(crate) position: usize,
    /// The position in the offer.
    pub(crate) pool: usize,
    pub(crate) need: FitNeed,
    pub(crate) shape: Shape,
    pub(crate) strict: bool,
    /// The number of groups on the empty node.
    pub(crate) number: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FitNeed {
    Sum(Amount),
    All,
    Indices(Need),
}

impl Fit {
    /// The cpus of the first variant on a node of `total` cpus.
    #[must_use]
    pub fn cpus(&self, total: u32) -> u32 {
        let first = self.variants.first();
        let needs = first.into_iter().flat_map(|variant| &variant.wants);
        let of = |need: &FitNeed| match need {
            FitNeed::Indices(need) => need.whole as u32 + u32::from(need.part > 0),
            FitNeed::All => total,
            FitNeed::Sum(_) => 0,
        };
        needs.map(|want| of(&want.need)).sum::<u32>().max(1)
    }

    /// The same for these variants of the request alone, by position; `None`: none of them fits.
    #[must_use]
    pub fn among(&self, variants: &[usize]) -> Option<Self> {
        let is_kept = |variant: &&FitVariant| variants.contains(&usize::from(variant.number));
        let kept: Vec<FitVariant> = self.variants.iter().filter(is_kept).cloned().collect();
        (!kept.is_empty()).then(|| Self { variants: kept, ..self.clone() })
    }
}

impl FitVariant {
    /// The pools of its needs.
    pub(crate) fn pools(&self) -> PoolSet {
        self.wants.iter().map(|want| PoolSet::of(want.pool)).fold(PoolSet::EMPTY, PoolSet::with)
    }
}

impl Offer {
    /// Prepares a request for a node with this offer. An error means that it never fits.
    pub fn resolve(&self, request: &Request) -> Result<Fit, Refusal> {
        let (mut variants, mut never) = (Vec::new(), Vec::new());
        for (number, variant) in (0..).zip(request.variants()) {
            match self.resolve_variant(number, variant) {
                Ok(variant) => variants.push(variant),
                Err(reasons) => never.push(VariantRefusal { variant: number, reasons }),
            }
        }
        if variants.is_empty() {
            return Err(Refusal { variants: never });
        }
        variants.sort_by_key(|variant| u16::MAX - variant.weight);
        let has_cpus = self.position(&Name::cpus()).is_some();
        Ok(Fit { one_cpu: has_cpus && request.is_one_cpu(), variants, never })
    }

    fn resolve_variant(&self, number: u8, variant: &Variant) -> Result<FitVariant, Vec<Reason>> {
        let mut reasons = Vec::new();
        let has_label =
            |label: &Name| self.pool(label).is_some_and(|pool| pool.kind == PoolKind::Label);
        for label in variant.labels().iter().filter(|label| !has_label(label)) {
            reasons.push(Reason::NoLabel { label: label.clone() });
        }
        let mut wants: Vec<FitWant> = Vec::new();
        for (position, want) in variant.wants().iter().enumerate() {
            match self.resolve_want(position, want) {
                Ok(found) => match wants.iter().find(|other| other.pool == found.pool) {
                    Some(other) => reasons.push(Reason::SamePool {
                        one: variant.wants()[other.position].pool.clone(),
                        other: want.pool.clone(),
                    }),
                    None => wants.push(found),
                },
                Err(reason) => reasons.push(reason),
            }
        }
        if !reasons.is_empty() {
            return Err(reasons);
        }
        let weight = variant.weight();
        let links = self.links(&wants);
        let items: Vec<Item> = wants.iter().filter_map(|want| self.empty_item(want)).collect();
        let optimum = choose(&items, &links, None).map_or(0, |choice| choice.strict_weight);
        Ok(FitVariant { number, weight, wants, links, optimum })
    }

    /// The pool of a need: the one of that name, else the first kind of it that is large enough.
    fn resolve_want(&self, position: usize, want: &Want) -> Result<FitWant, Reason> {
        if let Some(pool) = self.position(&want.pool) {
            return self.resolve_in(position, want, pool);
        }
        let kinds = (0..self.pools().len()).filter(|&at| want.pool.covers(&self.pools()[at].name));
        let mut found = kinds.map(|pool| self.resolve_in(position, want, pool));
        match found.next() {
            Some(Ok(first)) => Ok(first),
            Some(Err(reason)) => found.find_map(Result::ok).ok_or(reason),
            None => {
                Err(Reason::NoPool { pool: want.pool.clone(), similar: self.similar(&want.pool) })
            }
        }
    }

    fn resolve_in(&self, position: usize, want: &Want, pool: usize) -> Result<FitWant, Reason> {
        let offered = &self.pools()[pool];
        let too_much = |total| Reason::TooMuch { want: want.clone(), total };
        let Some(total) = offered.amount() else {
            return Err(Reason::IsLabel { pool: offered.name.clone() });
        };
        let need = match want.quantity {
            Quantity::All => FitNeed::All,
            Quantity::Amount(amount) if amount > total => return Err(too_much(total)),
            Quantity::Amount(amount) => match offered.kind {
                PoolKind::Indexed(_) => FitNeed::Indices(Need {
                    whole: amount.whole_part() as usize,
                    part: amount.fraction(),
                }),
                PoolKind::Sum(_) | PoolKind::Label => FitNeed::Sum(amount),
            },
        };
        let (mut shape, strict) = (want.policy.shape, want.policy.strict);
        let number = match (need, PoolState::new(&offered.kind)) {
            (FitNeed::Indices(need), PoolState::Indexed(state)) => {
                // A part of one index is in one group.
                shape = if need.whole == 0 { Shape::Compact } else { shape };
                Counts::empty(&state).group_number(need, shape).ok_or_else(|| too_much(total))?
            }
            _ => 0,
        };
        Ok(FitWant { position, pool, need, shape, strict, number })
    }

    fn empty_item(&self, want: &FitWant) -> Option<Item> {
        let FitNeed::Indices(need) = want.need else { return None };
        let PoolState::Indexed(state) = PoolState::new(&self.pools()[want.pool].kind) else {
            return None;
        };
        let counts = Counts::empty(&state);
        Some(Item { need, shape: want.shape, counts, number: want.number })
    }

    /// The couplings between groups of indexed needs.
    fn links(&self, wants: &[FitWant]) -> Vec<Link> {
        let items: Vec<&FitWant> =
            wants.iter().filter(|want| matches!(want.need, FitNeed::Indices(_))).collect();
        let item = |name: &Name| {
            let pool = self.position(name)?;
            items.iter().position(|want| want.pool == pool)
        };
        let link = |coupling: &crate::Coupling| {
            let left = item(&coupling.left.pool)?;
            let right = item(&coupling.right.pool)?;
            let strict = items[left].strict && items[right].strict;
            Some(Link {
                left: (left, coupling.left.group),
                right: (right, coupling.right.group),
                weight: coupling.weight.into(),
                strict,
            })
        };
        self.couplings().iter().filter_map(link).collect()
    }

    /// A pool with nearly this name.
    fn similar(&self, name: &Name) -> Option<Name> {
        let distance = |pool: &Pool| {
            let theirs = pool.name.as_str();
            strsim::damerau_levenshtein(&theirs.to_lowercase(), &name.as_str().to_lowercase())
        };
        let near = self.pools().iter().filter(|pool| distance(pool) <= 2);
        near.min_by_key(|pool| distance(pool)).map(|pool| pool.name.clone())
    }
}
