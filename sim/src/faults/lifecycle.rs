//! The phases of a simulated run: faults, healing, the end of all jobs, silence, and an empty
//! store.

use proto::wire::PartitionEntry;
use proto::{JobId, Span, limits};

use crate::checkers::{Verdict, Violation, captured, kept, past, progress, quiet, variables};
use crate::faults::seed_plan::Plan;
use crate::faults::world::World;
use crate::state::expected::{ExpectedJob, SubmissionStage};
use crate::state::machine::Machine;

/// Longest time until a slow node is no longer slow.
const WELL_BOUND: Span = Span::from_secs(90);
/// After healing, every accepted job must end within this virtual time plus its work.
const PROGRESS_BOUND: Span = Span::from_secs(240);
/// The time in which an idle cluster comes to rest, and the time for which it is then watched.
const SETTLE: Span = Span::from_secs(30);
const SILENCE: Span = Span::from_secs(20);
/// The most requests for node states before a node counts as dead, and the time for each.
const OBSERVATIONS_MAX: usize = 20;
const OBSERVATION: Span = Span::from_secs(1);
/// Longest time until all partitions have all replicas again.
pub(crate) const WHOLE_BOUND: Span = Span::from_secs(120);
/// The time for actions that are due after a suspension of all machines.
const AWAKE: Span = Span::from_secs(90);
const SLEEPS_MAX: usize = 4;
/// The number of [`SILENCE`] periods in which uncommitted jobs may expire.
const EXPIRIES_MAX: usize = 3;
/// Longest time until a draining node has left, after all jobs have ended.
const LEFT_BOUND: Span = Span::from_secs(120);
/// The time within which a draining node without space for its data elsewhere reports that.
const REFUSALS: Span = Span::from_secs(30);
/// The most packets that an idle node may send during [`SILENCE`].
const SILENT_PACKETS_PER_NODE_MAX: u64 = 4;

pub(crate) fn live(world: &mut World, plan: &mut Plan) -> Verdict {
    if plan.waits_for_start {
        world.must_be_whole()?;
    }
    plan.populate(world);
    if let Some(faults) = plan.faults.clone() {
        world.break_things(faults, plan.faults_for);
        world.run_for(plan.faults_for);
        world.heal();
    }
    world.must_end()?;
    world.must_be_whole()?;
    if !world.slow_nodes().is_empty() {
        world.must_be_well()?; // A slow node gets no tasks.
    }
    if let Some((_, home)) = plan.add_spread(world) {
        let before = world.launches();
        world.must_end()?;
        let after = world.launches();
        let ran: Vec<u64> =
            after.iter().zip(before).map(|(after, before)| after - before).collect();
        progress::spread(&ran, &format!("a bag on n{home}"))?;
    }
    world.must_say_that_it_has_grown()?;
    world.must_remember()?;
    world.must_fall_silent()?;
    world.must_leave_nothing()
}

impl World {
    /// The time of all tasks one after another, each with a sync of two homes. The skipping of a
    /// failed task's descendants needs one sync a hop.
    fn all_work(&self) -> Span {
        let slow =
            |job: &ExpectedJob| job.work().0 + job.tasks.len() as u64 * 2 * self.options.sync_max.0;
        Span(self.jobs.values().map(slow).sum())
    }

    fn passed(&self) -> Verdict {
        self.violation().map_or(Ok(()), |violation| Err(violation.clone()))
    }

    /// Checks that every accepted job ends in bounded virtual time and every client has its
    /// answers.
    ///
    /// # Errors
    /// A violation, or the cause that blocks the first unfinished job.
    pub fn must_end(&mut self) -> Verdict {
        let over = |world: &Self| {
            let accepted = |job: &ExpectedJob| job.promise == SubmissionStage::Accepted;
            world.clients.jobs_are_over()
                && !world.jobs.values().any(accepted)
                && world.clients.kv_is_over()
        };
        let ended = self.run_until(self.now + PROGRESS_BOUND + self.all_work(), over);
        self.passed()?;
        if ended {
            return self.starve.on_end(self.now);
        }
        let states = self.node_states().unwrap_or_default();
        let states: Vec<String> =
            states.iter().enumerate().map(|(node, state)| describe(node, state)).collect();
        self.describe_nodes();
        let open = self.clients.open_jobs();
        let accepted = self.jobs.values().filter(|job| job.promise == SubmissionStage::Accepted);
        match open.chain(accepted.map(|job| job.job)).next() {
            Some(job) => Err(progress::stalled(&self.jobs[&job], &states.join(", "))),
            None => Err(Violation::new("progress", "a client of the kv store hangs".to_string())),
        }
    }

