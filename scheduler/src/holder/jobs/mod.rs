//! What this node keeps for whole jobs: what is here of each, and what each has used.

mod forget;
pub(crate) mod job_cleanup;
pub(crate) mod job_tallies;
