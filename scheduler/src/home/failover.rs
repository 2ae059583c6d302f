//! Homes that move: at run time this node becomes home of a partition, or ceases to be its home.
//! Homes of other partitions move, and this node sends its messages to the new homes. Nodes fail.
//!
//! A failover is a recovery on another node: the obligations of the earlier home follow from its
//! records. A sender sends the messages that the earlier home has not acknowledged to the next
//! home.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::RetryReason;
use proto::{
    Attempt, Event, Incarnation, JobId, LocalId, NodeId, ObjectId, PartitionId, TaskId, Time, wire,
};

use crate::holder::execution::RemoteTask;
use crate::holder::task::Work;
use crate::home::ledger::{Job, Ledger};
use crate::objects::fetch::InflightFetch;
use crate::output::Out;
use crate::routing::partition_owners::Homes;
use crate::scheduler::report_interval;
use crate::{LedgerRecord, Mutant, RecordError, Scheduler};

/// The records of a partition that this node is about to serve.
#[derive(Debug)]
pub(crate) struct Loading {
    ledger: Ledger,
    jobs: Vec<wire::JobState>,
    variables: Vec<(JobId, wire::Variable)>,
}

impl Scheduler {
    /// Adopts one stored record of a partition that this node is about to serve. Records are
    /// adopted in the order of keys, and have no effect before [`Self::serve`].
    pub fn adopt(
        &mut self,
        now: Time,
        partition: PartitionId,
        job: JobId,
        record: LedgerRecord,
    ) -> Result<(), RecordError> {
        self.loading(partition).ledger.load(now, partition, job, record)
    }
    /// As [`Self::adopt`], for the record of a job.
    pub fn adopt_job(&mut self, partition: PartitionId, state: wire::JobState) {
        self.loading(partition).jobs.push(state);
    }
    /// As [`Self::adopt`], for the record of a variable.
    pub fn adopt_variable(&mut self, partition: PartitionId, job: JobId, variable: wire::Variable) {
        self.loading(partition).variables.push((job, variable));
    }
    fn loading(&mut self, partition: PartitionId) -> &mut Loading {
        let options = &self.options;
        let fresh = || {
            let ledger = Ledger::new(options.me, options.incarnation, true, options.mutant);
            Loading { ledger, jobs: Vec::new(), variables: Vec::new() }
        };
        let loading = self.home.loading.get_or_insert_default();
        loading.entry(partition).or_insert_with(fresh)
    }

    /// This node is home of the partition from now on, with the records that were adopted. `term`
    /// is the epoch of this take-over, larger than any before.
    ///
    /// # Panics
    /// When homes do not move here, or it serves the partition already.
    pub fn serve(&mut self, now: Time, partition: PartitionId, term: u32, out: &mut Out) {
        assert!(!self.routing.homes().is_mine(partition), "{partition} is served already");
        let term = match self.options.mutant {
            Some(Mutant::TermOfIncarnation) => self.options.incarnation.0,
            _ => term,
        };
        self.loading(partition);
        let loaded = self.home.loading.as_mut().and_then(|loading| loading.remove(&partition));
        let Loading { ledger, jobs, variables } = loaded.expect("made above");
        self.routing.serve(partition, term);
        let concerned = self.home.ledger.take_over(now, partition, ledger, out);
        for job in concerned {
            let ended = self.home.ledger.job(job).filter(|job| job.has_ended());
            let ended = ended.map(Job::round);
            // Homes of the job's other partitions may have opened a later round. Tasks of that
            // round may be on this node.
            if ended.is_some_and(|round| round >= self.round_here(job)) {
                let keeps = self.home.ledger.keeps_data(job);
                self.forget_data(job, keeps, out);
            }
        }
        self.home.ledger.ask_for_rounds(|taken| taken == partition, self.routing.homes(), out);
        let claimed = self.claim(now, partition, out);
        if self.options.mutant != Some(Mutant::HoldersNotQueried) {
            self.ask_about_held(now, partition, &claimed, out);
        }
        self.home.jobs.take_over(now, jobs, variables, self.routing.homes(), out);
        self.routing.served_here(partition);
        self.resend_undelivered(now, out);
        self.confirm_forgotten(out);
    }

