//! Credits: how the end of a parent reaches its children, on this home and on others.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::RetryReason;

use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{Attempt, Event, LocalId, NodeId, ObjectId, PartitionId, TaskId, Time, wire};

use super::losses::earlier::{Refusal, as_of_earlier_end};
use super::losses::lineage::is_explicit;
use super::records::{EdgeOut, End, State};
use super::{Ledger, Part};
use crate::Mutant;
use crate::holder::task::object_of;
use crate::limits::{COPY_REPORTED_BYTES_MIN, FETCHES_AHEAD_WAITING_MAX, WIDE_FAN_IN_SLOTS_MIN};
use crate::objects::fetch::Ahead;
use crate::output::Out;
use crate::routing::partition_owners::Homes;
use crate::routing::traits::is_final;

/// The maximum number of edges in one `Credit`. A larger fan-out is sent as several credits, as the
/// link's window permits.
const CREDIT_EDGES_MAX: usize = 8192;

/// One entry of the outbox: an ended task, and how many of its edges have been credited.
#[derive(Debug)]
pub(crate) struct Delivery {
    parent: TaskId,
    attempt: Attempt,
    end: End,
    node: NodeId,
    output_sizes: Vec<u64>,
    /// The number of edges per output; empty if no output has bytes.
    consumers: Vec<u32>,
    /// The number of edges that have been credited.
    told: usize,
    /// The task had ended before. Children that have its earlier outputs need not start again.
    rebuilt: bool,
    /// Its outputs have checksums. A power cut must not lose an end after tasks have read its
    /// outputs. The next attempt may make other bytes, and there would be no checksums to compare.
    checked: bool,
    round: u32,
    /// The parent ran again without a result. Only tasks that wait for its lost outputs are
    /// concerned.
    refusal: Option<Box<Refusal>>,
}

impl Delivery {
    /// The entry of a task without outputs.
    pub(super) fn of_end(
        parent: TaskId,
        attempt: Attempt,
        end: End,
        node: NodeId,
        round: u32,
    ) -> Self {
        Self {
            parent,
            attempt,
            end,
            node,
            output_sizes: Vec::new(),
            consumers: Vec::new(),
            told: 0,
            rebuilt: false,
            checked: false,
            round,
            refusal: None,
        }
    }
    /// The parent ran again without a result.
    pub(super) fn refusing(self, refusal: Refusal) -> Self {
        Self { refusal: Some(Box::new(refusal)), ..self }
    }
    /// Moves the entry to this round, if the parent still has the same end. `state`: the parent's
    /// state, if the parent is concerned.
    pub(super) fn restamp(&mut self, round: u32, state: impl Fn(TaskId) -> Option<State>) {
        if state(self.parent) == Some(State::Ended(self.end)) {
            self.round = round;
        }
    }
    pub(super) fn job(&self) -> proto::JobId {
        self.parent.job
    }
    pub(super) fn partition(&self) -> PartitionId {
        self.parent.partition()
    }
    pub(super) fn credit(&self) -> wire::Credit {
        let mut credit = wire::Credit {
            job: self.parent.job.0,
            parent: self.parent.local.0,
            attempt: self.attempt.0,
            node: self.node.0,
            verdict: self.end as i32,
            output_sizes: self.output_sizes.clone(),
            consumers: self.consumers.clone(),
            rebuilt: self.rebuilt,
            checked: self.checked,
            round: self.round,
            ..Default::default()
        };
        if let Some(refusal) = &self.refusal {
            refusal.write_into(&mut credit);
        }
        credit
    }
}

/// Credits for other homes. Those that wait for the disk go in messages of their own, so that they
/// do not hold the others back: an answer to a credit query would overtake these.
type Remote = BTreeMap<(NodeId, bool), Vec<wire::Credit>>;

