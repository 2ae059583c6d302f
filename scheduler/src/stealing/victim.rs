//! Work stealing, the victim's side: it grants half of the shared queue in one message and keeps
//! the tasks until they are acknowledged.

use std::collections::BTreeSet;

use proto::event::Reason;

use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{Attempt, Event, Incarnation, JobId, NodeId, TaskId, wire};

use crate::holder::queues::ready_queue::{PLAIN, Ready};
use crate::holder::task::{BundleBuilder, Work, is_command};
use crate::limits::STEP_POPS_MAX;
use crate::output::{Out, task_attempt};
use crate::stealing::Stealing;
use crate::stealing::share::Share;
use crate::{Mutant, Scheduler};

/// The maximum number of tasks that a victim examines and keeps while it fills one grant.
const STEAL_SCAN_MAX: usize = 1024;

/// Remote tasks granted to a thief that has not confirmed yet that all their homes know.
#[derive(Debug)]
pub(crate) struct UnackedGrant {
    tasks: Vec<(TaskId, Attempt, Work)>,
}

impl UnackedGrant {
    fn has(&self, task: TaskId, attempt: Attempt) -> bool {
        self.tasks.iter().any(|&(other, known, _)| (other, known) == (task, attempt))
    }
    fn all(&self) -> impl Iterator<Item = (TaskId, Attempt)> + '_ {
        self.tasks.iter().map(|&(task, attempt, _)| (task, attempt))
    }
    /// The task will not be taken back.
    fn forget(&mut self, task: TaskId, attempt: Attempt) {
        self.tasks.retain(|&(other, known, _)| (other, known) != (task, attempt));
    }
    fn forget_job(&mut self, job: JobId) {
        self.tasks.retain(|(task, _, _)| task.job != job);
    }
}

impl Stealing {
    /// Remote tasks were granted to a thief.
    pub(crate) fn note_granted(
        &mut self,
        steal: (NodeId, u64),
        tasks: Vec<(TaskId, Attempt, Work)>,
    ) {
        self.unacked_grants.insert(steal, UnackedGrant { tasks });
    }

    /// Whether the attempt was granted to a thief that has not acknowledged it.
    pub(crate) fn is_in_transit(&self, task: TaskId, attempt: Attempt) -> bool {
        self.unacked_grants.values().any(|grant| grant.has(task, attempt))
    }
    pub(crate) fn in_transit(&self) -> impl Iterator<Item = (TaskId, Attempt)> + '_ {
        self.unacked_grants.values().flat_map(UnackedGrant::all)
    }
    /// The attempt will not be taken back.
    pub(crate) fn forget_granted(&mut self, task: TaskId, attempt: Attempt) {
        self.unacked_grants.values_mut().for_each(|grant| grant.forget(task, attempt));
    }
    pub(crate) fn forget_job(&mut self, job: JobId) {
        self.unacked_grants.values_mut().for_each(|grant| grant.forget_job(job));
    }

    /// These tasks arrive here. A thief may have passed them on without a report so far. If they
    /// counted as in transit to it, this node would seem to have tasks that it no longer has.
    pub(crate) fn forget_unacked_grants_of(&mut self, tasks: &[(TaskId, Attempt, Work)]) {
        if self.unacked_grants.is_empty() {
            return;
        }
        let come: BTreeSet<_> = tasks.iter().map(|&(task, attempt, _)| (task, attempt)).collect();
        for grant in self.unacked_grants.values_mut() {
            grant.tasks.retain(|&(task, attempt, _)| !come.contains(&(task, attempt)));
        }
    }

    /// The thief has the tasks and all their homes know.
    pub(crate) fn on_steal_done(&mut self, thief: NodeId, done: &wire::StealDone) {
        self.unacked_grants.remove(&(thief, done.steal));
    }
}

