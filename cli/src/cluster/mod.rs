//! Verbs that act on a running cluster.

mod captured;
pub(crate) mod config;
mod failures;
mod forget;
pub(crate) mod job;
pub(crate) mod job_info;
pub(crate) mod jobs;
pub(crate) mod kept_outputs;
pub(crate) mod kv;
mod kv_batch;
mod measurements;
pub(crate) mod node_list;
pub(crate) mod node_removal;
pub(crate) mod open_job;
mod records;
mod replicas;
pub(crate) mod reports;
pub(crate) mod results;
mod retry;
mod streams;
pub(crate) mod submit;
pub(crate) mod task;
pub(crate) mod token;
pub(crate) mod tuning;
mod unpack;
