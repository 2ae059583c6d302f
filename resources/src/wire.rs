/*!
The bytes of requests and offers, which are those of these protobuf messages:

```proto
message Request {
  repeated Variant variants = 1;  // none: one cpu
  uint64 patience_ns = 2;         // 0 with one variant
}
message Variant {
  repeated Want wants = 1;     // sorted by pool
  repeated string labels = 2;  // sorted
  uint32 weight = 3;           // 0: 1
}
message Want {
  string pool = 1;
  uint64 units = 2;   // 1/10,000; 0: the whole pool
  uint32 policy = 3;  // 0 compact, 1 tight, 2 scatter; 4 more: strict
}
message Offer { repeated Pool pools = 1; repeated Coupling couplings = 2;
                repeated string preferences = 3; }
message Pool {
  string name = 1;
  uint64 units = 2;           // of a sum, in 1/10,000
  repeated Group groups = 3;  // of an indexed pool; neither: a label
}
message Group { repeated string indices = 1; }
message Coupling {
  uint32 left_pool = 1;  uint32 left_group = 2;   // positions in this offer
  uint32 right_pool = 3; uint32 right_group = 4;
  uint32 weight = 5;
}
```

Equal requests have equal bytes: pools and labels are sorted, and fields are in order. The request
of one cpu has no bytes.
*/

use std::time::Duration;

use prost::Message;
use thiserror::Error;

use crate::amount::Amount;
use crate::limits::{
    COUPLINGS_MAX, CPUS_MAX, GROUPS_MAX, LABELS_MAX, OFFER_BYTES_MAX, POOLS_MAX, REQUEST_BYTES_MAX,
    VARIANTS_MAX,
};
use crate::name::{Name, NameError};
use crate::offer::{
    Coupling, GroupRef, Offer, OfferError, Pool, PoolKind, Preference, parse_preferences,
};
use crate::request::{Policy, Quantity, Request, RequestError, Shape, Variant, Want};

