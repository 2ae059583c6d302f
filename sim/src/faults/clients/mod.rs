//! Clients in the fault world, and the random jobs that they submit.

pub(crate) mod hot_key_client;
pub(crate) mod job_client;
pub(crate) mod kv_client;
mod query_client;
pub(crate) mod random_jobs;
pub(crate) mod stale_map_client;
