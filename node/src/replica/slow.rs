//! Measures how long other nodes take to acknowledge shipped changes, and whether one of them takes
//! far longer than the others.
//!
//! Time is divided into windows. Each window of a peer is slow, good, or without evidence. A peer
//! with `SLOW_WINDOWS` slow windows and no good one among them is reported as slow by this node.
//! The group's leader decides (`membership/slow.rs`), and the map shows the decision.
//!
//! Nothing is shipped to a slow node any more. So voters probe it: it writes a little and answers
//! when that is synced. Healthy voters are probed in the same way, for comparison. If they take
//! long too, the node that probes is far from all others, and the slow node is well.

use std::collections::{BTreeMap, VecDeque};

use kvs::Write;
use kvs::keys::{META, META_PARTITION};
use kvs::membership::{is_fit, is_serving};

use proto::wire::message::Body;
use proto::{NodeId, Span, Time, wire};

use super::Replica;

/// A node measures each peer's acknowledgements in windows of this length, with at most
/// `SLOW_SAMPLES_MAX` samples.
const SLOW_WINDOW: Span = Span::from_secs(1);
const SLOW_SAMPLES_MAX: usize = 32;
/// The maximum number of messages to one peer that await a timed acknowledgement.
const SLOW_AWAITED_MAX: usize = 64;
/// A window of a peer is slow if half of its acknowledgements take `SLOW_FACTOR` times as long as
/// those of other peers, and at least `SLOW_ACK_MIN`.
const SLOW_FACTOR: u64 = 5;
const SLOW_ACK_MIN: Span = Span::from_millis(50);
/// After this number of slow windows without a good one in between, a node reports the peer as
/// slow.
const SLOW_WINDOWS: u32 = 5;
/// A slow node is probed once per window, unless a probe younger than this timeout is outstanding.
/// It is well once good answers outnumber late ones by `SLOW_WELL_ANSWERS`. `SLOW_PROBES_LOST_MAX`
/// lost answers in a row reset the count.
const SLOW_PROBE_TIMEOUT: Span = Span::from_secs(5);
const SLOW_WELL_ANSWERS: u32 = 30;
const SLOW_PROBES_LOST_MAX: u32 = 2;

/// The key that a probe writes. No code reads it.
const PROBE_KEY: [u8; 2] = [META, b'p'];

/// The durations of some operation within this window.
#[derive(Debug, Default)]
struct Gauge {
    /// The open operations, oldest first: number and start.
    awaited: VecDeque<(u64, Time)>,
    samples: Vec<Span>,
}

impl Gauge {
    fn begins(&mut self, now: Time, number: u64) {
        if self.awaited.len() < SLOW_AWAITED_MAX {
            self.awaited.push_back((number, now));
        }
    }

    /// All operations up to this number have ended.
    fn done(&mut self, now: Time, number: u64) {
        while let Some((_, since)) = self.awaited.pop_front_if(|(first, _)| *first <= number) {
            if self.samples.len() < SLOW_SAMPLES_MAX {
                self.samples.push(now.since(since));
            }
        }
    }

    /// Half of the operations took at most this time.
    fn median(&self) -> Option<Span> {
        median(self.samples.clone())
    }

    /// How long the oldest open operation has taken so far.
    fn age(&self, now: Time) -> Option<Span> {
        self.awaited.front().map(|&(_, since)| now.since(since))
    }

    fn is_idle(&self) -> bool {
        self.awaited.is_empty() && self.samples.is_empty()
    }
}

/// The median; the greater one of two in the middle.
fn median(mut of: Vec<Span>) -> Option<Span> {
    of.sort_unstable();
    of.get(of.len() / 2).copied()
}

/// The duration from which an operation is far slower than one that takes `usual`.
fn limit(usual: Span) -> Span {
    SLOW_ACK_MIN.max(Span(usual.0.saturating_mul(SLOW_FACTOR)))
}

#[derive(Debug, Default)]
struct Peer {
    acks: Gauge,
    slow_windows: u32,
}

/// A node that is slow according to the map, and its answers to this node's probes.
#[derive(Debug, Default)]
struct Probed {
    incarnation: u32,
    awaited: Option<(u64, Time)>,
    /// Good answers minus late ones.
    good: u32,
    missing: u32,
}

