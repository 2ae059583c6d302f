//! The amounts of a node without the names of its indices: small enough for the map of a cluster.

use prost::Message;

use crate::amount::Amount;
use crate::end_of_life::EndOfLife;
use crate::limits::{LABELS_MAX, POOLS_MAX};
use crate::name::Name;
use crate::offer::{Offer, PoolKind, Preference};
use crate::refusal::{Reason, Refusal, VariantRefusal};
use crate::request::{Quantity, Request, Variant, Want};
use crate::wire::{WireError, read_preferences};

/// The amount of each pool and the labels of a node, in all or free.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Totals {
    /// Sorted by name. The second amount is the free one.
    pools: Vec<(Name, Amount, Amount)>,
    /// Sorted.
    labels: Vec<Name>,
    /// When the node ends, if that is known.
    end: Option<EndOfLife>,
    /// Which ready tasks the node takes first.
    preferences: Vec<Preference>,
}

#[derive(Clone, PartialEq, Message)]
struct WireTotals {
    #[prost(message, repeated, tag = "1")]
    pools: Vec<WireTotal>,
    #[prost(string, repeated, tag = "2")]
    labels: Vec<String>,
    #[prost(message, optional, tag = "3")]
    end: Option<WireEnd>,
    #[prost(string, repeated, tag = "4")]
    preferences: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct WireEnd {
    #[prost(fixed64, tag = "1")]
    at_ns: u64,
    #[prost(uint64, tag = "2")]
    margin_ns: u64,
}

#[derive(Clone, PartialEq, Message)]
struct WireTotal {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    units: u64,
}

impl From<&Offer> for Totals {
    fn from(offer: &Offer) -> Self {
        let preferences = offer.preferences().to_vec();
        let mut totals = Self { preferences, ..Self::default() };
        for pool in offer.pools() {
            match (&pool.kind, pool.amount()) {
                (PoolKind::Label, _) | (_, None) => totals.labels.push(pool.name.clone()),
                (_, Some(amount)) => totals.pools.push((pool.name.clone(), amount, amount)),
            }
        }
        totals
    }
}

impl Totals {
    /// A node of cpus alone.
    #[must_use]
    pub fn cpus(cpus: u32) -> Self {
        let amount = Amount::count(cpus as usize);
        Self { pools: vec![(Name::cpus(), amount, amount)], ..Self::default() }
    }

    /// The same node with another end.
    #[must_use]
    pub fn with_end(self, end: Option<EndOfLife>) -> Self {
        Self { end, ..self }
    }
    #[must_use]
    pub fn end(&self) -> Option<EndOfLife> {
        self.end
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let pool = |(name, amount, _): &(Name, Amount, Amount)| WireTotal {
            name: name.to_string(),
            units: amount.units(),
        };
        let pools = self.pools.iter().map(pool).collect();
        let labels = self.labels.iter().map(Name::to_string).collect();
        let end = self.end.map(|end| WireEnd { at_ns: end.at_ns(), margin_ns: end.margin_ns() });
        let preferences = self.preferences.iter().map(Preference::to_string).collect();
        WireTotals { pools, labels, end, preferences }.encode_to_vec()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let wire = WireTotals::decode(bytes)?;
        let preferences = &wire.preferences;
        if wire.pools.len() > POOLS_MAX
            || wire.labels.len() > LABELS_MAX
            || preferences.len() > POOLS_MAX + LABELS_MAX
        {
            return Err(WireError::TooMany);
        }
        let preferences = read_preferences(preferences)?;
        let mut pools = Vec::with_capacity(wire.pools.len());
        for WireTotal { name, units } in wire.pools {
            let amount = Amount::from_units(units);
            pools.push((Name::pool(&name)?, amount, amount));
        }
        let labels = wire.labels.iter().map(|label| Name::label(label));
        let mut labels = labels.collect::<Result<Vec<_>, _>>()?;
        pools.sort();
        labels.sort();
        let end = wire.end.map(|end| EndOfLife::from_parts(end.at_ns, end.margin_ns));
        Ok(Self { pools, labels, end, preferences })
    }

    /// The same node with these pools and labels too, where it lacks them.
    #[must_use]
    pub fn with_missing(
        mut self,
        pools: impl IntoIterator<Item = (Name, Amount)>,
        labels: impl IntoIterator<Item = Name>,
    ) -> Self {
        for (name, amount) in pools {
            if !self.pools.iter().any(|(own, ..)| *own == name) {
                self.pools.push((name, amount, amount));
            }
        }
        for label in labels {
            if !self.labels.contains(&label) {
                self.labels.push(label);
            }
        }
        self.pools.sort();
        self.labels.sort();
        self
    }

