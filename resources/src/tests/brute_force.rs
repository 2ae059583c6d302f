//! A slow model of claims. It keeps the used units of each index and tries every set of groups.

use crate::{Amount, Claim, Name, Offer, PoolClaim, PoolKind, Quantity, Shape, Variant, Want};

const WHOLE: u64 = Amount::PER_ONE;

/// The used part of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Book {
    offer: Offer,
    /// Used units: of each index, or of the sum.
    used: Vec<Vec<u64>>,
}

/// A need of an indexed pool.
struct Indexed<'w> {
    want: &'w Want,
    pool: usize,
    whole: usize,
    part: u64,
    sizes: Vec<usize>,
}

impl Book {
    pub(super) fn new(offer: Offer) -> Self {
        let used = offer.pools().iter().map(|pool| match &pool.kind {
            PoolKind::Label => Vec::new(),
            PoolKind::Sum(_) => vec![0],
            PoolKind::Indexed(groups) => vec![0; groups.iter().map(Vec::len).sum()],
        });
        Self { used: used.collect(), offer }
    }

    pub(super) fn free_amount(&self, pool: usize) -> Option<Amount> {
        let total = self.offer.pools()[pool].amount()?.units();
        Some(Amount::from_units(total - self.used[pool].iter().sum::<u64>()))
    }

