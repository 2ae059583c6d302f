//! Lineage: a task that had ended runs again because its outputs are lost and still needed.
//!
//! A task that cannot get an input waits again, and its home asks the parent's home to make that
//! output again. The parent runs again; if its own inputs have been freed or lost, so do its
//! parents, and so on. Nothing of this is stored. If a home fails in the middle, the next one finds
//! the parent done and the child ready, and the child's holder reports the lost input again.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::RetryReason;

use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{Attempt, Event, LocalId, NodeId, ObjectId, TaskId, Time, wire};

use crate::Mutant;
use crate::home::ledger::credit::Delivery;
use crate::home::ledger::records::State;
use crate::home::ledger::{End, Ledger};
use crate::limits::{INPUT_LOSSES_MAX, REBUILDS_MAX};
use crate::output::Out;
use crate::routing::partition_owners::Homes;

/// Requests for outputs, sent together to each home.
pub(in crate::home::ledger) type CreditAsks = BTreeMap<NodeId, Vec<wire::CreditRequest>>;

impl Ledger {
    /// An attempt found no source of these inputs. Returns false if it has lost too many.
    pub(crate) fn inputs_lost(
        &mut self,
        task: TaskId,
        lost: &[wire::Object],
        homes: &Homes,
        out: &mut Out,
    ) -> bool {
        if self.mutant == Some(Mutant::NothingRebuilt) {
            return false;
        }
        let Some(cell) = self.cell_mut(task) else { return true };
        if cell.input_losses >= INPUT_LOSSES_MAX {
            return false;
        }
        cell.input_losses += 1;
        mark(Mark::InputsLost);
        let gone = |input: &&wire::InputAt| {
            let same = |object: &wire::Object| {
                (object.task, object.attempt, object.output)
                    == (input.parent, input.attempt, input.output)
            };
            lost.iter().any(same)
        };
        let slots: Vec<u32> = self.inputs(task).filter(gone).map(|input| input.slot).collect();
        let index = task.local.index();
        for &slot in &slots {
            if let Some(segment) = self.part_mut(task).and_then(|part| part.segment_mut(index)) {
                segment.clear_input_slot(index, slot);
            }
        }
        // If a later attempt has made them meanwhile, the task just fetches these.
        self.replace_ready(task, RetryReason::InputLost, out);
        if !slots.is_empty() {
            self.awaiting_lost_inputs.insert(task);
            let mut asks = CreditAsks::new();
            self.ask_for_lost(task, homes, &mut asks);
            send(asks, out);
        }
        true
    }

    /// Requests the inputs that a task had and has lost.
    pub(in crate::home::ledger) fn ask_for_lost(
        &self,
        task: TaskId,
        homes: &Homes,
        asks: &mut CreditAsks,
    ) {
        let index = task.local.index();
        let Some(segment) = self.part(task).and_then(|part| part.segment(index)) else { return };
        for input in
            self.inputs(task).filter(|input| !segment.is_input_slot_filled(index, input.slot))
        {
            let Some(home) = homes.owner(LocalId(input.parent).partition()) else { continue };
            asks.entry(home).or_default().push(wire::CreditRequest {
                job: task.job.0,
                parent: input.parent,
                child: task.local.0,
                lost_attempt: input.attempt,
                round: self.round(task),
                ..Default::default()
            });
        }
    }

    /// Repeats all open requests to these homes: they may have lost them.
    pub(crate) fn ask_again(
        &mut self,
        concerned: impl Fn(LocalId) -> bool,
        homes: &Homes,
        out: &mut Out,
    ) {
        let mut asks = CreditAsks::new();
        for task in self.awaiting_lost_inputs.clone() {
            let waits = self.state(task) == Some(State::Waiting)
                && self.cell(task).is_some_and(|cell| cell.missing > 0);
            if !waits {
                self.awaiting_lost_inputs.remove(&task);
                continue;
            }
            self.ask_for_lost(task, homes, &mut asks);
            self.ask_for_missing(task, homes, &mut asks);
        }
        for asks in asks.values_mut() {
            asks.retain(|ask| concerned(LocalId(ask.parent)));
        }
        send(asks, out);
    }

    /// Requests a recalled input. The end of its parent for which it was recalled may never count:
    /// the next home of the parent knows only the earlier end.
    pub(in crate::home::ledger) fn ask_for_recalled(
        &self,
        task: TaskId,
        parent: LocalId,
        homes: &Homes,
        asks: &mut CreditAsks,
    ) {
        if self.mutant == Some(Mutant::RecalledUnrequested) {
            return;
        }
        let Some(home) = homes.owner(parent.partition()) else { return };
        asks.entry(home).or_default().push(wire::CreditRequest {
            job: task.job.0,
            parent: parent.0,
            child: task.local.0,
            round: self.round(task),
            recalled: true,
            ..Default::default()
        });
    }

