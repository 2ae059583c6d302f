//! The outputs of a leaving node are handed over to another node: the parts of the home and of the
//! receiver. The leaving node drives the exchange, see `leaving.rs`.
//!
//! The home drops outputs that no task needs. For the rest it records the new location, as if they
//! had been made there.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::limits::OBJECTS_TOLD_MAX;
use proto::wire::HandStage;
use proto::wire::message::Body;
use proto::{Attempt, Event, NodeId, ObjectId, TaskId, Time, wire};

use crate::Scheduler;
use crate::data::wire_object;
use crate::fetching::{Flight, Wish};
use crate::leaving::Made;
use crate::out::Out;

/// Outputs that are being fetched here, from a leaving node or from one that replicates them.
#[derive(Debug)]
pub(crate) struct Taking {
    from: NodeId,
    handed: wire::Handed,
    /// The sender keeps the outputs: this is a replication.
    stays: bool,
}

pub(crate) fn made_of(handed: &wire::Handed) -> Made {
    (TaskId::new(handed.job, handed.task), Attempt(handed.attempt))
}

pub(crate) fn objects_of(
    handed: &wire::Handed,
) -> impl Iterator<Item = (ObjectId, &wire::HandedOutput)> {
    let (task, attempt) = made_of(handed);
    let object = move |output: u32| ObjectId { task, attempt, output };
    handed.outputs.iter().map(move |it| (object(it.output), it))
}

/// Sends a hand-over message, split into messages of bounded size.
pub(crate) fn say(
    whom: NodeId,
    stage: HandStage,
    (from, to): (NodeId, NodeId),
    made: Vec<wire::Handed>,
    out: &mut Out,
) {
    let (mut piece, mut outputs) = (Vec::new(), 0);
    let mut send = |made: Vec<wire::Handed>| {
        let said = wire::HandOver { stage: stage as i32, from: from.0, to: to.0, made };
        out.loose.push((whom, Body::HandOver(said)));
    };
    for handed in made {
        outputs += handed.outputs.len() + 1;
        piece.push(handed);
        if outputs >= OBJECTS_TOLD_MAX {
            send(std::mem::take(&mut piece));
            outputs = 0;
        }
    }
    if !piece.is_empty() {
        send(piece);
    }
}

impl Scheduler {
    pub(crate) fn on_hand_over(
        &mut self,
        now: Time,
        from: NodeId,
        said: wire::HandOver,
        out: &mut Out,
    ) {
        let is_member = |node: u32| (node as usize) < self.homes.nodes();
        if !is_member(said.from) || !is_member(said.to) {
            return;
        }
        match said.stage() {
            HandStage::Offered => self.on_offered(from, NodeId(said.to), said.made, out),
            HandStage::ToTake => self.on_to_take(now, NodeId(said.from), false, said.made, out),
            HandStage::Taken => self.on_taken(NodeId(said.from), from, said.made, out),
            HandStage::LetGo => self.on_let_go(&said.made),
            HandStage::NoRoom => self.on_no_room(now, from, &said.made),
            HandStage::Keep => self.on_keep(&said.made),
            HandStage::ToCopy => self.on_to_take(now, NodeId(said.from), true, said.made, out),
            stage @ (HandStage::Copied | HandStage::Coming | HandStage::NoRoomToCopy) => {
                self.on_copy_answer(now, (from, stage), &said.made, out);
            }
        }
    }

    /// A leaving node wants another node to have these outputs.
    fn on_offered(
        &mut self,
        leaver: NodeId,
        to: NodeId,
        mut offered: Vec<wire::Handed>,
        out: &mut Out,
    ) {
        let (homes, ledger) = (&self.homes, &self.ledger);
        offered.retain_mut(|handed| {
            let has_gone = |node: NodeId| node == leaver || homes.is_gone(node);
            homes.is_home_of(made_of(handed).0) && ledger.keep_wanted(handed, has_gone)
        });
        let (unwanted, wanted) = offered.into_iter().partition(|it| it.outputs.is_empty());
        say(leaver, HandStage::LetGo, (leaver, to), unwanted, out);
        say(to, HandStage::ToTake, (leaver, to), wanted, out);
    }