impl Scheduler {
    /// Answers with the number of tasks that may be stolen. Under the paper's policies this is the
    /// length of the shared queue.
    pub(crate) fn on_steal_probe(&mut self, from: NodeId, probe: &wire::StealProbe, out: &mut Out) {
        let spare = match self.routing.homes().is_slow(from) {
            true => 0,
            false => self.spare(!probe.ahead) + self.spare_requests(from, &probe.free),
        };
        let shared = u32::try_from(spare).unwrap_or(u32::MAX);
        let load = wire::StealLoad { probe: probe.probe, shared };
        out.best_effort.push((from, Body::StealLoad(load)));
    }

    pub(crate) fn on_steal_request(
        &mut self,
        thief: NodeId,
        request: &wire::StealRequest,
        out: &mut Out,
    ) {
        let answered = self.stealing.granted.entry(thief).or_default();
        let repeated = request.steal <= *answered;
        if repeated && self.options.mutant != Some(Mutant::GrantTwice) {
            mark(Mark::GrantRepeated);
            return; // Repeated by the network.
        }
        *answered = request.steal;
        let forgets = self.options.mutant == Some(Mutant::VictimForgetsEarly);
        let mut bundle = BundleBuilder::default();
        let (mut remote_tasks, mut untold, mut waited) = (Vec::new(), Vec::new(), Vec::new());
        let mut kept = Vec::new();
        let mut share = self.share_of(thief, request);
        for _ in 0..STEP_POPS_MAX {
            if bundle.is_full() || kept.len() >= STEAL_SCAN_MAX {
                break;
            }
            let Some((local_queue, ready)) = self.pop_stealable(&mut share) else { break };
            if local_queue && self.holder.no_space().is_pinned_here(ready.task) {
                share.surplus += usize::from(ready.class == PLAIN);
                kept.push((local_queue, ready, None));
                continue;
            }
            let early = self.options.mutant == Some(Mutant::PassOnEarly);
            let remote = self.holder.remote_tasks().get(&ready.task);
            if remote.is_some_and(|remote| !remote.home_knows && !early) {
                kept.push((local_queue, ready, None));
                continue;
            }
            let Some(work) = self.take_work(ready) else { continue };
            if !self.may_give((ready.class, &work), request, &mut share) {
                kept.push((local_queue, ready, Some(work)));
                continue;
            }
            let Ready { task, attempt, .. } = ready;
            let mine = self.routing.homes().is_home_of(task);
            if !mine {
                untold.push(bundle.len() as u32);
            }
            if self.holder.has_waited(ready.class) {
                waited.push(bundle.len() as u32);
            }
            bundle.push(task, attempt, work.clone());
            self.holder.note_stolen(task);
            if forgets {
                continue;
            }
            if mine {
                let incarnation = self.incarnation_of(thief);
                self.home.ledger.set_holder(task, thief, incarnation, out);
            } else {
                remote_tasks.push((task, attempt, work));
            }
        }
        for (local_queue, ready, work) in kept {
            // Not granted: too much for the thief, not yet known to its home, or pinned to this
            // node.
            match work {
                Some(work) => self.put_back(local_queue, ready, work, true),
                None => self.enqueue(local_queue, ready),
            }
        }
        if !remote_tasks.is_empty() {
            self.stealing.note_granted((thief, request.steal), remote_tasks);
        }
        let best_effort = bundle.is_empty() || forgets;
        let bundle = Some(bundle.finish());
        let grant = wire::StealGrant { steal: request.steal, bundle, untold, waited };
        let queue = if best_effort { &mut out.best_effort } else { &mut out.reliable };
        queue.push((thief, Body::StealGrant(grant)));
    }

    /// The number of tasks in one grant. It is the configured share, rounded up, so that the last
    /// task may be stolen too; but never more than helps the thief.
    pub(crate) fn wanted_by(&self, request: &wire::StealRequest) -> usize {
        let share = self.options.tuning.steal_share;
        // If the thief fetches more slowly than it runs, it gets the share that lets both nodes end
        // at the same time.
        let length = self.mean_length();
        let moving = self.moving_time().0 as f64 * f64::from(request.slots.max(1));
        let ratio = moving / length.0.max(1) as f64;
        let proportional = self.rules().steals_proportionally;
        let share = if proportional { share * 2.0 / (1.0 + ratio.max(1.0)) } else { share };
        let spare = self.spare(request.free > 0) as f64;
        if request.held == 0 {
            return (spare * share).ceil() as usize;
        }
        // Tasks that the thief holds count towards its share. No task moves if that would make the
        // thief the fuller node.
        let held = f64::from(request.held);
        ((spare + held) * share - held).max(0.0) as usize
    }

