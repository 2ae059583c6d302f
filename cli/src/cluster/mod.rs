//! Verbs that act on a running cluster.

pub(crate) mod config;
pub(crate) mod job;
pub(crate) mod kv;
pub(crate) mod node;
pub(crate) mod submit;
pub(crate) mod task;