    /// The pools with their whole amounts.
    pub fn pools(&self) -> impl Iterator<Item = (&Name, Amount)> {
        self.pools.iter().map(|(name, amount, _)| (name, *amount))
    }
    /// The pools with their free amounts.
    pub fn free(&self) -> impl Iterator<Item = (&Name, Amount)> {
        self.pools.iter().map(|(name, _, free)| (name, *free))
    }
    #[must_use]
    pub fn labels(&self) -> &[Name] {
        &self.labels
    }

    /// Which ready tasks the node takes first.
    #[must_use]
    pub fn preferences(&self) -> &[Preference] {
        &self.preferences
    }

    /// The group of the node: that of the first of its labels that name one.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.labels.iter().find_map(Name::group_name)
    }

    /// The same node with these free amounts, in units and in the order of its pools. Missing
    /// amounts are 0.
    #[must_use]
    pub fn with_free(&self, free: &[u64]) -> Self {
        let mut totals = self.clone();
        let free = free.iter().copied().chain(std::iter::repeat(0));
        for (pool, units) in totals.pools.iter_mut().zip(free) {
            pool.2 = Amount::from_units(units).min(pool.1);
        }
        totals
    }

    /// Whether a variant fits the free amounts.
    #[must_use]
    pub fn fits(&self, request: &Request) -> bool {
        request.variants().iter().any(|variant| self.places(variant).is_ok())
    }

    /// Takes the needs of the first variant that fits, if any fits.
    pub fn take(&mut self, request: &Request) -> bool {
        let Some(places) = request.variants().iter().find_map(|it| self.places(it).ok()) else {
            return false;
        };
        for (at, amount) in places {
            let free = &mut self.pools[at].2;
            *free = free.checked_sub(amount).unwrap_or_default();
        }
        true
    }

    /// The reasons why no variant fits.
    #[must_use]
    pub fn refusal(&self, request: &Request) -> Option<Refusal> {
        let mut variants = Vec::new();
        for (variant, wanted) in (0..).zip(request.variants()) {
            match self.places(wanted) {
                Ok(_) => return None,
                Err(reasons) => variants.push(VariantRefusal { variant, reasons }),
            }
        }
        Some(Refusal { variants })
    }

    /// The pool and the amount of each need.
    fn places(&self, variant: &Variant) -> Result<Vec<(usize, Amount)>, Vec<Reason>> {
        let lacks = variant.labels().iter().filter(|label| !self.labels.contains(label));
        let mut reasons: Vec<Reason> =
            lacks.map(|label| Reason::NoLabel { label: label.clone() }).collect();
        let mut places: Vec<(usize, Amount)> = Vec::new();
        for want in variant.wants() {
            match self.place(want) {
                Ok(place) if places.iter().any(|(at, _)| *at == place.0) => {
                    let one = self.pools[place.0].0.clone();
                    reasons.push(Reason::SamePool { one, other: want.pool.clone() });
                }
                Ok(place) => places.push(place),
                Err(reason) => reasons.push(reason),
            }
        }
        if reasons.is_empty() { Ok(places) } else { Err(reasons) }
    }

    fn place(&self, want: &Want) -> Result<(usize, Amount), Reason> {
        let exact = self.pools.iter().position(|(name, ..)| *name == want.pool);
        let is_kind = |at: &usize| match exact {
            Some(exact) => *at == exact,
            None => want.pool.covers(&self.pools[*at].0),
        };
        let mut shortage = None;
        for at in (0..self.pools.len()).filter(is_kind) {
            let (_, total, free) = self.pools[at];
            let amount = match want.quantity {
                Quantity::All => total,
                Quantity::Amount(amount) => amount,
            };
            if amount <= free {
                return Ok((at, amount));
            }
            shortage.get_or_insert_with(|| match amount > total {
                true => Reason::TooMuch { want: want.clone(), total },
                false => Reason::Taken { want: want.clone(), free, total },
            });
        }
        let none = || Reason::NoPool { pool: want.pool.clone(), similar: None };
        Err(shortage.unwrap_or_else(none))
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut separator = "";
        for (name, amount, _) in &self.pools {
            match name.is_bytes() {
                true => write!(f, "{separator}{name}={}", amount.rounded_size())?,
                false => write!(f, "{separator}{name}={amount}")?,
            }
            separator = ", ";
        }
        for label in &self.labels {
            write!(f, "{separator}label={label}")?;
            separator = ", ";
        }
        Ok(())
    }
}
