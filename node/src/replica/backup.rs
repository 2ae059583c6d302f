//! What a node answers those whose partitions it keeps copies of: how far its log is.

use std::collections::{BTreeMap, VecDeque};

use proto::{NodeId, wire};

use crate::SyncWish;

/// The changes of one primary.
#[derive(Debug, Default)]
struct Source {
    /// Number of the last message taken in.
    taken: u64,
    logged: u64,
    synced: u64,
    /// What is not synced yet: own batch, number of the message.
    unsynced: VecDeque<(u64, u64)>,
    /// The last message whose sync a client waits for.
    client_waits: u64,
    refused: Vec<wire::Refusal>,
    /// What it was told last.
    told: (u64, u64),
}

#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<NodeId, Source>);

impl Sources {
    /// A message was taken into the batch of this step, but for what is refused.
    pub(crate) fn took(
        &mut self,
        from: NodeId,
        number: u64,
        client_waits: bool,
        refused: Vec<wire::Refusal>,
    ) {
        let source = self.0.entry(from).or_default();
        source.taken = source.taken.max(number);
        if client_waits {
            source.client_waits = source.client_waits.max(number);
        }
        source.refused.extend(refused);
    }

    /// Another incarnation counts anew.
    pub(crate) fn forget(&mut self, from: NodeId) {
        self.0.remove(&from);
    }

    /// Ends a step: what was taken in is in this batch or an earlier one, which is in the log when
    /// anything is sent.
    pub(crate) fn note_batch(&mut self, batch: u64) {
        for source in self.0.values_mut().filter(|source| source.taken > source.logged) {
            source.logged = source.taken;
            source.unsynced.push_back((batch, source.taken));
        }
    }

    /// Batches up to `durable` are synced.
    pub(crate) fn answers(&mut self, durable: u64) -> Vec<(NodeId, wire::Replicated)> {
        let mut answers = Vec::new();
        for (&from, source) in &mut self.0 {
            while let Some(&(batch, number)) = source.unsynced.front()
                && batch <= durable
            {
                source.synced = number;
                source.unsynced.pop_front();
            }
            let now = (source.logged, source.synced);
            if now == source.told && source.refused.is_empty() {
                continue;
            }
            source.told = now;
            let refused = std::mem::take(&mut source.refused);
            let (logged, synced) = now;
            answers.push((from, wire::Replicated { logged, synced, refused }));
        }
        answers
    }

    /// How much somebody waits for the next sync.
    pub(crate) fn sync_wish(&self) -> SyncWish {
        let wish = |source: &Source| match source.unsynced.is_empty() {
            true => SyncWish::None,
            false if source.client_waits > source.synced => SyncWish::Now,
            false => SyncWish::Soon,
        };
        self.0.values().map(wish).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_syncs_at_once_for_as_long_as_a_client_waits_for_it() {
        let mut sources = Sources::default();
        let primary = NodeId(0);
        assert_eq!(sources.sync_wish(), SyncWish::None);
        sources.took(primary, 1, false, Vec::new());
        sources.note_batch(1);
        assert_eq!(sources.sync_wish(), SyncWish::Soon);
        sources.took(primary, 2, true, Vec::new());
        sources.note_batch(2);
        sources.took(primary, 3, false, Vec::new());
        sources.note_batch(3);
        assert_eq!(sources.sync_wish(), SyncWish::Now);
        sources.answers(2);
        assert_eq!(sources.sync_wish(), SyncWish::Soon, "nobody waits for the third");
        sources.answers(3);
        assert_eq!(sources.sync_wish(), SyncWish::None);
    }
}
