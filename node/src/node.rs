//! The state machine: inputs in, effects out.

use std::collections::VecDeque;
use std::sync::Arc;

use kvs::{Batch, Record, Store, Write};
use proto::wire::message::Body;
use proto::wire::{ErrorCode, request, response};
use proto::{ClientId, Event, Incarnation, JobId, NodeId, PartitionId, Time, wire};
use scheduler::{Answer, Homes, Mutant, Options, Out, Scheduler};

use crate::kv::{self, Watches};
use crate::link::Links;
use crate::records::{self, Loaded};
use crate::{Config, Effect, Input};

/// Rounds of messages to itself that one step carries out; more wait for the next step.
const LOOPBACK_ROUNDS_MAX: usize = 64;

/// One node of the cluster, as a pure state machine.
#[derive(Debug)]
pub struct Node {
    config: Config,
    map: Arc<wire::ClusterMap>,
    scheduler: Scheduler,
    store: Store,
    watches: Watches,
    links: Links,
    out: Out,
    loopback: VecDeque<Body>,
    writes: Vec<Write>,
    effects: Vec<Effect>,
    /// What waits until it is durable, see [`waits_for_sync`].
    reports: VecDeque<(u64, NodeId, Body)>,
    /// Answers that wait until what they tell is durable.
    answers: VecDeque<(u64, ClientId, wire::Response)>,
    batch_seq: u64,
    durable_seq: u64,
    /// Numbers the steps that append records. Under a partition's term it is unique over all homes.
    record_number: u32,
    /// More is to be done at once than fits one step.
    unfinished: bool,
    /// Something came in since the last step that may call for a decision.
    stirred: bool,
    /// When the scheduler wants to act by itself, as of the last step in which it decided.
    due: Option<Time>,
}

/// An idle node is little more than this.
const _: () = assert!(size_of::<Node>() <= 4096);

/// The stored records do not make sense together.
#[derive(Debug, thiserror::Error)]
#[error("stored state of partition {partition} is damaged: {what}")]
pub struct RecoverError {
    pub partition: u32,
    pub what: String,
}

impl Node {
    /// A node with the records that an earlier incarnation left (none for a new one), ordered by
    /// partition, then key. What it has to say at once comes with the first [`Self::flush`].
    pub fn recover(
        config: Config,
        records: impl Iterator<Item = Record>,
        now: Time,
    ) -> Result<Self, RecoverError> {
        let homes = Homes::new(config.node, &config.map, kvs::job_partition);
        Self::recover_among(config, &homes, records, now)
    }

    /// As [`Self::recover`], for many nodes of one map: the first makes the table for all.
    pub fn recover_among(
        config: Config,
        homes: &Homes,
        records: impl Iterator<Item = Record>,
        now: Time,
    ) -> Result<Self, RecoverError> {
        assert_ne!(config.incarnation.0, 0, "incarnations count from 1");
        let map = Arc::clone(&config.map);
        let homes = homes.seen_by(config.node);
        let mut node = Self {
            scheduler: Scheduler::new(options(&config), homes),
            store: Store::new(config.node, map.clone()),
            watches: Watches::default(),
            links: Links::new(config.node, config.incarnation),
            out: Out::default(),
            loopback: VecDeque::new(),
            writes: Vec::new(),
            effects: Vec::new(),
            reports: VecDeque::new(),
            answers: VecDeque::new(),
            batch_seq: 0,
            durable_seq: 0,
            record_number: 0,
            unfinished: true,
            stirred: true,
            due: None,
            map,
            config,
        };
        node.links.break_on_purpose(node.config.mutant);
        for record in records {
            node.load(now, &record)?;
        }
        node.begin(now);
        Ok(node)
    }

    fn load(&mut self, now: Time, record: &Record) -> Result<(), RecoverError> {
        let PartitionId(partition) = record.partition;
        let damaged = |what: String| RecoverError { partition, what };
        match records::read(record).map_err(damaged)? {
            Loaded::Ledger(job, loaded) => self
                .scheduler
                .load(now, record.partition, job, loaded)
                .map_err(|error| damaged(error.to_string())),
            Loaded::Job(state) => {
                self.scheduler.load_job(state);
                Ok(())
            }
            Loaded::User => self.store.load(record).map_err(|error| damaged(error.to_string())),
            Loaded::Meta => Ok(()),
        }
    }

    fn begin(&mut self, now: Time) {
        let Config { node, incarnation, slots, .. } = self.config;
        self.out.events.push(Event::NodeStarted { node, incarnation: incarnation.0, slots });
        self.scheduler.resume(now, &mut self.out);
        if incarnation.0 > 1 {
            // Others must hear of it, to place again what the earlier incarnation held.
            let members: Vec<NodeId> = self.scheduler.homes().members().collect();
            for peer in members.into_iter().filter(|&peer| peer != node) {
                self.links.announce(peer);
            }
        }
    }