    /// This node held these tasks for the earlier home. Now it holds them for itself.
    fn claim(&mut self, now: Time, partition: PartitionId, out: &mut Out) -> BTreeSet<TaskId> {
        let of_partition = |task: &TaskId| task.partition() == partition;
        let mut here: Vec<(TaskId, Attempt)> = self
            .holder
            .remote_tasks()
            .iter()
            .map(|(&task, remote)| (task, remote.attempt))
            .collect();
        here.extend(self.holder.staging().iter().map(|(&task, staged)| (task, staged.attempt())));
        here.extend(self.holder.running().iter().map(|(&task, running)| (task, running.attempt())));
        here.retain(|(task, _)| of_partition(task));
        here.sort_unstable();
        let mut claimed = self.claim_ended(partition, out);
        for (task, attempt) in here {
            if self.home.ledger.take_home(task, attempt, out) {
                self.holder.forget_remote(&task);
                claimed.insert(task);
                if self.holder.claim_running(&task) {
                    self.home.ledger.note_start(task, out);
                }
                // The task may wait for an answer of the earlier home.
                self.on_start_permitted(now, task, attempt, out);
                self.holder.on_start_withdrawn(task, attempt);
            } else {
                out.events.push(Event::Dismissed { task, attempt });
                self.drop_task(task, attempt, out);
            }
        }
        claimed
    }

    /// Reports the ends of tasks that ended here again: the earlier home may not have recorded
    /// them.
    fn claim_ended(&mut self, partition: PartitionId, out: &mut Out) -> BTreeSet<TaskId> {
        let me = self.options.me;
        let ended: Vec<_> = self.holder.recent_completions().of_partition(partition).collect();
        let mut claimed = BTreeSet::new();
        for (task, attempt) in self.holder.unanswered_turns(partition) {
            let is_here = self.holder.running().contains_key(&task);
            if !is_here
                && self.home.ledger.is_held_by(task, attempt, me)
                && self.home.ledger.take_home(task, attempt, out)
            {
                self.holder.awaits_turn_reply(task, attempt);
                claimed.insert(task);
            }
        }
        for (task, attempt) in ended {
            if self.home.ledger.is_held_by(task, attempt, me)
                && self.home.ledger.take_home(task, attempt, out)
            {
                let end = self.holder.recent_completions().of(task, attempt).expect("listed above");
                out.completions.entry(me).or_default().push(end.clone());
                claimed.insert(task);
            }
        }
        claimed
    }

    /// Checks the recorded holders of ready tasks. Some tasks are no longer on this node, some
    /// holders have died, and this node asks the others.
    fn ask_about_held(
        &mut self,
        now: Time,
        partition: PartitionId,
        claimed: &BTreeSet<TaskId>,
        out: &mut Out,
    ) {
        let me = self.options.me;
        let mut asked: BTreeMap<NodeId, Vec<TaskId>> = BTreeMap::new();
        for (task, holder) in self.home.ledger.held(partition) {
            let cell = self.home.ledger.cell(task).expect("held tasks have records");
            let (attempt, incarnation) = (cell.attempt(), cell.holder_incarnation());
            if holder == me {
                // An earlier attempt in transit to a thief does not count.
                let in_transit = self.stealing.is_in_transit(task, attempt);
                if !claimed.contains(&task) && !in_transit {
                    self.home.ledger.replace_ready(task, RetryReason::NotHeld, out);
                }
            } else if self.routing.homes().is_gone(holder) {
                self.home.ledger.holder_died(now, task, RetryReason::HolderGone, out);
            } else if incarnation != Incarnation(0) && self.incarnation_of(holder) > incarnation {
                self.home.ledger.holder_died(now, task, RetryReason::HolderRestarted, out);
            } else {
                let known = self.incarnation_of(holder);
                if incarnation == Incarnation(0) && known > incarnation {
                    // Its earlier incarnation may be declared failed later, which does not concern
                    // this one.
                    self.home.ledger.name_holder_incarnation(task, known);
                }
                asked.entry(holder).or_default().push(task);
            }
        }
        let asked = asked.iter().map(|(&holder, tasks)| (holder, tasks.iter().collect()));
        self.home.ledger.ask_holders(asked, out);
    }

