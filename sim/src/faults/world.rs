//! A cluster in one loop under virtual time. Each event is an entry of one queue, ordered by time
//! and then by number, so a run is a function of its seed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::Mutant;
use node::{Config, Input, Node};
use proto::{Event, Incarnation, JobId, NodeId, ObjectId, PartitionId, Span, TaskId, Time, wire};

use crate::checkers::{
    Jobs, Verdict, Violation, conservation, copies, moves, one_attempt, patience, poison, stall,
    starve, turns, variables,
};
use crate::faults::clients::Clients;
use crate::faults::consensus_log::Agreed;
use crate::faults::event_queue::{Queue, SimEvent};
use crate::faults::kinds::notices::is_drained;
use crate::faults::network::Network;
use crate::faults::options::{EffectHook, WorldOptions};
use crate::faults::strikes::Injection;
use crate::faults::strikes::growth::Growth;
use crate::faults::trace::Trace;
use crate::rng::SimRng;
use crate::state::clock::Clock;
use crate::state::expected::ExpectedJob;
use crate::state::machine::Machine;

/// The begin of virtual time, high enough that a skewed clock never goes below zero.
pub(crate) const BEGIN: Time = Time(1_000_000_000_000);
/// The longest time between two censuses of tasks, while events occur.
const CENSUS_INTERVAL: Span = Span::from_secs(5);
/// A run with more steps is in an endless loop.
const STEPS_MAX: u64 = 5_000_000;

/// The cluster, its clients, its network, and the state of all checkers.
pub struct World {
    pub(super) now: Time,
    pub(super) options: WorldOptions,
    pub(super) map: Arc<wire::ClusterMap>,
    pub(super) dice: SimRng,
    queue: Queue,
    pub(super) machines: Vec<Machine>,
    pub(super) network: Network,
    pub(super) clients: Clients,
    pub(super) agreed: Agreed,
    pub(super) injection: Injection,
    pub(super) growth: Growth,
    pub(super) trace: Trace,
    pub(super) effect_hook: Option<EffectHook>,
    steps: u64,
    violation: Option<Violation>,
    /// The state of the checkers.
    pub(super) jobs: Jobs,
    pub(super) starve: starve::Watch,
    pub(super) patience: patience::Patience,
    conservation: conservation::Conservation,
    pub(super) acked: copies::Acked,
    pub(super) bytes: one_attempt::Bytes,
    pub(super) turns: turns::Turns,
    pub(super) variables: variables::Variables,
    pub(super) moves: moves::Moves,
    pub(super) lives: poison::Incarnations,
    /// The stalls that nodes reported.
    pub(super) stalled: Vec<stall::Stalled>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("now", &self.now).field("options", &self.options).finish()
    }
}

fn machine(options: &WorldOptions, node: usize) -> Machine {
    let slots = options.slots[node % options.slots.len()];
    let slowness = options.slowness[node % options.slowness.len()];
    let pace = options.paces[node % options.paces.len()];
    Machine { store: 100 + node as u64, pace, ..Machine::new(slots, slowness) }
}

