//! What a node answers those whose partitions it keeps copies of: how far its log is.

use std::collections::{BTreeMap, VecDeque};

use proto::{NodeId, wire};

/// The changes of one primary.
#[derive(Debug, Default)]
struct Source {
    /// Number of the last message taken in.
    taken: u64,
    logged: u64,
    synced: u64,
    /// What is not synced yet: own batch, number of the message.
    unsynced: VecDeque<(u64, u64)>,
    refused: Vec<wire::Refusal>,
    /// What it was told last.
    told: (u64, u64),
}

#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<NodeId, Source>);

impl Sources {
    /// A message was taken into the batch of this step, but for what is refused.
    pub(crate) fn took(&mut self, from: NodeId, number: u64, refused: Vec<wire::Refusal>) {
        let source = self.0.entry(from).or_default();
        source.taken = source.taken.max(number);
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

    /// Somebody waits for the next sync.
    pub(crate) fn awaits_sync(&self) -> bool {
        self.0.values().any(|source| !source.unsynced.is_empty())
    }
}