/// A healthy voter, and how long it takes to answer a probe: this is the usual time.
#[derive(Debug, Default)]
struct Compared {
    awaited: Option<(u64, Time)>,
    took: Option<Span>,
}

/// A probe by another node, and the batch with its write.
#[derive(Debug)]
struct Asked {
    by: NodeId,
    number: u64,
    batch: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct SlowDetector {
    /// `None`: there is nothing to measure.
    window_ends: Option<Time>,
    peers: BTreeMap<NodeId, Peer>,
    /// The syncs of this node's own disk, and their median in the last window with evidence.
    syncs: Gauge,
    own: Option<Span>,
    probed: BTreeMap<NodeId, Probed>,
    /// Empty while no node is slow.
    compared: BTreeMap<NodeId, Compared>,
    probe_number: u64,
    asked: Vec<Asked>,
    /// Reports of this node: slow, or well again.
    reports: Vec<(NodeId, bool)>,
}

impl SlowDetector {
    fn opens(&mut self, now: Time) {
        self.window_ends.get_or_insert(now + SLOW_WINDOW);
    }

    pub(super) fn shipped(&mut self, now: Time, to: NodeId, number: u64) {
        self.peers.entry(to).or_default().acks.begins(now, number);
        self.opens(now);
    }

    pub(super) fn acknowledged(&mut self, now: Time, by: NodeId, synced: u64) {
        if let Some(peer) = self.peers.get_mut(&by) {
            peer.acks.done(now, synced);
        }
    }

    /// The peer has died or restarted: it may never answer earlier messages.
    pub(super) fn forget(&mut self, peer: NodeId) {
        self.peers.remove(&peer);
    }

    pub(super) fn wrote(&mut self, now: Time, batch: u64) {
        if self.window_ends.is_some() {
            self.syncs.begins(now, batch);
        }
    }

    fn on_probed(&mut self, now: Time, by: NodeId, number: u64) {
        let is_this = |(awaited, _): &mut (u64, Time)| *awaited == number;
        if let Some(compared) = self.compared.get_mut(&by) {
            if let Some((_, sent)) = compared.awaited.take_if(is_this) {
                compared.took = Some(now.since(sent));
            }
            return;
        }
        let others = self.compared.values().filter_map(|compared| compared.took).collect();
        let usual = median(others).max(self.own).unwrap_or_default();
        let Some(probed) = self.probed.get_mut(&by) else { return };
        let Some((_, sent)) = probed.awaited.take_if(is_this) else { return };
        let is_good = now.since(sent) < limit(usual);
        // A node is slow by the median, so it is well again if most answers are good.
        probed.good = if is_good { probed.good + 1 } else { probed.good.saturating_sub(1) };
        probed.missing = 0;
    }

    /// Ends a window. Returns true if there are nodes to probe.
    fn close(&mut self, now: Time, ended: Time) -> bool {
        // A node that was paused itself cannot judge others.
        if now.since(ended) < Span(SLOW_WINDOW.0 / 2) {
            self.judge(now);
        }
        // On a disk with varying syncs, a single quick one is little evidence of the usual time.
        let before = self.own.map(|own| Span(own.0 / 8 * 7));
        self.own = self.syncs.median().max(before);
        self.syncs.samples.clear();
        for peer in self.peers.values_mut() {
            peer.acks.samples.clear();
        }
        let is_idle = self.peers.values().all(|peer| peer.acks.is_idle()) && self.probed.is_empty();
        self.window_ends = (!is_idle).then(|| now + SLOW_WINDOW);
        if is_idle {
            self.syncs.awaited.clear();
        }
        let is_late = |(_, sent): &mut (u64, Time)| now.since(*sent) >= SLOW_PROBE_TIMEOUT;
        for compared in self.compared.values_mut() {
            if compared.awaited.take_if(is_late).is_some() {
                compared.took = None; // It is away, which is not usual.
            }
        }
        for (&node, probed) in &mut self.probed {
            if probed.awaited.take_if(is_late).is_some() {
                probed.missing += 1;
            }
            if probed.missing >= SLOW_PROBES_LOST_MAX {
                (probed.good, probed.missing) = (0, 0);
            }
            if probed.good >= SLOW_WELL_ANSWERS {
                self.reports.push((node, false));
            }
        }
        !self.probed.is_empty()
    }

