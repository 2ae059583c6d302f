//! The slots of the node, its executing threads, and the pools of its resources.
//!
//! A task takes as many slots as it has cpus, and a claim of the pools if the node has pools. The
//! numbers of slots and of cpus are then the same.

mod resting;

use std::collections::{BTreeMap, BTreeSet};

use resources::{
    Claim, Fit, Name, Offer, PoolSet, Pools, Preference, Refusal, Request, Rested, Totals,
};

use crate::Mutant;

/// The needs of a task on this node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need<'a> {
    /// A no-op: it takes nothing.
    Nothing,
    Cpus(u32),
    Fit(&'a Fit),
    /// The task waits for a variant that this node does not offer.
    NotYet,
    /// The request never fits this node.
    Never,
}

/// The slots and the claim of an attempt.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The first slot; it names the others.
    pub(crate) first: u32,
    /// Boxed: only nodes that offer more than cpus have one.
    pub(crate) claim: Option<Box<Claim>>,
}

#[derive(Debug)]
pub(crate) struct Slots {
    free: BTreeSet<u32>,
    /// The further slots of tasks that take several, by the first slot.
    wide: BTreeMap<u32, Vec<u32>>,
    total: u32,
    /// Nothing is given out; what is taken comes back.
    paused: bool,
    /// Boxed: absent on nodes that offer cpus alone.
    pools: Option<Box<NodePools>>,
}

#[derive(Debug)]
struct NodePools {
    pools: Pools,
    one_cpu: Option<Fit>,
    mutant: Option<Mutant>,
}

/// The pool of cpus of a node without pools.
fn plain_cpus() -> PoolSet {
    PoolSet::of(0)
}

