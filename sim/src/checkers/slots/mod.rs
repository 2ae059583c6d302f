//! What runs on the slots of nodes, and what waits for them.

pub(crate) mod after_jobs;
pub(crate) mod claims;
pub(crate) mod gang;
pub(crate) mod patience;
pub(crate) mod starve;
pub(crate) mod throttle;
