//! Work stealing, the victim's side: half of SReadyQ in one message, kept until it is acknowledged.

use std::collections::BTreeSet;

use proto::event::Reason;
use proto::limits::{STEAL_SCAN_MAX, STEP_POPS_MAX};
use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{Attempt, Event, Incarnation, JobId, NodeId, TaskId, wire};

use crate::output::{Out, task_attempt};
use crate::ready_queue::Ready;
use crate::task::{BundleBuilder, Work, is_command};
use crate::{Mutant, Scheduler};

/// Remote tasks granted to a thief that has not said yet that all their homes know.
#[derive(Debug)]
pub(crate) struct UnackedGrant {
    pub(crate) tasks: Vec<(TaskId, Attempt, Work)>,
}

impl UnackedGrant {
    pub(crate) fn has(&self, task: TaskId, attempt: Attempt) -> bool {
        self.tasks.iter().any(|&(other, known, _)| (other, known) == (task, attempt))
    }
    pub(crate) fn all(&self) -> impl Iterator<Item = (TaskId, Attempt)> + '_ {
        self.tasks.iter().map(|&(task, attempt, _)| (task, attempt))
    }
    /// It will not be taken back.
    pub(crate) fn forget(&mut self, task: TaskId, attempt: Attempt) {
        self.tasks.retain(|&(other, known, _)| (other, known) != (task, attempt));
    }
    pub(crate) fn forget_job(&mut self, job: JobId) {
        self.tasks.retain(|(task, _, _)| task.job != job);
    }
}

impl Scheduler {
    /// Tasks come here. A thief that had them and passed them on may not have said so yet: were
    /// they to count as on their way to it, this node would seem to have what it has no more.
    pub(crate) fn forget_unacked_grants_of(&mut self, tasks: &[(TaskId, Attempt, Work)]) {
        if self.unacked_grants.is_empty() {
            return;
        }
        let come: BTreeSet<_> = tasks.iter().map(|&(task, attempt, _)| (task, attempt)).collect();
        for grant in self.unacked_grants.values_mut() {
            grant.tasks.retain(|&(task, attempt, _)| !come.contains(&(task, attempt)));
        }
    }

    /// The load is what may be stolen: the length of SReadyQ, under the paper's policies.
    pub(crate) fn on_steal_probe(&mut self, from: NodeId, probe: &wire::StealProbe, out: &mut Out) {
        let spare = if self.homes.is_slow(from) { 0 } else { self.spare(!probe.ahead) };
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
        let answered = self.granted.entry(thief).or_default();
        let repeated = request.steal <= *answered;
        if repeated && self.options.mutant != Some(Mutant::GrantTwice) {
            mark(Mark::GrantRepeated);
            return; // Repeated by the network.
        }
        *answered = request.steal;
        let forgets = self.options.mutant == Some(Mutant::VictimForgetsEarly);
        let mut bundle = BundleBuilder::default();
        let (mut remote_tasks, mut untold) = (Vec::new(), Vec::new());
        let mut kept = Vec::new();
        // A slow node may not have heard yet that it is one.
        let wanted = if self.homes.is_slow(thief) { 0 } else { self.wanted_by(request) };
        let mut surplus = self.surplus();
        for _ in 0..STEP_POPS_MAX {
            if bundle.len() >= wanted || bundle.is_full() || kept.len() >= STEAL_SCAN_MAX {
                break;
            }
            let Some((local_queue, ready)) = self.pop_stealable(&mut surplus) else { break };
            if local_queue && self.data.no_space.is_pinned_here(ready.task) {
                surplus += 1;
                kept.push((local_queue, ready, None));
                continue;
            }
            let early = self.options.mutant == Some(Mutant::PassOnEarly);
            let remote = self.remote_tasks.get(&ready.task);
            if remote.is_some_and(|remote| !remote.home_knows && !early) {
                kept.push((local_queue, ready, None));
                continue;
            }
            let Some(work) = self.take_work(ready) else { continue };
            if work.cpus() > request.slots || work.is_bound() {
                kept.push((local_queue, ready, Some(work)));
                continue;
            }
            let Ready { task, attempt, .. } = ready;
            let mine = self.homes.is_home_of(task);
            if !mine {
                untold.push(bundle.len() as u32);
            }
            bundle.push(task, attempt, work.clone());
            self.data.no_space.note_stolen(task);
            if forgets {
                continue;
            }
            if mine {
                let incarnation = self.incarnation_of(thief);
                self.ledger.set_holder(task, thief, incarnation, out);
            } else {
                remote_tasks.push((task, attempt, work));
            }
        }
        for (local_queue, ready, work) in kept {
            // Too wide for this thief, its home does not know of it yet, or nobody has room for it.
            match work {
                Some(work) => self.put_back(local_queue, ready, work, true),
                None => self.enqueue(local_queue, ready),
            }
        }
        if !remote_tasks.is_empty() {
            self.unacked_grants
                .insert((thief, request.steal), UnackedGrant { tasks: remote_tasks });
        }
        let best_effort = bundle.is_empty() || forgets;
        let bundle = Some(bundle.finish());
        let grant = wire::StealGrant { steal: request.steal, bundle, untold };
        let queue = if best_effort { &mut out.best_effort } else { &mut out.reliable };
        queue.push((thief, Body::StealGrant(grant)));
    }

