//! The outputs of a leaving node are handed over to another node: the parts of the home and of the
//! receiver. The leaving node drives the exchange, see `drain.rs`.
//!
//! The home drops outputs that no task needs. For the rest it records the new location, as if they
//! had been made there.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::wire::TransferStage;
use proto::wire::message::Body;
use proto::{Attempt, Event, NodeId, ObjectId, TaskId, Time, wire};

use crate::Scheduler;
use crate::limits::OBJECTS_PER_MESSAGE_MAX;
use crate::objects::Objects;
use crate::objects::data::wire_object;
use crate::objects::drain::AttemptKey;
use crate::objects::fetch::{FetchRequest, InflightFetch};
use crate::output::Out;

/// Outputs that are being fetched here, from a leaving node or from one that replicates them.
#[derive(Debug)]
pub(crate) struct IncomingTransfer {
    from: NodeId,
    transferred: wire::AttemptOutputs,
    /// The sender keeps the outputs: this is a replication.
    stays: bool,
}

pub(crate) fn attempt_key(transferred: &wire::AttemptOutputs) -> AttemptKey {
    (TaskId::new(transferred.job, transferred.task), Attempt(transferred.attempt))
}

pub(crate) fn objects_of(
    transferred: &wire::AttemptOutputs,
) -> impl Iterator<Item = (ObjectId, &wire::TransferredOutput)> {
    let (task, attempt) = attempt_key(transferred);
    let object = move |output: u32| ObjectId { task, attempt, output };
    transferred.outputs.iter().map(move |it| (object(it.output), it))
}

/// Sends a hand-over message, split into messages of bounded size.
pub(crate) fn send_output_transfer(
    recipient: NodeId,
    stage: TransferStage,
    (from, to): (NodeId, NodeId),
    made: Vec<wire::AttemptOutputs>,
    out: &mut Out,
) {
    let (mut piece, mut outputs) = (Vec::new(), 0);
    let mut send = |attempts: Vec<wire::AttemptOutputs>| {
        let (stage, from, to) = (stage as i32, from.0, to.0);
        let transfer = wire::OutputTransfer { stage, from, to, attempts };
        out.best_effort.push((recipient, Body::OutputTransfer(transfer)));
    };
    for transferred in made {
        outputs += transferred.outputs.len() + 1;
        piece.push(transferred);
        if outputs >= OBJECTS_PER_MESSAGE_MAX {
            send(std::mem::take(&mut piece));
            outputs = 0;
        }
    }
    if !piece.is_empty() {
        send(piece);
    }
}

impl Objects {
    fn will_be_kept(&self, transferred: &wire::AttemptOutputs) -> bool {
        let inflight = |(object, _)| self.inflight_fetches.get(&object);
        let mut inflight_fetches = objects_of(transferred).filter_map(inflight);
        self.incoming_transfers.contains_key(&attempt_key(transferred))
            && inflight_fetches.any(InflightFetch::is_taken)
    }
}

impl Scheduler {
    pub(crate) fn on_output_transfer(
        &mut self,
        now: Time,
        from: NodeId,
        transfer: wire::OutputTransfer,
        out: &mut Out,
    ) {
        let is_member = |node: u32| (node as usize) < self.routing.homes().nodes();
        if !is_member(transfer.from) || !is_member(transfer.to) {
            return;
        }
        match transfer.stage() {
            TransferStage::Offered => {
                self.on_transfer_offered(from, NodeId(transfer.to), transfer.attempts, out);
            }
            TransferStage::Fetch => {
                self.on_transfer_fetch(now, NodeId(transfer.from), false, transfer.attempts, out);
            }
            TransferStage::Fetched => {
                self.on_transfer_fetched(NodeId(transfer.from), from, transfer.attempts, out);
            }
            TransferStage::Free => self.objects.on_transfer_free(&transfer.attempts),
            TransferStage::NoSpace => {
                self.objects.on_transfer_no_space(now, from, &transfer.attempts)
            }
            TransferStage::PinLastCopy => self.on_pin_last_copy(&transfer.attempts),
            TransferStage::Replicate => {
                self.on_transfer_fetch(now, NodeId(transfer.from), true, transfer.attempts, out);
            }
            stage @ (TransferStage::Replicated
            | TransferStage::Replicating
            | TransferStage::NoSpaceToReplicate) => {
                self.on_replication_answer(now, (from, stage), &transfer.attempts, out);
            }
        }
    }

    /// A leaving node wants another node to have these outputs.
    fn on_transfer_offered(
        &mut self,
        leaver: NodeId,
        to: NodeId,
        mut offered: Vec<wire::AttemptOutputs>,
        out: &mut Out,
    ) {
        let (homes, ledger) = (self.routing.homes(), &self.home.ledger);
        offered.retain_mut(|transferred| {
            let has_gone = |node: NodeId| node == leaver || homes.is_gone(node);
            homes.is_home_of(attempt_key(transferred).0)
                && ledger.keep_wanted(transferred, has_gone)
        });
        let (unwanted, wanted) = offered.into_iter().partition(|it| it.outputs.is_empty());
        send_output_transfer(leaver, TransferStage::Free, (leaver, to), unwanted, out);
        send_output_transfer(to, TransferStage::Fetch, (leaver, to), wanted, out);
    }

