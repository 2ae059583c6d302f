//! The event loop of a study.

mod launches;

use std::collections::VecDeque;
use std::sync::Arc;

use analysis::{Entry, Fold, Kinds};
use node::{Config, Effect, Input, Node};
use proto::event::{End, Event};
use proto::{ClientId, NodeId, Span, Time, limits, wire};
use scheduler::Homes;
use workloads::{Graph, Plan};

use super::counting::{count_input, events_in};
use super::event_queue::{Queue, ScalingEvent};
use super::machine::{Machine, PendingInput};
use super::node_failures::{FailureState, InjectedFailures};
use super::submitter::{Sent, Submitter};
use super::traffic::Flow;
use super::transport::Transport;
use super::{BEGIN, JOB, Mark, Meter, Simulation, SimulationOptions, area};
use crate::checkers::Violation;
use crate::costs::{ByteTimes, Counts, Part, PriceList};
use crate::rng::SimRng;

const CLIENT: ClientId = ClientId(1);
/// A run has stalled after this many steps and this time without an end of a task.
const STEPS_WITHOUT_END_MAX: u64 = 200_000_000;
const SPAN_WITHOUT_END_MAX: Span = Span::from_secs(1_000_000);
/// An empty inbox keeps its allocation up to this size.
const INBOX_KEPT: usize = 8;
const NO_CPU_IS_FREE: &str = "an attempt that ran gives its slots back";

pub(super) struct Cluster<'a, 'm> {
    pub(super) now: Time,
    graph: &'a Graph,
    /// The work divided by the slots.
    pub(super) area: Span,
    pub(super) failure_state: FailureState,
    pub(super) struck: InjectedFailures,
    plan: &'a Plan<'a>,
    slots: u32,
    pub(super) queue: Queue,
    pub(super) machines: Vec<Machine>,
    pub(super) transport: Transport<Flow>,
    prices: PriceList,
    sync: Span,
    sync_gap: Span,
    run_delay: Span,
    pub(super) bytes: ByteTimes,
    /// Loads take the time of their bytes.
    loads_count: bool,
    pub(super) client: Submitter<'a>,
    pub(super) sent: Vec<Sent>,
    fold: Fold,
    collected: Option<lens::Collector>,
    kinds: Kinds,
    wide: bool,
    /// The last release time of a task, if any.
    last_release: Option<Time>,
    ended: u64,
    launches: Vec<u64>,
    /// The first launch of any task, and how long after it every node had launched one.
    first_launch: Option<Time>,
    spread: Option<Span>,
    without_work: usize,
    loop_busy: Vec<Span>,
    pub(super) packets: u64,
    steps: u64,
    /// The steps and the time at the last end of a task.
    progress: (u64, Time),
    violation: Option<Violation>,
    meter: Option<Meter<'m>>,
    // Kept to save allocations.
    inputs: Vec<Input>,
    effects: Vec<Effect>,
    held: Vec<Effect>,
}

pub(super) fn run(
    graph: &Graph,
    plan: &Plan<'_>,
    options: &SimulationOptions,
    map: wire::ClusterMap,
    meter: Option<Meter<'_>>,
) -> Result<Simulation, Violation> {
    let mut dice = SimRng::new(options.seed);
    let map = Arc::new(map);
    let failure_state = FailureState::new(options, &map)?;
    let homes = Homes::new(NodeId(0), &map, kvs::job_partition);
    let mut machines = Vec::with_capacity(options.nodes as usize);
    for node in 0..options.nodes {
        let config = Config {
            slots: options.slots,
            tuning: options.tuning,
            seed: dice.number(),
            mutant: options.mutant,
            ..Config::new(NodeId(node), Arc::clone(&map))
        };
        let mut node = Node::recover_among(config, &homes, std::iter::empty(), BEGIN)
            .expect("a node without records has nothing to misread");
        // The job is submitted to a cluster at rest.
        node.rest();
        machines.push(Machine::new(node));
    }
    for &mortal in failure_state.killable_nodes() {
        machines[mortal as usize].disk = Some(Box::default());
    }
    let service = &options.service;
    let kinds = Kinds::of(graph);
    let loads = kinds.loads().filter(|_| graph.clock_starts_after_loads());
    let span = |ns: f64| Span(ns as u64);
    let mut cluster = Cluster {
        now: BEGIN,
        graph,
        area: area(graph, options),
        failure_state,
        struck: InjectedFailures::default(),
        plan,
        slots: options.slots,
        queue: Queue::default(),
        transport: Transport::new(options.network, options.nodes),
        prices: service.prices(),
        sync: span(service.sync_ns),
        sync_gap: span(service.sync_gap_ns),
        run_delay: span(service.run_delay_ns),
        bytes: service.bytes,
        loads_count: kinds.loads().is_some() && !graph.clock_starts_after_loads(),
        client: Submitter::new(plan, graph.name(), &map, BEGIN, options),
        sent: Vec::new(),
        fold: Fold::of_job(JOB).before_the_clock(loads),
        collected: options.collects.then(|| lens::Collector::new(JOB, BEGIN)),
        kinds,
        wide: graph.specs().iter().any(|spec| spec.cpus > 1),
        last_release: last_release(graph),
        ended: 0,
        launches: vec![0; machines.len()],
        first_launch: None,
        spread: None,
        without_work: machines.len(),
        loop_busy: vec![Span::ZERO; machines.len()],
        packets: 0,
        steps: 0,
        progress: (0, BEGIN),
        violation: None,
        meter,
        inputs: Vec::new(),
        effects: Vec::new(),
        held: Vec::new(),
        machines,
    };
    cluster.live();
    cluster.finish(options)
}

