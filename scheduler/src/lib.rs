/*!
Scheduling: the ledger of tasks, Algorithm 1, the ready queues, work stealing, slots.

A [`Scheduler`] is one node's share of the cluster's scheduling. As a *home* it owns the records of
the tasks in its partitions (WaitQ is the set of waiting records, CompleteQ the outbox of credits).
As a *holder* it queues ready tasks (LReadyQ, SReadyQ), fetches their inputs and runs them. It
handles messages and client requests, and notes in [`Out`] what must be stored, sent and launched.
It never knows how records are stored or sent: the node stores [`Facts`] and sends messages.

The state of a [`Scheduler`] is one struct for each folder: `Routing`, `Objects`, `Holder`, `Home`,
`Stealing` and `PolicyState`. Methods of [`Scheduler`] are steps that concern several folders.

Where to change what: a policy → `policy/`; the order of queues → `holder/queues/ready_queue.rs`;
stealing → `stealing/`; what a record holds → `home/ledger/records/`; launches and ends →
`holder/execution.rs`; from queue to slot → `holder/staging/`, and back → `holder/requeue.rs`;
fetches → `objects/fetch.rs`; objects here → `objects/object_table.rs`, places of copies →
`objects/directory.rs`, reader counts → `objects/reader_counts.rs`.
*/

mod holder;
mod home;
mod limits;
mod mutant;
mod objects;
mod output;
mod policy;
mod routing;
mod scheduler;
mod stealing;
#[cfg(test)]
mod tests;

pub use holder::gangs::GangPart;
pub use holder::jobs::job_tallies::Usage;
pub use home::ledger::{ChunkError, LedgerRecord, RecordError};
pub use home::requests::Request;
pub use home::task_inventory::{Believed, Census, JobCount};
pub use mutant::Mutant;
pub use output::{Answer, Facts, Mail, Out, Place, Turns, VariableFacts, VariableNews};
pub use policy::{
    Adaptive, Assumptions, Candidate, Decision, Lengths, Located, Order, Policy, Tuning,
    TuningError, UNLIMITED_AGE, UNLIMITED_BYTES, decide, earliest, excess,
};
pub use routing::partition_owners::Homes;
pub use routing::traits::{AddressedTo, Channel, MessageTraits, traits};
pub use scheduler::{Options, Scheduler, Stats};