    /// This node is to store outputs of another node permanently: instead of it, or as a replica.
    fn on_to_take(
        &mut self,
        now: Time,
        from: NodeId,
        stays: bool,
        to_take: Vec<wire::Handed>,
        out: &mut Out,
    ) {
        let me = self.options.me;
        let (mut coming, mut refused) = (Vec::new(), Vec::new());
        for handed in to_take {
            if stays && self.is_coming_for_good(&handed) {
                coming.push(wire::Handed { outputs: Vec::new(), ..handed });
                continue;
            }
            if self.leaving.is_some() || !self.has_room_to_take(&handed) {
                refused.push(wire::Handed { outputs: Vec::new(), ..handed });
                continue;
            }
            for (object, output) in objects_of(&handed) {
                // An object that is being fetched for a task is requested again later.
                let is_coming = self.data.flights.contains_key(&object);
                if !is_coming && !self.data.objects.is_made(&object) {
                    self.take(now, from, object, output, out);
                }
            }
            let made = made_of(&handed);
            self.data.taking.insert(made, Taking { from, handed, stays });
            self.look_whether_taken(made, out);
        }
        self.evict(self.options.tuning.store_soft_bytes, out);
        let full = if stays { HandStage::NoRoomToCopy } else { HandStage::NoRoom };
        say(from, HandStage::Coming, (from, me), coming, out);
        say(from, full, (from, me), refused, out);
    }

    fn is_coming_for_good(&self, handed: &wire::Handed) -> bool {
        let flight = |(object, _)| self.data.flights.get(&object);
        let mut flights = objects_of(handed).filter_map(flight);
        self.data.taking.contains_key(&made_of(handed)) && flights.any(Flight::is_taken)
    }

    fn has_room_to_take(&self, handed: &wire::Handed) -> bool {
        let data = &self.data;
        let comes = |(object, output): &(ObjectId, &wire::HandedOutput)| {
            output.real && !data.objects.is_made(object) && !data.flights.contains_key(object)
        };
        let needed = objects_of(handed).filter(comes).map(|(_, output)| output.size_bytes);
        let needed = needed.fold(0, u64::saturating_add);
        let soft_bytes = self.options.tuning.store_soft_bytes;
        needed == 0 || data.taken_bytes().saturating_add(needed) <= soft_bytes
    }

    fn take(
        &mut self,
        now: Time,
        leaver: NodeId,
        object: ObjectId,
        output: &wire::HandedOutput,
        out: &mut Out,
    ) {
        let real_data = output.real;
        let settings = Arc::new(wire::JobSettings { real_data, ..wire::JobSettings::default() });
        let wish = Wish {
            object,
            maker: leaver,
            size_bytes: output.size_bytes,
            readers: 1, // No home has to be asked for a source.
            settings: &settings,
            taken: Some(output.into()),
        };
        self.begin_flight(now, &wish, None, out);
    }

    /// Reports when all outputs of the attempt are here: to their home, or to the node that
    /// replicates them.
    pub(crate) fn look_whether_taken(&mut self, made: Made, out: &mut Out) {
        let Some(taking) = self.data.taking.get(&made) else { return };
        let is_here = |(object, _)| self.data.objects.is_made(&object);
        if !objects_of(&taking.handed).all(is_here) {
            return;
        }
        let Some(taking) = self.data.taking.remove(&made) else { return };
        let Taking { from, handed, stays } = taking;
        let (task, attempt) = made;
        out.events.push(Event::TakenOver { task, attempt, from });
        if stays {
            self.copied_for(from, handed, out);
            return;
        }
        self.share_taken(made);
        if let Some(home) = self.homes.owner(task.partition()) {
            let between = (from, self.options.me);
            say(home, HandStage::Taken, between, vec![handed], out);
        }
    }

    /// Another node has the outputs now. This is recorded before the leaving node gets an answer.
    fn on_taken(&mut self, leaver: NodeId, taker: NodeId, taken: Vec<wire::Handed>, out: &mut Out) {
        let mut settled = Vec::new();
        let mut unwanted: Vec<wire::Object> = Vec::new();
        for handed in taken {
            let (task, attempt) = made_of(&handed);
            if !self.homes.is_home_of(task) {
                continue;
            }
            let homes = &self.homes;
            let has_gone = |node: NodeId| node == leaver || homes.is_gone(node);
            if self.ledger.lies_elsewhere(task, attempt, taker, has_gone, out) {
                for (object, _) in objects_of(&handed) {
                    self.ledger.readers.moved(&object, taker);
                }
            } else {
                // Another node took them over meanwhile, or the job has ended.
                let goes = objects_of(&handed).filter(|(_, output)| !output.keep);
                unwanted.extend(goes.map(|(object, it)| wire_object(object, it.size_bytes)));
            }
            settled.push(wire::Handed { outputs: Vec::new(), ..handed });
        }
        for piece in unwanted.chunks(OBJECTS_TOLD_MAX) {
            let body = Body::Unwanted(wire::Unwanted { objects: piece.to_vec() });
            out.reliable.push((taker, body));
        }
        say(leaver, HandStage::LetGo, (leaver, taker), settled, out);
    }
}

/// Forgets transfers that are not needed any more.
pub(crate) fn forget(taking: &mut BTreeMap<Made, Taking>, goes: impl Fn(&Made, NodeId) -> bool) {
    taking.retain(|made, taking| !goes(made, taking.from));
}