impl World {
    /// A cluster with nodes that start at once.
    #[must_use]
    pub fn new(options: WorldOptions) -> Self {
        let WorldOptions { seed, nodes, partitions, copies, .. } = options;
        let mut map = kvs::make_replicated_map(seed | 1, nodes, partitions, copies);
        let machines: Vec<_> = (0..nodes as usize).map(|node| machine(&options, node)).collect();
        for (member, machine) in map.members.iter_mut().zip(&machines) {
            member.slots = machine.slots;
            member.offer = options.offer_bytes(member.node as usize, machine.slots);
            member.phase = wire::MemberPhase::Up as i32;
        }
        let map = Arc::new(map);
        let slots = machines.iter().map(|machine| machine.slots);
        let mut starve = starve::Watch::new(slots, BEGIN);
        starve.expect_steals(options.tuning.steal_share, options.sync_max);
        starve.expect_gangs(options.gangs);
        starve.expect_moves(options.noticed && !options.ends.is_empty());
        (0..nodes as usize).for_each(|node| starve.ends(node, options.end_of(node)));
        let mut world = Self {
            now: BEGIN,
            network: Network::new(options.network.clone()),
            dice: SimRng::new(seed),
            queue: Queue::default(),
            machines,
            clients: Clients::new(BEGIN),
            agreed: Agreed::new(Arc::clone(&map)),
            map,
            injection: Injection::new(BEGIN),
            growth: Growth::new(!seed),
            trace: Trace::default(),
            effect_hook: None,
            steps: 0,
            violation: None,
            jobs: Jobs::new(),
            starve,
            patience: patience::Patience::default(),
            conservation: conservation::Conservation::default(),
            acked: copies::Acked::default(),
            bytes: one_attempt::Bytes::default(),
            turns: turns::Turns::default(),
            variables: variables::Variables::default(),
            moves: moves::Moves::default(),
            lives: poison::Incarnations::new(copies > 1),
            stalled: Vec::new(),
            options,
        };
        (0..world.machines.len()).for_each(|node| world.start(node));
        world
    }

    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }
    /// The first violation.
    #[must_use]
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }
    /// Two runs with the same hash did the same.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }
    pub fn on_effect(&mut self, hook: EffectHook) {
        self.effect_hook = Some(hook);
    }
    /// Records the events from now on, for a human.
    pub fn keep_story(&mut self) {
        self.trace.keep();
    }
    pub fn take_story(&mut self) -> Vec<String> {
        self.trace.take()
    }
    /// Packets that nodes have sent.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.machines.iter().map(|machine| machine.packets_sent).sum()
    }
    /// Packets with membership messages; [`Self::packets`] does not count them.
    #[must_use]
    pub fn membership_packets(&self) -> u64 {
        self.machines.iter().map(|machine| machine.membership_sent).sum()
    }
    /// The epoch of the newest map that any node has.
    #[must_use]
    pub fn map_epoch(&self) -> u64 {
        self.map.epoch
    }
    /// The stalls that nodes have reported, in worlds where jobs may stall.
    #[must_use]
    pub fn stalled(&self) -> &[stall::Stalled] {
        &self.stalled
    }
    #[must_use]
    pub fn stall_reported(&self) -> Option<&wire::Stall> {
        self.clients.stall_reported()
    }
    /// Attempts launched, by node.
    #[must_use]
    pub fn launches(&self) -> Vec<u64> {
        self.machines.iter().map(|machine| machine.launches).collect()
    }

    /// What is known of a job that was submitted.
    pub(crate) fn expected_job(&self, job: JobId) -> &ExpectedJob {
        &self.jobs[&job]
    }

    /// Runs for a span of virtual time, or until a violation.
    pub fn run_for(&mut self, span: Span) {
        self.run_until(self.now + span, |_| false);
    }

    /// Runs to `until`, or until `stop` returns true. Returns whether `stop` did.
    pub(crate) fn run_until(&mut self, until: Time, stop: impl Fn(&Self) -> bool) -> bool {
        while self.violation.is_none() {
            if stop(self) {
                return true;
            }
            let Some((at, what)) = self.queue.pop_until(until) else { break };
            assert!(at >= self.now, "time goes forward");
            self.now = at;
            self.happen(what);
        }
        if self.violation.is_none() {
            self.now = self.now.max(until);
        }
        false
    }

    pub(crate) fn schedule(&mut self, at: Time, what: SimEvent) {
        self.queue.push(at.max(self.now), what);
    }
    pub(crate) fn judge(&mut self, verdict: Verdict) {
        if let (Err(violation), None) = (verdict, &self.violation) {
            self.tell(|| format!("VIOLATION {violation}"));
            self.describe_nodes();
            self.violation = Some(violation);
        }
    }
    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        self.trace.add(|| format!("{now:?} {}", line()));
    }
    pub(crate) fn mix(&mut self, number: u64) {
        self.trace.mix(number);
    }
    pub(crate) fn count_fault(&mut self, kind: &'static str) {
        self.injection.count(kind, 1);
    }
    /// The home of this partition.
    #[must_use]
    pub fn home(&self, partition: u32) -> usize {
        self.map.partitions[partition as usize].replicas[0] as usize
    }

    #[must_use]
    pub fn partitions(&self) -> u32 {
        self.map.partitions.len() as u32
    }
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.machines.len()
    }

    /// By partition: the nodes with a replica, and the learners.
    #[must_use]
    pub fn holders(&self) -> Vec<Vec<u32>> {
        let all = self.map.partitions.iter();
        all.map(|entry| [entry.replicas.as_slice(), &entry.learners].concat()).collect()
    }

    /// The partitions homed on a node.
    #[must_use]
    pub fn partitions_of(&self, node: usize) -> Vec<PartitionId> {
        let all = 0..self.map.partitions.len() as u32;
        all.filter(|&partition| self.home(partition) == node).map(PartitionId).collect()
    }

    fn is_current(&self, node: usize, life: u32) -> bool {
        let machine = &self.machines[node];
        machine.is_up() && machine.life == life
    }

    fn happen(&mut self, what: SimEvent) {
        match what {
            SimEvent::Step { node, life } => {
                if self.is_current(node, life) {
                    self.step(node);
                }
            }
            SimEvent::Input { node, life, input } => {
                if self.is_current(node, life) {
                    self.deliver(node, *input);
                }
            }
            SimEvent::Packet { to, packet } => {
                if self.machines[to].is_up() {
                    self.deliver(to, Input::Packet(packet));
                }
            }
            SimEvent::Timer { node, life, at } => {
                if self.is_current(node, life) && self.machines[node].timer_at == Some(at) {
                    self.machines[node].timer_at = None;
                    self.machines[node].timer_queued = true;
                    self.deliver(node, Input::Timer);
                }
            }
            SimEvent::Synced { node, life, seq, number } => {
                if self.is_current(node, life) {
                    self.synced(node, seq, number);
                }
            }
            SimEvent::Ended { node, life, task, attempt } => {
                if self.is_current(node, life) {
                    self.attempt_ended(node, task, attempt);
                }
            }
            SimEvent::Fetched { node, life, fetch } => {
                if self.is_current(node, life) {
                    self.fetch_ended(node, fetch);
                }
            }
            SimEvent::Erased { node, life, job, number } => {
                self.erased(node, life, job, number);
            }
            SimEvent::Request { node, client, request } => self.request_came(node, client, request),
            SimEvent::Response { client, response } => self.response_came(client, *response),
            SimEvent::Timeout { who, request } => self.timed_out(who, request),
            SimEvent::Wake { who } => self.wake(who),
            SimEvent::Start { node } => self.start(node),
            SimEvent::Die { node, life } => {
                if self.is_current(node, life) && self.machines[node].pending_crash.is_some() {
                    self.die(node);
                }
            }
            SimEvent::Fault(fault) => self.strike(fault),
            SimEvent::Pause { node, paused } => self.pause(node, paused),
            SimEvent::Drain { node } => self.drain(node),
            SimEvent::Evict { node, incarnation } => self.evict(node, incarnation),
        }
    }

    /// Adds an input for a node and schedules a step.
    pub(crate) fn deliver(&mut self, node: usize, input: Input) {
        self.machines[node].inbox.push_back(input);
        self.schedule_step(node);
    }

    pub(crate) fn schedule_step(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        if machine.step_scheduled || !machine.is_up() {
            return;
        }
        machine.step_scheduled = true;
        let life = machine.life;
        let service = self.dice.span(self.options.step_min, self.options.step_max);
        let machine = &self.machines[node];
        let at = (self.now + Span(service.0 * machine.slowness * machine.slow_down))
            .max(machine.paused_until);
        self.schedule(at, SimEvent::Step { node, life });
    }

    fn step(&mut self, index: usize) {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            let text = format!("{} steps: some node turns in circles", self.steps);
            return self.judge(Err(Violation::new("progress", text)));
        }
        let machine = &mut self.machines[index];
        machine.step_scheduled = false;
        if self.now < machine.paused_until {
            return self.schedule_step(index);
        }
        let local = machine.local(self.now);
        let waiting = machine.inbox.len().min(self.options.batch_max);
        let count = if waiting > 1 { 1 + self.dice.index(waiting) } else { waiting };
        let mut node = machine.node.take().expect("only live nodes step");
        machine.knows_of_drain = self.options.noticed && is_drained(&node, index);
        let mut is_tuned = false;
        for _ in 0..count {
            let input = machine.inbox.pop_front().expect("counted");
            is_tuned |= is_tuning(&input);
            if matches!(input, Input::Timer) {
                machine.timer_queued = false;
            }
            node.handle(local, input);
        }
        let mut effects = Vec::new();
        node.flush(local, &mut effects);
        machine.node = Some(node);
        if is_tuned {
            self.note_small_store(index);
        }
        self.carry_out(index, effects);
        self.note_acknowledged(index);
        self.check_variables_at_home(index);
        if self.machines[index].is_up() {
            self.arm(index);
            if !self.machines[index].inbox.is_empty() {
                self.schedule_step(index);
            }
        }
        self.count_tasks();
    }

    /// Takes a census of all tasks, by number of steps or when one is due.
    fn count_tasks(&mut self) {
        let every = self.options.census_steps;
        let due =
            every > 0 && (self.steps.is_multiple_of(every) || self.now >= self.conservation.next);
        if !due {
            return;
        }
        self.conservation.next = self.now + CENSUS_INTERVAL;
        let mut all = Vec::new();
        for (node, machine) in (0..).zip(&self.machines) {
            let known = kvs::membership::member(&self.map, NodeId(node));
            let known = known.map_or(0, |member| member.incarnation);
            let current = !self.homes_move() || known == 0 || known == machine.incarnation;
            if let Some(live) = machine.node.as_ref().filter(|_| current) {
                let incarnation = Incarnation(machine.incarnation);
                let census = live.census();
                all.push(conservation::NodeCount { node: NodeId(node), incarnation, census });
            }
        }
        let mut state = std::mem::take(&mut self.conservation);
        let home = |task: TaskId| NodeId(self.home(task.partition().0) as u32);
        let around = conservation::WorldState {
            jobs: &self.jobs,
            home: &home,
            now: self.now,
            healed: self.injection.ends_at(),
            deathless: self.options.faultless,
            homes_move: self.homes_move(),
        };
        let verdict = state.on_census(&all, &around);
        self.conservation = state;
        self.judge(verdict);
        self.check_reports();
    }

    fn arm(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        let deadline = machine.node.as_ref().and_then(Node::deadline);
        let Some(deadline) = deadline else {
            machine.timer_at = None;
            return;
        };
        if machine.timer_queued {
            return;
        }
        let at = machine.clock.true_time(deadline).max(self.now + Span::from_micros(1));
        if machine.timer_at == Some(at) {
            return;
        }
        machine.timer_at = Some(at);
        let life = machine.life;
        self.schedule(at, SimEvent::Timer { node: index, life, at });
    }

    /// Starts a machine that is down, under its next incarnation.
    pub(crate) fn start(&mut self, index: usize) {
        if self.machines[index].is_up() || !self.machines[index].may_run() {
            return;
        }
        self.spare_the_last_copy(index);
        if self.is_damaged(index) {
            self.give_records_up(index, "a record does not fit its checksum");
        }
        let late = self.machines[index].is_late;
        let knows_newest = late || !self.homes_move();
        let map = Arc::clone(if knows_newest { &self.map } else { self.agreed.first_map() });
        let machine = &mut self.machines[index];
        let unnoticed = self.options.mutant == Some(Mutant::RestartUnnoticed);
        machine.incarnation += u32::from(machine.incarnation == 0 || !unnoticed);
        machine.life += 1;
        // Each process has another clock, which may have been set back.
        let ahead = self.dice.span(Span::ZERO, self.options.skew_max);
        machine.clock = Clock::new(self.now, ahead, machine.pace);
        let incarnation = machine.incarnation;
        self.lives.begin(index, incarnation, self.now);
        let config = Config {
            incarnation: Incarnation(incarnation),
            slots: machine.slots,
            offer: self.options.offer_of(index, machine.slots),
            end: self.options.end_of(index),
            store: machine.store,
            tuning: self.options.tuning,
            seed: self.dice.number(),
            mutant: self.options.mutant.and_then(Mutant::of_node),
            late,
            former: machine.former,
            ..Config::new(NodeId(index as u32), map)
        };
        // A store is synced when it is opened, so recovery can rely on its records.
        machine.disk.sync(0);
        machine.unsynced.clear();
        let local = machine.local(self.now);
        match Node::recover(config, machine.disk.records(), local) {
            Ok(node) => machine.node = Some(node),
            Err(error) => {
                let text = format!("n{index} cannot recover: {error}");
                return self.judge(Err(Violation::new("durable", text)));
            }
        }
        self.tell(|| format!("n{index} starts as incarnation {incarnation}"));
        let jobs = &self.jobs;
        let is_file = |object: &ObjectId| jobs.get(&object.task.job).is_some_and(|it| it.real_data);
        let objects = self.machines[index].stored(is_file);
        // A node with an output of an upload task also has the client's file.
        let is_uploaded = |task: &TaskId| {
            let truth = jobs.get(&task.job).and_then(|it| it.tasks.get(&task.local));
            truth.is_some_and(|truth| truth.upload)
        };
        let tasks: BTreeSet<TaskId> = objects.iter().map(|stored| stored.object.task).collect();
        let tasks: Vec<TaskId> = tasks.into_iter().filter(is_uploaded).collect();
        if !objects.is_empty() {
            self.deliver(index, Input::Stored { objects });
        }
        if !tasks.is_empty() {
            self.deliver(index, Input::Files { tasks });
        }
        self.mix(0x57a7 ^ index as u64);
        self.starve.on_up(self.now, index, true);
        self.note_small_store(index);
        self.note_free_resources(index);
        self.note_shown(index);
        self.schedule_step(index);
        if self.machines[index].life > 1 {
            for peer in 0..self.machines.len() {
                self.connect(index, peer);
            }
        }
    }

    /// Opens a transport between two live nodes. Each learns of it at its own time.
    pub(crate) fn connect(&mut self, a: usize, b: usize) {
        if a == b || !self.machines[a].is_up() || !self.machines[b].is_up() {
            return;
        }
        for (node, peer) in [(a, b), (b, a)] {
            let life = self.machines[node].life;
            let at = self.now + self.dice.span(Span::ZERO, Span::from_millis(20));
            let input = Box::new(Input::PeerConnected { peer: NodeId(peer as u32) });
            self.schedule(at, SimEvent::Input { node, life, input });
        }
    }

    pub(crate) fn trace_event(&mut self, node: usize, event: &Event) {
        let mut encoder = proto::event::Encoder::default();
        encoder.push(Time::ZERO, event);
        encoder.take().into_iter().for_each(|byte| self.mix(u64::from(byte)));
        self.tell(|| format!("n{node} {event:?}"));
        let cpus = |task: TaskId| {
            let truth = self.jobs.get(&task.job).and_then(|job| job.tasks.get(&task.local));
            truth.map_or(1, |truth| truth.cpus)
        };
        let cpus = if let Event::Queued { task, .. } = *event { cpus(task) } else { 0 };
        self.note_request(event);
        self.judge(self.check_start(node, event));
        let verdict = self.starve.on_event(self.now, node, event, cpus);
        // A scenario may block the events that would end the wait.
        if self.effect_hook.is_none() {
            self.judge(verdict);
        }
    }
}

/// Whether a client changes the tuning of a node.
fn is_tuning(input: &Input) -> bool {
    let Input::Request { request, .. } = input else { return false };
    matches!(request.body, Some(wire::request::Body::Tune(_)))
}