    fn judge(&mut self, now: Time) {
        let own = self.syncs.median();
        let known = self.peers.iter().map(|(&node, peer)| (node, peer.acks.median()));
        let known: BTreeMap<NodeId, Option<Span>> = known.collect();
        for (&node, peer) in &mut self.peers {
            let others = known.iter().filter(|(other, _)| **other != node);
            let others: Vec<Span> = others.filter_map(|(_, median)| *median).collect();
            // Without other peers, this node's own disk shows the usual time.
            let Some(usual) = median(others).or(own) else { continue };
            let took = peer.acks.median();
            let is_slow =
                took.or_else(|| peer.acks.age(now)).is_some_and(|took| took >= limit(usual));
            if is_slow {
                peer.slow_windows += 1;
                if peer.slow_windows >= SLOW_WINDOWS {
                    self.reports.push((node, true));
                }
            } else if took.is_some() {
                peer.slow_windows = 0;
            }
        }
    }

    /// The probes to send in this window.
    fn probes(&mut self, now: Time) -> Vec<(NodeId, Body)> {
        let probed = self.probed.iter_mut().map(|(&node, probed)| (node, &mut probed.awaited));
        let compared = self.compared.iter_mut().map(|(&node, other)| (node, &mut other.awaited));
        let mut said = Vec::new();
        for (node, awaited) in probed.chain(compared).filter(|(_, awaited)| awaited.is_none()) {
            self.probe_number += 1;
            let number = self.probe_number;
            *awaited = Some((number, now));
            said.push((node, Body::SlowProbe(wire::SlowProbe { number })));
        }
        said
    }

    pub(super) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }
    pub(super) fn awaits_sync(&self) -> bool {
        !self.asked.is_empty()
    }
    pub(super) fn window_ends(&self) -> Option<Time> {
        self.window_ends
    }
}

impl Replica {
    /// The nodes that this node reports as slow, or as well again.
    pub(crate) fn slow_node_reports(&mut self) -> Vec<wire::SlowNodeReport> {
        let reports = std::mem::take(&mut self.slow_detector.reports).into_iter();
        let known = |node: NodeId| kvs::membership::member(&self.map, node);
        let report = |(node, slow)| {
            let incarnation = known(node)?.incarnation;
            Some(wire::SlowNodeReport { node: node.0, incarnation, slow })
        };
        reports.filter_map(report).collect()
    }

    /// A voter probes the nodes that the map marks as slow.
    pub(super) fn watch_slow(&mut self, now: Time) {
        let votes = self.map.voters.contains(&self.me.0);
        let mut before = std::mem::take(&mut self.slow_detector.probed);
        for member in self.map.members.iter().filter(|member| member.slow) {
            let node = NodeId(member.node);
            self.slow_detector.peers.remove(&node);
            if !votes || node == self.me {
                continue;
            }
            let known = before.remove(&node);
            let known = known.filter(|probed| probed.incarnation == member.incarnation);
            let probed = known.unwrap_or_default();
            let probed = Probed { incarnation: member.incarnation, ..probed };
            self.slow_detector.probed.insert(node, probed);
            self.slow_detector.opens(now);
        }
        let mut before = std::mem::take(&mut self.slow_detector.compared);
        if !self.slow_detector.probed.is_empty() {
            let voters = self.map.voters.iter().filter(|&&voter| voter != self.me.0);
            let well = voters.filter(|&&voter| is_fit(&self.map, voter)).map(|&it| NodeId(it));
            let known = well.map(|node| (node, before.remove(&node).unwrap_or_default()));
            self.slow_detector.compared = known.collect();
        }
    }

    /// A probe has arrived. Only members get an answer.
    pub(super) fn on_slow_probe(&mut self, from: NodeId, probe: wire::SlowProbe) {
        if is_serving(&self.map, from.0) && self.slow_detector.asked.len() < SLOW_AWAITED_MAX {
            let (by, number) = (from, probe.number);
            self.slow_detector.asked.push(Asked { by, number, batch: None });
        }
    }
    pub(super) fn on_slow_probe_reply(&mut self, now: Time, from: NodeId, number: u64) {
        self.slow_detector.on_probed(now, from, number);
    }

