//! Cancelled jobs at their home: it informs the homes of the tasks, and waits for all of them.
//!
//! A done task may run again because its output is lost. If the job is cancelled before the task's
//! home has reported that, the last counts of its part are out of date. So a cancelled job ends
//! only when each part has reported with the knowledge that the job is cancelled. From then on the
//! part counts no further attempt.

use std::collections::BTreeSet;

use proto::wire::message::Body;
use proto::{NodeId, wire};

use super::Job;
use crate::output::Out;
use crate::routing::partition_owners::Homes;

impl Job {
    pub(super) fn cancel_everywhere(&self, homes: &Homes, out: &mut Out) {
        for home in self.homes(homes) {
            self.cancel_at(home, out);
        }
    }
    /// A home that received the cancellation before anything else of the job did not record it.
    pub(super) fn cancel_again_at(&self, home: NodeId, out: &mut Out) {
        if self.is_cancelled() {
            self.cancel_at(home, out);
        }
    }
    /// That home has received the commit before.
    fn cancel_at(&self, home: NodeId, out: &mut Out) {
        let (job, round) = (self.state.job, self.round());
        let cancel = wire::Cancel { job, round, ..Default::default() };
        out.reliable.push((home, Body::Cancel(cancel)));
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.state.phase() == wire::JobPhase::JobCancelled
    }

    /// Notes whether the home that sent the latest counts of a part knows of the cancellation.
    pub(super) fn note_removal(&mut self, partition: u32, knows: bool) {
        match knows {
            true => self.removed_at.insert(partition),
            false => self.removed_at.remove(&partition),
        };
    }

    /// Whether each part has reported since its home knows that the job is cancelled.
    pub(super) fn is_removed_everywhere(&self) -> bool {
        let committed = self.state.partitions.iter().map(|total| total.partition);
        let all: BTreeSet<u32> = committed.chain(self.counts.keys().copied()).collect();
        all.is_subset(&self.removed_at)
    }
}
