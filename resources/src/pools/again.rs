//! Claims that are given back for some time, while their process lives on.
//!
//! A process keeps the devices that it has opened. So it gets the same indices again, and waits
//! while others have them. Its cpus may be others.

use smallvec::SmallVec;

use super::{Claim, PoolClaim, Pools, VariantClaim};
use crate::amount::Amount;
use crate::state::PoolState;

/// What a claim had. Nothing of it is claimed.
#[derive(PartialEq, Eq, Debug)]
pub struct Rested {
    variant: u8,
    /// None: it was one cpu.
    pools: SmallVec<[PoolClaim; 2]>,
}

impl Rested {
    /// Whether it has indices of pools other than cpus.
    #[must_use]
    pub fn has_devices(&self, pools: &Pools) -> bool {
        let is_device = |claim: &PoolClaim| {
            matches!(claim, PoolClaim::Indices { .. }) && pools.cpus != Some(claim.pool())
        };
        self.pools.iter().any(is_device)
    }
}

impl Pools {
    /// Returns a claim. [`Self::claim_again`] takes it back.
    pub fn rest(&mut self, claim: Claim) -> Rested {
        let rested = Rested { variant: claim.variant(), pools: claim.pools().into() };
        self.free(claim);
        rested
    }

    /// Claims the same amounts, and of all pools but cpus the same indices; `None`: something of
    /// them is not free.
    pub fn claim_again(&mut self, rested: &Rested) -> Option<Claim> {
        let Rested { variant, pools } = rested;
        if pools.is_empty() {
            return self.claim_cpu();
        }
        if !pools.iter().all(|pool| self.is_free(pool)) {
            return None;
        }
        let pools = pools.iter().map(|pool| self.take_again(pool)).collect();
        Some(Claim::Variant(Box::new(VariantClaim { variant: *variant, pools })))
    }

    fn is_free(&self, claim: &PoolClaim) -> bool {
        let is_cpus = self.cpus == Some(claim.pool());
        match (claim, &self.states[claim.pool()]) {
            (PoolClaim::Sum { amount, .. }, PoolState::Sum { free, .. }) => free >= amount,
            (PoolClaim::Indices { whole, .. }, PoolState::Indexed(state)) if is_cpus => {
                whole.len() <= state.whole_total()
            }
            (PoolClaim::Indices { whole, part, .. }, PoolState::Indexed(state)) => {
                let has_part = |(index, part): (u16, Amount)| {
                    state.has_whole(index) || state.part_of(index) >= part.units() as u16
                };
                whole.iter().all(|&index| state.has_whole(index)) && part.is_none_or(has_part)
            }
            _ => false,
        }
    }

    /// Takes a part of a claim that is free.
    fn take_again(&mut self, claim: &PoolClaim) -> PoolClaim {
        let is_cpus = self.cpus == Some(claim.pool());
        match (claim, &mut self.states[claim.pool()]) {
            (PoolClaim::Sum { amount, .. }, PoolState::Sum { free, .. }) => {
                *free = free.checked_sub(*amount).unwrap_or_default();
            }
            (PoolClaim::Indices { pool, whole, .. }, PoolState::Indexed(state)) if is_cpus => {
                let next = |_| state.smallest_group().and_then(|group| state.take_whole(group));
                let whole = (0..whole.len()).filter_map(next).collect();
                return PoolClaim::Indices { pool: *pool, whole, part: None };
            }
            (PoolClaim::Indices { whole, part, .. }, PoolState::Indexed(state)) => {
                whole.iter().for_each(|&index| state.take_index(index));
                if let Some((index, amount)) = part {
                    state.take_part_of(*index, amount.units() as u16);
                }
            }
            _ => {}
        }
        claim.clone()
    }
}