    /// In a step: evaluates a window that is over, and writes for probes.
    pub(super) fn measure(&mut self, now: Time) {
        let mut writes = self.slow_detector.asked.iter().any(|asked| asked.batch.is_none());
        if let Some(ended) = self.slow_detector.window_ends.filter(|&ends| ends <= now)
            && self.slow_detector.close(now, ended)
        {
            for (node, probe) in self.slow_detector.probes(now) {
                self.links.send_best_effort(node, probe);
            }
            writes = true; // The usual time here is measured in the same way.
        }
        if writes {
            let value = Some(self.slow_detector.probe_number.to_be_bytes().to_vec());
            let (partition, key) = (META_PARTITION, PROBE_KEY.to_vec());
            self.batch.writes.push(Write { partition, key, value });
        }
    }

    /// The step's batch has this number.
    pub(super) fn note_measured(&mut self, now: Time, batch: u64, writes: bool) {
        if writes {
            self.slow_detector.wrote(now, batch);
        }
        for asked in &mut self.slow_detector.asked {
            asked.batch.get_or_insert(batch);
        }
    }

    /// Batches up to this one are synced.
    pub(super) fn measured(&mut self, now: Time, durable: u64) {
        self.slow_detector.syncs.done(now, durable);
        let is_synced = |asked: &mut Asked| asked.batch.is_some_and(|batch| batch <= durable);
        let synced: Vec<Asked> = self.slow_detector.asked.extract_if(.., is_synced).collect();
        for Asked { by, number, .. } in synced {
            let probed = wire::SlowProbeReply { number };
            self.links.send_best_effort(by, Body::SlowProbeReply(probed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);
    const WINDOW: u64 = SLOW_WINDOW.0 / 1_000_000;

    fn at(millis: u64) -> Time {
        Time(1_000_000_000 + millis * 1_000_000)
    }

    /// Runs windows in which each of these peers takes this number of milliseconds for each of ten
    /// messages. Returns the nodes that are reported as slow in the last window.
    fn after(
        watch: &mut SlowDetector,
        first: u64,
        windows: u64,
        peers: &[(NodeId, u64)],
    ) -> Vec<NodeId> {
        let mut reports = Vec::new();
        for window in first..first + windows {
            let mut happens: Vec<(u64, NodeId, u64, bool)> = Vec::new();
            for number in 1..=10 {
                for &(node, took) in peers {
                    let sent = window * WINDOW + 20 + number * 10;
                    happens.push((sent, node, window * 10 + number, true));
                    happens.push((sent + took, node, window * 10 + number, false));
                }
            }
            happens.sort_unstable();
            for (millis, node, number, is_sent) in happens {
                match is_sent {
                    true => watch.shipped(at(millis), node, number),
                    false => watch.acknowledged(at(millis), node, number),
                }
            }
            let ends = at((window + 1) * WINDOW + 30);
            watch.close(ends, ends);
            reports = std::mem::take(&mut watch.reports);
        }
        reports.into_iter().filter(|(_, slow)| *slow).map(|(node, _)| node).collect()
    }

    #[test]
    fn a_node_that_is_far_slower_than_the_others_for_long_is_slow() {
        let mut watch = SlowDetector::default();
        let windows = u64::from(SLOW_WINDOWS);
        let peers = [(A, 10), (B, 10), (C, 60)];
        assert_eq!(after(&mut watch, 0, windows - 1, &peers), [], "not yet");
        assert_eq!(after(&mut watch, windows, 1, &peers), [C]);
        assert_eq!(after(&mut watch, windows + 1, 1, &peers), [C], "until the map shows it");
    }

    #[test]
    fn one_good_window_resets_the_count() {
        let mut watch = SlowDetector::default();
        let (slow, good) = ([(A, 10), (B, 400)], [(A, 10), (B, 10)]);
        let windows = u64::from(SLOW_WINDOWS);
        assert_eq!(after(&mut watch, 0, windows - 1, &slow), []);
        assert_eq!(after(&mut watch, windows, 1, &good), []);
        assert_eq!(after(&mut watch, windows + 1, windows - 1, &slow), []);
        assert_eq!(after(&mut watch, 2 * windows, 1, &slow), [B]);
    }

    #[test]
    fn with_equal_latencies_or_below_the_floor_no_node_is_slow() {
        for peers in [[(A, 400), (B, 500), (C, 700)], [(A, 1), (B, 1), (C, 45)]] {
            assert_eq!(after(&mut SlowDetector::default(), 0, 20, &peers), [], "{peers:?}");
        }
    }

    /// The backup has not answered yet: the time since the request is evidence enough.
    #[test]
    fn a_node_without_answers_is_slow() {
        let mut watch = SlowDetector::default();
        watch.shipped(at(0), B, 1);
        let windows = u64::from(SLOW_WINDOWS);
        assert_eq!(after(&mut watch, 0, windows - 1, &[(A, 10)]), []);
        assert_eq!(after(&mut watch, windows, 1, &[(A, 10)]), [B]);
    }

    #[test]
    fn a_node_that_was_suspended_judges_no_other() {
        let mut watch = SlowDetector::default();
        watch.shipped(at(0), B, 1);
        for window in 1..50 {
            watch.shipped(at(window * WINDOW), A, window);
            watch.acknowledged(at(window * WINDOW), A, window);
            let ended = at(window * WINDOW);
            watch.close(ended + SLOW_WINDOW, ended);
            assert!(!watch.has_reports(), "it looked a second late");
        }
    }

    #[test]
    fn a_slow_node_is_well_after_enough_good_answers() {
        let mut watch = SlowDetector::default();
        watch.probed.insert(B, Probed::default());
        let mut answer = |window: u64, took: u64| {
            let begins = at(window * WINDOW);
            let probes = watch.probes(begins);
            assert_eq!(probes.len(), 1);
            let number = watch.probe_number;
            watch.on_probed(begins + Span::from_millis(took), B, number);
            watch.close(begins + SLOW_WINDOW, begins + SLOW_WINDOW);
            std::mem::take(&mut watch.reports)
        };
        let enough = u64::from(SLOW_WELL_ANSWERS);
        for window in 1..4 * enough {
            assert_eq!(answer(window, if window % 2 == 0 { 90 } else { 5 }), [], "half are late");
        }
        let after = 4 * enough;
        for window in 0..enough - 2 {
            assert_eq!(answer(after + window, 5), []);
        }
        assert_eq!(answer(after + enough, 90), [], "late: that takes a good one back");
        assert_eq!(answer(after + enough + 1, 5), []);
        assert_eq!(answer(after + enough + 2, 5), [(B, false)]);
    }

    /// Its probes take 90 ms, far longer than a sync here; those of the others take the given
    /// times.
    fn is_well_beside(others: &[(NodeId, u64)]) -> bool {
        let mut watch = SlowDetector::default();
        watch.probed.insert(A, Probed::default());
        watch.compared = others.iter().map(|&(node, _)| (node, Compared::default())).collect();
        for window in 0..2 * u64::from(SLOW_WELL_ANSWERS) {
            let begins = at(window * WINDOW);
            let numbers: BTreeMap<NodeId, u64> = watch
                .probes(begins)
                .into_iter()
                .map(|(node, body)| match body {
                    Body::SlowProbe(probe) => (node, probe.number),
                    _ => unreachable!("{body:?}"),
                })
                .collect();
            let answer = |(_, took): &&(NodeId, u64)| *took < SLOW_PROBE_TIMEOUT.0 / 1_000_000;
            for &(node, took) in others.iter().chain([&(A, 90)]).filter(answer) {
                if let Some(&number) = numbers.get(&node) {
                    watch.on_probed(begins + Span::from_millis(took), node, number);
                }
            }
            watch.close(begins + SLOW_WINDOW, begins + SLOW_WINDOW);
        }
        watch.reports.contains(&(A, false))
    }

    #[test]
    fn what_is_usual_for_the_others_is_good_enough() {
        assert!(!is_well_beside(&[]));
        assert!(!is_well_beside(&[(B, 1), (C, 2)]));
        assert!(is_well_beside(&[(B, 30), (C, 40)]), "all are far from here");
        assert!(is_well_beside(&[(B, 30)]));
        assert!(!is_well_beside(&[(B, 6_000)]), "a silent copy does not change the usual delay");
    }
}