impl Cluster<'_, '_> {
    /// Runs from the start of the submission until the client knows the end.
    fn live(&mut self) {
        for node in 0..self.machines.len() {
            self.wake(node);
        }
        self.client.pump(self.now, &mut self.sent);
        self.send_requests();
        while self.violation.is_none() && self.client.ended.is_none() {
            let next = self.queue.next_at();
            let flow = self.transport.next_end();
            match (next, flow) {
                (None, None) => self.stalled("nothing more will happen"),
                (next, Some(at)) if next.is_none_or(|next| at <= next) => {
                    self.now = at;
                    let ended = self.transport.take_ended(at).expect("it ends now");
                    self.flow_ended(ended);
                }
                _ => {
                    let (at, what) = self.queue.pop().expect("looked at above");
                    assert!(at >= self.now, "time goes forward");
                    self.now = at;
                    self.happen(what);
                }
            }
        }
    }

    fn stalled(&mut self, why: &str) {
        let (ended, all) = (self.ended, self.graph.len());
        let text = format!("{why}, but only {ended} of {all} tasks have ended");
        self.violation = Some(Violation::new("progress", text));
    }

    pub(super) fn break_off(&mut self, checker: &'static str, text: String) {
        self.violation.get_or_insert_with(|| Violation::new(checker, text));
    }

    fn happen(&mut self, what: ScalingEvent) {
        match what {
            ScalingEvent::Step(node) => self.step(node as usize),
            ScalingEvent::Timer(node) => {
                let node = node as usize;
                if self.machines[node].timer_at == Some(self.now) {
                    self.machines[node].timer_at = None;
                    self.arm(node);
                }
            }
            ScalingEvent::Packet(packet) => {
                let to = packet.to as usize;
                self.deliver(to, Input::Packet(packet));
            }
            ScalingEvent::ProbeEvent(probe_event) => {
                self.put(probe_event.to as usize, PendingInput::ProbeEvent(probe_event))
            }
            ScalingEvent::LargePacket(packet) => {
                let bytes = crate::costs::packet_bytes(&packet) as u64;
                let (from, to) = (packet.from as usize, packet.to as usize);
                self.transport.start(self.now, from, to, bytes, Flow::Packet(packet));
            }
            ScalingEvent::Load(load) => self.load(load),
            ScalingEvent::Ended(node, key) => self.attempt_ended(node as usize, *key),
            ScalingEvent::Serve(transfer) => self.serve(transfer),
            ScalingEvent::Arrived(transfer) => self.arrived(*transfer),
            ScalingEvent::SyncBegin(node) => {
                let machine = &mut self.machines[node as usize];
                if machine.log.begins_at == Some(self.now) {
                    machine.log.begins_at = None;
                    self.consider_sync(node as usize, self.now);
                }
            }
            ScalingEvent::SyncEnd(node, incarnation, seq) => {
                let machine = &mut self.machines[node as usize];
                if machine.incarnation != incarnation {
                    return;
                }
                if let Some(disk) = &mut machine.disk {
                    disk.sync(seq);
                }
                let log = &mut self.machines[node as usize].log;
                log.synced_seq = seq;
                log.synced_at = self.now;
                self.deliver(node as usize, Input::Persisted { seq });
                self.consider_sync(node as usize, self.now);
            }
            ScalingEvent::Submit => {
                self.client.pump(self.now, &mut self.sent);
                self.send_requests();
            }
            ScalingEvent::Die(node) => self.die(node as usize),
            ScalingEvent::Start(node) => self.start_again(node as usize),
            ScalingEvent::Freeze(node) => self.freeze(node as usize),
            ScalingEvent::Request(node, request) => {
                self.machines[node as usize].log.client_waits = true;
                self.deliver(node as usize, Input::Request { client: CLIENT, request });
            }
            ScalingEvent::Response(response) => {
                let verdict = self.client.on_response(self.now, *response, &mut self.sent);
                if let Err(violation) = verdict {
                    self.violation = Some(violation);
                }
                self.send_requests();
                if self.client.accepted.is_some() {
                    self.schedule_failures();
                }
            }
        }
    }