    /// Where homes move: checks that every remaining node is a member and every partition has all
    /// replicas.
    ///
    /// # Errors
    /// The partitions that still lack replicas after `WHOLE_BOUND`.
    pub fn must_be_whole(&mut self) -> Verdict {
        if !self.homes_move() || self.run_until(self.now + WHOLE_BOUND, Self::is_whole) {
            return self.passed();
        }
        self.passed()?;
        let entries = (0..).zip(&self.map.partitions);
        let open = |entry: &PartitionEntry| {
            let live = entry.replicas.iter().all(|&node| self.is_live(node));
            !entry.active || !entry.learners.is_empty() || !live
        };
        let open: Vec<_> = entries.filter(|(_, entry)| open(entry)).take(4).collect();
        let there = (0..).zip(&self.machines).filter(|(_, machine)| machine.may_run());
        let apart: Vec<u32> =
            there.map(|(node, _)| node).filter(|&node| !self.is_live(node)).collect();
        let text = format!(
            "copies are still lacking: {open:?}; nodes apart: {apart:?}; voters {:?}",
            self.map.voters
        );
        self.describe_nodes();
        Err(Violation::new("copies", text))
    }

    pub(crate) fn describe_nodes(&mut self) {
        for (node, machine) in self.machines.iter().enumerate() {
            let waiting = machine.node.as_ref().map(node::Node::describe_waiting);
            let line = format!("n{node}: {}", waiting.unwrap_or_else(|| "down".to_owned()));
            self.trace.add(|| line);
        }
        let inactive = (0..).zip(&self.map.partitions).filter(|(_, entry)| !entry.active);
        let inactive: Vec<(u32, _)> = inactive.collect();
        let map = &self.map;
        self.trace.add(|| format!("inactive: {inactive:?}; members: {:?}", map.members));
    }

    /// Suspends all machines, as in a cloud. Their clocks continue.
    fn sleep_for(&mut self, span: Span) {
        let until = self.now + span;
        for machine in &mut self.machines {
            machine.paused_until = until;
        }
        self.run_for(span);
    }

    /// Checks that job states sent to clients still hold, and that the key-value histories are
    /// linearizable.
    ///
    /// # Errors
    /// The violation.
    pub fn must_remember(&mut self) -> Verdict {
        self.ask_again();
        self.read_all_keys();
        self.read_all_lists();
        self.run_until(self.now + PROGRESS_BOUND, |world| world.clients.kv_is_over());
        self.passed()?;
        self.clients.judge_kv()?;
        captured::on_end(&self.jobs, &self.machines)?;
        if let Some(number) = self.options.variables {
            variables::on_end(number, &self.jobs, &self.turns)?;
        }
        let is_fair = self.disks_went_fairly();
        if is_fair && self.homes_move() {
            self.must_keep()?;
        }
        if is_fair { self.must_be_forgotten() } else { Ok(()) }
    }

    /// True if no lost disk may have held the only copy of something.
    pub(crate) fn disks_went_fairly(&self) -> bool {
        self.injection.lost_fairly(self.grows(), self.options.copies)
    }

    /// Checks that the kept outputs of done tasks are on remaining machines.
    pub(crate) fn must_keep(&self) -> Verdict {
        kept::on_end(&self.jobs, &self.machines)
    }

    /// Checks that every draining node has left, or that no other node has space for its data.
    ///
    /// # Errors
    /// When a node stays for another reason.
    pub fn must_have_left(&mut self) -> Verdict {
        // A job may still run although its client died at the commit and no client waits for it.
        let limbo = self.jobs.values().any(|job| job.promise == SubmissionStage::CommitSent);
        let bound = Span(LEFT_BOUND.0 + if limbo { self.all_work().0 } else { 0 });
        if self.run_until(self.now + bound, |world| !world.start_a_departure()) {
            return self.passed();
        }
        for node in self.leavers() {
            let refused = self.run_until(self.now + REFUSALS, |world| {
                let machine = &world.machines[node.0 as usize];
                let says = machine.node.as_ref().is_some_and(node::Node::is_drain_blocked);
                says || !world.leavers().contains(&node)
            });
            self.passed()?;
            if !refused {
                let states = self.node_states().unwrap_or_default();
                let state = states.into_iter().find(|state| {
                    state.member.as_ref().is_some_and(|member| member.node == node.0)
                });
                self.describe_nodes();
                return Err(progress::stays(node, bound, &state.unwrap_or_default()));
            }
        }
        Ok(())
    }

