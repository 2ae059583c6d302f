/*!
Scheduling: the ledger of tasks, Algorithm 1, the ready queues, work stealing, slots.

A [`Scheduler`] is one node's share of the cluster's scheduling. As a *home* it owns the records of
the tasks in its partitions (WaitQ is the set of waiting records, CompleteQ the outbox of credits).
As a *holder* it queues ready tasks (LReadyQ, SReadyQ), fetches their inputs and runs them. It
handles messages and client requests, and notes in [`Out`] what must be stored, sent and launched.
It never knows how records are stored or sent: the node stores [`Facts`] and sends messages.

Where to change what: a policy → `policy/`; the order of queues → `queue.rs`; stealing →
`steal.rs` (thief), `grant.rs` (victim); what a record holds → `ledger/`; launches and ends →
`run.rs`; from queue to slot → `staging.rs`, and back → `offering.rs`; fetches → `fetching.rs`;
objects here → `objects.rs`, places of copies → `locations.rs`, reader counts →
`readers.rs`.
*/

mod admission;
mod asking;
#[cfg(test)]
mod asking_tests;
#[cfg(test)]
mod captured_tests;
mod census;
mod client;
#[cfg(test)]
mod credit_tests;
mod data;
mod deaths;
#[cfg(test)]
mod deaths_tests;
#[cfg(test)]
mod deciding_tests;
#[cfg(test)]
mod eft_tests;
mod ending;
#[cfg(test)]
mod ending_tests;
mod fetching;
mod forget;
mod grant;
mod guests;
#[cfg(test)]
mod hand_on_tests;
mod handover;
mod hints;
mod home;
mod homes;
mod jobs;
mod keeping;
mod leaving;
mod ledger;
mod locations;
mod lost;
#[cfg(test)]
mod lost_tests;
mod mutant;
mod near;
mod objects;
mod offering;
mod out;
mod parked;
mod parts;
#[cfg(test)]
mod past_tests;
mod policy;
mod pushing;
mod queue;
mod readers;
mod recall;
mod reconcile;
#[cfg(test)]
mod reconcile_tests;
mod removal;
mod replicas;
mod roomless;
#[cfg(test)]
mod rounds_tests;
mod routing;
mod run;
mod scheduler;
mod slots;
mod staging;
#[cfg(test)]
mod staging_tests;
mod stall;
#[cfg(test)]
mod stall_tests;
mod steal;
#[cfg(test)]
mod steal_tests;
mod takeover;
#[cfg(test)]
mod takeover_tests;
#[cfg(test)]
mod test_nodes;
mod told;
mod work;

pub use census::{Believed, Census, JobCount};
pub use client::Request;
pub use homes::Homes;
pub use ledger::{ChunkError, LedgerRecord, RecordError};
pub use mutant::{FoundBy, Mutant};
pub use out::{Answer, Facts, Out, Place};
pub use parts::Usage;
pub use policy::{
    Adaptive, Assumptions, Candidate, Decision, Lengths, Located, Order, Policy, Tuning,
    TuningError, UNLIMITED_AGE, UNLIMITED_BYTES, decide, earliest, excess,
};
pub use routing::traits::{AddressedTo, Channel, MessageTraits, traits};
pub use scheduler::{Options, Scheduler, Stats};
