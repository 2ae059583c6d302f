//! The state machine of a node: inputs in, effects out.
//!
//! The methods of [`Node`] are of four kinds, called in this order:
//!
//! 1. [`Node::recover`], once: builds the node from its stored records.
//! 2. [`Node::handle`], any number of times: one input each. It may queue messages and facts, but
//!    emits no effect.
//! 3. [`Node::flush`] (in `step.rs`), once after the inputs at hand: ends the step and emits its
//!    effects.
//! 4. [`Node::deadline`] and [`Node::sync_wish`], after each flush: when the driver must pass
//!    `Input::Timer`, and how urgent the next sync of the log is.
//!
//! All other methods are questions. They change nothing and may be asked at any time.

use std::collections::VecDeque;
use std::sync::Arc;

use kvs::membership::{may_be_removed, member};
use kvs::{Record, Store, Write};

use proto::wire::message::Body;
use proto::wire::{ErrorCode, response};
use proto::{
    Attempt, ClientId, Event, Incarnation, JobId, NodeId, PartitionId, Span, TaskId, Time, wire,
};
use scheduler::{Answer, Homes, Options, Out, Scheduler, Usage};

use crate::config::Own;
use crate::kv::Watches;
use crate::limits::{STEPS_HELD_MAX, STEPS_HELD_RETRY};
use crate::link::Links;
use crate::member::Member;
use crate::moves::seen_from;
use crate::mutant::Mutant;
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
    /// Present where partitions have replicas and their homes move.
    pub(crate) replica: Option<Box<Replica>>,
    pub(crate) member: Option<Box<Member>>,
    pub(crate) out: Out,
    pub(crate) loopback: VecDeque<Body>,
    pub(crate) writes: Vec<Write>,
    /// The effects and messages of this step, and the earlier steps that wait for replicas.
    pub(crate) step: Step,
    pub(crate) held_steps: VecDeque<Step>,
    /// Messages that wait until their batch is synced, see `step.rs`.
    pub(crate) awaiting_sync: VecDeque<(u64, NodeId, Body)>,
    /// Answers that wait until their contents are durable.
    pub(crate) answers: VecDeque<(u64, ClientId, wire::Response)>,
    /// Answers that wait for nothing.
    pub(crate) immediate_replies: Vec<(ClientId, wire::Response)>,
    pub(crate) batch_seq: u64,
    pub(crate) durable_seq: u64,
    /// Numbers the steps that write records. Under a partition's term it is unique over all homes.
    pub(crate) record_number: u32,
    /// More work is left than fits one step.
    pub(crate) unfinished: bool,
    /// Set if the map declares this incarnation failed, so that it must end: the least next
    /// incarnation.
    pub(crate) fenced: Option<Option<Incarnation>>,
    pub(crate) reported_fenced: bool,
    /// Set if a replica of this node is not reliable, so that this incarnation must end.
    pub(crate) damaged: Option<Box<(PartitionId, String)>>,
    /// An input since the last step may call for a decision.
    pub(crate) needs_decision: bool,
    /// The deadline of the scheduler, as of the last step in which it decided.
    pub(crate) due: Option<Time>,
}

/// An idle node is little more than this.
const _: () = assert!(size_of::<Node>() <= 4672);

/// The stored records contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("stored state of partition {partition} is damaged: {what}")]
pub struct RecoverError {
    pub partition: u32,
    pub what: String,
}

impl Node {
    /// Builds a node from the records that an earlier incarnation left (none for a new one),
    /// ordered by partition, then key. Its first messages come with the first [`Self::flush`].
    pub fn recover(
        config: Config,
        records: impl Iterator<Item = Record>,
        now: Time,
    ) -> Result<Self, RecoverError> {
        let homes = Homes::new(config.node, &config.map, kvs::job_partition);
        Self::recover_among(config, &homes, records, now)
    }

    /// As [`Self::recover`], for many nodes of one map: the first builds the table for all.
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

    /// Puts the node into the state after a long search for work without success, so that a
    /// simulation need not play it.
    pub fn rest(&mut self) {
        self.scheduler.rest();
    }

