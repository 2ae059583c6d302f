//! The end of a step: one batch, and then, as soon as allowed, everything that depends on it.
//!
//! | part of a step | leaves when |
//! |---|---|
//! | the batch, events, messages about replicas and members | at once |
//! | other effects and messages | its batch is in the log here and at every replica |
//! | irrevocable messages, answers to clients, acknowledgements | and is synced there |
//!
//! A message is irrevocable if the receiver acts on it in a way that cannot be undone; its traits
//! say so (`durable_before_send`). Steps are released in their order. Where partitions have one
//! replica, a step is released at once.

use std::collections::VecDeque;

use crate::Mutant;
use kvs::{Batch, Write};
use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{Incarnation, NodeId, PartitionId, Time, wire};
use scheduler::{Answer, traits};

use crate::node::Node;
use crate::{Effect, records};

/// The number of rounds of messages to itself that one step carries out; more wait for the next
/// step.
const LOOPBACK_ROUNDS_MAX: usize = 64;

/// How urgent the next sync of a node's log is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum SyncWish {
    #[default]
    None,
    /// Other nodes wait for it, but can do without it for some milliseconds.
    Soon,
    /// A client waits for it, or all other nodes do.
    Now,
}

/// The effects and messages of a step.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// The last batch that it depends on.
    batch: u64,
    pub(crate) effects: Vec<Effect>,
    reliable: Vec<(NodeId, Body)>,
    best_effort: Vec<(NodeId, Body)>,
}

impl Step {
    fn is_empty(&self) -> bool {
        self.effects.is_empty() && self.reliable.is_empty() && self.best_effort.is_empty()
    }
}

impl Node {
    /// Ends a step (any number of inputs): one batch first, then what depends on it.
    pub fn flush(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.fenced.is_none() {
            self.step_as_member(now);
        }
        if let Some((partition, what)) = self.damaged.take().map(|it| *it) {
            (self.fenced, self.reported_fenced) = (Some(None), true);
            effects.push(Effect::Damaged { partition, what });
        }
        if let Some(restart) = self.fenced {
            if !std::mem::replace(&mut self.reported_fenced, true) {
                mark(Mark::Fenced);
                effects.push(Effect::Fenced { restart });
            }
            return;
        }
        let mut released = Vec::new();
        self.send_step(&mut released);
        if self.needs_decision || self.unfinished || self.due.is_some_and(|at| at <= now) {
            self.settle(now);
            self.due = self.scheduler.deadline(Time::ZERO);
            self.needs_decision = false;
        } else {
            self.route();
        }
        self.number_batch(now, effects);
        self.scheduler.count_events(now, &self.out.events);
        if self.out.events.is_empty() {
            self.out.events = Vec::new(); // Only a busy node keeps the capacity.
        } else {
            effects.extend(self.out.events.drain(..).map(Effect::Trace));
        }
        if std::mem::take(&mut self.out.measure) {
            effects.push(Effect::Measure);
        }
        if let Some(member) = &mut self.member {
            member.flush(self.own.node, self.own.incarnation, effects);
        }
        effects.append(&mut released);
        self.end_step();
        self.send_step(effects);
        self.send_answers(now, effects);
        let told = self.immediate_replies.drain(..);
        effects.extend(told.map(|(client, response)| {
            let response = Box::new(response);
            Effect::Reply { client, response }
        }));
        if let Some(replica) = &mut self.replica {
            replica.flush(now, self.batch_seq, self.durable_seq, effects);
        }
        self.links.note_batch(self.batch_seq);
        self.links.durable(self.synced_seq());
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
        self.consider_departure(now);
        self.consider_leaving(now);
        self.tell_pause();
        if self.own.mutant == Some(Mutant::SendBeforeWriting)
            && matches!(effects.first(), Some(Effect::Persist(_)))
        {
            effects.rotate_left(1);
        }
    }

