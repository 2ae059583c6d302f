/*!
Allocations of a batch system for the nodes of a cluster, without a centre.

A *queue* says what to ask the batch system for. An *intent* is one wanted allocation: it is written
before the submission, and at most one batch job of it ever works. The *owner* of a site submits; it
is any node that may, and holds a lease. All of this lies in the key-value store of the cluster.

This crate has no IO, no clock and no random choice. [`Owner::handle`] takes the time and an input
and names the next effect: a read or a swap of a key, or a command of the batch system.

| place | content |
|---|---|
| [`Owner`] | one round after another: the lease, the batch jobs, the demand, one submission |
| [`QueueConfig`], [`QueueState`] | what a queue asks for, and what its owner knows of it |
| [`Learned`] | the offer of the first node of a queue |
| [`Intent`] | from the intent to the end, and the claim of a batch job |
| [`plan`] | the demand of ready tasks, divided among the queues |
| [`Lease`] | the owner of a site, and its politeness |
| [`backend`] | the commands, the outputs and the scripts of batch systems |
*/

pub mod backend;
mod batch;
mod demand;
mod gangs;
mod intent;
pub mod keys;
mod learned;
mod lease;
pub mod limits;
mod mutant;
mod owner;
mod queue;

pub use batch::{BatchState, How, Row};
pub use demand::{Ask, ClassDemand, Demand, Offering, plan};
pub use intent::{Claim, Intent, Phase};
pub use learned::Learned;
pub use lease::Lease;
pub use mutant::Mutant;
pub use owner::{Effect, Input, Owner, Submission};
pub use queue::{QueueConfig, QueueError, QueueState, System};