impl Ledger {
    /// Queues the credits of an ended task. `changed`: it had ended before with other bytes.
    pub(crate) fn deliver(&mut self, parent: TaskId, changed: bool) {
        let Some(ended) = self.delivery_of(parent, changed) else { return };
        let (attempt, node) = (ended.attempt, ended.node);
        let (sizes, consumers) = (&ended.output_sizes, &ended.consumers);
        self.expect_readers(parent, attempt, node, sizes, consumers);
        self.deliveries.push_back(ended);
    }

    /// Queues the credits of the last edges of an ended task.
    pub(super) fn deliver_last(&mut self, parent: TaskId, edges: usize) {
        let Some(ended) = self.delivery_of(parent, false) else { return };
        let runs = self.part(parent).into_iter().flat_map(|p| p.edge_runs(parent.local.index()));
        let all: usize = runs.map(<[EdgeOut]>::len).sum();
        self.deliveries.push_back(Delivery { told: all.saturating_sub(edges), ..ended });
    }

    pub(super) fn push_delivery(&mut self, delivery: Delivery) {
        self.deliveries.push_back(delivery);
    }

    pub(super) fn delivery_of(&mut self, parent: TaskId, changed: bool) -> Option<Delivery> {
        let index = parent.local.index();
        let part = self.part_mut(parent)?;
        let round = part.round;
        let segment = part.segment_mut(index)?;
        let cell = segment.cell(index)?;
        let State::Ended(end) = cell.state else { return None };
        let (attempt, node, rebuilt) = (cell.attempt, cell.holder, cell.rebuilds > 0 && !changed);
        let output_sizes = segment.side(index).map(|s| s.output_sizes.clone()).unwrap_or_default();
        let checked = !segment.output_sums(index).is_empty();
        segment.undelivered += 1;
        let consumers = self.consumers(parent, &output_sizes);
        let ended = Delivery::of_end(parent, attempt, end, node, round);
        Some(Delivery { output_sizes, consumers, rebuilt, checked, ..ended })
    }

    /// Expects all readers of a done task's outputs, where they are not counted yet.
    pub(super) fn expect_readers_of(&mut self, parent: TaskId) {
        let index = parent.local.index();
        let Some(segment) = self.part(parent).and_then(|part| part.segment(index)) else { return };
        let (Some(cell), Some(side)) = (segment.cell(index), segment.side(index)) else { return };
        let (attempt, node, sizes) = (cell.attempt, cell.holder, side.output_sizes.clone());
        let consumers = self.consumers(parent, &sizes);
        let counted = (0..)
            .zip(&consumers)
            .filter(|(_, readers)| **readers > 0)
            .all(|(output, _)| self.readers.has(&ObjectId { task: parent, attempt, output }));
        if !counted {
            self.expect_readers(parent, attempt, node, &sizes, &consumers);
        }
    }

    /// The number of edges per output of a task; empty if no output has bytes.
    pub(super) fn consumers(&self, parent: TaskId, output_sizes: &[u64]) -> Vec<u32> {
        if output_sizes.iter().all(|&size_bytes| size_bytes == 0) {
            return Vec::new();
        }
        let mut consumers = vec![0u32; output_sizes.len()];
        let runs = self.part(parent).into_iter().flat_map(|p| p.edge_runs(parent.local.index()));
        for edge in runs.flatten().filter(|edge| edge.output > 0) {
            if let Some(count) = consumers.get_mut(edge.output as usize - 1) {
                *count += 1;
            }
        }
        consumers
    }

    /// Counts the readers of outputs: those not to be kept are freed when the last reader has
    /// ended.
    fn expect_readers(
        &mut self,
        parent: TaskId,
        attempt: Attempt,
        node: NodeId,
        output_sizes: &[u64],
        consumers: &[u32],
    ) {
        let Some(spec) = self.spec(parent).cloned() else { return };
        let holds = self.part(parent).is_some_and(Part::holds_outputs);
        for (output, (&size_bytes, &readers)) in (0u32..).zip(output_sizes.iter().zip(consumers)) {
            let keep = spec.outputs.get(output as usize).is_some_and(|declared| declared.keep);
            if size_bytes > 0 && !keep {
                let object = ObjectId { task: parent, attempt, output };
                let held = if holds { self.hold_output(object, size_bytes) } else { 0 };
                self.readers.expect(object, readers + held, node);
            }
        }
    }