    /// Takes one input, runs to completion, never blocks. Effects wait for [`Self::flush`].
    pub fn handle(&mut self, now: Time, input: Input) {
        // Small talk between thieves calls for answers, not for decisions; of what is durable now
        // the end of the step lets go.
        self.stirred |= !matches!(
            input,
            Input::Packet(_) | Input::Persisted { .. } | Input::PeerConnected { .. } | Input::Timer
        );
        match input {
            Input::Packet(packet) => self.on_packet(now, *packet),
            Input::Request { client, request } => self.on_request(now, client, *request),
            Input::ClientGone { client } => {
                self.scheduler.forget_client(client);
                self.watches.forget_client(client);
                self.answers.retain(|&(_, other, _)| other != client);
            }
            Input::Finished { task, attempt, outcome } => {
                self.scheduler.on_finished(now, task, attempt, outcome, &mut self.out);
            }
            Input::Fetched { object, result } => {
                self.scheduler.on_fetched(now, object, result, &mut self.out);
            }
            Input::Stored { objects } => self.scheduler.on_stored(&objects),
            Input::Persisted { seq } => {
                assert!(seq <= self.batch_seq, "batch {seq} was never emitted");
                self.durable_seq = self.durable_seq.max(seq);
            }
            Input::MapCommitted { map } => self.on_map(now, *map),
            Input::PeerConnected { peer } => {
                if peer != self.config.node {
                    self.links.reconnected(peer);
                }
            }
            Input::Timer => {}
        }
    }

    fn on_packet(&mut self, now: Time, packet: wire::Packet) {
        let from = NodeId(packet.from);
        if from.0 as usize >= self.scheduler.homes().nodes() {
            return; // Not a member.
        }
        let received = self.links.receive(packet);
        if let Some(incarnation) = received.incarnation {
            self.stirred |=
                self.scheduler.on_peer_incarnation(now, from, incarnation, &mut self.out);
        }
        if let Some(load) = received.load {
            self.scheduler.on_load(now, from, &load);
        }
        for body in received.bodies {
            self.stirred |= self.scheduler.on_message(now, from, body, &mut self.out);
        }
    }

    fn on_map(&mut self, now: Time, map: wire::ClusterMap) {
        if map.epoch < self.map.epoch || map.partitions.len() != self.map.partitions.len() {
            return; // An older map, or another cluster's.
        }
        let older = std::mem::replace(&mut self.map, Arc::new(map));
        self.store.set_map(self.map.clone());
        let homes = Homes::new(self.config.node, &self.map, kvs::job_partition);
        self.scheduler.set_homes(now, homes, &mut self.out);
        let gone = |map: &wire::ClusterMap, node: usize| {
            let phase = map.members.get(node).map(wire::Member::phase);
            matches!(phase, Some(wire::MemberPhase::Down | wire::MemberPhase::Removed))
        };
        let members = 0..self.map.members.len();
        let dead = members.filter(|&node| gone(&self.map, node) && !gone(&older, node));
        for node in dead.collect::<Vec<_>>() {
            let incarnation = Incarnation(self.map.members[node].incarnation);
            self.on_peer_gone(now, NodeId(node as u32), incarnation);
        }
    }

    /// The cluster has decided that a node is dead: what it has not acknowledged goes to those who
    /// stand in for it.
    fn on_peer_gone(&mut self, now: Time, peer: NodeId, incarnation: Incarnation) {
        if peer == self.config.node {
            return;
        }
        let unacknowledged = self.links.give_back(peer);
        self.scheduler.on_peer_gone(now, peer, incarnation, &mut self.out);
        self.scheduler.reroute(unacknowledged, &mut self.out);
    }

    fn on_request(&mut self, now: Time, client: ClientId, request: wire::Request) {
        let id = request.id;
        let Some(mut body) = request.body else {
            let error = refused("the request is of a kind this node does not know");
            self.answer(client, id, Err(error));
            return;
        };
        if self.scheduler.on_request(now, client, id, &mut body, &mut self.out).is_some() {
            return;
        }
        match body {
            request::Body::Kv(batch) => {
                let result = kv::apply(&mut self.store, &batch, &mut self.writes);
                self.answer(client, id, result);
                self.tell_watchers();
            }
            request::Body::KvMany(many) => {
                let result = kv::apply_many(&mut self.store, &many, &mut self.writes);
                self.answer(client, id, result);
                self.tell_watchers();
            }
            request::Body::WatchKey(watch) => {
                match self.watches.add(client, id, watch, &self.store) {
                    Ok(()) => self.tell_watchers(),
                    Err(error) => self.answer(client, id, Err(error)),
                }
            }
            request::Body::Node(_) => {
                let state = self.state();
                self.answer(client, id, Ok(response::Body::Node(state)));
            }
            request::Body::Map(_) => {
                let map = self.map.as_ref().clone();
                self.answer(client, id, Ok(response::Body::Map(map)));
            }
            _ => unreachable!("the scheduler answers the rest"),
        }
    }

