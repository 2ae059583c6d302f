//! The traffic between a study's nodes: packets, and the objects that tasks read.

use node::Input;
use proto::work::{Fetch, FetchError};
use proto::{Span, Time, limits, wire};

use super::cluster::Cluster;
use super::event_queue::{Load, ScalingEvent, Transfer};
use super::machine::StoredObject;
use super::probe_events::ProbeEvent;

/// A transfer that shares a node's card with others.
#[derive(Debug)]
pub(super) enum Flow {
    Object(Box<Transfer>),
    Packet(Box<wire::Packet>),
    Load(Box<Load>),
}

impl Cluster<'_, '_> {
    pub(super) fn send(&mut self, done: Time, packet: Box<wire::Packet>) {
        self.packets += 1;
        let bytes = crate::costs::packet_bytes(&packet) as u64;
        if self.transport.is_shared(bytes) {
            self.queue.push(done, ScalingEvent::LargePacket(packet));
        } else {
            // Small packets fit between the pieces of large ones.
            let what = match ProbeEvent::of(&packet) {
                Some(probe_event) => ScalingEvent::ProbeEvent(probe_event),
                None => ScalingEvent::Packet(packet),
            };
            self.queue.push(done + self.transport.latency(), what);
        }
    }

    pub(super) fn fetch(&mut self, index: usize, at: Time, fetch: Fetch) {
        let machine = &mut self.machines[index];
        if machine.fetching == limits::FETCHES_IN_FLIGHT_MAX {
            return machine.fetches.push_back(fetch);
        }
        machine.fetching += 1;
        let incarnation = machine.incarnation;
        let real = fetch.settings.real_data;
        let files = if real { self.bytes.fetching() } else { Span::ZERO };
        let transfer = Box::new(Transfer { to: index as u32, fetch, incarnation, found: 0 });
        self.queue.push(at + files + self.transport.latency(), ScalingEvent::Serve(transfer));
    }

    /// A request for an object has arrived at its source.
    pub(super) fn serve(&mut self, mut transfer: Box<Transfer>) {
        let (from, to) = (transfer.fetch.from.0 as usize, transfer.to as usize);
        let bytes = transfer.fetch.size_bytes;
        let source = &self.machines[from];
        if source.up && source.objects.contains_key(&transfer.fetch.object) {
            transfer.found = source.incarnation;
        }
        let found = transfer.found != 0;
        if found {
            self.machines[from].out_bytes += bytes;
            self.machines[to].in_bytes += bytes;
        }
        if found && self.transport.is_shared(bytes) {
            return self.transport.start(self.now, from, to, bytes, Flow::Object(transfer));
        }
        let bytes = if found { bytes } else { 0 };
        let at = self.now + self.transport.latency() + self.transport.alone(bytes);
        self.queue.push(at, ScalingEvent::Arrived(transfer));
    }

    pub(super) fn flow_ended(&mut self, flow: Flow) {
        let at = self.now + self.transport.latency();
        let what = match flow {
            Flow::Object(transfer) => ScalingEvent::Arrived(transfer),
            Flow::Packet(packet) => ScalingEvent::Packet(packet),
            Flow::Load(load) => return self.loaded(&load, self.now),
        };
        self.queue.push(at, what);
    }

    /// Starts a load: its bytes use the card of its node like other transfers to that node.
    pub(super) fn load(&mut self, load: Box<Load>) {
        let (node, bytes) = (load.node as usize, load.bytes);
        if self.transport.is_shared(bytes) {
            self.transport.start_from_outside(self.now, node, bytes, Flow::Load(load));
        } else {
            self.loaded(&load, self.now + self.transport.alone(bytes));
        }
    }

    fn loaded(&mut self, load: &Load, at: Time) {
        self.queue.push(at, ScalingEvent::Ended(load.node, Box::new(load.key)));
    }

    pub(super) fn arrived(&mut self, transfer: Transfer) {
        let Transfer { to, fetch, incarnation, found } = transfer;
        let (to, object, number) = (to as usize, fetch.object, fetch.number);
        if !self.machines[to].up || self.machines[to].incarnation != incarnation {
            return; // The requesting process is dead.
        }
        let source = &self.machines[fetch.from.0 as usize];
        // A transfer fails if its source died before the end.
        let result = match found != 0 && source.up && source.incarnation == found {
            true => {
                let held = StoredObject { size_bytes: fetch.size_bytes, copy: true };
                self.machines[to].objects.insert(object, held);
                Ok(())
            }
            false if source.up && !source.objects.contains_key(&object) => {
                Err(FetchError::NotThere)
            }
            false => Err(FetchError::Unreachable(format!("{} is down", fetch.from))),
        };
        self.machines[to].fetching -= 1;
        if let Some(next) = self.machines[to].fetches.pop_front() {
            self.fetch(to, self.now, next);
        }
        self.deliver(to, Input::Fetched { object, number, result });
    }
}