    /// Requests the inputs that a task needs once more: it runs again, or they were recalled.
    pub(in crate::home::ledger) fn ask_for_missing(
        &self,
        task: TaskId,
        homes: &Homes,
        asks: &mut CreditAsks,
    ) {
        let index = task.local.index();
        let Some(part) = self.part(task) else { return };
        let Some(segment) = part.segment(index) else { return };
        let rebuilds = segment.cell(index).map_or(0, |cell| cell.rebuilds);
        let (round, runs_again) = (part.round, rebuilds > 0 || part.round > 0);
        let had: BTreeSet<u32> = self.inputs(task).map(|input| input.slot).collect();
        for (slot, parent) in part.parents(index) {
            if segment.is_input_slot_filled(index, slot) || had.contains(&slot) {
                continue;
            }
            if !runs_again {
                self.ask_for_recalled(task, LocalId(parent), homes, asks);
                continue;
            }
            let Some(home) = homes.owner(LocalId(parent).partition()) else { continue };
            let (job, child) = (task.job.0, task.local.0);
            let ask =
                wire::CreditRequest { job, parent, child, runs_again, round, ..Default::default() };
            asks.entry(home).or_default().push(ask);
        }
    }

    /// Children request inputs that they have lost, that were recalled, or that they need once
    /// more.
    pub(crate) fn on_asks(
        &mut self,
        now: Time,
        from: NodeId,
        asks: &[wire::CreditRequest],
        homes: &Homes,
        out: &mut Out,
    ) {
        let mut by_parent: BTreeMap<TaskId, Vec<&wire::CreditRequest>> = BTreeMap::new();
        let asks = asks.iter().filter(|ask| is_explicit(ask));
        for ask in self.defer_early(from, asks) {
            by_parent.entry(TaskId::new(ask.job, ask.parent)).or_default().push(ask);
        }
        for (parent, asks) in by_parent {
            if self.is_removed(parent.job) || self.has_ended(parent.job) {
                continue; // The children have ended too, or the job's home informs them.
            }
            let Some(cell) = self.cell(parent) else {
                // The readers of a recalled output are counted, so its record is in memory unless
                // the children have received the credit meanwhile.
                if asks.iter().all(|ask| ask.recalled) {
                    continue;
                }
                self.refuse_rebuild(now, parent, "its record has left memory", &asks, from, out);
                continue;
            };
            let (state, attempt) = (cell.state, cell.attempt);
            match state {
                // The task runs again already; all its children receive its credits.
                State::Waiting | State::Ready => {}
                State::Ended(End::Done) => {
                    let lost = asks.iter().any(|ask| ask.lost_attempt == attempt.0);
                    let runs_again = asks.iter().filter(|ask| ask.runs_again);
                    let children: BTreeSet<u64> = runs_again.map(|ask| ask.child).collect();
                    let gone = self.is_freed(parent, attempt, &children);
                    if lost || gone {
                        self.rebuild(now, parent, &asks, from, homes, out);
                    } else {
                        self.readers_again(parent, attempt, &children);
                        self.answer_asks(parent, &asks, from, out);
                    }
                }
                State::Ended(_) => self.answer_asks(parent, &asks, from, out),
            }
        }
    }

    /// Whether an output that one of these children reads has no reader left: then it has been
    /// deleted everywhere.
    fn is_freed(&self, parent: TaskId, attempt: Attempt, children: &BTreeSet<u64>) -> bool {
        if self.mutant == Some(Mutant::AllRebuilt) && !children.is_empty() {
            return true;
        }
        self.objects_read(parent, attempt, children).any(|object| !self.readers.has(&object))
    }
    fn readers_again(&mut self, parent: TaskId, attempt: Attempt, children: &BTreeSet<u64>) {
        let objects: Vec<ObjectId> = self.objects_read(parent, attempt, children).collect();
        objects.iter().for_each(|object| self.readers.again(object));
    }
    /// Outputs with bytes that these children read and that are not to be kept, once per edge.
    fn objects_read(
        &self,
        parent: TaskId,
        attempt: Attempt,
        children: &BTreeSet<u64>,
    ) -> impl Iterator<Item = ObjectId> {
        let index = parent.local.index();
        let part = self.part(parent);
        let side = part.and_then(|part| part.segment(index)).and_then(|s| s.side(index));
        let sizes = side.map(|side| side.output_sizes.clone()).unwrap_or_default();
        let spec = self.spec(parent).cloned();
        let runs = part.into_iter().flat_map(move |part| part.edge_runs(index)).flatten();
        let read = runs.filter(|edge| edge.output > 0 && children.contains(&edge.child));
        read.filter_map(move |edge| {
            let output = edge.output - 1;
            let size_bytes = sizes.get(output as usize).copied().unwrap_or(0);
            let declared = spec.as_ref().and_then(|spec| spec.outputs.get(output as usize));
            let keep = declared.is_some_and(|declared| declared.keep);
            (size_bytes > 0 && !keep).then_some(ObjectId { task: parent, attempt, output })
        })
    }

