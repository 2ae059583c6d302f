//! The part of the holder: queues of ready tasks, staged inputs, slots, attempts that run, and the
//! counts and reports of their ends.

pub(crate) mod admission;
pub(crate) mod classes;
pub(crate) mod execution;
pub(crate) mod job_cleanup;
pub(crate) mod job_tallies;
pub(crate) mod matching;
pub(crate) mod no_space;
mod push;
pub(crate) mod queues;
pub(crate) mod ready_queue;
pub(crate) mod recent_completions;
pub(crate) mod remote_tasks;
mod requeue;
pub(crate) mod slots;
pub(crate) mod staging;
pub(crate) mod start_permission;
pub(crate) mod task;
pub(crate) mod turns;

use std::collections::{BTreeMap, VecDeque};

use proto::{NodeId, TaskId, Time};

use crate::holder::admission::{Passed, SpaceTimeout};
use crate::holder::classes::Classes;
use crate::holder::execution::Running;
use crate::holder::job_cleanup::LocalJobs;
use crate::holder::job_tallies::JobTallies;
use crate::holder::matching::Reservation;
use crate::holder::no_space::NoSpace;
use crate::holder::queues::Queues;
use crate::holder::recent_completions::RecentCompletions;
use crate::holder::remote_tasks::RemoteTasks;
use crate::holder::slots::Slots;
use crate::holder::staging::{Aside, Gathering, Staged};
use crate::holder::start_permission::StartRequests;
use crate::holder::task::BundleBuilder;
use crate::holder::turns::TurnsOfAttempts;
use crate::scheduler::Options;

/// The tasks that this node holds, from queue to end, and what they occupy.
#[derive(Debug)]
pub(crate) struct Holder {
    /// LReadyQ and SReadyQ of the paper.
    pub(crate) local: Queues,
    pub(crate) shared: Queues,
    /// The requests of tasks here, prepared.
    pub(crate) classes: Classes,
    /// Boxed, because most nodes never have one.
    pub(crate) reservation: Option<Box<Reservation>>,
    /// Remote tasks that this node holds.
    pub(crate) remote_tasks: RemoteTasks,
    /// Tasks that this step sends to the queues of other nodes.
    pub(crate) pushes: BTreeMap<NodeId, BundleBuilder>,
    /// Tasks with inputs that are being fetched, and tasks that wait for a slot with all inputs
    /// here.
    pub(crate) staging: BTreeMap<TaskId, Box<Staged>>,
    pub(crate) awaiting_slot: VecDeque<TaskId>,
    pub(crate) gathering: Gathering,
    pub(crate) space_timeout: SpaceTimeout,
    /// The next task does not fit on the disk.
    pub(crate) full: bool,
    /// The first task that does not fit, and how often other tasks have overtaken it.
    pub(crate) passed: Option<Passed>,
    /// Tasks of this step that do not fit, in order.
    pub(crate) aside: Vec<Aside>,
    pub(crate) no_space: NoSpace,
    /// Tasks that wait until their homes know that they start.
    pub(crate) start_requests: StartRequests,
    pub(crate) slots: Slots,
    /// Boxed: most trees of a node are empty or nearly so, and keep room for more entries.
    pub(crate) running: BTreeMap<TaskId, Box<Running>>,
    /// No more tasks start here.
    pub(crate) stopping: bool,
    pub(crate) recent_completions: RecentCompletions,
    pub(crate) local_jobs: LocalJobs,
    pub(crate) job_tallies: Box<JobTallies>,
    /// The turns of attempts here, answered or not. Boxed, because most nodes never have any.
    pub(crate) attempt_turns: Option<Box<TurnsOfAttempts>>,
}

impl Holder {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            local: Queues::new(options.me.0.into()),
            shared: Queues::new(options.me.0.into()),
            classes: Classes::default(),
            reservation: None,
            remote_tasks: RemoteTasks::default(),
            pushes: BTreeMap::new(),
            staging: BTreeMap::new(),
            awaiting_slot: VecDeque::new(),
            gathering: Gathering::No,
            space_timeout: SpaceTimeout::default(),
            full: false,
            passed: None,
            aside: Vec::new(),
            no_space: NoSpace::default(),
            start_requests: StartRequests::default(),
            slots: Slots::new(options.slots, options.offer.as_deref(), options.mutant),
            running: BTreeMap::new(),
            stopping: false,
            recent_completions: RecentCompletions::default(),
            local_jobs: LocalJobs::default(),
            job_tallies: Box::default(),
            attempt_turns: None,
        }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let due = [
            self.space_timeout.deadline(),
            self.gathering.deadline(),
            self.local_jobs.deadline(),
            self.start_requests.deadline(),
        ];
        due.into_iter().flatten().min()
    }
}
