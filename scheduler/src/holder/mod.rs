//! The part of the holder: queues of ready tasks, staged inputs, slots, attempts that run, and the
//! counts and reports of their ends.

pub(crate) mod execution;
pub(crate) mod gangs;
pub(crate) mod jobs;
pub(crate) mod life;
mod limits;
mod mailbox;
mod push;
pub(crate) mod queues;
pub(crate) mod recent_completions;
pub(crate) mod remote_tasks;
mod requeue;
pub(crate) mod slots;
pub(crate) mod staging;
pub(crate) mod start_permission;
pub(crate) mod task;
pub(crate) mod turns;
pub(crate) mod variables;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proto::wire::message::Body;
use proto::{Attempt, JobId, NodeId, ObjectId, TaskId, Time, wire};

use crate::Mutant;
use crate::holder::execution::{RemoteTask, Running};
use crate::holder::gangs::Gangs;
use crate::holder::jobs::job_cleanup::LocalJobs;
use crate::holder::jobs::job_tallies::JobTallies;
use crate::holder::life::Life;
use crate::holder::life::notices::Notices;
use crate::holder::mailbox::MailQuestions;
use crate::holder::queues::Queues;
use crate::holder::queues::classes::{Class, Classes};
use crate::holder::queues::matching::Reservation;
use crate::holder::queues::ready_queue::{Presence, Ready};
use crate::holder::recent_completions::RecentCompletions;
use crate::holder::remote_tasks::RemoteTasks;
use crate::holder::slots::Slots;
use crate::holder::staging::admission::{Passed, SpaceTimeout};
use crate::holder::staging::gathering::Gathering;
use crate::holder::staging::no_space::NoSpace;
use crate::holder::staging::{Aside, Staged};
use crate::holder::start_permission::StartRequests;
use crate::holder::task::BundleBuilder;
use crate::holder::turns::TurnsOfAttempts;
use crate::holder::variables::Variables;
use crate::objects::drain::AttemptKey;
use crate::output::Out;
use crate::routing::partition_owners::Homes;
use crate::scheduler::Options;

/// The tasks that this node holds, from queue to end, and what they occupy.
#[derive(Debug)]
pub(crate) struct Holder {
    me: NodeId,
    mutant: Option<Mutant>,
    /// LReadyQ and SReadyQ of the paper.
    local: Queues,
    shared: Queues,
    /// The requests of tasks here, prepared.
    classes: Classes,
    /// Boxed, because most nodes never have one.
    reservation: Option<Box<Reservation>>,
    /// Remote tasks that this node holds.
    remote_tasks: RemoteTasks,
    /// Tasks that this step sends to the queues of other nodes.
    pushes: BTreeMap<NodeId, BundleBuilder>,
    /// Tasks with inputs that are being fetched, and tasks that wait for a slot with all inputs
    /// here.
    staging: BTreeMap<TaskId, Box<Staged>>,
    awaiting_slot: VecDeque<TaskId>,
    gathering: Gathering,
    space_timeout: SpaceTimeout,
    /// The next task does not fit on the disk.
    full: bool,
    /// The first task that does not fit, and how often other tasks have overtaken it.
    passed: Option<Passed>,
    /// Tasks of this step that do not fit, in order.
    aside: Vec<Aside>,
    no_space: NoSpace,
    /// A step has reached its limit of tasks taken from queues; some are left.
    left_over: bool,
    /// Tasks that wait until their homes know that they start.
    start_requests: StartRequests,
    slots: Slots,
    life: Life,
    /// Boxed: most trees of a node are empty or nearly so, and keep room for more entries.
    running: BTreeMap<TaskId, Box<Running>>,
    stopping: bool,
    recent_completions: RecentCompletions,
    local_jobs: LocalJobs,
    job_tallies: Box<JobTallies>,
    /// The turns of attempts here, answered or not. Boxed, because most nodes never have any.
    attempt_turns: Option<Box<TurnsOfAttempts>>,
    /// Boxed as well.
    variables: Option<Box<Variables>>,
    /// Questions about mailboxes. Boxed as well.
    mail_questions: Option<Box<MailQuestions>>,
    /// Boxed, because most nodes never have any.
    gangs: Option<Box<Gangs>>,
    /// The classes of gangs in the queues for which the map of this epoch has too few nodes.
    gangs_lacking: Option<Box<(u64, BTreeSet<u64>)>>,
    /// The attempts that get a signal before an end. Boxed, because most nodes never have any.
    notices: Option<Box<Notices>>,
    /// Attempts that rested and wait for a seat, in order; `None`: there are none.
    #[expect(clippy::box_collection, reason = "a word of each node instead of four")]
    returning: Option<Box<VecDeque<AttemptKey>>>,
}

