//! Installed stores that Starling's store is compared with: etcd and Redis.

pub(crate) mod etcd;
pub(crate) mod redis;
pub(crate) mod redis_copies;