impl Slots {
    pub(crate) fn new(total: u32, offer: Option<&Offer>, mutant: Option<Mutant>) -> Self {
        let pools = offer.map(|offer| {
            let pools = Pools::new(offer.clone());
            let one_cpu = pools.resolve(&Request::one_cpu()).ok();
            Box::new(NodePools { pools, one_cpu, mutant })
        });
        Self { free: (0..total).collect(), wide: BTreeMap::new(), total, paused: false, pools }
    }
    /// The free slots; a paused node has none.
    pub(crate) fn free(&self) -> u32 {
        if self.paused { 0 } else { self.free.len() as u32 }
    }
    pub(crate) fn busy(&self) -> u32 {
        self.total - self.free.len() as u32
    }
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }
    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }
    pub(crate) fn total(&self) -> u32 {
        self.total
    }
    /// The free amounts of the pools, in the order of the node's offer; a paused node has none.
    pub(crate) fn free_units(&self) -> Vec<u64> {
        let free = self.pools.as_ref().map_or_else(Vec::new, |own| own.pools.free_units());
        if self.paused { vec![0; free.len()] } else { free }
    }
    /// Prepares a request for this node; `None`: it never fits.
    pub(crate) fn resolve(&self, request: &Request) -> Option<Fit> {
        match &self.pools {
            Some(own) => own.pools.resolve(request).ok(),
            None => Offer::of_cpus(self.total).ok()?.resolve(request).ok(),
        }
    }
    /// The preferences of the node.
    pub(crate) fn preferences(&self) -> &[Preference] {
        self.pools.as_ref().map_or(&[], |own| own.pools.offer().preferences())
    }
    /// The number of the variant that a task would get now.
    pub(crate) fn variant_outside(&self, fit: &Fit, kept: PoolSet) -> Option<usize> {
        self.pools.as_ref()?.pools.variant_outside(fit, kept)
    }
    /// The reasons why a request does not fit now.
    pub(crate) fn refusal(&self, request: &Request) -> Option<Refusal> {
        self.pools.as_ref()?.pools.refusal(request)
    }
    /// The names of the pools of a set.
    pub(crate) fn names(&self, set: PoolSet) -> Vec<Name> {
        match &self.pools {
            Some(own) => own.pools.names(set).into_iter().cloned().collect(),
            None => vec![Name::cpus()],
        }
    }
    pub(crate) fn cpus_set(&self) -> PoolSet {
        self.pools.as_ref().map_or_else(plain_cpus, |own| own.pools.cpus_set())
    }

    /// Whether the needs are free outside of the kept pools.
    pub(crate) fn fits(&self, need: Need<'_>, kept: PoolSet) -> bool {
        let starts = !self.paused || matches!(need, Need::Nothing);
        starts && self.is_free(need, kept)
    }
    /// The same, whether the node is paused or not.
    fn is_free(&self, need: Need<'_>, kept: PoolSet) -> bool {
        match (need, &self.pools) {
            (Need::Nothing, _) => true,
            (Need::NotYet | Need::Never, _) => false,
            (Need::Cpus(cpus), _) => {
                cpus as usize <= self.free.len() && !self.cpus_set().meets(kept)
            }
            (Need::Fit(fit), Some(own)) => own.pools.fits_outside(fit, kept),
            (Need::Fit(fit), None) => self.is_free(Need::Cpus(fit.cpus(self.total)), kept),
        }
    }
    /// Whether the free amounts are enough for `times` tasks of a request.
    pub(crate) fn fits_times(&self, request: &Request, need: Need<'_>, times: usize) -> bool {
        if self.paused {
            return false;
        }
        if times <= 1 {
            return times == 0 || self.fits(need, PoolSet::EMPTY);
        }
        match (need, &self.pools) {
            (Need::Fit(_), Some(own)) => {
                let offer = Totals::from(own.pools.offer());
                let mut free = offer.with_free(&own.pools.free_units());
                (0..times).all(|_| free.take(request))
            }
            (Need::Fit(fit), None) => {
                (fit.cpus(self.total) as usize).saturating_mul(times) <= self.free.len()
            }
            (Need::Nothing | Need::Cpus(_) | Need::NotYet | Need::Never, _) => false,
        }
    }
    /// The pools that are short of the needs now.
    pub(crate) fn short(&self, need: Need<'_>) -> PoolSet {
        match (need, &self.pools) {
            (Need::Nothing | Need::NotYet | Need::Never, _) => PoolSet::EMPTY,
            (Need::Fit(fit), Some(own)) => own.pools.short(fit),
            (Need::Cpus(_) | Need::Fit(_), _) if self.fits(need, PoolSet::EMPTY) => PoolSet::EMPTY,
            (Need::Cpus(_) | Need::Fit(_), _) => self.cpus_set(),
        }
    }
    /// Whether the seat has something of these pools.
    pub(crate) fn meets(&self, seat: &Seat, set: PoolSet) -> bool {
        match (&seat.claim, &self.pools) {
            (Some(claim), Some(own)) => own.pools.meets(claim, set),
            _ => self.cpus_set().meets(set),
        }
    }

    /// Takes the needs outside of the kept pools, with the lowest free slots. `None`: they are not
    /// free.
    pub(crate) fn take(&mut self, need: Need<'_>, kept: PoolSet) -> Option<Seat> {
        if !self.fits(need, kept) {
            return None;
        }
        self.claim_seat(need, kept)
    }
    fn claim_seat(&mut self, need: Need<'_>, kept: PoolSet) -> Option<Seat> {
        let claim = match &mut self.pools {
            Some(own) => Some(Box::new(own.claim(need, kept)?)),
            None => None,
        };
        let cpus = match (need, &claim, &self.pools) {
            (Need::Cpus(cpus), ..) => cpus,
            (_, Some(claim), Some(own)) => own.cpus_of(claim),
            (Need::Fit(fit), ..) => fit.cpus(self.total),
            _ => return None,
        };
        Some(Seat { first: self.take_slots(cpus), claim })
    }
    /// Takes the needs of a task that runs here and had given its seat back. A pause does not hold
    /// it back: a paused node finishes what runs.
    pub(crate) fn take_again(&mut self, need: Need<'_>) -> Option<Seat> {
        if !self.is_free(need, PoolSet::EMPTY) {
            return None;
        }
        self.claim_seat(need, PoolSet::EMPTY)
    }
    /// As [`Self::take_again`], for a task that had a claim: it gets the same devices.
    pub(crate) fn claim_again(&mut self, rested: &Rested) -> Option<Seat> {
        let own = self.pools.as_mut()?;
        let claim = own.pools.claim_again(rested)?;
        let cpus = own.cpus_of(&claim);
        Some(Seat { first: self.take_slots(cpus), claim: Some(Box::new(claim)) })
    }
    /// Whether the attempt waits for certain devices, and not for any slot.
    pub(crate) fn waits_for_devices(&self, rested: &Rested) -> bool {
        self.pools.as_ref().is_some_and(|own| rested.has_devices(&own.pools))
    }
    /// Takes back the seat of a task that runs on without it.
    pub(crate) fn rest(&mut self, seat: Seat) -> Option<Rested> {
        let Seat { first, claim } = seat;
        self.give_back(Some(Seat { first, claim: None }));
        let own = self.pools.as_mut()?;
        Some(own.pools.rest(*claim?))
    }
    #[cfg(test)]
    pub(crate) fn take_cpus(&mut self, cpus: u32) -> u32 {
        self.take(Need::Cpus(cpus), PoolSet::EMPTY).expect("they are free").first
    }
    fn take_slots(&mut self, cpus: u32) -> u32 {
        assert!(cpus > 0, "a task takes at least one slot");
        assert!(cpus as usize <= self.free.len(), "slots are counted before they are taken");
        let first = self.free.pop_first().expect("counted above");
        let more: Vec<u32> = (1..cpus).filter_map(|_| self.free.pop_first()).collect();
        if !more.is_empty() {
            self.wide.insert(first, more);
        }
        first
    }
    /// The further slots of a task that takes several.
    pub(crate) fn more(&self, first: u32) -> &[u32] {
        self.wide.get(&first).map(AsRef::as_ref).unwrap_or_default()
    }
    pub(crate) fn give_back(&mut self, seat: Option<Seat>) {
        let Some(Seat { first, claim }) = seat else { return };
        let fresh = self.free.insert(first);
        assert!(fresh, "slot {first} was free already");
        self.free.extend(self.wide.remove(&first).unwrap_or_default());
        if let (Some(claim), Some(own)) = (claim, &mut self.pools) {
            own.free(*claim);
        }
    }

    /// The claimed part of a seat, for its command.
    pub(crate) fn granted(&self, seat: &Seat) -> Option<Box<proto::work::Granted>> {
        let (claim, own) = (seat.claim.as_ref()?, self.pools.as_ref()?);
        let pools = own.pools.claimed(claim).into_iter().map(|pool| proto::work::GrantedPool {
            name: pool.name.to_string(),
            variable: pool.name.variable(),
            units: pool.amount.units(),
            indices: pool.indices.into_iter().map(str::to_owned).collect(),
        });
        Some(Box::new(proto::work::Granted { variant: claim.variant(), pools: pools.collect() }))
    }
}