    /// How much one steal takes: the share that was set, rounded up, as the last task may be stolen
    /// too; but never more than is good for the thief.
    pub(crate) fn wanted_by(&self, request: &wire::StealRequest) -> usize {
        let share = self.options.tuning.steal_share;
        // A thief that has to fetch more slowly than it runs takes what both end at the same time.
        let length = self.mean_length();
        let moving = self.moving_time().0 as f64 * f64::from(request.slots.max(1));
        let ratio = moving / length.0.max(1) as f64;
        let proportional = self.rules().steals_proportionally;
        let share = if proportional { share * 2.0 / (1.0 + ratio.max(1.0)) } else { share };
        let spare = self.spare(request.free > 0) as f64;
        if request.held == 0 {
            return (spare * share).ceil() as usize;
        }
        // What it has counts as its own, and no task is worth moving that would make it the fuller.
        let held = f64::from(request.held);
        ((spare + held) * share - held).max(0.0) as usize
    }

    /// What a thief may have a share of. One that is not dry yet leaves what this node is about to
    /// start itself.
    fn spare(&self, dry: bool) -> usize {
        let tasks = self.stealable();
        if dry || self.data.full {
            return tasks.saturating_sub(self.own_use());
        }
        tasks.saturating_sub(2 * self.lanes())
    }

    /// Queued tasks that the free slots of this node are for. Were they given away, they would go
    /// round among idle nodes that wait for their inputs, or for more to choose from, for ever.
    /// Where a source gives nothing, what is queued behind it is not kept for it.
    pub(crate) fn own_use(&self) -> usize {
        let blocked = self.data.full
            || !self.awaiting_slot.is_empty()
            || self.start_requests.any_exclusive()
            || self.data.failed_fetch_tasks > 0;
        if blocked { 0 } else { self.free_lanes().saturating_sub(self.underway()) }
    }

    /// From SReadyQ what this node would miss least, then what LReadyQ has too much of.
    /// Says whether it was in LReadyQ.
    fn pop_stealable(&mut self, surplus: &mut usize) -> Option<(bool, Ready)> {
        if let Some(ready) = self.shared.pop_distant() {
            return Some((false, ready));
        }
        *surplus = surplus.checked_sub(1)?;
        self.local.pop_last().map(|ready| (true, ready))
    }

    /// The thief has the tasks and all homes know.
    pub(crate) fn on_steal_done(&mut self, thief: NodeId, done: &wire::StealDone) {
        self.unacked_grants.remove(&(thief, done.steal));
    }

    /// A thief restarted: what it had not acknowledged is here again. Homes are told: one may have
    /// heard that the thief had a task, and have given it a further attempt or cancelled it there.
    pub(crate) fn take_back_unacked_grants(
        &mut self,
        thief: NodeId,
        incarnation: Incarnation,
        out: &mut Out,
    ) {
        let keys: Vec<_> =
            self.unacked_grants.keys().filter(|&&(other, _)| other == thief).copied().collect();
        let mut held = Vec::new();
        for key in keys {
            let grant = self.unacked_grants.remove(&key).expect("listed above");
            for (task, attempt, mut work) in grant.tasks {
                if is_command(&work.spec) {
                    work.deaths = work.deaths.max(1); // The thief may have died of it.
                }
                let input_bytes = work.input_bytes();
                let ready = self.ready(task, attempt, &work);
                let mine = self.homes.is_home_of(task);
                if self.take_in(task, attempt, work, out) {
                    if let Some(remote) = self.remote_tasks.get_mut(&task) {
                        remote.home_knows = false;
                    }
                    match mine {
                        // It has become its home since it gave the task away.
                        true => self.note_of_holder(task, false, (thief, incarnation), out),
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