    pub(super) fn send_requests(&mut self) {
        for (at, node, request) in self.sent.drain(..) {
            self.queue.push(at + self.transport.latency(), ScalingEvent::Request(node, request));
        }
        if let Some(at) = self.client.wakes_at(self.now) {
            self.queue.push(at, ScalingEvent::Submit);
        }
    }

    pub(super) fn deliver(&mut self, node: usize, input: Input) {
        self.put(node, PendingInput::of(input));
    }

    fn put(&mut self, node: usize, waiting: PendingInput) {
        // A dead process receives nothing.
        if self.machines[node].up {
            self.machines[node].inbox.push_back(waiting);
            self.wake(node);
        }
    }

    fn wake(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        if !machine.step_scheduled {
            machine.step_scheduled = true;
            let at = machine.busy_until.max(self.now);
            self.queue.push(at, ScalingEvent::Step(node as u32));
        }
    }

    fn mark(&mut self, mark: Mark<'_>) {
        if let Some(meter) = &mut self.meter {
            meter(mark);
        }
    }

    /// One step: all inputs at hand, generations of no-ops up to the real limits, one write.
    fn step(&mut self, index: usize) {
        let (now, machine) = (self.now, &mut self.machines[index]);
        machine.step_scheduled = false;
        if !machine.up {
            return;
        }
        if machine.busy_until > now {
            return self.wake(index); // It was frozen or killed meanwhile.
        }
        self.steps += 1;
        let taken = machine.inbox.len().min(limits::STEP_INPUTS_MAX);
        let mut inputs = std::mem::take(&mut self.inputs);
        inputs.extend(machine.inbox.drain(..taken).map(PendingInput::into_input));
        let mut counts = Counts::default();
        counts.add(Part::Step, 1.0);
        let mut written = Written::default();
        for _ in 0..limits::STEP_GENERATIONS_MAX {
            // Dropping handled inputs is part of the work; counting them is not.
            inputs.iter().for_each(|input| count_input(&mut counts, input));
            self.mark(Mark::Work);
            let node = &mut self.machines[index].node;
            for input in inputs.drain(..) {
                node.handle(now, input);
            }
            // A timer passes only the time, which every step passes.
            node.flush(now, &mut self.effects);
            self.mark(Mark::Rest);
            self.sort(index, &mut counts, &mut inputs, &mut written);
            if inputs.is_empty() || written.bytes >= limits::STEP_WRITE_BYTES {
                break;
            }
        }
        if written.seq > 0 {
            counts.add(Part::Persist, 1.0);
            counts.add(Part::PersistedKibiByte, written.bytes as f32 / 1024.0);
        }
        self.mark(Mark::Over(&counts));
        // Remaining no-ops go before the inputs that arrived meanwhile.
        for input in inputs.drain(..).rev() {
            self.machines[index].inbox.push_front(PendingInput::of(input));
        }
        self.inputs = inputs;
        let cost = self.prices.cost(&counts);
        self.loop_busy[index].0 += cost.0;
        self.act(index, now + cost, written.seq);
    }

