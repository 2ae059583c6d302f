//! Decides whether the death of an incarnation counts against the tasks that had started there.
//!
//! A home waits for `WITNESSES_ASKED_AFTER`. Then it asks each other node whether the node's
//! present incarnation has received messages from the dead one. If so, that node lived through the
//! death. The death is a strike if a majority of the possible witnesses lived through it.
//!
//! The map cannot show this: after all nodes have died it still lists incarnations that are over.
//! The next incarnation of the dead node reports how the former one ended.

use std::collections::{BTreeMap, VecDeque};

use proto::limits::INCARNATIONS_KEPT_MAX;
use proto::wire::message::Body;
use proto::wire::{LifeEnd, StartFact};
use proto::{Incarnation, NodeId, Time, wire};

use crate::home::ledger::Death;
use crate::limits::WITNESSES_ASKED_AFTER;
use crate::output::Out;
use crate::{Mutant, Scheduler};
use proto::Span;

/// The number of remembered ends of incarnations.
const INCARNATION_ENDS_KEPT_MAX: usize = 1024;

/// The interval between a home's queries to witnesses, and the time after which it stops them.
const WITNESSES_ASKED_INTERVAL: Span = Span::from_millis(500);
const WITNESSES_TIMEOUT: Span = Span::from_secs(3);
/// A node that died within this span before counts among the possible witnesses of a death.
const DEATHS_TOGETHER: Span = Span::from_secs(20);
/// The maximum number of witnesses that a home asks.
const WITNESSES_MAX: usize = 32;

/// On most nodes nothing is known of any.
#[derive(Debug, Default)]
pub(crate) struct DeathEvidence(Option<Box<Evidence>>);

#[derive(Debug, Default)]
struct Evidence {
    /// By this node's own records all other nodes were dead when this incarnation began.
    began_alone: bool,
    /// Incarnations of other nodes from which this incarnation has received messages; the last
    /// `INCARNATIONS_KEPT_MAX` of each node.
    lives: BTreeMap<NodeId, VecDeque<Incarnation>>,
    /// How some lives ended, as told.
    ends: BTreeMap<Death, LifeEnd>,
    /// Nodes with deaths that were noticed recently.
    gone: VecDeque<(Time, NodeId)>,
    inquiries: BTreeMap<Death, DeathInquiry>,
}

#[derive(Debug)]
struct DeathInquiry {
    /// The possible witnesses when the death was noticed.
    others: Vec<NodeId>,
    /// When the witnesses are asked next, and when the inquest ends without further answers.
    ask_at: Time,
    until: Time,
    heard: BTreeMap<NodeId, bool>,
    /// The next incarnation of the dead node has reported how this one ended.
    next_life_answered: bool,
}

impl DeathEvidence {
    fn known(&mut self) -> &mut Evidence {
        self.0.get_or_insert_default()
    }

    /// This incarnation has received a message from that one.
    fn met(&mut self, node: NodeId, incarnation: Incarnation) {
        let lives = self.known().lives.entry(node).or_default();
        if !lives.contains(&incarnation) {
            lives.push_back(incarnation);
            if lives.len() > INCARNATIONS_KEPT_MAX {
                lives.pop_front();
            }
        }
    }

    fn has_met(&self, (node, incarnation): Death) -> bool {
        let lives = self.0.as_ref().and_then(|known| known.lives.get(&node));
        lives.is_some_and(|lives| lives.contains(&incarnation))
    }

    fn end_of(&self, death: Death) -> LifeEnd {
        let known = self.0.as_ref().and_then(|known| known.ends.get(&death));
        known.copied().unwrap_or(LifeEnd::LifeDied)
    }

    fn note_end(&mut self, death: Death, end: LifeEnd) {
        if end != LifeEnd::LifeDied {
            let ends = &mut self.known().ends;
            ends.insert(death, end);
            if ends.len() > INCARNATION_ENDS_KEPT_MAX {
                ends.pop_first();
            }
        }
    }

    /// A node has died that may have been a witness of another death.
    fn note_gone(&mut self, now: Time, node: NodeId) {
        let gone = &mut self.known().gone;
        while gone.front().is_some_and(|(at, _)| now.since(*at) > DEATHS_TOGETHER) {
            gone.pop_front();
        }
        gone.push_back((now, node));
    }

    fn forget_gone(&mut self, node: NodeId) {
        if let Some(known) = &mut self.0 {
            known.gone.retain(|(_, gone)| *gone != node);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let inquiries = self.0.as_ref()?.inquiries.values();
        inquiries.map(|inquiry| inquiry.ask_at.min(inquiry.until)).min()
    }
}

impl Scheduler {
    /// By this node's own records all other nodes were dead when this incarnation began.
    pub fn note_began_alone(&mut self) {
        self.home.death_evidence.known().began_alone = true;
    }