    /// Checks that an idle cluster sends next to nothing.
    ///
    /// # Errors
    /// When it still sends messages.
    pub fn must_fall_silent(&mut self) -> Verdict {
        // A job may still run although its client died at the commit and no client waits for it.
        let limbo = self.jobs.values().any(|job| job.promise == SubmissionStage::CommitSent);
        self.must_have_left()?;
        let epoch = self.map.epoch;
        self.run_for(if limbo { Span(SETTLE.0 + self.all_work().0) } else { SETTLE });
        self.map_must_come_to_rest(epoch)?;
        self.passed()?;
        self.keepers_serve_nothing()?;
        self.no_copy_is_forgotten()?;
        // A write may have happened just now: the clean-up of history is one.
        if !self.run_until(self.now + SETTLE, |world| world.copies_are_equal().is_ok()) {
            self.passed()?;
            self.copies_are_equal()?;
        }
        let mut verdict = self.must_be_silent();
        // Uncommitted chunks may expire just now, on one home after another. A job of a dead client
        // may end.
        for _ in 0..EXPIRIES_MAX {
            if verdict.is_err() && self.violation().is_none() {
                verdict = self.must_be_silent();
            }
        }
        verdict
    }

    /// Checks that every slow node recovers and then gets its share of tasks again.
    fn must_be_well(&mut self) -> Verdict {
        if !self.run_until(self.now + WELL_BOUND, |world| world.slow_nodes().is_empty()) {
            self.passed()?;
            let text = format!("nodes {:?} are slow permanently", self.slow_nodes());
            return Err(Violation::new("quiet", text));
        }
        self.run_for(SETTLE);
        self.passed()
    }

    fn must_be_silent(&mut self) -> Verdict {
        if !self.slow_nodes().is_empty() {
            self.must_be_well()?; // Slow nodes are probed.
        }
        self.check_parts()?;
        let (before, members_before) = (self.packets(), self.membership_packets());
        self.run_for(SILENCE);
        self.passed()?;
        let about_members = self.membership_packets() - members_before;
        let nodes = self.machines.iter().filter(|machine| machine.may_run()).count() as u64;
        quiet::on_idle_members(about_members, nodes, self.map.voters.len() as u64, SILENCE)?;
        if self.start_a_departure() || self.node_states()?.iter().any(|it| it.lacking_copies > 0) {
            return Ok(()); // It offers its data repeatedly because no node has space.
        }
        let packets = self.packets() - before;
        let most = SILENT_PACKETS_PER_NODE_MAX * self.machines.len() as u64;
        quiet::on_idle(packets, most, SILENCE.0 / 1_000_000_000)
    }

    /// Checks that homes finally spread evenly, so that no more hand-overs happen.
    fn map_must_come_to_rest(&mut self, mut before: u64) -> Verdict {
        let until = self.now + WHOLE_BOUND;
        while self.map.epoch != before {
            if self.now >= until {
                let text = format!("its epoch is {}, and still grows", self.map.epoch);
                return Err(Violation::new("map", text));
            }
            before = self.map.epoch;
            self.run_for(SETTLE);
            self.passed()?;
        }
        Ok(())
    }