    fn answer(&mut self, client: ClientId, id: u64, result: Result<response::Body, wire::Error>) {
        let mut response = wire::Response { id, ..Default::default() };
        match result {
            Ok(body) => response.body = Some(body),
            Err(error) => response.error = Some(error),
        }
        self.out.answers.push(Answer { client, response });
    }

    fn tell_watchers(&mut self) {
        for (client, response) in self.watches.changed(&self.store) {
            self.out.answers.push(Answer { client, response });
        }
    }

    /// Counters and queue lengths; the shell adds address, process and memory.
    #[must_use]
    pub fn state(&self) -> wire::NodeState {
        // Members stand by their number.
        let member = self.map.members.get(self.config.node.0 as usize);
        let member = wire::Member {
            incarnation: self.config.incarnation.0,
            slots: self.config.slots,
            phase: wire::MemberPhase::Up as i32,
            ..member.cloned().unwrap_or_default()
        };
        wire::NodeState {
            member: Some(member),
            messages: self.links.messages,
            ..self.scheduler.node_state()
        }
    }

    /// Whether a job has ended; `None` where this node knows of no such job.
    #[must_use]
    pub fn has_ended(&self, job: JobId) -> Option<bool> {
        self.scheduler.has_ended(job)
    }

    /// Where every task is, as far as this node knows: for checks.
    #[must_use]
    pub fn census(&self) -> scheduler::Census {
        self.scheduler.census()
    }

    /// Ends a step (any number of inputs): one batch first, then what depends on it.
    pub fn flush(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.release_reports();
        if self.stirred || self.unfinished || self.due.is_some_and(|at| at <= now) {
            self.settle(now);
            self.due = self.scheduler.deadline(Time::ZERO);
            self.stirred = false;
        } else {
            self.route();
        }
        self.number_batch(effects);
        self.release_reports();
        self.release_answers();
        effects.extend(std::mem::take(&mut self.effects));
        self.links.note_batch(self.batch_seq);
        self.links.durable(self.durable_seq);
        let scheduler = &self.scheduler;
        self.links.flush(
            now,
            || scheduler.own_load(),
            |to, packet| {
                effects.push(Effect::Send { to, packet: Box::new(packet) });
            },
        );
        for peer in self.links.take_forgotten() {
            self.scheduler.forget_peer(peer);
        }
        if self.config.mutant == Some(Mutant::SpeakBeforeWriting)
            && matches!(effects.first(), Some(Effect::Persist(_)))
        {
            effects.rotate_left(1);
        }
    }

    /// Decides everything that can be decided now, messages to itself included.
    fn settle(&mut self, now: Time) {
        let mut acted = false;
        self.unfinished = true;
        for _ in 0..LOOPBACK_ROUNDS_MAX {
            self.scheduler.settle(now, &mut self.out);
            self.route();
            if self.loopback.is_empty() {
                if acted {
                    self.unfinished = false;
                    break;
                }
                self.scheduler.act(now, &mut self.out);
                self.route();
                acted = true;
            }
            let me = self.config.node;
            while let Some(body) = self.loopback.pop_front() {
                self.scheduler.on_message(now, me, body, &mut self.out);
                acted = false;
            }
        }
        self.collect();
    }

    /// Hands messages to the links, those to itself to the loopback queue.
    fn route(&mut self) {
        self.out.gather();
        self.scheduler.address(&mut self.out);
        let me = self.config.node;
        // Not drained: most nodes are idle most of the time, and need no room for messages.
        for (to, body) in std::mem::take(&mut self.out.reliable) {
            if to == me && !lets_go(&body) {
                self.loopback.push_back(body);
            } else if waits_for_sync(&body) {
                // This step's batch, if there will be one, is the next.
                self.reports.push_back((self.batch_seq + 1, to, body));
            } else {
                self.links.send(to, body);
            }
        }
        for (to, body) in std::mem::take(&mut self.out.loose) {
            if to == me {
                self.loopback.push_back(body);
            } else {
                self.links.send_loose(to, body);
            }
        }
    }