    /// This node is to store outputs of another node permanently: instead of it, or as a replica.
    fn on_transfer_fetch(
        &mut self,
        now: Time,
        from: NodeId,
        stays: bool,
        to_take: Vec<wire::AttemptOutputs>,
        out: &mut Out,
    ) {
        let me = self.options.me;
        let (mut coming, mut refused) = (Vec::new(), Vec::new());
        for transferred in to_take {
            if stays && self.objects.will_be_kept(&transferred) {
                coming.push(wire::AttemptOutputs { outputs: Vec::new(), ..transferred });
                continue;
            }
            if self.objects.drain.is_some() || !self.has_room_to_take(&transferred) {
                refused.push(wire::AttemptOutputs { outputs: Vec::new(), ..transferred });
                continue;
            }
            for (object, output) in objects_of(&transferred) {
                // An object that is being fetched for a task is requested again later.
                let is_coming = self.objects.inflight_fetches.contains_key(&object);
                if !is_coming && !self.objects.table.is_made(&object) {
                    self.take(now, from, object, output, out);
                }
            }
            let made = attempt_key(&transferred);
            self.objects
                .incoming_transfers
                .insert(made, IncomingTransfer { from, transferred, stays });
            self.check_transfer(made, out);
        }
        self.evict(self.options.tuning.store_soft_bytes, out);
        let full = if stays { TransferStage::NoSpaceToReplicate } else { TransferStage::NoSpace };
        send_output_transfer(from, TransferStage::Replicating, (from, me), coming, out);
        send_output_transfer(from, full, (from, me), refused, out);
    }

    fn has_room_to_take(&self, transferred: &wire::AttemptOutputs) -> bool {
        let objects = &self.objects;
        let comes = |(object, output): &(ObjectId, &wire::TransferredOutput)| {
            output.real
                && !objects.table.is_made(object)
                && !objects.inflight_fetches.contains_key(object)
        };
        let needed = objects_of(transferred).filter(comes).map(|(_, output)| output.size_bytes);
        let needed = needed.fold(0, u64::saturating_add);
        let soft_bytes = self.options.tuning.store_soft_bytes;
        needed == 0 || objects.taken_bytes().saturating_add(needed) <= soft_bytes
    }

    fn take(
        &mut self,
        now: Time,
        leaver: NodeId,
        object: ObjectId,
        output: &wire::TransferredOutput,
        out: &mut Out,
    ) {
        let real_data = output.real;
        let settings = Arc::new(wire::JobSettings { real_data, ..wire::JobSettings::default() });
        let request = FetchRequest {
            object,
            maker: leaver,
            size_bytes: output.size_bytes,
            readers: 1, // No home has to be asked for a source.
            settings: &settings,
            taken: Some(output.into()),
        };
        self.start_inflight_fetch(now, &request, None, out);
    }

    /// Reports when all outputs of the attempt are here: to their home, or to the node that
    /// replicates them.
    pub(crate) fn check_transfer(&mut self, made: AttemptKey, out: &mut Out) {
        let Some(incoming) = self.objects.incoming_transfers.get(&made) else { return };
        let is_here = |(object, _)| self.objects.table.is_made(&object);
        if !objects_of(&incoming.transferred).all(is_here) {
            return;
        }
        let Some(incoming) = self.objects.incoming_transfers.remove(&made) else { return };
        let IncomingTransfer { from, transferred, stays } = incoming;
        let (task, attempt) = made;
        out.events.push(Event::TakenOver { task, attempt, from });
        if stays {
            self.add_copy_for(from, transferred, out);
            return;
        }
        self.share_taken(made);
        if let Some(home) = self.routing.homes().owner(task.partition()) {
            let between = (from, self.options.me);
            send_output_transfer(home, TransferStage::Fetched, between, vec![transferred], out);
        }
    }

    /// Another node has the outputs now. This is recorded before the leaving node gets an answer.
    fn on_transfer_fetched(
        &mut self,
        leaver: NodeId,
        taker: NodeId,
        taken: Vec<wire::AttemptOutputs>,
        out: &mut Out,
    ) {
        let mut settled = Vec::new();
        let mut unwanted: Vec<wire::Object> = Vec::new();
        for transferred in taken {
            let (task, attempt) = attempt_key(&transferred);
            if !self.routing.homes().is_home_of(task) {
                continue;
            }
            let homes = self.routing.homes();
            let has_gone = |node: NodeId| node == leaver || homes.is_gone(node);
            if self.home.ledger.lies_elsewhere(task, attempt, taker, has_gone, out) {
                for (object, _) in objects_of(&transferred) {
                    self.home.ledger.output_moved(&object, taker);
                }
            } else {
                // Another node took them over meanwhile, or the job has ended.
                let goes = objects_of(&transferred).filter(|(_, output)| !output.keep);
                unwanted.extend(goes.map(|(object, it)| wire_object(object, it.size_bytes)));
            }
            settled.push(wire::AttemptOutputs { outputs: Vec::new(), ..transferred });
        }
        for piece in unwanted.chunks(OBJECTS_PER_MESSAGE_MAX) {
            let body = Body::FreeObjects(wire::FreeObjects { objects: piece.to_vec() });
            out.reliable.push((taker, body));
        }
        send_output_transfer(leaver, TransferStage::Free, (leaver, taker), settled, out);
    }
}

/// Forgets transfers that are not needed any more.
pub(crate) fn forget(
    incoming_transfers: &mut BTreeMap<AttemptKey, IncomingTransfer>,
    goes: impl Fn(&AttemptKey, NodeId) -> bool,
) {
    incoming_transfers.retain(|attempt, incoming| !goes(attempt, incoming.from));
}