impl NodePools {
    fn claim(&mut self, need: Need<'_>, kept: PoolSet) -> Option<Claim> {
        match need {
            Need::Cpus(1) => self.pools.claim_outside(self.one_cpu.as_ref()?, kept),
            Need::Cpus(cpus) => {
                let fit = self.pools.resolve(&Request::cpus(cpus)).ok()?;
                self.pools.claim_outside(&fit, kept)
            }
            Need::Fit(fit) if self.mutant == Some(Mutant::ClaimGivenTwice) => {
                self.pools.clone().claim_outside(fit, kept)
            }
            Need::Fit(fit) => self.pools.claim_outside(fit, kept),
            Need::Nothing | Need::NotYet | Need::Never => None,
        }
    }
    fn cpus_of(&self, claim: &Claim) -> u32 {
        let claimed = self.pools.claimed(claim);
        let cpus = claimed.iter().find(|pool| *pool.name == Name::cpus());
        cpus.map_or(1, |cpus| cpus.indices.len() as u32).max(1)
    }
    fn free(&mut self, claim: Claim) {
        match self.mutant {
            Some(Mutant::ClaimNotFreed | Mutant::ClaimGivenTwice)
                if matches!(claim, Claim::Variant(_)) => {}
            _ => self.pools.free(claim),
        }
    }
}