    /// Turns the step's wishes into effects, in the order in which they are to be carried out.
    fn collect(&mut self) {
        let out = &mut self.out;
        let effects = &mut self.effects;
        effects.extend(out.events.drain(..).map(Effect::Trace));
        let kills = out.kills.drain(..).map(|(task, attempt)| Effect::Kill { task, attempt });
        effects.extend(kills);
        let discards = out.discards.drain(..);
        effects.extend(discards.map(|(task, attempt)| Effect::Discard { task, attempt }));
        if !out.evicted.is_empty() {
            effects.push(Effect::Evict { objects: std::mem::take(&mut out.evicted) });
        }
        effects.extend(out.forgotten.drain(..).map(|job| Effect::Forget { job }));
        effects.extend(out.fetches.drain(..).map(Effect::Fetch));
        let launches = out.launches.drain(..);
        effects.extend(launches.map(|launch| Effect::Launch(Box::new(launch))));
    }

    fn number_batch(&mut self, effects: &mut Vec<Effect>) {
        let facts = std::mem::take(&mut self.out.facts);
        if !facts.is_empty() {
            let next = self.record_number.checked_add(1);
            self.record_number = next.expect("2^32 steps in one incarnation");
            let (scheduler, step) = (&self.scheduler, u64::from(self.record_number));
            let number = |partition| u64::from(scheduler.term(partition)) << 32 | step;
            let partitions = scheduler.homes().partitions();
            records::write_facts(facts, partitions, number, &mut self.writes);
        }
        if !self.writes.is_empty() {
            self.batch_seq += 1;
            let writes = std::mem::take(&mut self.writes);
            effects.push(Effect::Persist(Batch { seq: self.batch_seq, writes }));
        }
    }

    fn release_reports(&mut self) {
        let (batch, durable) = (self.batch_seq, self.durable_seq);
        while let Some(&(seq, _, _)) = self.reports.front()
            && (seq.min(batch) <= durable || self.config.mutant == Some(Mutant::TellBeforeDurable))
        {
            let (_, to, body) = self.reports.pop_front().expect("looked at above");
            if to == self.config.node {
                self.loopback.push_back(body);
                self.unfinished = true;
            } else {
                self.links.send(to, body);
            }
        }
    }

    /// A client hears only what is durable, in the order in which it was decided.
    fn release_answers(&mut self) {
        let needed = self.batch_seq;
        let answers = std::mem::take(&mut self.out.answers).into_iter();
        self.answers.extend(answers.map(|answer| (needed, answer.client, answer.response)));
        let eager = self.config.mutant == Some(Mutant::TellBeforeDurable);
        while let Some(&(seq, _, _)) = self.answers.front()
            && (seq <= self.durable_seq || eager)
        {
            let (_, client, response) = self.answers.pop_front().expect("looked at above");
            self.effects.push(Effect::Reply { client, response: Box::new(response) });
        }
        if self.answers.is_empty() {
            self.answers = VecDeque::new(); // Few nodes have clients all the time.
        }
    }

    /// Whether something that it has to say waits until what was written is synced.
    /// Acknowledgements do too, but nobody waits for them.
    #[must_use]
    pub fn awaits_sync(&self) -> bool {
        !self.reports.is_empty() || !self.answers.is_empty()
    }

    /// When it wants `Input::Timer`; the past means at once.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.unfinished {
            return Some(Time::ZERO);
        }
        let timers = [self.due, self.links.deadline()];
        timers.into_iter().flatten().min()
    }
}

/// What others conclude for good from, before it could be taken back: of counts and ends of jobs
/// clients hear, and homes let go of what they had; a job that was made visible or cancelled
/// elsewhere may not vanish here; a skipped child never runs; a victim forgets what a home says it
/// knows of.
fn waits_for_sync(body: &Body) -> bool {
    match body {
        Body::Counts(_) | Body::JobEnd(_) | Body::Visible(_) | Body::Cancel(_) => true,
        Body::MovedReply(_) => true,
        Body::Consumed(_) | Body::Unwanted(_) => true,
        Body::Credits(credits) => {
            let done = wire::Verdict::Done as i32;
            credits.credits.iter().any(|credit| credit.verdict != done)
        }
        _ => false,
    }
}

/// What lets go of objects waits even on its way to this very node: a power cut may undo the end of
/// a reader, which then needs its inputs again.
fn lets_go(body: &Body) -> bool {
    matches!(body, Body::Consumed(_) | Body::Unwanted(_) | Body::JobEnd(_))
}

fn options(config: &Config) -> Options {
    Options {
        me: config.node,
        incarnation: config.incarnation,
        slots: config.slots,
        tuning: config.tuning,
        seed: config.seed,
        mutant: config.mutant,
    }
}

fn refused(text: &str) -> wire::Error {
    wire::Error { code: ErrorCode::Refused as i32, text: text.into(), retry_after_ns: 0 }
}