    /// These partitions are about to move to other homes in order, so that records written now
    /// reach the new homes. Tasks that run here continue. The new homes learn of them as they learn
    /// of any other holder's tasks.
    pub fn hand_over_partitions(&mut self, goes: &BTreeSet<PartitionId>, out: &mut Out) {
        if self.options.mutant == Some(Mutant::HandOverUnrecorded) {
            return;
        }
        let (me, incarnation) = (self.options.me, self.options.incarnation);
        let running = self.holder.running().iter();
        let running: Vec<_> = running.map(|(&task, running)| (task, running.attempt())).collect();
        for (task, attempt) in running {
            let partition = task.partition();
            let is_ours = self.routing.homes().is_mine(partition) && goes.contains(&partition);
            // According to its records, a task that runs again has ended. The next home knows
            // nothing else.
            let is_stored = self.home.ledger.cell(task).is_some_and(|cell| !cell.is_rebuilt());
            if is_ours && is_stored && self.home.ledger.is_held_by(task, attempt, me) {
                self.home.ledger.set_holder(task, me, incarnation, out);
                self.holder.hand_on(&task);
            }
        }
        for &partition in goes {
            if self.routing.homes().is_mine(partition) {
                self.hand_over_bound_tasks(partition, out);
            }
        }
    }

    /// A task that can run only on this node waits here for its turn, whichever node is its home.
    fn hand_over_bound_tasks(&mut self, partition: PartitionId, out: &mut Out) {
        let (me, incarnation) = (self.options.me, self.options.incarnation);
        let mut held = self.home.ledger.held(partition);
        held.retain(|&(task, holder)| holder == me && !self.holder.running().contains_key(&task));
        for (task, _) in held {
            let Some(work) = self.home.ledger.work(task).filter(Work::is_bound) else { continue };
            let cell = self.home.ledger.cell(task).expect("held tasks have records");
            let (attempt, is_stored) = (cell.attempt(), !cell.is_rebuilt());
            if !is_stored {
                continue; // As above: the next home would not know that it runs again.
            }
            self.home.ledger.set_holder(task, me, incarnation, out);
            if self.unstage(task, out).is_some() {
                let ready = self.ready(task, attempt, &work);
                self.enqueue(true, ready);
            }
            self.holder.note_activity(task.job);
            let remote = RemoteTask { attempt, work, home_knows: true };
            self.holder.hold_remote(task, remote);
        }
    }

    /// Another node is home of the partition from now on. This node drops the partition's tasks,
    /// except for running ones that it has handed on. The new home asks the other holders.
    pub fn give_up(&mut self, partition: PartitionId, out: &mut Out) {
        if let Some(loading) = &mut self.home.loading {
            loading.remove(&partition);
        }
        if !self.routing.homes().is_mine(partition) {
            return;
        }
        let staged = self.holder.staging().iter().map(|(&task, staged)| (task, staged.attempt()));
        let mut dropped: Vec<_> =
            staged.filter(|(task, _)| task.partition() == partition).collect();
        let running =
            self.holder.running().iter().filter(|(task, _)| task.partition() == partition);
        let (handed_on, others): (Vec<_>, Vec<_>) = running
            .map(|(&task, running)| (task, running.attempt(), running.is_handed_on()))
            .partition(|&(_, _, handed_on)| handed_on);
        handed_on.into_iter().for_each(|(task, _, _)| self.holder.note_activity(task.job));
        dropped.extend(others.into_iter().map(|(task, attempt, _)| (task, attempt)));
        for (task, attempt) in dropped {
            self.drop_task(task, attempt, out);
        }
        self.routing.give_up(partition);
        self.home.ledger.give_up_partition(partition);
        self.objects.forget_partition(partition);
        self.home.jobs.give_up(partition, self.routing.homes(), out);
        if let Some(open_jobs) = &mut self.home.open_jobs {
            open_jobs.give_up(partition, out);
        }
    }

