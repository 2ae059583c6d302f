//! The state machine: inputs in, effects out.

use std::collections::VecDeque;
use std::sync::Arc;

use kvs::membership::{may_be_removed, member};
use kvs::{Record, Store, Write};
use proto::limits::{STEPS_HELD_MAX, STEPS_HELD_RETRY};
use proto::wire::message::Body;
use proto::wire::{ErrorCode, response};
use proto::{
    Attempt, ClientId, Event, Incarnation, JobId, NodeId, PartitionId, Span, TaskId, Time, wire,
};
use scheduler::{Answer, Homes, Options, Out, Scheduler, Usage};

use crate::config::Own;
use crate::kv::Watches;
use crate::link::Links;
use crate::member::Member;
use crate::moves::seen_from;
use crate::records::{self, Loaded};
use crate::replica::Replica;
use crate::step::Step;
use crate::{Config, Input};

/// One node of the cluster, as a pure state machine.
#[derive(Debug)]
pub struct Node {
    pub(crate) own: Own,
    pub(crate) map: Arc<wire::ClusterMap>,
    pub(crate) scheduler: Scheduler,
    pub(crate) store: Store,
    pub(crate) watches: Watches,
    pub(crate) links: Links,
    /// Where partitions have copies and their homes move.
    pub(crate) replica: Option<Box<Replica>>,
    pub(crate) member: Option<Box<Member>>,
    pub(crate) out: Out,
    pub(crate) loopback: VecDeque<Body>,
    pub(crate) writes: Vec<Write>,
    /// What this step wants done, and the steps before it that wait for copies.
    pub(crate) step: Step,
    pub(crate) held_steps: VecDeque<Step>,
    /// What waits until it is durable, see `step.rs`.
    pub(crate) awaiting_sync: VecDeque<(u64, NodeId, Body)>,
    /// Answers that wait until what they tell is durable.
    pub(crate) answers: VecDeque<(u64, ClientId, wire::Response)>,
    /// Answers that wait for nothing.
    pub(crate) immediate_replies: Vec<(ClientId, wire::Response)>,
    pub(crate) batch_seq: u64,
    pub(crate) durable_seq: u64,
    /// Numbers the steps that append records. Under a partition's term it is unique over all homes.
    pub(crate) record_number: u32,
    /// More is to be done at once than fits one step.
    pub(crate) unfinished: bool,
    /// The map takes this incarnation for dead: it must end. The least that may come after it.
    pub(crate) fenced: Option<Option<Incarnation>>,
    pub(crate) reported_fenced: bool,
    /// A copy of this node cannot be relied on: it must end.
    pub(crate) damaged: Option<Box<(PartitionId, String)>>,
    /// Something came in since the last step that may call for a decision.
    pub(crate) needs_decision: bool,
    /// When the scheduler wants to act by itself, as of the last step in which it decided.
    pub(crate) due: Option<Time>,
}

