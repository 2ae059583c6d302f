//! Verbs that act on a running cluster.

mod captured;
pub(crate) mod config;
mod entries;
mod failures;
mod fetch;
mod forget;
pub(crate) mod job;
pub(crate) mod kv;
mod kv_batch;
mod logs;
mod measurements;
pub(crate) mod node_list;
pub(crate) mod node_removal;
pub(crate) mod open_job;
mod records;
mod replicas;
pub(crate) mod results;
mod retry;
pub(crate) mod streams;
pub(crate) mod submit;
pub(crate) mod task;
mod task_list;
pub(crate) mod token;
pub(crate) mod tuning;
