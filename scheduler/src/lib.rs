//! Scheduling: ledger, Algorithm 1, queues, stealing, slots.
mod mutant;
mod policy;
pub use mutant::Mutant;
pub use policy::Policy;