    /// Enters a claim, or removes it; an error if an index or a sum is overdrawn.
    pub(super) fn enter(&mut self, claim: &Claim, adds: bool) -> Result<(), String> {
        let mut entry = |pool: usize, at: usize, units: u64, most: u64| {
            let used = &mut self.used[pool][at];
            *used = if adds { *used + units } else { *used - units };
            if *used > most {
                return Err(format!("pool {pool} entry {at}: {used} units of {most} are claimed"));
            }
            Ok(())
        };
        if let Claim::Cpu(index) = claim {
            let cpus = self.offer.position(&Name::cpus()).expect("claimed");
            return entry(cpus, (*index).into(), WHOLE, WHOLE);
        }
        for pool in claim.pools() {
            let at = pool.pool();
            let total = self.offer.pools()[at].amount().unwrap_or_default().units();
            match pool {
                PoolClaim::Sum { amount, .. } => entry(at, 0, amount.units(), total)?,
                PoolClaim::Indices { whole, part, .. } => {
                    for &index in whole {
                        entry(at, index.into(), WHOLE, WHOLE)?;
                    }
                    if let Some((index, amount)) = part {
                        entry(at, (*index).into(), amount.units(), WHOLE)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a variant fits now.
    pub(super) fn fits(&self, variant: &Variant) -> bool {
        let is_enough = |want: &Want| {
            let Some(pool) = self.offer.position(&want.pool) else { return false };
            let (free, total) = (self.free_amount(pool), self.offer.pools()[pool].amount());
            match (want.quantity, free.zip(total)) {
                (_, None) => false,
                (Quantity::All, Some((free, total))) => free == total,
                (Quantity::Amount(amount), Some((free, _))) => free >= amount,
            }
        };
        let has =
            |label: &Name| self.offer.pool(label).is_some_and(|pool| pool.kind == PoolKind::Label);
        if !variant.wants().iter().all(is_enough) || !variant.labels().iter().all(has) {
            return false;
        }
        let indexed = self.indexed(variant);
        let empty = Self::new(self.offer.clone());
        let fits = |need: &Indexed<'_>| {
            let number = self.group_number(need);
            let same = !need.want.policy.strict || number == empty.group_number(need);
            number.is_some() && same
        };
        indexed.iter().all(fits) && self.best_weights(&indexed).0 >= empty.best_weights(&indexed).0
    }

    /// Checks a claim of a variant that was made in this state.
    pub(super) fn check_choice(&self, variant: &Variant, claim: &Claim) -> Result<(), String> {
        let indexed = self.indexed(variant);
        let mut chosen = Vec::new();
        for need in &indexed {
            let found = claim.pools().iter().find(|it| it.pool() == need.pool);
            let Some(PoolClaim::Indices { whole, part, .. }) = found else {
                return Err(format!("{}: nothing is claimed", need.want));
            };
            let units = part.as_ref().map_or(0, |(_, amount)| amount.units());
            if (whole.len(), units) != (need.whole, need.part) {
                return Err(format!("{}: {} indices and {units} units", need.want, whole.len()));
            }
            let group = |index: u16| need.group_of(index.into());
            let mut shares = vec![0_usize; need.sizes.len()];
            whole.iter().for_each(|&index| shares[group(index)] += 1);
            self.check_shares(need, &shares)?;
            let of_whole = (0..shares.len()).filter(|&at| shares[at] > 0);
            let groups: u64 = of_whole.fold(0, |set, at| set | 1 << at);
            let of_part = part.as_ref().map_or(0, |(index, _)| 1 << group(*index));
            let all = if need.is_scattered() { groups } else { groups | of_part };
            if Some(all.count_ones() as usize) != self.group_number(need) {
                return Err(format!("{}: the groups are {all:b}", need.want));
            }
            chosen.push(all);
        }
        // The part of a scattered need may be in a group that does not count.
        let is_exact = indexed.iter().all(|need| !need.is_scattered() || need.part == 0);
        let (got, best) = (self.weights(&indexed, &chosen), self.best_weights(&indexed));
        if is_exact && got != best {
            return Err(format!("couplings of {got:?}, and {best:?} is possible"));
        }
        Ok(())
    }

    /// Checks how the whole indices are divided among groups.
    fn check_shares(&self, need: &Indexed<'_>, shares: &[usize]) -> Result<(), String> {
        let free = |group: usize| self.whole_in(need, group);
        let used: Vec<usize> = (0..shares.len()).filter(|&at| shares[at] > 0).collect();
        let is_even = || {
            let most = used.iter().map(|&at| shares[at]).max().unwrap_or(0);
            used.iter().all(|&at| shares[at] + 1 >= most || shares[at] == free(at))
        };
        // All groups but one give everything.
        let is_packed = || used.iter().filter(|&&at| shares[at] < free(at)).count() <= 1;
        let is_right = match need.want.policy.shape {
            Shape::Tight => is_packed(),
            Shape::Compact | Shape::Scatter => is_even(),
        };
        is_right.then_some(()).ok_or_else(|| format!("{}: shares {shares:?}", need.want))
    }

    fn indexed<'v>(&self, variant: &'v Variant) -> Vec<Indexed<'v>> {
        let need = |want: &'v Want| {
            let pool = self.offer.position(&want.pool)?;
            let PoolKind::Indexed(groups) = &self.offer.pools()[pool].kind else { return None };
            let Quantity::Amount(amount) = want.quantity else { return None };
            let sizes = groups.iter().map(Vec::len).collect();
            let (whole, part) = (amount.whole_part() as usize, amount.fraction().into());
            Some(Indexed { want, pool, whole, part, sizes })
        };
        variant.wants().iter().filter_map(need).collect()
    }

    fn entries(&self, need: &Indexed<'_>, group: usize) -> &[u64] {
        let first: usize = need.sizes[..group].iter().sum();
        &self.used[need.pool][first..first + need.sizes[group]]
    }

    fn whole_in(&self, need: &Indexed<'_>, group: usize) -> usize {
        self.entries(need, group).iter().filter(|&&used| used == 0).count()
    }

    /// Whether a need can be met from a set of groups, with something from each of them.
    fn is_enough(&self, need: &Indexed<'_>, set: u64) -> bool {
        let groups = || (0..need.sizes.len()).filter(move |at| set & 1 << at != 0);
        let everywhere = 0..need.sizes.len();
        let whole: usize = groups().map(|group| self.whole_in(need, group)).sum();
        let has_part = |group: usize| {
            self.entries(need, group).iter().any(|&used| used > 0 && WHOLE - used >= need.part)
        };
        if !need.is_scattered() {
            let part = need.part == 0 || whole > need.whole || groups().any(has_part);
            return whole >= need.whole && part;
        }
        let all: usize = everywhere.clone().map(|group| self.whole_in(need, group)).sum();
        let part = need.part == 0 || all > need.whole || everywhere.clone().any(has_part);
        let gives = groups().all(|group| self.whole_in(need, group) > 0);
        whole >= need.whole && part && gives && set.count_ones() as usize <= need.whole
    }

    fn sets(&self, need: &Indexed<'_>) -> Vec<u64> {
        (1..1_u64 << need.sizes.len()).filter(|&set| self.is_enough(need, set)).collect()
    }

    /// The number of groups of a claim: the fewest, or the most.
    fn group_number(&self, need: &Indexed<'_>) -> Option<usize> {
        let numbers = self.sets(need).into_iter().map(|set| set.count_ones() as usize);
        if need.is_scattered() { numbers.max() } else { numbers.min() }
    }

    /// The sums of strict couplings and of all couplings between chosen groups.
    fn weights(&self, needs: &[Indexed<'_>], chosen: &[u64]) -> (u64, u64) {
        let mut sums = (0, 0);
        for coupling in self.offer.couplings() {
            let end = |end: &crate::GroupRef| {
                let at = needs.iter().position(|need| need.want.pool == end.pool)?;
                (chosen[at] & 1 << end.group != 0).then_some(at)
            };
            if let (Some(left), Some(right)) = (end(&coupling.left), end(&coupling.right)) {
                let is_strict = |at: usize| needs[at].want.policy.strict;
                let weight = u64::from(coupling.weight);
                sums.1 += weight;
                sums.0 += if is_strict(left) && is_strict(right) { weight } else { 0 };
            }
        }
        sums
    }

    fn best_weights(&self, needs: &[Indexed<'_>]) -> (u64, u64) {
        let lists: Vec<Vec<u64>> = needs
            .iter()
            .map(|need| {
                let number = self.group_number(need).unwrap_or(0) as u32;
                self.sets(need).into_iter().filter(|set| set.count_ones() == number).collect()
            })
            .collect();
        let mut best = (0, 0);
        let mut tries = vec![Vec::new()];
        for list in &lists {
            let longer = |chosen: &Vec<u64>| {
                let chosen = chosen.clone();
                list.iter().map(move |&set| [chosen.clone(), vec![set]].concat())
            };
            tries = tries.iter().flat_map(longer).collect();
        }
        for chosen in tries {
            best = best.max(self.weights(needs, &chosen));
        }
        best
    }
}

impl Indexed<'_> {
    fn group_of(&self, index: usize) -> usize {
        let mut end = 0;
        let ends = self.sizes.iter().map(|size| {
            end += size;
            end
        });
        ends.take_while(|&end| end <= index).count()
    }

    /// Without a whole index there is nothing to scatter.
    fn is_scattered(&self) -> bool {
        self.want.policy.shape == Shape::Scatter && self.whole > 0
    }
}
