//! The failure detector: probes, directly and through other nodes, after SWIM (Das, Gupta and
//! Motivala 2002). A node that was late itself uses longer timeouts (Lifeguard: Dadgar, Phillips
//! and Currey 2017).
//!
//! Any message of a node shows that it lives, however slow it is. The detector itself declares no
//! node failed: a node that suspects another one reports it to the group's leader, which probes for
//! itself. A node is declared failed only if the leader cannot reach it either, directly or through
//! others.

use std::collections::BTreeMap;

use crate::membership::limits::TIMEOUT_STRETCH_MAX;
use proto::limits::{PROBE_PERIOD, SUSPECT_FOR};
use proto::wire::membership_message::Body;
use proto::{Span, Time, wire};

/// A suspect with a broken connection is declared failed after this time without a message.
const SUSPECT_LOST_FOR: Span = Span::from_millis(400);

/// A probe without an answer is late after this time.
const PROBE_TIMEOUT: Span = Span::from_millis(300);

/// The number of nodes that are asked to probe a node that has not answered in time.
const PROBE_HELPERS: usize = 3;

#[derive(Debug)]
struct Peer {
    incarnation: u32,
    heard_at: Time,
    suspicion: Option<Suspicion>,
}

#[derive(Clone, Copy, Debug)]
struct Suspicion {
    since: Time,
    until: Time,
    lost: bool,
    probe_at: Time,
}

#[derive(Debug)]
struct Outstanding {
    node: u32,
    sent_at: Time,
    helped: bool,
}

/// One node's view of which others live.
#[derive(Debug)]
pub(crate) struct Detector {
    peers: BTreeMap<u32, Peer>,
    /// The nodes to probe next, last first: each once, then all again in another order.
    round: Vec<u32>,
    dice: u64,
    probe_at: Time,
    number: u64,
    /// Probes without an answer so far, one for each node. With long timeouts there are several.
    outstanding: Vec<Outstanding>,
    /// Probes on behalf of other nodes: the node that asked, and its number.
    asked: BTreeMap<u64, (u32, u64)>,
    /// The factor of all timeouts; 1 if all is well.
    patience: u64,
    outgoing: Vec<(u32, Body)>,
    /// Suspects that were not reported to the leader yet.
    suspects: Vec<wire::Suspect>,
}

/// How long messages of a dead process may still arrive.
const LATE_MESSAGES: Span = Span::from_millis(50);
/// The number of probes on behalf of others that are remembered.
const ASKED_MAX: usize = 256;

impl Detector {
    pub(crate) fn new(now: Time, seed: u64) -> Self {
        Self {
            peers: BTreeMap::new(),
            round: Vec::new(),
            dice: seed,
            // Nodes that start together should not probe together.
            probe_at: now + Span(seed % PROBE_PERIOD.0),
            number: 0,
            outstanding: Vec::new(),
            asked: BTreeMap::new(),
            patience: 1,
            outgoing: Vec::new(),
            suspects: Vec::new(),
        }
    }

    /// Sets the nodes to observe: all others that count as alive.
    pub(crate) fn watch(&mut self, now: Time, members: impl Iterator<Item = (u32, u32)>) {
        let mut before = std::mem::take(&mut self.peers);
        for (node, incarnation) in members {
            let fresh = || Peer { incarnation, heard_at: now, suspicion: None };
            let known = before.remove(&node).filter(|peer| peer.incarnation >= incarnation);
            self.peers.insert(node, known.unwrap_or_else(fresh));
        }
    }