impl Holder {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            me: options.me,
            mutant: options.mutant,
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
            left_over: false,
            start_requests: StartRequests::default(),
            slots: Slots::new(options.slots, options.offer.as_deref(), options.mutant),
            life: Life::new(match options.mutant {
                Some(Mutant::StartsPastItsEnd) => None,
                _ => options.end,
            }),
            running: BTreeMap::new(),
            stopping: false,
            recent_completions: RecentCompletions::default(),
            local_jobs: LocalJobs::default(),
            job_tallies: Box::default(),
            attempt_turns: None,
            variables: None,
            mail_questions: None,
            gangs: None,
            gangs_lacking: None,
            notices: None,
            returning: None,
        }
    }

    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        if self.left_over {
            return Some(now);
        }
        let due = [
            self.space_timeout.deadline(),
            self.gathering.deadline(),
            self.local_jobs.deadline(),
            self.start_requests.deadline(),
            self.next_expiry(),
            self.classes.next_opening(),
            self.next_repeated_turn(),
            self.next_variables(),
            self.next_mail_question(),
            self.gangs.as_ref().and_then(|gangs| gangs.deadline()),
        ];
        due.into_iter().flatten().min()
    }
    /// A step begins. Returns whether the tasks of some class may take further variants from now
    /// on.
    pub(crate) fn tick(&mut self, now: Time) -> bool {
        self.left_over = false;
        self.set_now(now);
        self.space_timeout.tick(now);
        self.classes.open(now)
    }

    pub(crate) fn local(&self) -> &Queues {
        &self.local
    }
    /// Takes a task of the lowest rank from the local queue, of these classes.
    pub(crate) fn take_last_local(&mut self, may: impl Fn(u64) -> bool) -> Option<Ready> {
        self.local.pop_last_of(may)
    }
    pub(crate) fn shared(&self) -> &Queues {
        &self.shared
    }
    /// Takes the task from the shared queue that this node would miss least, of these classes.
    pub(crate) fn take_distant(&mut self, may: impl Fn(u64) -> bool) -> Option<Ready> {
        self.shared.pop_distant(may)
    }
    /// Reports the new presence of an object to the queues.
    pub(crate) fn object_changed(&mut self, object: &ObjectId, presence: Presence) {
        self.local.changed(object, presence);
        self.shared.changed(object, presence);
    }
    /// Tasks that did not fit on the disk.
    pub(crate) fn no_space(&self) -> &NoSpace {
        &self.no_space
    }
    /// A thief has taken the task.
    pub(crate) fn note_stolen(&mut self, task: TaskId) {
        self.no_space.note_stolen(task);
    }
    /// This node has stolen the task. Returns true if it was here before and did not fit: then it
    /// is pinned.
    pub(crate) fn note_return(&mut self, task: TaskId) -> bool {
        self.no_space.note_return(task)
    }
    /// Whether the next task does not fit on the disk.
    pub(crate) fn is_store_full(&self) -> bool {
        self.full
    }

    pub(crate) fn remote_tasks(&self) -> &RemoteTasks {
        &self.remote_tasks
    }
    pub(crate) fn hold_remote(&mut self, task: TaskId, remote: RemoteTask) {
        self.remote_tasks.insert(task, remote);
    }
    pub(crate) fn forget_remote(&mut self, task: &TaskId) {
        self.remote_tasks.remove(task);
    }
    /// The home of a remote task does not know yet that it is here.
    pub(crate) fn home_must_hear(&mut self, task: &TaskId) {
        if let Some(remote) = self.remote_tasks.get_mut(task) {
            remote.home_knows = false;
        }
    }
    /// The home has confirmed that it knows that this attempt is here.
    pub(crate) fn home_has_heard(&mut self, task: &TaskId, attempt: Attempt) {
        let remote = self.remote_tasks.get_mut(task);
        if let Some(remote) = remote.filter(|remote| remote.attempt == attempt) {
            remote.home_knows = true;
        }
        let staged = self.staging.get_mut(task);
        if let Some(staged) = staged.filter(|staged| staged.attempt == attempt) {
            staged.home_knows = true;
        }
    }
    /// `missing`: the larger inputs that are not here, each once.
    pub(crate) fn enqueue(
        &mut self,
        local_queue: bool,
        ready: Ready,
        missing: &[(ObjectId, Presence)],
    ) {
        let queue = if local_queue { &mut self.local } else { &mut self.shared };
        queue.push(ready, missing);
    }
    pub(crate) fn send_pushes(&mut self, out: &mut Out) {
        if self.pushes.is_empty() {
            return;
        }
        let leaves = self.life().leaves();
        for (node, bundle) in std::mem::take(&mut self.pushes) {
            let bundle = Some(bundle.finish());
            out.reliable.push((node, Body::Push(wire::Push { bundle, leaves })));
        }
    }

    pub(crate) fn class(&self, class: u64) -> Option<&Class> {
        self.classes.get(class)
    }
    /// The offers of the members have changed.
    pub(crate) fn rematch(&mut self, homes: &Homes) {
        self.classes.rematch((self.life.now(), &self.slots, homes));
    }
    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(crate) fn staging(&self) -> &BTreeMap<TaskId, Box<Staged>> {
        &self.staging
    }
    /// The task has all inputs and waits for a slot.
    pub(crate) fn join_line(&mut self, task: TaskId) {
        match self.staging.get(&task).is_some_and(|staged| staged.work.is_gang()) {
            true => self.gather_gang(task),
            false => self.awaiting_slot.push_back(task),
        }
    }
    pub(crate) fn is_in_line(&self, task: TaskId) -> bool {
        self.awaiting_slot.contains(&task) || self.gathers_gang(task)
    }
    /// Whether tasks wait for a slot that do not wait for a request.
    pub(crate) fn is_line_blocked(&self) -> bool {
        self.awaiting_slot.len() > self.parked()
    }
    /// Whether a task runs, or is about to, beside which no other starts.
    pub(crate) fn runs_exclusively(&self) -> bool {
        self.start_requests.any_exclusive()
    }

    pub(crate) fn running(&self) -> &BTreeMap<TaskId, Box<Running>> {
        &self.running
    }
    /// The next home of the running task is another node, and will ask for it.
    pub(crate) fn hand_on(&mut self, task: &TaskId) {
        if let Some(running) = self.running.get_mut(task) {
            running.handed_on = true;
        }
    }
    /// This node has become the home of the task. Returns whether the task runs here.
    pub(crate) fn claim_running(&mut self, task: &TaskId) -> bool {
        let running = self.running.get_mut(task);
        running.map(|running| running.handed_on = false).is_some()
    }
    /// No more tasks start here.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }
    /// A paused node goes on with what runs.
    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.slots.set_paused(paused);
    }
    pub(crate) fn has_turns(&self) -> bool {
        self.attempt_turns.is_some()
    }
    pub(crate) fn recent_completions(&self) -> &RecentCompletions {
        &self.recent_completions
    }
    /// The end does not count.
    pub(crate) fn forget_completion(&mut self, task: TaskId, attempt: Attempt) {
        self.recent_completions.forget(task, attempt);
    }

    pub(crate) fn local_jobs(&self) -> &LocalJobs {
        &self.local_jobs
    }
    /// See [`LocalJobs::record`].
    pub(crate) fn note_job(&mut self, job: JobId, round: u32) {
        self.local_jobs.record(job, round);
    }
    /// See [`LocalJobs::record_activity`].
    pub(crate) fn note_activity(&mut self, job: JobId) {
        self.local_jobs.record_activity(job);
    }
    /// Returns false if nothing of the job was here.
    pub(crate) fn forget_local_job(&mut self, job: JobId) -> bool {
        self.local_jobs.forget(job)
    }
    pub(crate) fn job_tallies(&self) -> &JobTallies {
        &self.job_tallies
    }
    /// This node begins to count what jobs use.
    pub(crate) fn start_tallies(&mut self, now: Time) {
        self.job_tallies.started(now);
    }
    /// The job is over; its tasks have been dropped before.
    pub(crate) fn forget_job(&mut self, job: JobId, out: &mut Out) {
        self.no_space.forget_job(job);
        self.forget_variables(job, out);
        self.remote_tasks.forget_job(job);
        self.recent_completions.forget_job(job);
    }

    /// An emptied tree keeps room for several entries, and most nodes of a large cluster run
    /// nothing most of the time.
    pub(crate) fn give_room_back(&mut self) {
        if self.running.is_empty() {
            self.running = BTreeMap::new();
        }
        if self.staging.is_empty() {
            self.staging = BTreeMap::new();
        }
        self.awaiting_slot.shrink_to(self.slots.total() as usize);
    }
}

#[cfg(test)]
impl Holder {
    /// The next task of the shared queue, in the order of dispatch.
    pub(crate) fn take_next_shared(&mut self) -> Option<Ready> {
        self.shared.pop()
    }
    pub(crate) fn take_last_shared(&mut self) -> Option<Ready> {
        self.shared.pop_last_of(|_| true)
    }
    pub(crate) fn variables_mut(&mut self) -> &mut Variables {
        self.variables.get_or_insert_default()
    }
    pub(crate) fn slots_mut(&mut self) -> &mut Slots {
        &mut self.slots
    }
    pub(crate) fn passes_none(&self) -> bool {
        self.aside.is_empty() && self.passed.is_none()
    }
    pub(crate) fn gathers_until(&self) -> Option<Time> {
        self.gathering.deadline()
    }
}