    /// A message from this incarnation of a node arrived for the present incarnation of this node:
    /// the two have lived at the same time.
    pub fn note_life(&mut self, node: NodeId, incarnation: Incarnation) {
        if node.0 as usize >= self.routing.homes().nodes() {
            return; // Not a member.
        }
        if !self.has_met((node, incarnation)) {
            self.home.death_evidence.met(node, incarnation);
        }
    }

    /// As [`Self::note_life`], of an incarnation that was known before the present one.
    pub(crate) fn note_former_life(&mut self, node: NodeId, incarnation: Incarnation) {
        if self.has_lived_with_peers() {
            self.note_life(node, incarnation);
        }
    }

    /// Whether this node has lived with each peer that it knows. No packet is older than a
    /// first incarnation. A later one may receive a packet that was sent before it began. (Where
    /// homes move, all nodes exchange packets that name incarnations, so these alone count.)
    fn has_lived_with_peers(&self) -> bool {
        !self.routing.homes().moves() && self.options.incarnation <= Incarnation::FIRST
    }

    /// The cluster takes it for dead, or it has started again. A node that has left in order has
    /// not died, and its earlier deaths do not matter any more.
    pub(crate) fn note_death(&mut self, now: Time, death: Death) {
        if !self.routing.homes().not_removed().any(|node| node == death.0) {
            self.home.death_evidence.forget_gone(death.0);
        } else if self.has_met(death) {
            self.home.death_evidence.note_gone(now, death.0);
        }
    }

    /// A map that lists this incarnation now declares a node failed. That node may have died
    /// together with an earlier incarnation of this one; then this one has never received a message
    /// from it.
    pub fn note_peer_death(&mut self, now: Time, node: NodeId) {
        self.home.death_evidence.note_gone(now, node);
    }

    fn has_met(&self, death: Death) -> bool {
        let is_known = self.has_lived_with_peers()
            && self.routing.last_incarnation_of(death.0) == Some(death.1);
        is_known || self.home.death_evidence.has_met(death)
    }

    /// Whether no other node lived when an earlier incarnation of this node died.
    fn was_alone(&self, incarnation: Incarnation) -> bool {
        // Between that incarnation and this one others may have seen nodes die.
        let is_last = self.options.former.0 == incarnation;
        let began_alone =
            self.home.death_evidence.0.as_ref().is_some_and(|known| known.began_alone);
        let mut others = self.routing.homes().not_removed().filter(|&node| self.has_lived(node));
        let is_only = others.all(|node| node == self.options.me);
        is_only || (began_alone && is_last)
    }

    /// Judges the deaths in doubt, as far as enough is known.
    pub(crate) fn judge_deaths(&mut self, now: Time, out: &mut Out) {
        for (death, since) in self.home.ledger.doubts() {
            if let Some(fact) = self.verdict(now, death, since, out) {
                if let Some(known) = &mut self.home.death_evidence.0 {
                    known.inquiries.remove(&death);
                }
                self.home.ledger.judge(now, death, fact, out);
            }
        }
    }

    /// `None`: undecided yet.
    fn verdict(
        &mut self,
        now: Time,
        death: Death,
        since: Time,
        out: &mut Out,
    ) -> Option<StartFact> {
        let counts_all = self.options.mutant == Some(Mutant::AllDiedCounts);
        match self.end_of_life(death) {
            _ if counts_all => return Some(StartFact::DiedRunning),
            LifeEnd::LifeStopped if self.options.mutant == Some(Mutant::StopCountsAsCrash) => {
                return Some(StartFact::DiedRunning);
            }
            LifeEnd::LifeStopped => return Some(StartFact::Stopped),
            LifeEnd::LifeRebooted | LifeEnd::LifeFenced => return Some(StartFact::DiedApart),
            LifeEnd::LifeDied => {}
        }
        let others = self.witnesses(now, death.0);
        let first = since + WITNESSES_ASKED_AFTER;
        let fresh = || DeathInquiry {
            others,
            ask_at: first,
            until: first + WITNESSES_TIMEOUT,
            heard: BTreeMap::new(),
            next_life_answered: false,
        };
        let inquiry = self.home.death_evidence.known().inquiries.entry(death).or_insert_with(fresh);
        if inquiry.others.is_empty() {
            // The tasks that ran beside it are known once all records have been looked at.
            let fact = match self.home.ledger.tasks_in_doubt(death)? {
                _ if !self.was_alone(death.1) => StartFact::DiedApart,
                1 => StartFact::DiedRunning,
                _ => StartFact::DiedBeside,
            };
            return (!self.home.ledger.places_recovered()).then_some(fact);
        }
        if now < first { None } else { self.ask_witnesses(now, death, out) }
    }