    fn load(&mut self, now: Time, record: &Record) -> Result<(), RecoverError> {
        let PartitionId(partition) = record.partition;
        if let Some(replica) = &mut self.replica {
            // The other records are read when this node becomes home of the partition.
            let damaged =
                |error: kvs::DamagedRecord| RecoverError { partition, what: error.to_string() };
            return replica.load(record).map_err(damaged);
        }
        let damaged = |what: String| RecoverError { partition, what };
        match records::read(record).map_err(damaged)? {
            Loaded::Ledger(job, loaded) => self
                .scheduler
                .load(now, record.partition, job, *loaded)
                .map_err(|error| damaged(error.to_string())),
            Loaded::Job(state) => {
                self.scheduler.load_job(*state);
                Ok(())
            }
            Loaded::Variable(job, variable) => {
                self.scheduler.load_variable(job, *variable);
                Ok(())
            }
            Loaded::User => self.load_user(record).map_err(|error| damaged(error.to_string())),
            Loaded::Meta => Ok(()),
        }
    }

    pub(crate) fn load_user(&mut self, record: &Record) -> Result<(), kvs::DamagedRecord> {
        let forgets = self.own.mutant == Some(Mutant::NumbersForgotten);
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
            // Other nodes must learn of it, to place the tasks of the earlier incarnation again.
            let members: Vec<NodeId> = self.scheduler.homes().members().collect();
            for peer in members.into_iter().filter(|&peer| peer != node) {
                self.links.announce(peer);
                if let Some(replica) = &mut self.replica {
                    replica.announce(peer);
                }
            }
        }
    }

    /// Handles one input completely and never blocks. Effects wait for [`Self::flush`].
    pub fn handle(&mut self, now: Time, input: Input) {
        if self.fenced.is_some() {
            return;
        }
        // A packet sets this below, if its messages call for decisions. The other inputs of this
        // list call for none: the end of the step releases what has become durable.
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
            Input::ClientGone { client } => self.on_client_gone(client),
            Input::Finished { task, attempt, outcome } => {
                self.scheduler.on_finished(now, task, attempt, outcome, &mut self.out);
            }
            Input::Turn { task, attempt, turn } => {
                self.scheduler.on_turn(now, task, attempt, *turn, &mut self.out);
            }
            Input::Rests { task, attempt, rests } => {
                self.scheduler.on_rests(task, attempt, rests, &mut self.out);
            }
            Input::SetVariable { task, attempt, index, value, ticket } => {
                let (by, out) = ((task, attempt), &mut self.out);
                self.scheduler.on_set_variable(now, by, (index, *value), ticket, out);
            }
            Input::AskMailbox { task, attempt, to, bytes, ticket } => {
                let (by, out) = ((task, attempt), &mut self.out);
                self.scheduler.on_mail_asked(now, by, (to, bytes), ticket, out);
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
            Input::Persisted { seq } => self.on_persisted(now, seq),
            Input::Read(page) => {
                if let Some(replica) = &mut self.replica {
                    replica.on_page(page);
                }
            }
            Input::MapCommitted { map } => self.on_map(now, *map),
            Input::PeerConnected { peer } => self.on_peer_connected(peer),
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

    fn on_persisted(&mut self, now: Time, seq: u64) {
        assert!(seq <= self.batch_seq, "batch {seq} was never emitted");
        self.durable_seq = self.durable_seq.max(seq);
        if let Some(member) = &mut self.member {
            member.synced(now, self.durable_seq);
        }
    }

    fn on_client_gone(&mut self, client: ClientId) {
        self.scheduler.forget_client(client);
        self.watches.forget_client(client);
        self.answers.retain(|&(_, other, _)| other != client);
    }

    fn on_peer_connected(&mut self, peer: NodeId) {
        if peer == self.own.node {
            return;
        }
        self.links.reconnected(peer);
        if let Some(replica) = &mut self.replica {
            replica.reconnected(peer);
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
        // Its sender knows this incarnation, so both have lived at one time. (A packet that
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
                // The next incarnation gets the missing changes by a fill.
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

    /// An operator decides that a node joins, leaves or is lost; all else the nodes decide.
    pub(crate) fn on_proposal(
        &mut self,
        now: Time,
        command: wire::MapCommand,
    ) -> Result<response::Body, wire::Error> {
        use wire::map_command::Body::{Join, Leave, Remove};
        if self.member.is_none() {
            return Err(refused("nodes can join and leave only with --replicas 2 or more"));
        }
        match &command.body {
            Some(Join(_) | Leave(_)) => {}
            Some(Remove(it)) if may_be_removed(&self.map, NodeId(it.node)) => {}
            Some(Remove(_)) => {
                return Err(refused("only a node that is down or never started can be removed"));
            }
            _ => {
                let text = "only the changes join, leave and remove can be requested";
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

    /// A client with an older map gets the present home of the partition.
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

    /// Answers at once: the answer promises nothing.
    pub(crate) fn reply(&mut self, client: ClientId, id: u64, body: response::Body) {
        let response = wire::Response { id, body: Some(body), ..Default::default() };
        self.immediate_replies.push((client, response));
    }

    /// Whether replicas are so far behind that no more writes are accepted.
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
        // Members are indexed by their number.
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

    /// The newest map that this node knows.
    #[must_use]
    pub fn map(&self) -> &wire::ClusterMap {
        &self.map
    }
    /// The epoch of the newest map that this node knows.
    #[must_use]
    pub fn map_epoch(&self) -> u64 {
        self.map.epoch
    }

    /// Whether a job has ended; `None` if this node does not know the job.
    #[must_use]
    pub fn has_ended(&self, job: JobId) -> Option<bool> {
        self.scheduler.has_ended(job)
    }
    /// Whether this node has chunks of a job and has not received its commit.
    #[must_use]
    pub fn is_uncommitted(&self, job: JobId) -> bool {
        self.scheduler.is_uncommitted(job)
    }
    /// Whether only kept outputs of a job are still needed.
    #[must_use]
    pub fn is_over(&self, job: JobId) -> Option<bool> {
        self.scheduler.is_over(job)
    }

    /// The limits of this node's history: bytes and age.
    #[must_use]
    pub fn history(&self) -> (u64, Span) {
        self.scheduler.history()
    }
    /// Events before this time belong to jobs with stored summaries.
    #[must_use]
    pub fn history_floor(&self, now: Time) -> Time {
        self.scheduler.history_floor(now)
    }

    /// The cause that blocks a stalled job, at the job's home.
    #[must_use]
    pub fn blocker_of(&self, job: JobId) -> Option<&wire::Stall> {
        self.scheduler.blocker_of(job)
    }

    /// The limit for files of shared file systems that are copied here for tasks.
    #[must_use]
    pub fn shared_files_bytes_max(&self) -> u64 {
        self.scheduler.shared_files_bytes_max()
    }

    /// Whether a task is live here that stands for an uploaded file; `None` if this node is not its
    /// home.
    #[must_use]
    pub fn awaits_file(&self, task: TaskId) -> Option<bool> {
        self.scheduler.awaits_file(task)
    }

    /// Whether this node has a replica of a partition, by the newest map.
    #[must_use]
    pub fn has_replica(&self, partition: PartitionId) -> bool {
        self.scheduler.has_replica(partition)
    }

    /// The attempt by which a task homed here is done, and how many bytes it printed: for checks.
    #[must_use]
    pub fn captured(&self, task: TaskId) -> Option<(Attempt, proto::work::Captured)> {
        self.scheduler.captured(task)
    }

    /// A list of all tasks that this node knows: for checks.
    #[must_use]
    pub fn census(&self) -> scheduler::Census {
        self.scheduler.census()
    }

    /// The parts of gangs that hold this node or wait for it: for checks.
    pub fn gang_parts(&self) -> impl Iterator<Item = scheduler::GangPart> + '_ {
        self.scheduler.gang_parts()
    }
}

fn options(config: &Config) -> Options {
    Options {
        me: config.node,
        incarnation: config.incarnation,
        slots: config.slots,
        offer: config.offer.clone(),
        end: config.end,
        tuning: config.tuning,
        seed: config.seed,
        former: config.former,
        mutant: config.mutant.and_then(Mutant::of_scheduler),
    }
}

pub(crate) fn busy(text: &str) -> wire::Error {
    let retry_after_ns = STEPS_HELD_RETRY.0;
    wire::Error { code: ErrorCode::Busy as i32, text: text.into(), retry_after_ns, ticket: 0 }
}

pub(crate) fn refused(text: &str) -> wire::Error {
    wire::Error { code: ErrorCode::Refused as i32, text: text.into(), ..Default::default() }
}
