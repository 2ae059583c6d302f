//! The lease of the owner of a site, with the times of its last calls.

use serde::{Deserialize, Serialize};

use crate::limits::{LEASE_MS, LEASE_RENEWED_MS};

/// The owner of a site. Times are milliseconds since 1970.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// A node such as `n3`, or a process of `alloc tick`.
    pub owner: String,
    pub incarnation: u32,
    pub until_ms: u64,
    /// The last listing and the last submission of any owner.
    pub listed_ms: u64,
    pub submitted_ms: u64,
    /// The calls of all owners of the site.
    pub listings: u64,
    pub submissions: u64,
}

impl Lease {
    #[must_use]
    pub fn is_of(&self, owner: &str, incarnation: u32) -> bool {
        self.owner == owner && self.incarnation == incarnation
    }
    #[must_use]
    pub fn is_valid(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms
    }
    /// Whether its owner should renew it.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        now_ms.saturating_add(LEASE_MS - LEASE_RENEWED_MS) >= self.until_ms
    }
    /// The lease of this owner, from now on.
    pub(crate) fn taken(&self, owner: &str, incarnation: u32, now_ms: u64) -> Self {
        let owner = owner.to_owned();
        Self { owner, incarnation, until_ms: now_ms.saturating_add(LEASE_MS), ..self.clone() }
    }
}