    /// Checks that abandoned jobs are deleted: those of clients that died before the commit. Also
    /// checks that the nodes report no remaining work.
    ///
    /// # Errors
    /// The remaining records and their node.
    pub fn must_leave_nothing(&mut self) -> Verdict {
        let abandoned: Vec<_> =
            self.jobs.values().filter(|job| job.abandoned).map(|job| job.job).collect();
        if self.homes_move() {
            // Suspended, because the probes of running nodes would be most events. A new home
            // starts the timeout again, and nodes may be declared failed after each suspension. So
            // the last period is without one.
            for sleep in 0..=SLEEPS_MAX {
                if self.leftovers(&abandoned).is_none() {
                    break;
                }
                match sleep < SLEEPS_MAX {
                    true => self.sleep_for(limits::STAGED_JOB_TTL),
                    false => self.run_for(limits::STAGED_JOB_TTL),
                }
                self.run_for(AWAKE);
                self.passed()?;
            }
        } else if !abandoned.is_empty() {
            self.run_for(Span(limits::STAGED_JOB_TTL.0 * 2));
            self.passed()?;
        }
        if let Some((job, node, left)) = self.leftovers(&abandoned) {
            return Err(quiet::left_behind(job, node, left));
        }
        self.late_chunks_must_expire()?;
        let running = |machine: &Machine| machine.running.first_key_value().map(|(&key, _)| key);
        if let Some((task, attempt)) = self.machines.iter().find_map(running) {
            let text = format!("all jobs have ended, but {task} attempt {attempt} runs");
            return Err(Violation::new("removal", text));
        }
        let limbo = self.jobs.values().any(|job| job.promise == SubmissionStage::CommitSent);
        let living = (0..).zip(&self.machines).filter(|(_, machine)| machine.may_run());
        let living: Vec<usize> = living.map(|(node, _)| node).collect();
        for (node, state) in living.into_iter().zip(&self.node_states()?) {
            let busy = state.ready_local + state.ready_shared + state.running;
            if busy > 0 || (state.waiting > 0 && !limbo) {
                let text = format!("all jobs have ended, but {}", describe(node, state));
                return Err(Violation::new("progress", text));
            }
        }
        Ok(())
    }

    /// Checks that a chunk repeated after its job was forgotten expires as well.
    fn late_chunks_must_expire(&mut self) -> Verdict {
        let is_staged = |world: &Self| past::is_staged_late(&world.jobs, &world.machines);
        if !is_staged(self) {
            return Ok(());
        }
        let bound = Span(limits::STAGED_JOB_TTL.0 * SLEEPS_MAX as u64);
        self.run_until(self.now + bound, |world| !is_staged(world));
        self.passed()?;
        if self.disks_went_fairly() { self.must_be_forgotten() } else { Ok(()) }
    }

    /// A job that should be deleted, a node with records of it, and their number.
    fn leftovers(&self, abandoned: &[JobId]) -> Option<(JobId, usize, usize)> {
        for &job in abandoned {
            // The note that it was forbidden remains.
            let forbidden = self.jobs[&job].forbidden;
            let own = if forbidden { kvs::keys::TASK } else { kvs::keys::JOB };
            let prefixes = [kvs::keys::TASK, own, kvs::keys::META]
                .map(|namespace| kvs::keys::job_prefix(namespace, job));
            let machines = self.machines.iter().enumerate();
            for (node, machine) in machines.filter(|(_, machine)| machine.may_run()) {
                let mine = |key: &[u8]| prefixes.iter().any(|prefix| key.starts_with(prefix));
                let left = machine.disk.records().filter(|record| mine(&record.key)).count();
                if left > 0 {
                    return Some((job, node, left));
                }
            }
        }
        None
    }

    /// The states of all nodes by number. All must be up.
    ///
    /// # Errors
    /// When a node does not answer.
    pub fn node_states(&mut self) -> Result<Vec<proto::wire::NodeState>, Violation> {
        let all = self.machines.iter().filter(|machine| machine.may_run()).count();
        let up = |world: &Self| world.machines.iter().all(|m| m.is_up() || !m.may_run());
        for _ in 0..OBSERVATIONS_MAX {
            // A node may die while it answers: then all are queried again.
            self.run_until(self.now + PROGRESS_BOUND, up);
            self.observe();
            let answered = |world: &Self| world.clients.node_states().len() == all;
            let complete = self.run_until(self.now + OBSERVATION, answered);
            self.passed()?;
            if complete {
                break;
            }
        }
        let states = self.clients.node_states();
        if states.len() < all {
            let text = format!("only {} of {all} nodes say how they are", states.len());
            return Err(Violation::new("progress", text));
        }
        Ok(states.values().cloned().collect())
    }
}

fn describe(node: usize, state: &proto::wire::NodeState) -> String {
    format!(
        "n{node} has {} local, {} shared, {} running, {} waiting",
        state.ready_local, state.ready_shared, state.running, state.waiting
    )
}