    /// Answers even while credits of this or other tasks are being sent: the child may have got
    /// them after it had ended itself.
    fn answer_asks(
        &self,
        parent: TaskId,
        asks: &[&wire::CreditRequest],
        from: NodeId,
        out: &mut Out,
    ) {
        let children: BTreeSet<u64> = asks.iter().map(|ask| ask.child).collect();
        if let Some(mut credit) = self.credit_again(parent, &children) {
            credit.rebuilt = true;
            let credits = wire::Credits { credits: vec![credit], reconciled: false };
            out.reliable.push((from, Body::Credits(credits)));
        }
    }

    /// Runs a done task again, if that is possible.
    fn rebuild(
        &mut self,
        now: Time,
        task: TaskId,
        asks: &[&wire::CreditRequest],
        from: NodeId,
        homes: &Homes,
        out: &mut Out,
    ) {
        if self.has_turned(task) {
            self.lose_turned(now, task);
            return self.refuse_rebuild(now, task, "it has spawned other tasks", asks, from, out);
        }
        let index = task.local.index();
        let cell = self.cell(task).expect("looked at before");
        let (slots, rebuilds) = (cell.slots, cell.rebuilds);
        let parents = self.part(task).map_or(0, |part| part.parents(index).count());
        if rebuilds >= REBUILDS_MAX {
            let text = format!("they have been lost {rebuilds} times");
            return self.refuse_rebuild(now, task, &text, asks, from, out);
        }
        if parents != slots as usize {
            return self.refuse_rebuild(now, task, "its parents are not known", asks, from, out);
        }
        self.keep_earlier_end(task);
        self.run_again(task, RetryReason::Rebuilt, homes, out);
        let job = self.jobs.get_mut(&task.job).expect("the task's job");
        job.report_soon(now, self.report_interval);
    }

    /// Revokes an end and requests all inputs once more.
    pub(in crate::home::ledger) fn run_again(
        &mut self,
        task: TaskId,
        why: RetryReason,
        homes: &Homes,
        out: &mut Out,
    ) {
        let cell = self.cell(task).expect("looked at before");
        let (attempt, slots) = (cell.attempt, cell.slots);
        self.reopen(task);
        out.events.push(Event::Replaced { task, attempt, why });
        if slots == 0 {
            self.ready.push_back(task);
            return;
        }
        self.awaiting_lost_inputs.insert(task);
        let mut asks = CreditAsks::new();
        self.ask_for_missing(task, homes, &mut asks);
        send(asks, out);
    }

    /// Revokes an end: the task waits for all its inputs.
    pub(in crate::home::ledger) fn reopen(&mut self, task: TaskId) {
        let index = task.local.index();
        if let Some(segment) = self.part_mut(task).and_then(|part| part.segment_mut(index)) {
            segment.clear_input_slots(index);
        }
        self.take_end_back(task);
    }

    /// Revokes an end; the task keeps the inputs that it has.
    pub(in crate::home::ledger) fn take_end_back(&mut self, task: TaskId) {
        let index = task.local.index();
        let job = self.jobs.get_mut(&task.job).expect("the task's job");
        let part = job.parts.get_mut(task.partition()).expect("the task's part");
        job.open += 1;
        part.open += 1;
        part.uncount(End::Done);
        let segment = part.segment_mut(index).expect("the task's segment");
        segment.open += 1;
        let cell = segment.cell_mut(index).expect("the task's record");
        cell.state = State::Waiting;
        cell.started = false;
        cell.rebuilds += 1;
        job.parts.mark_changed(task.partition());
        mark(Mark::Rebuilt);
        self.waiting += 1;
        self.forget_crashes(task);
        self.goes_first(task);
    }

    /// The task cannot run again: the tasks that need it end with a clear error.
    fn refuse_rebuild(
        &mut self,
        now: Time,
        task: TaskId,
        why: &str,
        asks: &[&wire::CreditRequest],
        from: NodeId,
        out: &mut Out,
    ) {
        let cell = self.cell(task).map(|cell| (cell.attempt, cell.holder));
        let (attempt, node) = cell.unwrap_or((Attempt(0), self.me));
        let error = format!("its outputs are lost and cannot be made again: {why}");
        let detail = wire::EndDetail { error, exit_code: 1, ..Default::default() };
        self.keep_failure(task, attempt, node, &detail);
        self.report_part(now, task);
        let round = asks.iter().map(|ask| ask.round).max().unwrap_or_default();
        let delivery = Delivery::of_end(task, attempt, End::Skipped, node, round);
        let mut credit = delivery.credit();
        for ask in asks {
            credit.child.push(ask.child);
            credit.slot.push(0);
            credit.output.push(0);
        }
        let credits = wire::Credits { credits: vec![credit], reconciled: false };
        out.reliable.push((from, Body::Credits(credits)));
    }
}

/// Whether the child needs an answer in any case. Other requests are those of the reconciler.
pub(in crate::home::ledger) fn is_explicit(ask: &wire::CreditRequest) -> bool {
    ask.runs_again || ask.recalled || ask.lost_attempt != 0
}

pub(in crate::home::ledger) fn send(asks: CreditAsks, out: &mut Out) {
    for (home, asks) in asks.into_iter().filter(|(_, asks)| !asks.is_empty()) {
        out.reliable.push((home, Body::CreditQuery(wire::CreditQuery { requests: asks })));
    }
}
