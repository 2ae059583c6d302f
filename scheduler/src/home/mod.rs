//! The part of the home: the records of tasks and jobs, and the answers to holders, clients and
//! other homes.

mod cancellation;
mod completions;
pub(crate) mod death_evidence;
mod errors;
pub(crate) mod failover;
pub(crate) mod jobs;
pub(crate) mod ledger;
pub(crate) mod open;
mod recall;
pub(crate) mod reconcile;
pub(crate) mod requests;
mod stall_probe;
pub(crate) mod task_inventory;

use std::collections::{BTreeMap, BTreeSet};

use proto::{PartitionId, TaskId, Time};

use crate::home::death_evidence::DeathEvidence;
use crate::home::failover::Loading;
use crate::home::jobs::Jobs;
use crate::home::ledger::Ledger;
use crate::home::open::OpenJobs;
use crate::home::reconcile::Reconciler;
use crate::routing::partition_owners::Homes;
use crate::scheduler::{Options, report_interval};

/// The records of the partitions that this node owns, and the questions about them.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) ledger: Ledger,
    pub(crate) jobs: Jobs,
    death_evidence: DeathEvidence,
    /// Tasks that wait for a node that can run them.
    awaiting_wide_node: Vec<TaskId>,
    /// Partitions that this node is about to serve. Boxed, since the size of a node is bounded.
    #[expect(clippy::box_collection, reason = "most nodes never load any: it takes less room")]
    loading: Option<Box<BTreeMap<PartitionId, Loading>>>,
    reconciler: Reconciler,
    /// Requests about open jobs that are not answered yet. Boxed as well.
    open_jobs: Option<Box<OpenJobs>>,
}

impl Home {
    pub(crate) fn new(options: &Options, homes: &Homes) -> Self {
        let mut ledger =
            Ledger::new(options.me, options.incarnation, homes.moves(), options.mutant);
        ledger.report_every(report_interval(homes));
        Self {
            ledger,
            jobs: Jobs::new(options.mutant),
            death_evidence: DeathEvidence::default(),
            awaiting_wide_node: Vec::new(),
            loading: None,
            reconciler: Reconciler::default(),
            open_jobs: None,
        }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let due = [
            self.reconciler.deadline(),
            self.death_evidence.deadline(),
            self.next_ask_of_waits(),
            self.ledger.next_of_mail(),
            self.next_of_open_jobs(),
        ];
        due.into_iter().flatten().min()
    }

    pub(crate) fn await_wide_node(&mut self, task: TaskId) {
        self.awaiting_wide_node.push(task);
    }
    /// The ready tasks that no present node can run.
    pub(crate) fn awaiting_wide_node(&self) -> &[TaskId] {
        &self.awaiting_wide_node
    }
    /// These partitions have other homes now.
    pub(crate) fn homes_changed(&mut self, now: Time, changed: &BTreeSet<PartitionId>) {
        self.reconciler.homes_changed(now, changed);
    }
}
