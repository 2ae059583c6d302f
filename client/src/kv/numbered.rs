//! Numbers of a client's writes, so that a write without an answer can be repeated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use proto::{PartitionId, wire};

use crate::ClientError;

/// The handling of writes without an answer.
#[derive(Clone, Debug, Default)]
pub(crate) enum Writes {
    /// An insert or a remove is repeated, an append or a swap is not.
    #[default]
    Plain,
    /// No write is repeated.
    Once,
    /// Every batch with a write has a number, and is repeated.
    Numbered(std::sync::Arc<Numbers>),
    /// The caller's own number, for one batch.
    Given(wire::KvNumber),
}

/// The numbers of one client.
#[derive(Debug)]
pub(crate) struct Numbers {
    client: u64,
    last: AtomicU64,
    tickets: Mutex<BTreeMap<PartitionId, u64>>,
}

impl Numbers {
    pub(crate) fn new() -> Result<Self, ClientError> {
        let client = security::random_number();
        let client = client.map_err(|error| ClientError::Refused(error.to_string()))?;
        let tickets = Mutex::default();
        Ok(Self { client: client.max(1), last: AtomicU64::new(0), tickets })
    }

    pub(crate) fn draw(&self, partition: PartitionId) -> wire::KvNumber {
        let tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = tickets.get(&partition).copied().unwrap_or(0);
        let sequence = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        wire::KvNumber { client: self.client, sequence, ticket }
    }

    /// Another number, for a batch that never happened although its number is forgotten.
    pub(crate) fn draw_with(&self, partition: PartitionId, ticket: u64) -> wire::KvNumber {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner).insert(partition, ticket);
        self.draw(partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_tickets_belong_to_partitions() {
        let numbers = Numbers::new().unwrap();
        let [first, second] = [numbers.draw(PartitionId(1)), numbers.draw(PartitionId(2))];
        assert!(first.client > 0 && first.client == second.client);
        assert!(second.sequence > first.sequence);
        let third = numbers.draw_with(PartitionId(1), 9);
        assert!(third.sequence > second.sequence);
        assert_eq!((third.ticket, numbers.draw(PartitionId(2)).ticket), (9, 0));
        assert_ne!(first.client, Numbers::new().unwrap().client);
    }
}