    /// The possible witnesses of a node's death: the other living nodes, and those that died at
    /// about the same time.
    fn witnesses(&self, now: Time, dead: NodeId) -> Vec<NodeId> {
        let mut others: Vec<NodeId> = self.routing.homes().living_or_back().collect();
        let known = self.home.death_evidence.0.iter().flat_map(|known| &known.gone);
        let lately = known.filter(|(at, _)| now.since(*at) <= DEATHS_TOGETHER);
        others.extend(lately.map(|&(_, node)| node));
        others.push(self.options.me);
        others.sort_unstable();
        others.dedup();
        others.retain(|&node| node != dead && self.has_lived(node));
        if others.len() > WITNESSES_MAX {
            // `WITNESSES_MAX` nodes represent all: those that follow this one.
            let from = others.partition_point(|&node| node < self.options.me);
            others.rotate_left(from);
            others.truncate(WITNESSES_MAX);
        }
        others
    }

    /// Whether some incarnation of the node is on record. A node that was admitted and never
    /// started has none.
    fn has_lived(&self, node: NodeId) -> bool {
        !self.routing.homes().moves()
            || node == self.options.me
            || self.routing.homes().incarnation_of(node) != Incarnation(0)
    }

    /// Judges a death by the witnesses' answers. The next incarnation of the dead node has
    /// priority: the former one may have stopped in order.
    fn ask_witnesses(&mut self, now: Time, death: Death, out: &mut Out) -> Option<StartFact> {
        let (me, met) = (self.options.me, self.has_met(death));
        let is_back = self.routing.last_incarnation_of(death.0).is_some_and(|life| life > death.1);
        let inquiry = self.home.death_evidence.known().inquiries.get_mut(&death)?;
        let others = &inquiry.others;
        if others.contains(&me) {
            inquiry.heard.insert(me, met);
        }
        let heard = |node: &&NodeId| inquiry.heard.get(*node).copied();
        let lived = others.iter().filter(|node| heard(node) == Some(true)).count();
        let unknown = others.iter().filter(|node| heard(node).is_none()).count();
        let is_over = now >= inquiry.until;
        let have_most_lived = lived * 2 > others.len();
        if have_most_lived && (inquiry.next_life_answered || !is_back || is_over) {
            return Some(StartFact::DiedRunning);
        }
        let have_most_died = (lived + unknown) * 2 <= others.len();
        if !have_most_lived && ((have_most_died && inquiry.next_life_answered) || is_over) {
            return Some(StartFact::DiedApart);
        }
        if now >= inquiry.ask_at {
            inquiry.ask_at = now + WITNESSES_ASKED_INTERVAL;
            let (NodeId(node), Incarnation(incarnation)) = death;
            let silent = others.iter().filter(|node| heard(node).is_none());
            for &other in silent.chain([&death.0]).filter(|&&other| other != me) {
                let ask = wire::DeathQuery { node, incarnation };
                out.best_effort.push((other, Body::DeathQuery(ask)));
            }
        }
        None
    }

    /// This node stops in order: no more tasks start here. It announces this, so that its end does
    /// not count as a death.
    pub fn stop(&mut self, out: &mut Out) {
        self.holder.stop();
        out.launches.clear();
        let (NodeId(node), Incarnation(incarnation)) = (self.options.me, self.options.incarnation);
        let end = LifeEnd::LifeStopped as i32;
        for other in self.routing.homes().living_or_back().filter(|other| other.0 != node) {
            let report = wire::DeathReport { node, incarnation, heard: false, end };
            out.best_effort.push((other, Body::DeathReport(report)));
        }
    }

    /// How an incarnation ended, as far as this node knows.
    fn end_of_life(&self, death: Death) -> LifeEnd {
        let (node, incarnation) = death;
        let (former, end) = self.options.former;
        if node == self.options.me && incarnation == former {
            return end;
        }
        self.home.death_evidence.end_of(death)
    }

    pub(crate) fn on_death_query(&mut self, from: NodeId, ask: &wire::DeathQuery, out: &mut Out) {
        let death = (NodeId(ask.node), Incarnation(ask.incarnation));
        let is_silent = self.options.mutant == Some(Mutant::WitnessesSilent);
        let heard = death.0 != self.options.me && self.has_met(death) && !is_silent;
        let end = self.end_of_life(death) as i32;
        let (node, incarnation) = (ask.node, ask.incarnation);
        out.best_effort
            .push((from, Body::DeathReport(wire::DeathReport { node, incarnation, heard, end })));
    }

    pub(crate) fn on_death_report(&mut self, from: NodeId, report: &wire::DeathReport) {
        let death = (NodeId(report.node), Incarnation(report.incarnation));
        if death.0 != self.options.me {
            self.home.death_evidence.note_end(death, report.end());
        }
        if let Some(known) = &mut self.home.death_evidence.0
            && let Some(inquiry) = known.inquiries.get_mut(&death)
        {
            match from == death.0 {
                true => inquiry.next_life_answered = true,
                false => _ = inquiry.heard.insert(from, report.heard),
            }
        }
    }
}