    /// A message of this incarnation of a node arrived: the node lives.
    pub(crate) fn heard(&mut self, now: Time, node: u32, incarnation: u32) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        if incarnation < peer.incarnation {
            return;
        }
        peer.incarnation = incarnation;
        peer.heard_at = peer.heard_at.max(now);
        // A message that was in transit when the transport broke is no evidence.
        let is_late = |it: Suspicion| it.lost && now.since(it.since) < LATE_MESSAGES;
        if peer.suspicion.is_some_and(is_late) {
            return;
        }
        peer.suspicion = None;
        if self.outstanding.extract_if(.., |probe| probe.node == node).next().is_some() {
            self.patience = (self.patience - 1).max(1);
        }
    }

    /// The transport to this node broke, as it does when a process dies.
    pub(crate) fn lost(&mut self, now: Time, node: u32) {
        self.suspect(now, node, true);
    }

    /// Another node reports a suspect. If a message of the suspect arrived here recently, the
    /// suspicion does not count.
    pub(crate) fn accuse(&mut self, now: Time, suspect: &wire::Suspect) {
        let Some(peer) = self.peers.get(&suspect.node) else { return };
        let is_fresh = !suspect.lost && now.since(peer.heard_at) < PROBE_PERIOD;
        if suspect.incarnation >= peer.incarnation && !is_fresh {
            self.suspect(now, suspect.node, suspect.lost);
        }
    }

    fn suspect(&mut self, now: Time, node: u32, lost: bool) {
        let span = if lost { SUSPECT_LOST_FOR } else { SUSPECT_FOR };
        let until = now + Span(span.0 * self.patience);
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let known = peer.suspicion;
        let suspicion = Suspicion {
            since: known.filter(|known| known.lost == lost).map_or(now, |known| known.since),
            until: known.map_or(until, |known| known.until.min(until)),
            lost: lost || known.is_some_and(|known| known.lost),
            probe_at: now + Span(span.0 / 4),
        };
        let is_news = known.is_none_or(|known| known.lost != suspicion.lost);
        peer.suspicion = Some(suspicion);
        if is_news {
            let incarnation = peer.incarnation;
            self.suspects.push(wire::Suspect { node, incarnation, lost: suspicion.lost });
            self.probe(node);
            self.ask_helpers(node);
        }
    }

    /// Suspects that have been silent for long enough, each with the incarnation that is dead.
    pub(crate) fn dead(&self, now: Time) -> impl Iterator<Item = (u32, u32)> {
        let is_dead = move |peer: &&Peer| peer.suspicion.is_some_and(|it| it.until <= now);
        let dead = self.peers.iter().map(|(&node, peer)| (node, peer));
        dead.filter(move |(_, peer)| is_dead(peer)).map(|(node, peer)| (node, peer.incarnation))
    }

    /// Suspicions that are new or due for another report.
    pub(crate) fn take_suspects(&mut self) -> Vec<wire::Suspect> {
        std::mem::take(&mut self.suspects)
    }

    /// Messages to send.
    pub(crate) fn take_outgoing(&mut self) -> Vec<(u32, Body)> {
        std::mem::take(&mut self.outgoing)
    }

    /// Handles a probe, an answer, or a request to probe another node. The sender lives;
    /// [`Self::heard`] was called for it.
    pub(crate) fn handle(&mut self, now: Time, me: (u32, u32), from: u32, body: &Body) {
        match body {
            Body::Probe(probe) => {
                let (node, incarnation) = me;
                let reply = wire::ProbeReply { number: probe.number, node, incarnation };
                self.outgoing.push((from, Body::ProbeReply(reply)));
            }
            Body::ProbeReply(reply) => {
                self.heard(now, reply.node, reply.incarnation);
                if let Some((asker, number)) = self.asked.remove(&reply.number) {
                    let reply = wire::ProbeReply { number, ..*reply };
                    self.outgoing.push((asker, Body::ProbeReply(reply)));
                }
            }
            Body::IndirectProbe(ask) if ask.node == me.0 => {
                let (node, incarnation) = me;
                let reply = wire::ProbeReply { number: ask.number, node, incarnation };
                self.outgoing.push((from, Body::ProbeReply(reply)));
            }
            Body::IndirectProbe(ask) => {
                self.number += 1;
                self.asked.insert(self.number, (from, ask.number));
                if self.asked.len() > ASKED_MAX {
                    self.asked.pop_first();
                }
                let number = self.number;
                self.outgoing.push((ask.node, Body::Probe(wire::Probe { number })));
            }
            _ => {}
        }
    }

    /// [`Self::deadline`] has come.
    pub(crate) fn on_time(&mut self, now: Time) {
        let late = now.since(self.deadline());
        if late >= PROBE_TIMEOUT {
            self.wake_late(now);
        }
        self.look_after_probes(now);
        if self.probe_at <= now {
            self.probe_at = now + PROBE_PERIOD;
            if let Some(node) = self.next_in_turn() {
                self.probe(node);
                if self.outstanding.iter().all(|probe| probe.node != node) {
                    self.outstanding.push(Outstanding { node, sent_at: now, helped: false });
                }
            }
        }
        for node in self.due_suspects(now) {
            self.probe(node);
            self.ask_helpers(node);
        }
    }

    /// This node was paused itself: it cannot judge which others were.
    fn wake_late(&mut self, now: Time) {
        self.patience = (self.patience + 1).min(TIMEOUT_STRETCH_MAX);
        self.outstanding.clear();
        let patience = self.patience;
        for peer in self.peers.values_mut() {
            peer.heard_at = now;
            if let Some(suspicion) = &mut peer.suspicion {
                let span = if suspicion.lost { SUSPECT_LOST_FOR } else { SUSPECT_FOR };
                suspicion.until = now + Span(span.0 * patience);
                suspicion.probe_at = now;
            }
        }
    }

    /// If a probe has no answer, other nodes are asked to probe first; then the node is suspected.
    fn look_after_probes(&mut self, now: Time) {
        let given_up = Span(PROBE_PERIOD.0 * self.patience);
        let overdue = Span(PROBE_TIMEOUT.0 * self.patience);
        let silent: Vec<_> =
            self.outstanding.extract_if(.., |it| now.since(it.sent_at) >= given_up).collect();
        silent.into_iter().for_each(|probe| self.suspect(now, probe.node, false));
        let mut late = Vec::new();
        for probe in &mut self.outstanding {
            if now.since(probe.sent_at) >= overdue && !std::mem::replace(&mut probe.helped, true) {
                late.push(probe.node);
            }
        }
        late.into_iter().for_each(|node| self.ask_helpers(node));
    }

    /// Suspects are probed again, and reported to the leader again.
    fn due_suspects(&mut self, now: Time) -> Vec<u32> {
        let mut due = Vec::new();
        for (&node, peer) in &mut self.peers {
            let incarnation = peer.incarnation;
            if let Some(suspicion) = &mut peer.suspicion
                && suspicion.probe_at <= now
            {
                suspicion.probe_at = now + PROBE_PERIOD;
                let lost = suspicion.lost;
                self.suspects.push(wire::Suspect { node, incarnation, lost });
                due.push(node);
            }
        }
        due
    }

    fn probe(&mut self, node: u32) {
        self.number += 1;
        self.outgoing.push((node, Body::Probe(wire::Probe { number: self.number })));
    }

    /// Asks a few others to probe, different ones each time.
    fn ask_helpers(&mut self, node: u32) {
        self.number += 1;
        let number = self.number;
        let others: Vec<u32> = self.peers.keys().copied().filter(|&other| other != node).collect();
        for step in 0..others.len().min(PROBE_HELPERS) {
            let helper = others[(number as usize + step) % others.len()];
            self.outgoing.push((helper, Body::IndirectProbe(wire::IndirectProbe { number, node })));
        }
    }

    fn next_in_turn(&mut self) -> Option<u32> {
        if self.round.is_empty() {
            self.round = self.peers.keys().copied().collect();
            for at in (1..self.round.len()).rev() {
                // Knuth's multiplier: any order that differs from node to node is enough.
                self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                self.round.swap(at, (self.dice >> 33) as usize % (at + 1));
            }
        }
        let node = self.round.pop()?;
        if self.peers.contains_key(&node) { Some(node) } else { self.next_in_turn() }
    }

    /// The time of the next call of [`Self::on_time`].
    pub(crate) fn deadline(&self) -> Time {
        let probes = self.outstanding.iter().map(|probe| {
            let wait = if probe.helped { PROBE_PERIOD } else { PROBE_TIMEOUT };
            probe.sent_at + Span(wait.0 * self.patience)
        });
        let suspicions = self.peers.values().filter_map(|peer| peer.suspicion);
        let suspicion = suspicions.map(|it| it.probe_at).min();
        probes.chain(suspicion).fold(self.probe_at, Time::min)
    }

    /// When the first suspect has been silent for long enough; past times do not count.
    pub(crate) fn next_death(&self, now: Time) -> Option<Time> {
        let suspicions = self.peers.values().filter_map(|peer| peer.suspicion);
        suspicions.map(|it| it.until).filter(|&at| at > now).min()
    }
}