    /// The task has ended and no longer needs its inputs. Parents that end later are not informed;
    /// their outputs stay until the end of the job.
    pub(super) fn consume(&mut self, task: TaskId, out: &mut Out) {
        let index = task.local.index();
        let Some(segment) = self.part_mut(task).and_then(|part| part.segment_mut(index)) else {
            return;
        };
        if segment.side(index).is_none_or(|side| side.inputs.is_empty()) {
            return;
        }
        for input in std::mem::take(&mut segment.side_mut(index).inputs).into_values() {
            if input.size_bytes > 0 {
                *out.readers_finished.entry(object_of(task, &input)).or_default() += 1;
            }
        }
    }

    /// Credits children of ended tasks, up to `budget` edges: local ones at once, others by
    /// message.
    pub(crate) fn pump(&mut self, now: Time, homes: &Homes, mut budget: usize, out: &mut Out) {
        if self.deliveries.is_empty() {
            return;
        }
        let mut remote = Remote::new();
        while budget > 0 {
            let Some(mut delivery) = self.deliveries.pop_front() else { break };
            let edges = self.next_edges(&delivery, budget.min(CREDIT_EDGES_MAX));
            let exhausted = edges.len() < budget.min(CREDIT_EDGES_MAX);
            delivery.told += edges.len();
            budget -= edges.len().max(1).min(budget);
            self.send_credits(now, &delivery, &edges, homes, &mut remote, out);
            if exhausted {
                self.delivered(delivery.parent);
            } else {
                self.deliveries.push_front(delivery);
            }
        }
        for ((home, _), credits) in remote {
            let body = Body::Credits(wire::Credits { credits, reconciled: false });
            if self.mutant == Some(Mutant::NoOutbox) {
                out.best_effort.push((home, body));
            } else {
                out.reliable.push((home, body));
            }
        }
    }

    fn next_edges(&self, delivery: &Delivery, count: usize) -> Vec<EdgeOut> {
        let Some(part) = self.part(delivery.parent) else { return Vec::new() };
        let (mut edges, mut skip) = (Vec::new(), delivery.told);
        for run in part.edge_runs(delivery.parent.local.index()) {
            let rest = run.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(run.len());
            edges.extend(rest.iter().take(count - edges.len()));
            if edges.len() == count {
                break;
            }
        }
        edges
    }

    fn delivered(&mut self, parent: TaskId) {
        let index = parent.local.index();
        let Some(part) = self.part_mut(parent) else { return };
        if let Some(segment) = part.segment_mut(index) {
            segment.undelivered = segment.undelivered.saturating_sub(1);
        }
        let idle = part.take_idle(index);
        self.retire(parent.job, parent.partition(), &idle);
    }

    fn send_credits(
        &mut self,
        now: Time,
        delivery: &Delivery,
        edges: &[EdgeOut],
        homes: &Homes,
        remote: &mut Remote,
        out: &mut Out,
    ) {
        let mut message: BTreeMap<NodeId, wire::Credit> = BTreeMap::new();
        let mut local: Option<wire::Credit> = None;
        for edge in edges {
            let child = LocalId(edge.child);
            let Some(home) = homes.owner(child.partition()) else { continue };
            let parts = homes.moves() && child.partition() != delivery.partition();
            if homes.is_mine(child.partition()) && !(delivery.checked && parts) {
                let credit = local.get_or_insert_with(|| delivery.credit());
                let changed = self.credit(now, credit, child, edge.slot, edge.output, out);
                // The credit follows from the parent's end only while both tasks have the same
                // home.
                if changed && parts && self.mutant != Some(Mutant::LocalCreditsUnwritten) {
                    record_credit(credit, child, edge.slot, edge.output, out);
                }
            } else {
                let credit = message.entry(home).or_insert_with(|| delivery.credit());
                credit.child.push(edge.child);
                credit.slot.push(edge.slot);
                credit.output.push(edge.output);
            }
        }
        for (home, credit) in message {
            remote.entry((home, is_final(&credit))).or_default().push(credit);
        }
    }

