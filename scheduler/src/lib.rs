/*!
Scheduling: the ledger of tasks, Algorithm 1, the ready queues, work stealing, slots.

A [`Scheduler`] is one node's share of the cluster's scheduling. As a *home* it owns the records of
the tasks in its partitions (WaitQ is the set of waiting records, CompleteQ the outbox of credits).
As a *holder* it queues ready tasks (LReadyQ, SReadyQ), brings their inputs and runs them. It takes
messages and client requests, and notes in [`Out`] what is to be stored, sent and launched.

It never knows how records are stored or sent: [`Facts`] and messages are the node's to carry.

Where to change what: a policy → `policy/`; the order of queues → `ready_queue.rs`; stealing →
`thief.rs` (thief), `victim.rs` (victim); what a record holds → `ledger/`; launches and ends →
`execution.rs`; from queue to slot → `staging.rs`, and back → `requeue.rs`; fetches → `fetch.rs`;
copies, locations and who still reads → `data.rs`.
*/

mod admission;
mod cancellation;
#[cfg(test)]
mod captured_tests;
mod completions;
#[cfg(test)]
mod credit_tests;
mod data;
mod death_evidence;
#[cfg(test)]
mod death_evidence_tests;
mod directory;
mod drain;
#[cfg(test)]
mod earliest_finish_tests;
mod execution;
mod failover;
#[cfg(test)]
mod failover_tests;
mod fetch;
mod forget;
#[cfg(test)]
mod hand_over_tests;
mod hints;
mod job_cleanup;
#[cfg(test)]
mod job_cleanup_tests;
#[cfg(test)]
mod job_history_tests;
#[cfg(test)]
mod job_rounds_tests;
mod job_tallies;
mod jobs;
mod last_copy;
mod ledger;
mod lost_inputs;
#[cfg(test)]
mod lost_inputs_tests;
mod mutant;
mod no_space;
mod object_table;
mod output;
mod output_copies;
mod output_transfer;
mod partition_owners;
#[cfg(test)]
mod placement_tests;
mod policy;
mod push;
mod reader_counts;
mod ready_queue;
mod recall;
mod recent_completions;
mod reconcile;
#[cfg(test)]
mod reconcile_tests;
mod remote_tasks;
mod requests;
mod requeue;
mod routing;
mod scheduler;
mod shared_files;
mod slots;
mod staging;
#[cfg(test)]
mod staging_tests;
mod stall_probe;
#[cfg(test)]
mod stall_probe_tests;
mod start_permission;
#[cfg(test)]
mod start_permission_tests;
mod task;
mod task_inventory;
#[cfg(test)]
mod test_nodes;
mod thief;
#[cfg(test)]
mod thief_tests;
mod undelivered;
mod victim;

pub use job_tallies::Usage;
pub use ledger::{ChunkError, LedgerRecord, RecordError};
pub use mutant::{FoundBy, Mutant};
pub use output::{Answer, Facts, Out, Place};
pub use partition_owners::Homes;
pub use policy::{
    Adaptive, Assumptions, Candidate, Decision, Lengths, Located, Order, Policy, Tuning,
    TuningError, UNLIMITED_AGE, UNLIMITED_BYTES, decide, earliest, excess,
};
pub use requests::Request;
pub use routing::traits::{AddressedTo, Channel, MessageTraits, traits};
pub use scheduler::{Options, Scheduler, Stats};
pub use task_inventory::{Believed, Census, JobCount};
