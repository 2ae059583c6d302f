//! Kinds of jobs and of nodes that only some seeds draw: jobs that spawn tasks, gangs, variables,
//! limits of running tasks, pauses, and nodes with other offers.

pub(crate) mod gangs;
pub(crate) mod node_offers;
pub(crate) mod pauses;
pub(crate) mod spawning;
pub(crate) mod throttles;
pub(crate) mod variables;