    /// Handles credits from another home. Each change is recorded.
    pub(crate) fn on_credits(&mut self, now: Time, credits: wire::Credits, out: &mut Out) {
        for credit in credits.credits {
            let columns = credit.child.len().min(credit.slot.len()).min(credit.output.len());
            for at in 0..columns {
                let (child, slot, output) =
                    (LocalId(credit.child[at]), credit.slot[at], credit.output[at]);
                let task = TaskId { job: proto::JobId(credit.job), local: child };
                let woken =
                    credits.reconciled && !matches!(self.state(task), Some(State::Ended(_)));
                if self.credit(now, &credit, child, slot, output, out) {
                    if woken {
                        self.wakeups += 1;
                        out.events.push(Event::MissedWakeupRepaired { task });
                    }
                    record_credit(&credit, child, slot, output, out);
                }
            }
        }
    }

    /// Applies the credit of one edge. Returns true if it changed the child's record.
    pub(crate) fn credit(
        &mut self,
        now: Time,
        credit: &wire::Credit,
        child: LocalId,
        slot: u32,
        output: u32,
        out: &mut Out,
    ) -> bool {
        let task = TaskId { job: proto::JobId(credit.job), local: child };
        let Some(cell) = self.cell(task) else { return false };
        let has_ended = matches!(cell.state, State::Ended(_));
        if slot >= cell.slots || credit.refuses && has_ended {
            return false;
        }
        if credit.verdict != wire::Verdict::Done as i32 {
            let ignores_rounds = self.mutant == Some(Mutant::RoundIgnored);
            if credit.round < self.round(task) && !ignores_rounds {
                mark(Mark::CreditOfEarlierRound);
                return false; // The parent is not done yet in this round.
            }
            if credit.refuses {
                return self.on_refusal(now, credit, (task, slot, output), out);
            }
            let was_done = self.empty_slot(task, slot);
            if has_ended {
                return was_done;
            }
            let cancelled = credit.verdict == wire::Verdict::Cancelled as i32;
            let end = if cancelled { End::Cancelled } else { End::Skipped };
            return self.give_up(now, task, end, "", out);
        }
        if has_ended {
            return false;
        }
        let wide = cell.slots >= WIDE_FAN_IN_SLOTS_MIN && output > 0;
        let changed = self.apply_credit(task, credit, slot, output);
        if wide && changed == Changed::Filled {
            self.bring_ahead(task, credit, output);
        }
        if changed == Changed::Nothing {
            mark(Mark::CreditRepeated);
        }
        let lost = self.mutant == Some(Mutant::WakeUpLost) && task.local.index() % 8 == 7;
        if changed == Changed::Filled && self.is_complete(task) && !lost {
            self.ready.push_back(task);
        }
        // A rebuilt output has the same bytes as before, so readers that were placed may continue.
        // A holder that lacks it reports that.
        if changed == Changed::Replaced && !credit.rebuilt {
            self.replace_ready(task, RetryReason::InputReplaced, out);
        }
        changed != Changed::Nothing
    }

    /// A parent that was done has failed when it ran again. Its child waits for it in the next
    /// round. Returns whether the slot was filled.
    fn empty_slot(&mut self, task: TaskId, slot: u32) -> bool {
        let index = task.local.index();
        let segment = self.part_mut(task).and_then(|part| part.segment_mut(index));
        let filled = segment.filter(|segment| segment.is_input_slot_filled(index, slot));
        filled.map(|segment| segment.clear_input_slot(index, slot)).is_some()
    }