/// The reason why bytes are no request or no offer.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum WireError {
    #[error("{0} bytes are too many")]
    TooLong(usize),
    #[error("the bytes are not a message: {0}")]
    Damaged(#[from] prost::DecodeError),
    #[error("there is no policy {0}")]
    Policy(u32),
    #[error("a list is too long")]
    TooMany,
    #[error("a coupling joins a pool that is not in the offer")]
    NoPool,
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Offer(#[from] OfferError),
}

#[derive(Clone, PartialEq, Message)]
struct WireRequest {
    #[prost(message, repeated, tag = "1")]
    variants: Vec<WireVariant>,
    #[prost(uint64, tag = "2")]
    patience_ns: u64,
}

#[derive(Clone, PartialEq, Message)]
struct WireVariant {
    #[prost(message, repeated, tag = "1")]
    wants: Vec<WireWant>,
    #[prost(string, repeated, tag = "2")]
    labels: Vec<String>,
    #[prost(uint32, tag = "3")]
    weight: u32,
}

#[derive(Clone, PartialEq, Message)]
struct WireWant {
    #[prost(string, tag = "1")]
    pool: String,
    #[prost(uint64, tag = "2")]
    units: u64,
    #[prost(uint32, tag = "3")]
    policy: u32,
}

#[derive(Clone, PartialEq, Message)]
struct WireOffer {
    #[prost(message, repeated, tag = "1")]
    pools: Vec<WirePool>,
    #[prost(message, repeated, tag = "2")]
    couplings: Vec<WireCoupling>,
    #[prost(string, repeated, tag = "3")]
    preferences: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct WirePool {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    units: u64,
    #[prost(message, repeated, tag = "3")]
    groups: Vec<WireGroup>,
}

#[derive(Clone, PartialEq, Message)]
struct WireGroup {
    #[prost(string, repeated, tag = "1")]
    indices: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct WireCoupling {
    #[prost(uint32, tag = "1")]
    left_pool: u32,
    #[prost(uint32, tag = "2")]
    left_group: u32,
    #[prost(uint32, tag = "3")]
    right_pool: u32,
    #[prost(uint32, tag = "4")]
    right_group: u32,
    #[prost(uint32, tag = "5")]
    weight: u32,
}

const STRICT: u32 = 4;

fn policy_number(policy: Policy) -> u32 {
    let shape = match policy.shape {
        Shape::Compact => 0,
        Shape::Tight => 1,
        Shape::Scatter => 2,
    };
    shape + if policy.strict { STRICT } else { 0 }
}

fn policy_of(number: u32) -> Result<Policy, WireError> {
    let shape = match number % STRICT {
        0 => Shape::Compact,
        1 => Shape::Tight,
        2 => Shape::Scatter,
        _ => return Err(WireError::Policy(number)),
    };
    match number / STRICT {
        0 => Ok(Policy { shape, strict: false }),
        1 => Ok(Policy { shape, strict: true }),
        _ => Err(WireError::Policy(number)),
    }
}

impl Request {
    /// The canonical bytes; none for one cpu.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        if self.is_one_cpu() {
            return Vec::new();
        }
        let want = |want: &Want| WireWant {
            pool: want.pool.to_string(),
            units: match want.quantity {
                Quantity::Amount(amount) => amount.units(),
                Quantity::All => 0,
            },
            policy: policy_number(want.policy),
        };
        let variant = |variant: &Variant| WireVariant {
            wants: variant.wants().iter().map(want).collect(),
            labels: variant.labels().iter().map(Name::to_string).collect(),
            weight: if variant.weight() == 1 { 0 } else { variant.weight().into() },
        };
        let variants = self.variants().iter().map(variant).collect();
        let patience_ns = u64::try_from(self.patience().as_nanos()).unwrap_or(u64::MAX);
        WireRequest { variants, patience_ns }.encode_to_vec()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() > REQUEST_BYTES_MAX {
            return Err(WireError::TooLong(bytes.len()));
        }
        let WireRequest { variants, patience_ns } = Message::decode(bytes)?;
        if variants.is_empty() {
            return Ok(Self::one_cpu());
        }
        limit(&variants, VARIANTS_MAX)?;
        let want = |want: WireWant| {
            let quantity = match want.units {
                0 => Quantity::All,
                units => Quantity::Amount(Amount::from_units(units)),
            };
            Ok(Want::new(Name::pool(&want.pool)?, quantity, policy_of(want.policy)?))
        };
        let variant = |variant: WireVariant| {
            limit(&variant.wants, POOLS_MAX)?;
            limit(&variant.labels, LABELS_MAX)?;
            let wants = variant.wants.into_iter().map(want).collect::<Result<_, WireError>>()?;
            let labels = variant.labels.iter().map(|label| Name::label(label));
            let weight = if variant.weight == 0 { 1 } else { variant.weight };
            let weight = u16::try_from(weight).map_err(|_| WireError::TooMany)?;
            Ok(Variant::new(wants, labels.collect::<Result<_, _>>()?, weight)?)
        };
        let variants = variants.into_iter().map(variant).collect::<Result<_, WireError>>()?;
        Ok(Self::new(variants)?.with_patience(Duration::from_nanos(patience_ns)))
    }
}

impl Offer {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let at = |end: &GroupRef| {
            let pool = self.position(&end.pool).expect("checked when the offer was made");
            (pool as u32, end.group as u32)
        };
        let pool = |pool: &Pool| {
            let (units, groups) = match &pool.kind {
                PoolKind::Label => (0, Vec::new()),
                PoolKind::Sum(amount) => (amount.units(), Vec::new()),
                PoolKind::Indexed(groups) => {
                    let group = |indices: &Vec<String>| WireGroup { indices: indices.clone() };
                    (0, groups.iter().map(group).collect())
                }
            };
            WirePool { name: pool.name.to_string(), units, groups }
        };
        let coupling = |coupling: &Coupling| {
            let (left_pool, left_group) = at(&coupling.left);
            let (right_pool, right_group) = at(&coupling.right);
            let weight = coupling.weight.into();
            WireCoupling { left_pool, left_group, right_pool, right_group, weight }
        };
        let pools = self.pools().iter().map(pool).collect();
        let couplings = self.couplings().iter().map(coupling).collect();
        let preferences = self.preferences().iter().map(Preference::to_string).collect();
        WireOffer { pools, couplings, preferences }.encode_to_vec()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() > OFFER_BYTES_MAX {
            return Err(WireError::TooLong(bytes.len()));
        }
        let WireOffer { pools, couplings, preferences } = Message::decode(bytes)?;
        limit(&preferences, POOLS_MAX + LABELS_MAX)?;
        limit(&pools, POOLS_MAX + LABELS_MAX)?;
        limit(&couplings, COUPLINGS_MAX)?;
        let pool = |pool: WirePool| {
            limit(&pool.groups, GROUPS_MAX)?;
            pool.groups.iter().try_for_each(|group| limit(&group.indices, CPUS_MAX))?;
            match (pool.units, pool.groups.is_empty()) {
                (0, true) => Ok(Pool::label(Name::label(&pool.name)?)),
                (units, true) => Ok(Pool::sum(Name::pool(&pool.name)?, Amount::from_units(units))?),
                (_, false) => {
                    let groups = pool.groups.into_iter().map(|group| group.indices).collect();
                    Ok(Pool::indexed(Name::pool(&pool.name)?, groups)?)
                }
            }
        };
        let pools = pools.into_iter().map(pool).collect::<Result<Vec<_>, WireError>>()?;
        let end = |pool: u32, group: u32| {
            let name = pools.get(pool as usize).map(|pool| pool.name.clone());
            let pool = name.ok_or(WireError::NoPool)?;
            Ok::<_, WireError>(GroupRef { pool, group: group as usize })
        };
        let coupling = |it: WireCoupling| {
            let (left, right) =
                (end(it.left_pool, it.left_group)?, end(it.right_pool, it.right_group)?);
            let weight = u16::try_from(it.weight).map_err(|_| WireError::TooMany)?;
            Ok(Coupling::new(left, right, weight))
        };
        let couplings = couplings.into_iter().map(coupling).collect::<Result<_, WireError>>()?;
        Ok(Self::new(pools, couplings)?.with_preferences(read_preferences(&preferences)?)?)
    }
}

pub(crate) fn read_preferences(texts: &[String]) -> Result<Vec<Preference>, WireError> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    Ok(parse_preferences(&texts.join(","))?)
}

fn limit<T>(list: &[T], most: usize) -> Result<(), WireError> {
    if list.len() > most { Err(WireError::TooMany) } else { Ok(()) }
}
