//! To which node a message goes.

pub(crate) mod route;