    /// The last batch with dependent effects that may have left: for checks.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.logged_seq()
    }
    /// The last batch with dependent answers and irrevocable messages that may have left: for
    /// checks.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.synced_seq()
    }
    /// The answers that replicas owe, and all that waits for them, as a text for people.
    #[must_use]
    pub fn describe_waiting(&self) -> String {
        let copies = self.replica.as_ref().map(|replica| replica.describe()).unwrap_or_default();
        let (held, answers, reports) =
            (self.held_steps.len(), self.answers.len(), self.awaiting_sync.len());
        let (batch, durable) = (self.batch_seq, self.durable_seq);
        let group = self.member.as_ref().map(|member| member.describe_group()).unwrap_or_default();
        format!(
            "batch {batch}, synced {durable}; {held} steps, {answers} answers, {reports} reports \
             held; {copies}; {group}"
        )
    }
    /// Whether this node is to leave, and no node has space for its outputs: for checks.
    #[must_use]
    pub fn is_drain_blocked(&self) -> bool {
        self.scheduler.is_drain_blocked()
    }
    /// The voters as far as this node knows, agreed on or not: for checks.
    #[must_use]
    pub fn voters(&self) -> Option<&[u32]> {
        self.member.as_ref().map(|member| member.voters())
    }
    /// The activations that have taken too long, as text.
    #[must_use]
    pub fn late_activations(&self, now: Time) -> Option<String> {
        self.replica.as_ref()?.late_activations(now)
    }
    /// The epoch under which this node serves a partition, where homes move: for checks.
    #[must_use]
    pub fn serves(&self, partition: PartitionId) -> Option<u64> {
        self.replica.as_ref()?.serves(partition)
    }

    /// The last batch up to which every replica has logged everything.
    fn logged_seq(&self) -> u64 {
        self.replica.as_ref().map_or(self.batch_seq, |replica| replica.logged(self.batch_seq))
    }
    /// The last batch up to which every replica and this node have synced everything.
    fn synced_seq(&self) -> u64 {
        let hasty = self.own.mutant == Some(Mutant::OwnSyncUncounted);
        let own = if hasty { self.batch_seq } else { self.durable_seq };
        self.replica.as_ref().map_or(self.durable_seq, |replica| replica.synced(own))
    }

    /// Decides all that can be decided now, with messages to itself.
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
            let me = self.own.node;
            while let Some(body) = self.loopback.pop_front() {
                self.scheduler.on_message(now, me, body, &mut self.out);
                acted = false;
            }
        }
        self.loopback.shrink_to(0); // Empty, unless there was too much to do.
        self.collect();
    }

    /// Moves messages to the step, and those to itself to the loopback queue.
    fn route(&mut self) {
        self.out.gather();
        self.scheduler.address(&mut self.out);
        let me = self.own.node;
        // Not drained: most nodes are idle most of the time, and need no capacity for messages.
        for (to, body) in std::mem::take(&mut self.out.reliable) {
            let traits = traits(&body);
            debug_assert!(traits.channel.is_reliable(), "{body:?}");
            let waits = traits.durable_before_send;
            // Messages to this node itself wait too where there are replicas. Two partitions of a
            // node may fail over to different nodes; then one must not rely on a fact that the
            // other has lost.
            if to == me && !traits.frees_data && (!waits || self.replica.is_none()) {
                self.loopback.push_back(body);
            } else if waits {
                // The batch of this step, if there is one, is the next.
                self.awaiting_sync.push_back((self.batch_seq + 1, to, body));
            } else {
                self.step.reliable.push((to, body));
            }
        }
        for (to, body) in std::mem::take(&mut self.out.best_effort) {
            let is_best_effort = traits(&body).channel.is_best_effort();
            // A mutant without an outbox sends even credits this way.
            debug_assert!(is_best_effort || self.own.mutant.is_some(), "{body:?}");
            if to == me {
                self.loopback.push_back(body);
            } else {
                self.step.best_effort.push((to, body));
            }
        }
    }

    /// Turns the decisions of the step into effects, in the order in which they are carried out.
    fn collect(&mut self) {
        let out = &mut self.out;
        let effects = &mut self.step.effects;
        let answers = out.turn_answers.drain(..);
        effects.extend(answers.map(|(task, attempt, answer)| {
            // The answer comes before the end of its attempt.
            Effect::TurnAnswer { task, attempt, answer }
        }));
        if let Some(goes_on) = out.goes_on.take() {
            let goes_on = goes_on.into_iter();
            effects.extend(goes_on.map(|(task, attempt)| Effect::GoesOn { task, attempt }));
        }
        if let Some(news) = out.variables.take() {
            let changed = news.changed.into_iter();
            effects.extend(changed.map(|(job, variable)| match variable.map(Box::new) {
                Some(variable) => Effect::Variable { job, variable },
                None => Effect::VariablesForgotten { job },
            }));
            let set = news.set.into_iter();
            effects.extend(set.map(|(ticket, done)| Effect::VariableSet { ticket, done }));
        }
        if let Some(answers) = out.mailboxes.take() {
            let answers = answers.into_iter();
            effects.extend(answers.map(|(ticket, refused)| Effect::Mailbox { ticket, refused }));
        }
        effects.extend(out.parts.drain(..).map(Effect::Part));
        let kills = out.kills.drain(..).map(|(task, attempt)| Effect::Kill { task, attempt });
        effects.extend(kills);
        let discards = out.discards.drain(..);
        effects.extend(discards.map(|(task, attempt)| Effect::Discard { task, attempt }));
        if !out.evicted.is_empty() {
            effects.push(Effect::Evict { objects: std::mem::take(&mut out.evicted) });
        }
        effects.extend(out.forgotten.drain(..).map(|job| Effect::Forget { job }));
        effects.extend(out.erased.drain(..).map(|(job, number)| Effect::Erase { job, number }));
        effects.extend(out.fetches.drain(..).map(Effect::Fetch));
        effects.extend(out.launches.drain(..).map(Effect::Launch));
        if let Some(notices) = out.notices.take() {
            let notices = notices.into_iter();
            effects.extend(notices.map(|(task, attempt)| Effect::Notice { task, attempt }));
        }
    }

    /// Turns the facts so far into writes.
    pub(crate) fn gather_writes(&mut self) -> Vec<Write> {
        let mut writes = std::mem::take(&mut self.writes);
        if !self.out.facts.is_empty() {
            let facts = std::mem::take(&mut self.out.facts);
            let next = self.record_number.checked_add(1);
            self.record_number = next.expect("2^32 steps in one incarnation");
            let (scheduler, step) = (&self.scheduler, u64::from(self.record_number));
            let number = |partition| u64::from(scheduler.term(partition)) << 32 | step;
            let partitions = scheduler.homes().partitions();
            records::write_facts(facts, partitions, number, &mut writes);
        }
        writes
    }

    fn number_batch(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let writes = self.gather_writes();
        let of_group = self.member.as_mut().map(|member| member.take_writes()).unwrap_or_default();
        let group_writes = !of_group.is_empty();
        let batch = if let Some(replica) = &mut self.replica {
            replica.ship(writes);
            replica.write_own(of_group);
            let client_waits = !self.out.answers.is_empty();
            let batch = replica.end_step(now, self.batch_seq, self.durable_seq, client_waits);
            if replica.is_stuck(now) {
                self.fenced = Some(Some(Incarnation(self.own.incarnation.0 + 1)));
            }
            batch
        } else if writes.is_empty() {
            None
        } else {
            Some(Batch { seq: self.batch_seq + 1, cleared: Vec::new(), writes })
        };
        if let Some(batch) = batch {
            self.batch_seq = batch.seq;
            effects.push(Effect::Persist(batch));
        }
        if let Some(member) = &mut self.member {
            member.note_batch(self.batch_seq, group_writes);
        }
    }

    /// Queues the step behind the earlier ones, until [`Self::send_step`].
    fn end_step(&mut self) {
        if !self.step.is_empty() {
            let mut step = std::mem::take(&mut self.step);
            step.batch = self.batch_seq;
            self.held_steps.push_back(step);
        }
    }

    /// Releases the steps with a batch that every replica has logged, and then the messages with a
    /// batch that is synced.
    fn send_step(&mut self, effects: &mut Vec<Effect>) {
        let logged = self.logged_seq();
        while let Some(mut step) = self.held_steps.pop_front_if(|step| step.batch <= logged) {
            effects.append(&mut step.effects);
            for (to, body) in step.reliable {
                self.queue_message(to, body);
            }
            for (to, body) in step.best_effort {
                self.links.send_best_effort(to, body);
            }
        }
        if self.held_steps.is_empty() {
            self.held_steps = VecDeque::new();
        }
        let (batch, synced) = (self.batch_seq, self.synced_seq());
        while let Some(&(seq, _, _)) = self.awaiting_sync.front()
            && (seq.min(batch) <= synced || self.own.mutant == Some(Mutant::ReportBeforeDurable))
        {
            let (_, to, body) = self.awaiting_sync.pop_front().expect("looked at above");
            if to == self.own.node {
                self.loopback.push_back(body);
                self.unfinished = true;
            } else {
                self.queue_message(to, body);
            }
        }
    }

    /// Sends a message. If its receiver has failed since the decision, the message is sent to the
    /// new homes of its partitions, like all messages that the receiver has not acknowledged.
    fn queue_message(&mut self, to: NodeId, body: Body) {
        if !self.links.is_shut(to) {
            self.links.send(to, body);
        } else if traits(&body).survives_restart {
            mark(Mark::Rerouted);
            self.scheduler.reroute(vec![body], &mut self.out);
            self.unfinished = true;
        }
    }

    /// A client gets only durable results, in the order of the decisions, and none from a node that
    /// may have been replaced.
    fn send_answers(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let needed = self.batch_seq;
        for Answer { client, response } in std::mem::take(&mut self.out.answers) {
            let error = response.error.as_ref().map(wire::Error::code);
            if error == Some(wire::ErrorCode::Busy) {
                self.immediate_replies.push((client, response)); // It promises nothing.
            } else {
                self.answers.push_back((needed, client, response));
            }
        }
        let eager = self.own.mutant == Some(Mutant::ReportBeforeDurable);
        let synced = self.synced_seq();
        let ready = self.answers.front().is_some_and(|&(seq, _, _)| seq <= synced || eager);
        if let Some(replica) = &mut self.replica
            && !replica.may_answer(now, ready)
        {
            return;
        }
        while let Some(&(seq, _, _)) = self.answers.front()
            && (seq <= synced || eager)
        {
            let (_, client, response) = self.answers.pop_front().expect("looked at above");
            effects.push(Effect::Reply { client, response: Box::new(response) });
        }
        if self.answers.is_empty() {
            self.answers = VecDeque::new(); // Most nodes get no requests most of the time.
        }
    }

    /// How urgent the next sync of the log is. Acknowledgements wait for it too, but are not
    /// urgent. A client that waits for the end of the last task here waits for nothing else.
    #[must_use]
    pub fn sync_wish(&self) -> SyncWish {
        let of_group = self.member.as_ref().is_some_and(|member| member.awaits_sync());
        if of_group {
            return SyncWish::Now; // Rare, and then all other nodes wait for it.
        }
        // With work left, more answers will wait for the same sync.
        let own = match (self.answers.is_empty(), self.awaiting_sync.is_empty()) {
            (false, _) if !self.scheduler.has_work_here() => SyncWish::Now,
            (true, true) => SyncWish::None,
            _ => SyncWish::Soon,
        };
        self.replica.as_ref().map_or(own, |replica| own.max(replica.sync_wish()))
    }

    /// When the node wants `Input::Timer`; a past time means at once.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.fenced.is_some() {
            return (!self.reported_fenced).then_some(Time::ZERO);
        }
        if self.unfinished {
            return Some(Time::ZERO);
        }
        let of_copies = self.replica.as_ref().and_then(|replica| replica.deadline());
        let of_member = self.member.as_ref().map(|member| member.deadline());
        let timers = [self.due, self.links.deadline(), of_copies, of_member];
        timers.into_iter().flatten().min()
    }
}