    /// Fetches small inputs of a wide fan-in as they are made, not all at its end.
    fn bring_ahead(&mut self, child: TaskId, credit: &wire::Credit, output: u32) {
        let size_bytes = credit.output_sizes.get(output as usize - 1).copied().unwrap_or(0);
        let (maker, me) = (NodeId(credit.node), self.me);
        let small = (1..COPY_REPORTED_BYTES_MIN).contains(&size_bytes);
        if small && maker != me && self.ahead.len() < FETCHES_AHEAD_WAITING_MAX {
            let task = TaskId::new(credit.job, credit.parent);
            let (attempt, output) = (Attempt(credit.attempt), output - 1);
            let object = ObjectId { task, attempt, output };
            let readers = credit.consumers.get(output as usize).copied().unwrap_or(0);
            self.ahead.push(Ahead { object, child, maker, size_bytes, readers });
        }
    }

    fn is_complete(&self, task: TaskId) -> bool {
        let visible = self.jobs.get(&task.job).is_some_and(|job| job.visible)
            || self.mutant == Some(Mutant::RunBeforeCommit);
        let cell = self.cell(task);
        visible && cell.is_some_and(|cell| cell.state == State::Waiting && cell.missing == 0)
    }

    /// Applies a credit to the record; recovery does the same.
    pub(super) fn apply_credit(
        &mut self,
        task: TaskId,
        credit: &wire::Credit,
        slot: u32,
        output: u32,
    ) -> Changed {
        let index = task.local.index();
        let counted = self.mutant == Some(Mutant::CounterInsteadOfSet);
        let Some(segment) = self.part_mut(task).and_then(|part| part.segment_mut(index)) else {
            return Changed::Nothing;
        };
        let known = segment.side(index).and_then(|side| side.inputs.get(&slot));
        let lost = known.is_some_and(|known| known.attempt >= credit.attempt);
        if output > 0 && lost && !segment.is_input_slot_filled(index, slot) {
            return Changed::Nothing; // This output is lost; a later one is awaited.
        }
        let fresh = segment.fill(index, slot);
        if fresh || counted {
            let cell = segment.cell_mut(index).expect("the cell was filled");
            cell.missing = cell.missing.saturating_sub(1);
        }
        if output == 0 {
            return if fresh || counted { Changed::Filled } else { Changed::Nothing };
        }
        let size = credit.output_sizes.get(output as usize - 1).copied().unwrap_or(0);
        let input = wire::InputAt {
            slot,
            parent: credit.parent,
            output: output - 1,
            attempt: credit.attempt,
            size_bytes: size,
            node: credit.node,
            consumers: credit.consumers.get(output as usize - 1).copied().unwrap_or(0),
            copies: Vec::new(),
        };
        let inputs = &mut segment.side_mut(index).inputs;
        match inputs.get(&slot) {
            Some(known) if known.attempt >= input.attempt => {
                if counted {
                    Changed::Filled
                } else {
                    Changed::Nothing
                }
            }
            _ => {
                inputs.insert(slot, input);
                if fresh { Changed::Filled } else { Changed::Replaced }
            }
        }
    }

    /// Places a ready task again, under a further attempt.
    pub(crate) fn replace_ready(&mut self, task: TaskId, why: RetryReason, out: &mut Out) {
        let Some(cell) = self.cell_mut(task) else { return };
        if cell.state != State::Ready {
            return;
        }
        let (holder, attempt) = (cell.holder, cell.attempt);
        cell.state = State::Waiting;
        // A failed task with retries left waits behind tasks that have not had their turn.
        cell.again = why != RetryReason::Retry;
        self.waiting += 1;
        self.give_place_back(task);
        self.start_is_over(task, out);
        let stale = out.stale.entry(holder).or_default();
        stale.push(crate::output::task_attempt(task, attempt));
        out.events.push(Event::Replaced { task, attempt, why });
        self.ready.push_back(task);
    }