    /// The tasks from which a thief gets its share. If the thief still has tasks, those that this
    /// node is about to start are left out.
    fn spare(&self, dry: bool) -> usize {
        let tasks = self.stealable();
        if dry || self.holder.is_store_full() {
            return tasks.saturating_sub(self.own_use());
        }
        tasks.saturating_sub(2 * self.lanes())
    }

    /// Queued tasks for which this node has free slots. If these were granted, they could circulate
    /// without end among idle nodes that wait for inputs or for more tasks. None are reserved while
    /// tasks here are blocked: by a full disk, by a source that does not deliver, or because the
    /// free slots are kept for others.
    pub(crate) fn own_use(&self) -> usize {
        let blocked = self.holder.is_store_full()
            || self.holder.is_line_blocked()
            || self.holder.runs_exclusively()
            || self.holder.keeps_cpus()
            || self.objects.failed_fetch_tasks() > 0;
        if blocked { 0 } else { self.free_lanes().saturating_sub(self.underway()) }
    }

    /// Takes from the shared queue the task that this node would miss least. Then comes the local
    /// queue: a task with a request that waits here, then a surplus task. The flag is true for the
    /// local queue.
    fn pop_stealable(&mut self, share: &mut Share) -> Option<(bool, Ready)> {
        let may = |class| match class == PLAIN {
            true => share.plain > 0,
            false => share.requests.as_ref().is_some_and(|own| own.classes.contains(&class)),
        };
        if let Some(ready) = self.holder.take_distant(may) {
            return Some((false, ready));
        }
        if self.rules().shares_local_queue
            && self.holder.local().has_requests()
            && let Some(ready) = self.holder.take_last_local(|class| class != PLAIN && may(class))
        {
            return Some((true, ready));
        }
        if share.plain == 0 {
            return None;
        }
        share.surplus = share.surplus.checked_sub(1)?;
        self.holder.take_last_local(|class| class == PLAIN).map(|ready| (true, ready))
    }

    /// A thief has restarted: tasks that it had not acknowledged are queued here again. Their homes
    /// are informed. A home may have learned that the thief held a task, and may have started a
    /// further attempt or cancelled the task there.
    pub(crate) fn take_back_unacked_grants(
        &mut self,
        thief: NodeId,
        incarnation: Incarnation,
        out: &mut Out,
    ) {
        let keys: Vec<_> = self
            .stealing
            .unacked_grants
            .keys()
            .filter(|&&(other, _)| other == thief)
            .copied()
            .collect();
        let mut held = Vec::new();
        for key in keys {
            let grant = self.stealing.unacked_grants.remove(&key).expect("listed above");
            for (task, attempt, mut work) in grant.tasks {
                let mine = self.routing.homes().is_home_of(task);
                if mine && !self.home.ledger.is_held_by(task, attempt, self.options.me) {
                    continue; // The thief had reported it, or had given it away.
                }
                if is_command(&work.spec) {
                    work.deaths = work.deaths.max(1); // The thief may have crashed because of it.
                }
                let input_bytes = work.input_bytes();
                let ready = self.ready(task, attempt, &work);
                if self.take_in(task, attempt, work, out) {
                    self.holder.home_must_hear(&task);
                    match mine {
                        // This node has become the task's home since it gave the task away.
                        true => self.home.note_of_holder(task, false, (thief, incarnation), out),
                        false => held.push(task_attempt(task, attempt)),
                    }
                    self.enqueue(false, ready);
                    let reason = Reason::GivenBack;
                    out.events.push(Event::Queued {
                        task,
                        attempt,
                        local_queue: false,
                        reason,
                        input_bytes,
                    });
                }
            }
        }
        self.notify_homes(held, (thief, incarnation), out);
    }
}