    /// Answers effects that need no other node at once, and keeps the others.
    fn sort(
        &mut self,
        index: usize,
        counts: &mut Counts,
        inputs: &mut Vec<Input>,
        written: &mut Written,
    ) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Persist(batch) => {
                    self.write(index, &batch);
                    written.seq = batch.seq;
                    let bytes = |write: &kvs::Write| {
                        write.key.len() + write.value.as_ref().map_or(0, Vec::len)
                    };
                    written.bytes += batch.writes.iter().map(bytes).sum::<usize>();
                }
                Effect::Trace(event) => {
                    counts.add(Part::Event, events_in(&event));
                    self.record(index, event);
                }
                Effect::Launch(launch) if self.runs_at_once(&launch) => {
                    self.count_launch(index, self.now);
                    let (task, attempt) = (launch.task, launch.attempt);
                    let run = self.attempt(index, &launch);
                    self.machines[index].keep(run.objects);
                    inputs.push(Input::Finished { task, attempt, outcome: run.outcome });
                }
                Effect::Send { ref packet, .. } => {
                    counts.packet_out(packet);
                    self.held.push(effect);
                }
                Effect::Launch(_) => {
                    counts.add(Part::Launch, 1.0);
                    self.held.push(effect);
                }
                Effect::Fetch(_) => {
                    counts.add(Part::Fetch, 1.0);
                    self.held.push(effect);
                }
                Effect::Measure => {
                    let cpu_ns = self.loop_busy[index].0;
                    inputs.push(Input::Measured { cpu_ns, peak_rss_bytes: 0 });
                }
                other => self.held.push(other),
            }
        }
        self.effects = effects;
    }

    /// Carries out the effects of a step at its end.
    fn act(&mut self, index: usize, done: Time, written_seq: u64) {
        let mut held = std::mem::take(&mut self.held);
        for effect in held.drain(..) {
            match effect {
                Effect::Persist(_) | Effect::Trace(_) | Effect::Measure => unreachable!("sorted"),
                Effect::Send { packet, .. } => self.send(done, packet),
                Effect::Reply { response, .. } => {
                    self.queue
                        .push(done + self.transport.latency(), ScalingEvent::Response(response));
                }
                Effect::Launch(launch) => self.launch(index, done, &launch),
                // No job has any, and no task spawns others.
                Effect::Part(_)
                | Effect::Variable { .. }
                | Effect::VariablesForgotten { .. }
                | Effect::VariableSet { .. }
                | Effect::Mailbox { .. }
                | Effect::GoesOn { .. }
                | Effect::Notice { .. }
                | Effect::TurnAnswer { .. } => {}
                Effect::Kill { task, attempt } => {
                    if let Some(run) = self.machines[index].running.remove(&(task, attempt)) {
                        self.machines[index].busy_slots -= run.cpus;
                    }
                }
                Effect::Fetch(fetch) => self.fetch(index, done, fetch),
                Effect::Evict { objects } => {
                    for object in objects {
                        self.machines[index].objects.remove(&object);
                    }
                }
                Effect::Forget { .. } | Effect::Erase { .. } => {}
                Effect::Read(_)
                | Effect::Damaged { .. }
                | Effect::Fenced { .. }
                | Effect::MapChanged(_) => unreachable!("no partition has a copy"),
                Effect::Discard { task, attempt } => {
                    let gone = |it: &proto::ObjectId| (it.task, it.attempt) == (task, attempt);
                    self.machines[index].objects.retain(|object, _| !gone(object));
                }
            }
        }
        self.held = held;
        let machine = &mut self.machines[index];
        machine.busy_until = done;
        machine.log.written_seq = machine.log.written_seq.max(written_seq);
        let more = !machine.inbox.is_empty();
        if !more && machine.inbox.capacity() > INBOX_KEPT {
            machine.inbox = VecDeque::new();
        }
        self.consider_sync(index, done);
        if more {
            self.wake(index);
        }
        self.arm(index);
        let (steps, at) = self.progress;
        let at = at.max(self.last_release.unwrap_or(at));
        if self.steps - steps > STEPS_WITHOUT_END_MAX || self.now.since(at) > SPAN_WITHOUT_END_MAX {
            self.stalled("the nodes turn in circles");
        }
    }

    /// Starts a sync if one is due, or schedules it.
    fn consider_sync(&mut self, index: usize, now: Time) {
        let (sync, gap) = (self.sync, self.sync_gap);
        let machine = &mut self.machines[index];
        if !machine.up {
            return;
        }
        let incarnation = machine.incarnation;
        let log = &mut machine.log;
        if log.asked_seq > log.synced_seq || log.written_seq == log.synced_seq {
            return;
        }
        let gap = if log.client_waits { Span::ZERO } else { gap };
        let due = log.synced_at + gap;
        if due <= now {
            log.asked_seq = log.written_seq;
            log.client_waits = false;
            self.queue
                .push(now + sync, ScalingEvent::SyncEnd(index as u32, incarnation, log.asked_seq));
        } else if log.begins_at.is_none_or(|at| due < at) {
            log.begins_at = Some(due);
            self.queue.push(due, ScalingEvent::SyncBegin(index as u32));
        }
    }

    /// Makes sure that the node takes a step at its deadline.
    fn arm(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        if machine.step_scheduled || !machine.up {
            return;
        }
        let Some(deadline) = machine.node.deadline() else { return };
        if deadline <= self.now {
            return self.wake(index);
        }
        let at = deadline.max(machine.busy_until);
        // A timer that fires too early is set again.
        if machine.timer_at.is_none_or(|timer| at < timer) {
            machine.timer_at = Some(at);
            self.queue.push(at, ScalingEvent::Timer(index as u32));
        }
    }

    fn record(&mut self, index: usize, event: Event) {
        if let Event::Committed { task, end, .. } = event {
            self.ended += 1;
            self.progress = (self.steps, self.now);
            if end != End::Done {
                self.break_off("once", format!("{task} ended as {end:?}"));
            }
        }
        let entry = Entry { node: NodeId(index as u32), time: self.now, event };
        let ran = match event {
            Event::Started { task, .. } | Event::Ended { task, .. } => {
                self.plan.task_of(task.local)
            }
            _ => None,
        };
        let (mut slots, mut kind) = (1, None);
        if let Some(task) = ran {
            kind = Some(self.kinds.of_task(self.graph, task));
            slots = if self.wide { self.graph.cpus(task) } else { 1 };
        }
        self.fold.push_task(&entry, slots, kind);
        if let Some(collector) = &mut self.collected {
            collector.push(entry.node, entry.time, &event);
        }
        if self.fold.committed_twice() > 0 {
            self.break_off("once", format!("committed twice: {event:?}"));
        }
    }

    fn finish(self, options: &SimulationOptions) -> Result<Simulation, Violation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        let all = self.graph.len() as u64;
        if self.ended != all {
            let text = format!("the job has ended, but {} of {all} tasks have", self.ended);
            return Err(Violation::new("progress", text));
        }
        let ended = self.client.ended.expect("the loop ends with the job");
        let job_home = self.client.job_home();
        let card = |machine: &Machine| machine.out_bytes.max(machine.in_bytes);
        let card_bytes_max = self.machines.iter().map(card).max().unwrap_or(0);
        // Frees nodes one by one: there may be millions. Reports need none of their kinds.
        let now = self.now;
        let states = self.machines.into_iter().map(|machine| wire::NodeState {
            sources: Vec::new(),
            kinds: Vec::new(),
            ..machine.node.state(now)
        });
        let nodes: Vec<_> = states.collect();
        let mut facts = super::facts(self.graph, self.plan, options, &self.fold, self.kinds);
        facts.accepted = self.client.accepted;
        facts.ended = Some(ended);
        facts.node_states.clone_from(&nodes);
        Ok(Simulation {
            makespan: ended.since(BEGIN),
            job: self.client.told,
            launches: self.launches,
            spread: self.spread,
            packets: self.packets,
            steps: self.steps,
            struck: self.struck,
            job_home,
            loop_busy: self.loop_busy,
            card_bytes_max,
            nodes,
            fold: self.fold,
            facts,
            collected: self.collected.map(|attempts| super::Collected {
                attempts,
                ids: self.graph.indices().map(|task| self.plan.local_id(task)).collect(),
            }),
        })
    }
}

fn last_release(graph: &Graph) -> Option<Time> {
    let last_ns = graph.indices().map(|task| graph.release_ns(task)).max().unwrap_or(0);
    (last_ns > 0).then(|| BEGIN + Span(last_ns))
}

/// The batch of a step.
#[derive(Debug, Default)]
struct Written {
    seq: u64,
    bytes: usize,
}