/// An idle node is little more than this.
const _: () = assert!(size_of::<Node>() <= 4360);

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
        let moves = map.copies > 1;
        let replica = moves.then(|| Box::new(Replica::new(&config, map.clone(), now)));
        let (homes, seen) = if moves {
            let seen = Arc::new(seen_from(&map, config.node, config.incarnation));
            (Homes::new(config.node, &seen, kvs::job_partition).moving(), seen)
        } else {
            (homes.seen_by(config.node), map.clone())
        };
        let mut node = Self {
            scheduler: Scheduler::new(options(&config), homes),
            store: Store::new(config.node, seen),
            watches: Watches::default(),
            links: Links::new(config.node, config.incarnation),
            out: Out::default(),
            replica,
            member: None,
            loopback: VecDeque::new(),
            writes: Vec::new(),
            step: Step::default(),
            held_steps: VecDeque::new(),
            awaiting_sync: VecDeque::new(),
            answers: VecDeque::new(),
            immediate_replies: Vec::new(),
            batch_seq: 0,
            durable_seq: 0,
            record_number: 0,
            unfinished: true,
            needs_decision: true,
            due: None,
            fenced: None,
            reported_fenced: false,
            damaged: None,
            map,
            own: Own::from(&config),
        };
        node.links.break_on_purpose(config.mutant);
        if node.replica.is_none() {
            node.links.name_restarted();
        }
        let mut of_group = Vec::new();
        for record in records {
            if moves && record.partition == kvs::keys::META_PARTITION {
                of_group.push(record);
            } else {
                node.load(now, &record)?;
            }
        }
        if moves {
            let partition = kvs::keys::META_PARTITION.0;
            let damaged = |error: kvs::group::DamagedGroup| {
                let what = error.to_string();
                RecoverError { partition, what }
            };
            let member = Member::recover(&config, of_group, now).map_err(damaged)?;
            if member.was_alone() {
                node.scheduler.note_began_alone();
            }
            node.member = Some(Box::new(member));
        }
        node.begin(now);
        Ok(node)
    }

    /// As if there had been nothing to do since it started, which a simulation need not play: it
    /// has looked for work in vain and waits for a sign of some.
    pub fn rest(&mut self) {
        self.scheduler.rest();
    }

    fn load(&mut self, now: Time, record: &Record) -> Result<(), RecoverError> {
        let PartitionId(partition) = record.partition;
        if let Some(replica) = &mut self.replica {
            // The rest is read when this node becomes the home of the partition.
            let damaged =
                |error: kvs::DamagedRecord| RecoverError { partition, what: error.to_string() };
            return replica.load(record).map_err(damaged);
        }
        let damaged = |what: String| RecoverError { partition, what };
        match records::read(record).map_err(damaged)? {
            Loaded::Ledger(job, loaded) => self
                .scheduler
                .load(now, record.partition, job, loaded)
                .map_err(|error| damaged(error.to_string())),
            Loaded::Job(state) => {
                self.scheduler.load_job(*state);
                Ok(())
            }
            Loaded::User => self.load_user(record).map_err(|error| damaged(error.to_string())),
            Loaded::Meta => Ok(()),
        }
    }

    pub(crate) fn load_user(&mut self, record: &Record) -> Result<(), kvs::DamagedRecord> {
        let forgets = self.own.mutant == Some(scheduler::Mutant::NumbersForgotten);
        if forgets && kvs::keys::namespace(&record.key) == Some(kvs::keys::NUMBERS) {
            return Ok(());
        }
        self.store.load(record)
    }

    fn begin(&mut self, now: Time) {
        let Own { node, incarnation, slots, .. } = self.own;
        self.out.events.push(Event::NodeStarted { node, incarnation: incarnation.0, slots });
        self.scheduler.resume(now, &mut self.out);
        if incarnation.0 > 1 {
            // Others must hear of it, to place again what the earlier incarnation held.
            let members: Vec<NodeId> = self.scheduler.homes().members().collect();
            for peer in members.into_iter().filter(|&peer| peer != node) {
                self.links.announce(peer);
                if let Some(replica) = &mut self.replica {
                    replica.announce(peer);
                }
            }
        }
    }

    /// Takes one input, runs to completion, never blocks. Effects wait for [`Self::flush`].
    pub fn handle(&mut self, now: Time, input: Input) {
        if self.fenced.is_some() {
            return;
        }
        // Steal probes call for answers, not for decisions; of what is durable now
        // the end of the step lets go.
        self.needs_decision |= !matches!(
            input,
            Input::Packet(_)
                | Input::Persisted { .. }
                | Input::PeerConnected { .. }
                | Input::PeerLost { .. }
                | Input::Timer
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
            Input::Fetched { object, number, result } => {
                self.scheduler.on_fetched(now, object, number, result, &mut self.out);
            }
            Input::Measured { cpu_ns, peak_rss_bytes } => {
                self.on_measured(now, cpu_ns, peak_rss_bytes);
            }
            Input::Erased { job, number } => self.scheduler.on_erased(job, number, &mut self.out),
            Input::Stored { objects } => self.scheduler.on_stored(now, &objects),
            Input::Files { tasks } => self.scheduler.on_files(now, &tasks),
            Input::Persisted { seq } => {
                assert!(seq <= self.batch_seq, "batch {seq} was never emitted");
                self.durable_seq = self.durable_seq.max(seq);
                if let Some(member) = &mut self.member {
                    member.synced(now, self.durable_seq);
                }
            }
            Input::Read(page) => {
                if let Some(replica) = &mut self.replica {
                    replica.on_page(page);
                }
            }
            Input::MapCommitted { map } => self.on_map(now, *map),
            Input::PeerConnected { peer } => {
                if peer != self.own.node {
                    self.links.reconnected(peer);
                    if let Some(replica) = &mut self.replica {
                        replica.reconnected(peer);
                    }
                }
            }
            Input::PeerLost { peer } => {
                if let Some(member) = &mut self.member {
                    member.peer_lost(now, peer);
                }
            }
            Input::Propose(command) => {
                if let Some(member) = &mut self.member {
                    member.propose(*command);
                }
            }
            Input::Stop => self.scheduler.stop(&mut self.out),
            Input::Timer => {
                if let Some(member) = &mut self.member {
                    member.on_time(now);
                }
            }
        }
    }

    fn on_measured(&mut self, now: Time, cpu_ns: u64, peak_rss_bytes: u64) {
        let usage = Usage { cpu_ns, peak_rss_bytes, messages: self.messages() };
        self.scheduler.on_measured(now, usage, &mut self.out);
    }

    fn on_packet(&mut self, now: Time, mut packet: wire::Packet) {
        let from = NodeId(packet.from);
        if packet.to != self.own.node.0 || from == self.own.node {
            return;
        }
        // Its sender has heard of this incarnation, so both have lived at one time. (A packet that
        // names no incarnation of its receiver may have been sent before this one began.)
        let is_answer = packet.to_incarnation == self.own.incarnation.0;
        let counts = self.replica.is_some() || self.own.incarnation.0 > 1;
        if counts && packet.from_incarnation > 0 && is_answer {
            self.scheduler.note_life(from, Incarnation(packet.from_incarnation));
        }
        if let Some(member) = &mut self.member
            && !member.receive(now, &mut packet)
        {
            return;
        }
        if from.0 as usize >= self.scheduler.homes().nodes() {
            return; // Not a member.
        }
        if let Some(replica) = &mut self.replica
            && packet.copies
        {
            if !replica.receive(now, packet) {
                // As the next incarnation it is filled with what it misses.
                let next = Incarnation(self.own.incarnation.0 + 1);
                self.fenced.get_or_insert(Some(next));
            }
            return;
        }
        let received = self.links.receive(packet);
        if let Some(incarnation) = received.incarnation {
            self.needs_decision |=
                self.scheduler.on_peer_incarnation(now, from, incarnation, &mut self.out);
        }
        if let Some(load) = received.load {
            self.scheduler.on_load(now, from, &load);
        }
        for body in received.bodies {
            self.needs_decision |= self.scheduler.on_message(now, from, body, &mut self.out);
        }
    }

    /// That a node joins, leaves or is lost is for an operator to say, the rest for the nodes.
    pub(crate) fn on_proposal(
        &mut self,
        now: Time,
        command: wire::MapCommand,
    ) -> Result<response::Body, wire::Error> {
        use wire::map_command::Body::{Join, Leave, Remove};
        if self.member.is_none() {
            return Err(refused("nodes come and go only where partitions have copies"));
        }
        match &command.body {
            Some(Join(_) | Leave(_)) => {}
            Some(Remove(it)) if may_be_removed(&self.map, NodeId(it.node)) => {}
            Some(Remove(_)) => {
                return Err(refused("only a node that is down or never came can be removed"));
            }
            _ => {
                let text = "only that a node joins, leaves or is removed can be asked for";
                return Err(refused(text));
            }
        }
        self.handle(now, Input::Propose(Box::new(command)));
        Ok(response::Body::Accepted(wire::Accepted {}))
    }

    pub(crate) fn answer(
        &mut self,
        client: ClientId,
        id: u64,
        result: Result<response::Body, wire::Error>,
    ) {
        let mut response = wire::Response { id, ..Default::default() };
        match result {
            Ok(body) => response.body = Some(body),
            Err(error) => response.error = Some(error),
        }
        self.out.answers.push(Answer { client, response });
    }

    pub(crate) fn answer_kv(
        &mut self,
        client: ClientId,
        id: u64,
        result: Result<response::Body, wire::Error>,
        batches: &[wire::KvBatch],
    ) {
        let Err(error) = result else { return self.answer(client, id, result) };
        let is_stale = |batch: &&wire::KvBatch| {
            let entry = self.map.partitions.get(batch.partition as usize);
            let mine = self.scheduler.homes().is_mine(PartitionId(batch.partition));
            !mine || entry.is_none_or(|entry| ![0, entry.epoch].contains(&batch.epoch))
        };
        let stale = batches.iter().find(is_stale).or_else(|| batches.first());
        let partition = PartitionId(stale.map_or(0, |batch| batch.partition));
        self.refuse(client, id, error, partition);
    }

    /// Whoever asked with an older map hears who serves the partition now.
    pub(crate) fn refuse(
        &mut self,
        client: ClientId,
        id: u64,
        error: wire::Error,
        partition: PartitionId,
    ) {
        let redirects = error.code() == ErrorCode::WrongEpoch;
        let body = redirects.then(|| response::Body::Redirect(self.redirect_for(partition)));
        let response = wire::Response { id, error: Some(error), body, ..Default::default() };
        self.out.answers.push(Answer { client, response });
    }

    pub(crate) fn redirect_for(&self, partition: PartitionId) -> wire::Redirect {
        let entry = self.map.partitions.get(partition.0 as usize).cloned();
        let home = entry.as_ref().and_then(|entry| entry.replicas.first().copied());
        let home = home.and_then(|node| member(&self.map, NodeId(node))).cloned();
        wire::Redirect { partition: partition.0, entry, home, map_epoch: self.map.epoch }
    }

    /// What promises nothing waits for nothing.
    pub(crate) fn reply(&mut self, client: ClientId, id: u64, body: response::Body) {
        let response = wire::Response { id, body: Some(body), ..Default::default() };
        self.immediate_replies.push((client, response));
    }

    /// Copies are so far behind that nothing more is taken.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.held_steps.len() > STEPS_HELD_MAX
    }

    pub(crate) fn notify_watchers(&mut self) {
        for (client, response) in self.watches.changed(&self.store) {
            self.out.answers.push(Answer { client, response });
        }
    }

    /// Counters and queue lengths; the shell adds address, process and memory.
    #[must_use]
    pub fn state(&self, now: Time) -> wire::NodeState {
        // Members stand by their number.
        let member = self.map.members.get(self.own.node.0 as usize);
        let member = wire::Member {
            incarnation: self.own.incarnation.0,
            slots: self.own.slots,
            phase: wire::MemberPhase::Up as i32,
            ..member.cloned().unwrap_or_default()
        };
        wire::NodeState {
            member: Some(member),
            messages: self.messages(),
            map_epoch: self.map.epoch,
            ..self.scheduler.node_state(now)
        }
    }

    fn messages(&self) -> u64 {
        let of_copies = self.replica.as_ref().map_or(0, |replica| replica.messages());
        let of_member = self.member.as_ref().map_or(0, |member| member.messages);
        self.links.messages + of_copies + of_member
    }

    /// The newest map it has heard of.
    #[must_use]
    pub fn map(&self) -> &wire::ClusterMap {
        &self.map
    }
    /// Of the newest map it has heard of.
    #[must_use]
    pub fn map_epoch(&self) -> u64 {
        self.map.epoch
    }

    /// Whether a job has ended; `None` where this node knows of no such job.
    #[must_use]
    pub fn has_ended(&self, job: JobId) -> Option<bool> {
        self.scheduler.has_ended(job)
    }
    /// Whether this node has chunks of a job and has not heard of its commit.
    #[must_use]
    pub fn is_uncommitted(&self, job: JobId) -> bool {
        self.scheduler.is_uncommitted(job)
    }
    /// Whether nothing of a job is needed any more but what is to be kept.
    #[must_use]
    pub fn is_over(&self, job: JobId) -> Option<bool> {
        self.scheduler.is_over(job)
    }

    /// How much history it is to keep, and how old.
    #[must_use]
    pub fn history(&self) -> (u64, Span) {
        self.scheduler.history()
    }
    /// Events before this are of jobs whose summaries are written.
    #[must_use]
    pub fn history_floor(&self, now: Time) -> Time {
        self.scheduler.history_floor(now)
    }

    /// What blocks a job that gets no further, at its home.
    #[must_use]
    pub fn blocker_of(&self, job: JobId) -> Option<&wire::Stall> {
        self.scheduler.blocker_of(job)
    }

    /// What files of a shared file system that are copied here for tasks may take.
    #[must_use]
    pub fn shared_files_bytes_max(&self) -> u64 {
        self.scheduler.shared_files_bytes_max()
    }

    /// Whether a task is staged here that stands for a file of its submitter; `None` where this
    /// node is not its home.
    #[must_use]
    pub fn awaits_file(&self, task: TaskId) -> Option<bool> {
        self.scheduler.awaits_file(task)
    }

    /// Whether this node has a copy of a partition, or is its home, by the newest map.
    #[must_use]
    pub fn has_replica(&self, partition: PartitionId) -> bool {
        self.scheduler.has_replica(partition)
    }

    /// The attempt by which a task homed here is done, and how much that has printed: for checks.
    #[must_use]
    pub fn captured(&self, task: TaskId) -> Option<(Attempt, proto::work::Captured)> {
        self.scheduler.captured(task)
    }

    /// Where every task is, as far as this node knows: for checks.
    #[must_use]
    pub fn census(&self) -> scheduler::Census {
        self.scheduler.census()
    }
}

fn options(config: &Config) -> Options {
    Options {
        me: config.node,
        incarnation: config.incarnation,
        slots: config.slots,
        tuning: config.tuning,
        seed: config.seed,
        former: config.former,
        mutant: config.mutant,
    }
}

pub(crate) fn busy(text: &str) -> wire::Error {
    let retry_after_ns = STEPS_HELD_RETRY.0;
    wire::Error { code: ErrorCode::Busy as i32, text: text.into(), retry_after_ns, ticket: 0 }
}

pub(crate) fn refused(text: &str) -> wire::Error {
    wire::Error { code: ErrorCode::Refused as i32, text: text.into(), ..Default::default() }
}