    /// This node has dropped an attempt of its own task.
    pub(crate) fn replace_dropped(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        why: RetryReason,
        out: &mut Out,
    ) {
        if self.cell(task).is_some_and(|cell| cell.attempt == attempt) {
            self.replace_ready(task, why, out);
        }
    }

    /// A home asks for credits that it expects. If this node still knows another home of the child,
    /// it does not answer. It sends the credits to the asker once it knows the new home.
    pub(crate) fn on_credit_query(
        &mut self,
        from: NodeId,
        query: &wire::CreditQuery,
        is_home: impl Fn(LocalId) -> bool,
        out: &mut Out,
    ) {
        let mut by_parent: BTreeMap<TaskId, BTreeSet<u64>> = BTreeMap::new();
        let is_due = |ask: &&wire::CreditRequest| is_home(LocalId(ask.child));
        let asks = query.requests.iter().filter(|ask| !is_explicit(ask));
        for ask in asks.filter(is_due) {
            by_parent.entry(TaskId::new(ask.job, ask.parent)).or_default().insert(ask.child);
        }
        for (parent, children) in by_parent {
            if self.owes_children(parent) {
                continue; // Its credits are being sent.
            }
            if let Some(credit) = self.credit_again(parent, &children) {
                // The job's home announces the cancellation to all homes; the asker may learn it
                // later.
                let reconciled = !self.is_removed(parent.job);
                let credits = wire::Credits { credits: vec![credit], reconciled };
                out.reliable.push((from, Body::Credits(credits)));
            }
        }
    }

    /// Whether credits of this task, or of one in its chunk, are still to be sent.
    fn owes_children(&self, parent: TaskId) -> bool {
        let index = parent.local.index();
        let segment = self.part(parent).and_then(|part| part.segment(index));
        segment.is_some_and(|segment| segment.undelivered > 0)
    }

    /// The credit that these children should have from the parent, if the parent has ended.
    pub(super) fn credit_again(
        &self,
        parent: TaskId,
        children: &BTreeSet<u64>,
    ) -> Option<wire::Credit> {
        let index = parent.local.index();
        let part = self.part(parent)?;
        let segment = part.segment(index)?;
        let cell = segment.cell(index)?;
        let State::Ended(end) = cell.state else { return None };
        let output_sizes = segment.side(index).map(|s| s.output_sizes.clone()).unwrap_or_default();
        let checked = !segment.output_sums(index).is_empty();
        let (attempt, node) = (cell.attempt, cell.holder);
        let consumers = self.consumers(parent, &output_sizes);
        let ended = Delivery::of_end(parent, attempt, end, node, part.round);
        let mut credit = Delivery { output_sizes, consumers, checked, ..ended }.credit();
        for edge in part.edge_runs(index).flatten().filter(|edge| children.contains(&edge.child)) {
            credit.child.push(edge.child);
            credit.slot.push(edge.slot);
            credit.output.push(edge.output);
        }
        Some(credit)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Changed {
    Nothing,
    Filled,
    /// A later attempt of the parent provides this input.
    Replaced,
}

fn record_credit(credit: &wire::Credit, child: LocalId, slot: u32, output: u32, out: &mut Out) {
    let place = (child.partition(), proto::JobId(credit.job));
    let record = out.facts.credits.entry(place).or_default();
    let same = |last: &wire::Credit| {
        let same = last.parent == credit.parent && last.attempt == credit.attempt;
        same && last.recalled.is_empty()
    };
    if !record.credits.last().is_some_and(same) {
        let of_end = match credit.refuses {
            true => as_of_earlier_end(credit),
            false => credit.clone(),
        };
        let bare = wire::Credit {
            child: Vec::new(),
            slot: Vec::new(),
            output: Vec::new(),
            recalled: Vec::new(),
            ..of_end
        };
        record.credits.push(bare);
    }
    let last = record.credits.last_mut().expect("pushed above");
    last.child.push(child.index());
    last.slot.push(slot);
    last.output.push(output);
}