    /// Installs a newer map.
    pub fn set_homes(&mut self, now: Time, homes: Homes, out: &mut Out) {
        self.holder.set_now(now);
        let older = self.routing.succeed(homes);
        if !self.routing.homes().has_same_offers(&older) {
            self.holder.rematch(self.routing.homes());
        }
        self.home.ledger.report_every(report_interval(self.routing.homes()));
        self.home.ledger.place_again(self.home.awaiting_wide_node.drain(..));
        self.follow_drain(now, out);
        self.look_for_takers(now, &older);
        self.home.jobs.forget_again(now, self.routing.homes(), out);
        self.home.jobs.tend_collections_soon();
        self.confirm_forgotten(out);
        let changed: BTreeSet<PartitionId> = self.routing.homes().changed_since(&older).collect();
        if changed.is_empty() {
            return;
        }
        self.home.homes_changed(now, &changed);
        self.routing.map_changed();
        self.resend_undelivered(now, out);
        self.home.jobs.notify_new_homes(&changed, self.routing.homes(), out);
        let homes = self.routing.homes();
        let moved = |job: JobId| changed.contains(&homes.job_partition(job));
        self.home.ledger.report_again(now, moved);
        let of_moved = |local: LocalId| changed.contains(&local.partition());
        self.home.ledger.ask_again(of_moved, homes, out);
        self.home.ledger.recall_again(homes, out);
        // The earlier home may have died before it announced the end.
        for job in
            self.holder.local_jobs().committed().filter(|&job| moved(job)).collect::<Vec<_>>()
        {
            self.ask_for_job_end(job, out);
        }
        let of_moved =
            |object: &ObjectId, _: &InflightFetch| changed.contains(&object.task.partition());
        self.ask_directory_again(now, of_moved, out);
    }

    /// Places tasks again that an earlier incarnation of the holder held.
    pub(crate) fn check_held_remotely(
        &mut self,
        now: Time,
        peer: NodeId,
        before: Option<Incarnation>,
        incarnation: Incarnation,
        out: &mut Out,
    ) {
        if self.options.mutant == Some(Mutant::NoReplaceOnRestart) {
            return;
        }
        let (lost, uncertain_tasks) =
            self.home.ledger.check_incarnation_of_holder(peer, before, incarnation);
        for task in lost {
            self.home.ledger.holder_died(now, task, RetryReason::HolderRestarted, out);
        }
        if !uncertain_tasks.is_empty() {
            self.home
                .ledger
                .ask_holders([(peer, uncertain_tasks.iter().collect())].into_iter(), out);
        }
    }

    /// The map declares this incarnation of a node failed. Its tasks are placed again, and grants
    /// to it are taken back. Objects of which it held the only copy are lost.
    pub fn on_peer_gone(
        &mut self,
        now: Time,
        peer: NodeId,
        incarnation: Incarnation,
        out: &mut Out,
    ) {
        if self.options.mutant == Some(Mutant::GoneHolderKeeps) {
            return;
        }
        self.note_death(now, (peer, incarnation));
        for task in self.home.ledger.given_to(peer) {
            if self.home.ledger.is_held_up_to(task, incarnation) {
                self.home.ledger.holder_died(now, task, RetryReason::HolderGone, out);
            }
        }
        // This node may have heard a later incarnation before: grants to that one are not lost.
        if self.incarnation_of(peer) <= incarnation {
            self.take_back_unacked_grants(peer, incarnation, out);
            self.stealing.forget_peer(peer, now);
            self.policy.forget_peer(peer);
        }
        self.objects.forget_copies_on(peer);
        if self.is_dead(peer) {
            self.pin_last_copies_of(peer, out);
        }
        self.objects.forget_transfers_with(now, peer);
        self.source_gone(now, peer, out);
    }
}
