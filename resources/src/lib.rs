/*!
Resources: the *pools* of a node, the *requests* of tasks, and the *claims* that match them.

A pool has a name and one of three kinds. An *indexed* pool has named indices in groups, such as
cpus in NUMA groups. A *sum* is an amount, such as bytes of memory. A *label* has no amount: a node
has it or lacks it.

A request has up to eight variants; each asks for amounts, with a policy, and for labels. Requests
with the same text are one *class*.

This crate has no IO, no clock and no random choice: the same calls give the same claims. It does
not know tasks, nodes or messages.

| place | content |
|---|---|
| [`Amount`] | fixed point numbers of 1/10,000 |
| [`Offer`], [`Pool`] | the pools of a node; the texts of `--resource`, `--label` and `--coupling` |
| [`Request`], [`Variant`] | the needs of a task, and their text: needs, labels and a weight |
| [`ClassId`], [`class_of_bytes`] | the number of equal requests |
| [`Pools`] | the free part of an offer: [`Pools::resolve`], [`Pools::claim`], [`Pools::free`] |
| [`Rested`] | a claim that is given back while its process lives on |
| [`Totals`] | the amounts of a node, for the map of its cluster |
| [`Preference`] | which ready tasks a node takes first |
| [`EndOfLife`] | the known end of a node |
| [`Refusal`] | the reason why a request does not fit, now or ever |
| `wire` | the bytes of a request and of an offer |
*/

mod amount;
mod class;
mod end_of_life;
mod fit;
mod groups;
pub mod limits;
mod mutant;
mod name;
mod offer;
mod pools;
mod refusal;
mod request;
mod request_text;
mod select;
mod state;
mod totals;
mod wire;

#[cfg(test)]
mod tests;

pub use amount::{Amount, AmountError};
pub use class::{ClassId, class_of_bytes};
pub use end_of_life::EndOfLife;
pub use fit::Fit;
pub use mutant::Mutant;
pub use name::{Name, NameError};
pub use offer::{
    Coupling, GroupRef, Offer, OfferError, Pick, Pool, PoolKind, Preference, parse_coupling,
    parse_no_pool, parse_pool, parse_preferences,
};
pub use pools::{Claim, ClaimedPool, PoolClaim, PoolSet, Pools, Rested, VariantClaim};
pub use refusal::{Reason, Refusal, VariantRefusal};
pub use request::{Policy, Quantity, Request, RequestError, Shape, Variant, Want};
pub use request_text::{parse_variant, parse_want};
pub use totals::Totals;
pub use wire::WireError;
