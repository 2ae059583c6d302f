//! The backup's side: reports to primaries how far this node's log is.
//!
//! The acknowledgement of a message says that it is synced. A separate report is needed for refused
//! changes, and for changes that are logged and not synced yet. If a sync is due at once because a
//! client waits, that report is delayed by `LOGGED_REPORT_AFTER`: the acknowledgement will say
//! more.

use std::collections::{BTreeMap, VecDeque};

use proto::{NodeId, Time, wire};

use crate::SyncWish;
use proto::Span;

/// A replica acknowledges that it has logged a change only if the sync that a client waits for
/// takes longer than this. The acknowledgement of the sync implies the other one.
const LOGGED_REPORT_AFTER: Span = Span::from_millis(2);

/// The changes of one primary.
#[derive(Debug, Default)]
struct Source {
    /// The number of the last message that was accepted.
    taken: u64,
    logged: u64,
    synced: u64,
    /// Messages that are not synced yet: own batch, number of the message.
    unsynced: VecDeque<(u64, u64)>,
    /// The last message with a client that waits for its sync.
    client_waits: u64,
    refused: Vec<wire::Refusal>,
    /// The last number reported as logged, and since when there is more.
    told: u64,
    untold_since: Time,
}

impl Source {
    /// Whether more is logged than was reported.
    fn lacks_word(&self) -> bool {
        self.told.max(self.synced) < self.logged
    }
    /// When the report is due; a sync that is due at once may end before.
    fn word_due(&self) -> Option<Time> {
        let hurries = self.client_waits > self.synced;
        let due = if hurries { self.untold_since + LOGGED_REPORT_AFTER } else { Time::ZERO };
        self.lacks_word().then_some(due)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<NodeId, Source>);

impl Sources {
    /// A message was taken into the batch of this step, except for refused changes.
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

    /// Another incarnation counts from the beginning.
    pub(crate) fn forget(&mut self, from: NodeId) {
        self.0.remove(&from);
    }

    /// Ends a step: the accepted messages are in this batch or an earlier one, which is in the log
    /// before anything is sent.
    pub(crate) fn note_batch(&mut self, now: Time, batch: u64) {
        for source in self.0.values_mut().filter(|source| source.taken > source.logged) {
            if !source.lacks_word() {
                source.untold_since = now;
            }
            source.logged = source.taken;
            source.unsynced.push_back((batch, source.taken));
        }
    }

    /// Batches up to `durable` are synced. Returns the reports that are due.
    pub(crate) fn answers(&mut self, now: Time, durable: u64) -> Vec<(NodeId, wire::Replicated)> {
        let mut answers = Vec::new();
        for (&from, source) in &mut self.0 {
            while let Some(&(batch, number)) = source.unsynced.front()
                && batch <= durable
            {
                source.synced = number;
                source.unsynced.pop_front();
            }
            if source.word_due().is_none_or(|due| due > now) && source.refused.is_empty() {
                continue;
            }
            source.told = source.logged;
            let refused = std::mem::take(&mut source.refused);
            let (logged, synced) = (source.logged, source.synced);
            answers.push((from, wire::Replicated { logged, synced, refused }));
        }
        answers
    }

    /// When the next report is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.0.values().filter_map(Source::word_due).min()
    }

    /// How urgent the next sync is for the primaries.
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
        sources.note_batch(Time::ZERO, 1);
        assert_eq!(sources.sync_wish(), SyncWish::Soon);
        sources.took(primary, 2, true, Vec::new());
        sources.note_batch(Time::ZERO, 2);
        sources.took(primary, 3, false, Vec::new());
        sources.note_batch(Time::ZERO, 3);
        assert_eq!(sources.sync_wish(), SyncWish::Now);
        sources.answers(Time::ZERO, 2);
        assert_eq!(sources.sync_wish(), SyncWish::Soon, "no primary waits for the third");
        sources.answers(Time::ZERO, 3);
        assert_eq!(sources.sync_wish(), SyncWish::None);
    }

    #[test]
    fn what_is_in_the_log_is_told_unless_a_sync_that_a_client_waits_for_says_more() {
        let mut sources = Sources::default();
        let primary = NodeId(0);
        let word = |logged, synced| {
            vec![(primary, wire::Replicated { logged, synced, refused: Vec::new() })]
        };
        let at = |ns: u64| Time(1_000_000_000 + ns);
        sources.took(primary, 1, false, Vec::new());
        sources.note_batch(at(0), 1);
        assert_eq!(sources.answers(at(0), 0), word(1, 0), "no client waits");
        assert_eq!(sources.answers(at(1), 1), Vec::new(), "the acknowledgement says so");

        sources.took(primary, 2, true, Vec::new());
        sources.note_batch(at(2), 2);
        assert_eq!(sources.answers(at(2), 1), Vec::new());
        assert_eq!(sources.deadline(), Some(at(2) + LOGGED_REPORT_AFTER));
        sources.took(primary, 3, true, Vec::new());
        sources.note_batch(at(3), 3);
        assert_eq!(sources.answers(at(2) + LOGGED_REPORT_AFTER, 1), word(3, 1), "its disk is slow");
        assert_eq!(sources.answers(at(4) + LOGGED_REPORT_AFTER, 3), Vec::new());
        assert_eq!(sources.deadline(), None);

        sources.took(primary, 4, true, vec![wire::Refusal { number: 4, partition: 7 }]);
        sources.note_batch(at(5), 3);
        let told = sources.answers(at(5), 3);
        assert_eq!(told[0].1.refused.len(), 1, "what is refused is told at once");
    }
}
