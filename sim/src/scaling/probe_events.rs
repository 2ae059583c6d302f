//! A compact form of steal probes, their answers and hints in the queue. In a large cluster nearly
//! every packet is one of an idle node. Tens of millions may be in flight, and each full packet
//! takes several hundred bytes. A packet that does not fit this form exactly remains a packet.

use proto::wire;
use proto::wire::message::Body;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Probe,
    /// A probe of a thief that has no free slot yet.
    ProbeAhead,
    Load,
    Hint,
}

/// A packet with one steal message, and at most the load of an idle node.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeEvent {
    from: u32,
    pub(super) to: u32,
    /// The probe number; 0 for a hint.
    probe: u32,
    /// The number of stealable tasks; 0 for a probe.
    shared: u32,
    from_incarnation: u8,
    to_incarnation: u8,
    /// The slots of an idle node that sends its load; 0 without a load.
    idle_slots: u8,
    kind: Kind,
}

impl ProbeEvent {
    /// `None` if the packet contains anything else.
    pub(super) fn of(packet: &wire::Packet) -> Option<Self> {
        let [wire::Message { body: Some(body) }] = packet.best_effort.as_slice() else {
            return None;
        };
        let (kind, probe, shared) = match body {
            Body::StealProbe(probe) if !probe.free.is_empty() => return None,
            Body::StealProbe(probe) if probe.ahead => (Kind::ProbeAhead, probe.probe, 0),
            Body::StealProbe(probe) => (Kind::Probe, probe.probe, 0),
            Body::StealLoad(load) => (Kind::Load, load.probe, load.shared),
            Body::StealHint(hint) => (Kind::Hint, 0, hint.shared),
            _ => return None,
        };
        let idle_slots = packet.load.map_or(0, |load| load.slots);
        let probe_event = Self {
            from: packet.from,
            to: packet.to,
            probe: u32::try_from(probe).ok()?,
            shared,
            from_incarnation: u8::try_from(packet.from_incarnation).ok()?,
            to_incarnation: u8::try_from(packet.to_incarnation).ok()?,
            idle_slots: u8::try_from(idle_slots).ok()?,
            kind,
        };
        probe_event.says(packet).then_some(probe_event)
    }

    /// True if the packet contains nothing else.
    fn says(&self, packet: &wire::Packet) -> bool {
        let (_, load) = self.said();
        let wire::Packet { first_seq, ack, reliable, seen, copies, .. } = packet;
        (*first_seq, *ack, *seen, *copies) == (1, 0, 0, false)
            && reliable.is_empty()
            && packet.load == load
    }

    fn said(&self) -> (Body, Option<wire::Load>) {
        let probe = u64::from(self.probe);
        let free = Vec::new();
        let body = match self.kind {
            Kind::Probe => Body::StealProbe(wire::StealProbe { probe, ahead: false, free }),
            Kind::ProbeAhead => Body::StealProbe(wire::StealProbe { probe, ahead: true, free }),
            Kind::Load => Body::StealLoad(wire::StealLoad { probe, shared: self.shared }),
            Kind::Hint => Body::StealHint(wire::StealHint { shared: self.shared }),
        };
        let slots = u32::from(self.idle_slots);
        (body, (slots > 0).then(|| wire::Load { slots, ..Default::default() }))
    }

    /// The packet that arrives.
    pub(super) fn into_packet(self) -> Box<wire::Packet> {
        let (body, load) = self.said();
        Box::new(wire::Packet {
            from: self.from,
            to: self.to,
            from_incarnation: u32::from(self.from_incarnation),
            to_incarnation: u32::from(self.to_incarnation),
            first_seq: 1,
            best_effort: vec![wire::Message { body: Some(body) }],
            load,
            ..Default::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(body: Body, load: Option<wire::Load>) -> wire::Packet {
        wire::Packet {
            from: 7,
            to: 9,
            from_incarnation: 1,
            to_incarnation: 2,
            first_seq: 1,
            best_effort: vec![wire::Message { body: Some(body) }],
            load,
            ..Default::default()
        }
    }

    #[test]
    fn probe_messages_arrive_as_sent() {
        let idle = Some(wire::Load { slots: 2, ..Default::default() });
        for body in [
            Body::StealProbe(wire::StealProbe { probe: 77, ahead: false, free: Vec::new() }),
            Body::StealProbe(wire::StealProbe { probe: 77, ahead: true, free: Vec::new() }),
            Body::StealLoad(wire::StealLoad { probe: 78, shared: 3 }),
            Body::StealHint(wire::StealHint { shared: 12 }),
        ] {
            for load in [None, idle] {
                let sent = packet(body.clone(), load);
                let probe_event = ProbeEvent::of(&sent).expect("it is a steal probe");
                assert_eq!(*probe_event.into_packet(), sent);
            }
        }
    }

    #[test]
    fn larger_packets_stay_packets() {
        let probe =
            || Body::StealProbe(wire::StealProbe { probe: 1, ahead: false, free: Vec::new() });
        let busy = wire::Load { slots: 2, work_ns: 1, ..Default::default() };
        let base = packet(probe(), None);
        let twice = vec![base.best_effort[0].clone(); 2];
        for more in [
            packet(probe(), Some(busy)),
            packet(probe(), Some(wire::Load::default())),
            packet(
                Body::StealProbe(wire::StealProbe {
                    probe: 1 << 40,
                    ahead: false,
                    free: Vec::new(),
                }),
                None,
            ),
            packet(Body::StealDone(wire::StealDone { steal: 1 }), None),
            wire::Packet { ack: 1, ..base.clone() },
            wire::Packet { first_seq: 2, ..base.clone() },
            wire::Packet { seen: 2, ..base.clone() },
            wire::Packet { copies: true, ..base.clone() },
            wire::Packet { reliable: vec![vec![1].into()], ..base.clone() },
            wire::Packet { from_incarnation: 256, ..base.clone() },
            wire::Packet { best_effort: twice, ..base.clone() },
        ] {
            assert!(ProbeEvent::of(&more).is_none(), "{more:?}");
        }
    }
}
