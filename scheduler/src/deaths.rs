//! Decides whether the death of an incarnation counts against the tasks that had started there.
//!
//! A home waits for `DEATH_ASKED_AFTER`. Then it asks each other node whether the node's present
//! incarnation has received messages from the dead one. If so, that node lived through the death.
//! The death is a strike if a majority of the possible witnesses lived through it.
//!
//! The map cannot show this: after all nodes have died it still lists incarnations that are over.
//! The next incarnation of the dead node reports how the former one ended.

use std::collections::{BTreeMap, VecDeque};

use proto::limits::{
    DEATH_ASK_AGAIN, DEATH_ASKED_AFTER, DEATH_ASKED_FOR, DEATHS_TOGETHER, LIFE_ENDS_KEPT_MAX,
    LIVES_KEPT_MAX, WITNESSES_MAX,
};
use proto::wire::message::Body;
use proto::wire::{LifeEnd, StartFact};
use proto::{Incarnation, NodeId, Time, wire};

use crate::ledger::Death;
use crate::out::Out;
use crate::{Mutant, Scheduler};

/// Boxed, because most nodes know of no death.
#[derive(Debug, Default)]
pub(crate) struct Deaths(Option<Box<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// By this node's own records all other nodes were dead when this incarnation began.
    began_alone: bool,
    /// Incarnations of other nodes from which this incarnation has received messages; the last
    /// `LIVES_KEPT_MAX` of each node.
    lives: BTreeMap<NodeId, VecDeque<Incarnation>>,
    /// Incarnations of other nodes that are known only by messages to an earlier incarnation of
    /// this node.
    late: BTreeMap<NodeId, Incarnation>,
    /// How incarnations ended, as reported.
    ends: BTreeMap<Death, LifeEnd>,
    /// Nodes with deaths that were noticed recently.
    gone: VecDeque<(Time, NodeId)>,
    inquests: BTreeMap<Death, Inquest>,
}

#[derive(Debug)]
struct Inquest {
    /// The possible witnesses when the death was noticed.
    others: Vec<NodeId>,
    /// When the witnesses are asked next, and when the inquest ends without further answers.
    ask_at: Time,
    until: Time,
    heard: BTreeMap<NodeId, bool>,
    /// The next incarnation of the dead node has reported how this one ended.
    is_told: bool,
}

impl Deaths {
    fn known(&mut self) -> &mut Known {
        self.0.get_or_insert_default()
    }

    /// This incarnation has received a message from that one.
    fn met(&mut self, node: NodeId, incarnation: Incarnation) {
        let lives = self.known().lives.entry(node).or_default();
        if !lives.contains(&incarnation) {
            lives.push_back(incarnation);
            if lives.len() > LIVES_KEPT_MAX {
                lives.pop_front();
            }
        }
    }

    /// Whether that incarnation is known only by messages from before this one began.
    fn is_late(&self, (node, incarnation): Death) -> bool {
        self.0.as_ref().is_some_and(|known| known.late.get(&node) == Some(&incarnation))
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
            if ends.len() > LIFE_ENDS_KEPT_MAX {
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

    pub(crate) fn deadline(&self) -> Option<Time> {
        let inquests = self.0.as_ref()?.inquests.values();
        inquests.map(|inquest| inquest.ask_at.min(inquest.until)).min()
    }
}

impl Scheduler {
    /// By this node's own records all other nodes were dead when this incarnation began.
    pub fn begin_alone(&mut self) {
        self.deaths.known().began_alone = true;
    }

    /// A message from this incarnation of a node arrived for the present incarnation of this node:
    /// the two have lived at the same time.
    pub fn meet(&mut self, node: NodeId, incarnation: Incarnation) {
        if node.0 as usize >= self.homes.nodes() {
            return; // Not a member.
        }
        if !self.has_met((node, incarnation)) {
            self.deaths.met(node, incarnation);
        }
    }

    /// A late message from this incarnation of a node arrived for an earlier incarnation of this
    /// node. The present incarnation is no witness of events before its start.
    pub fn heard_late(&mut self, node: NodeId, incarnation: Incarnation) {
        if (node.0 as usize) < self.homes.nodes() {
            self.deaths.known().late.insert(node, incarnation);
        }
    }

    /// As [`Self::meet`], for the previous incarnation of a node that has restarted.
    pub(crate) fn meet_former(&mut self, node: NodeId, incarnation: Incarnation) {
        if !self.homes.moves() && !self.deaths.is_late((node, incarnation)) {
            self.meet(node, incarnation);
        }
    }

    /// The incarnation was declared failed, or its node has restarted.
    pub(crate) fn note_death(&mut self, now: Time, death: Death) {
        if self.has_met(death) {
            self.deaths.note_gone(now, death.0);
        }
    }

    /// A map that lists this incarnation now declares a node failed. That node may have died
    /// together with an earlier incarnation of this one; then this one has never received a message
    /// from it.
    pub fn saw_die(&mut self, now: Time, node: NodeId) {
        self.deaths.note_gone(now, node);
    }

    fn has_met(&self, death: Death) -> bool {
        // Where homes move, all nodes exchange messages, and each message names the receiver's
        // incarnation: so [`Scheduler::meet`] was called.
        let is_known = !self.homes.moves()
            && self.peers.get(&death.0) == Some(&death.1)
            && !self.deaths.is_late(death);
        is_known || self.deaths.has_met(death)
    }

    /// Whether no other node lived when an earlier incarnation of this node died.
    fn was_alone(&self, incarnation: Incarnation) -> bool {
        // Between that incarnation and this one others may have seen nodes die.
        let is_last = self.options.former.0 == incarnation;
        let began_alone = self.deaths.0.as_ref().is_some_and(|known| known.began_alone);
        let mut others = self.homes.not_removed().filter(|&node| self.has_lived(node));
        let is_only = others.all(|node| node == self.options.me);
        is_only || (began_alone && is_last)
    }

    /// Judges the deaths in doubt, as far as enough is known.
    pub(crate) fn look_at_deaths(&mut self, now: Time, out: &mut Out) {
        if self.ledger.crashes.doubts.is_empty() {
            return;
        }
        let doubts: Vec<(Death, Time)> =
            self.ledger.crashes.doubts.iter().map(|(&death, doubt)| (death, doubt.since)).collect();
        for (death, since) in doubts {
            if let Some(fact) = self.verdict(now, death, since, out) {
                if let Some(known) = &mut self.deaths.0 {
                    known.inquests.remove(&death);
                }
                self.ledger.judge(now, death, fact, out);
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
        let first = since + DEATH_ASKED_AFTER;
        let fresh = || Inquest {
            others,
            ask_at: first,
            until: first + DEATH_ASKED_FOR,
            heard: BTreeMap::new(),
            is_told: false,
        };
        let inquest = self.deaths.known().inquests.entry(death).or_insert_with(fresh);
        if inquest.others.is_empty() {
            // The tasks that ran beside it are known once all records have been looked at.
            let doubt = self.ledger.crashes.doubts.get(&death)?;
            let fact = match doubt.tasks.len() {
                _ if !self.was_alone(death.1) => StartFact::DiedApart,
                1 => StartFact::DiedRunning,
                _ => StartFact::DiedBeside,
            };
            return (!self.ledger.places_recovered()).then_some(fact);
        }
        if now < first { None } else { self.hold_inquest(now, death, out) }
    }

    /// The possible witnesses of a node's death: the other living nodes, and those that died at
    /// about the same time.
    fn witnesses(&self, now: Time, dead: NodeId) -> Vec<NodeId> {
        let mut others: Vec<NodeId> = self.homes.living_or_back().collect();
        let known = self.deaths.0.iter().flat_map(|known| &known.gone);
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
        !self.homes.moves()
            || node == self.options.me
            || self.homes.incarnation_of(node) != Incarnation(0)
    }

    /// Judges a death by the witnesses' answers. The next incarnation of the dead node has
    /// priority: the former one may have stopped in order.
    fn hold_inquest(&mut self, now: Time, death: Death, out: &mut Out) -> Option<StartFact> {
        let (me, met) = (self.options.me, self.has_met(death));
        let is_back = self.peers.get(&death.0).is_some_and(|&life| life > death.1);
        let inquest = self.deaths.known().inquests.get_mut(&death)?;
        let others = &inquest.others;
        if others.contains(&me) {
            inquest.heard.insert(me, met);
        }
        let heard = |node: &&NodeId| inquest.heard.get(*node).copied();
        let lived = others.iter().filter(|node| heard(node) == Some(true)).count();
        let unknown = others.iter().filter(|node| heard(node).is_none()).count();
        let is_over = now >= inquest.until;
        let have_most_lived = lived * 2 > others.len();
        if have_most_lived && (inquest.is_told || !is_back || is_over) {
            return Some(StartFact::DiedRunning);
        }
        let have_most_died = (lived + unknown) * 2 <= others.len();
        if !have_most_lived && ((have_most_died && inquest.is_told) || is_over) {
            return Some(StartFact::DiedApart);
        }
        if now >= inquest.ask_at {
            inquest.ask_at = now + DEATH_ASK_AGAIN;
            let (NodeId(node), Incarnation(incarnation)) = death;
            let silent = others.iter().filter(|node| heard(node).is_none());
            for &other in silent.chain([&death.0]).filter(|&&other| other != me) {
                let ask = wire::DeathAsk { node, incarnation };
                out.loose.push((other, Body::DeathAsk(ask)));
            }
        }
        None
    }

    /// This node stops in order: no more tasks start here. It announces this, so that its end does
    /// not count as a death.
    pub fn stop(&mut self, out: &mut Out) {
        self.stopping = true;
        out.launches.clear();
        let (NodeId(node), Incarnation(incarnation)) = (self.options.me, self.options.incarnation);
        let end = LifeEnd::LifeStopped as i32;
        for other in self.homes.living_or_back().filter(|other| other.0 != node) {
            let tell = wire::DeathTell { node, incarnation, heard: false, end };
            out.loose.push((other, Body::DeathTell(tell)));
        }
    }

    /// How an incarnation ended, as far as this node knows.
    fn end_of_life(&self, death: Death) -> LifeEnd {
        let (node, incarnation) = death;
        let (former, end) = self.options.former;
        if node == self.options.me && incarnation == former {
            return end;
        }
        self.deaths.end_of(death)
    }

    pub(crate) fn on_death_ask(&mut self, from: NodeId, ask: &wire::DeathAsk, out: &mut Out) {
        let death = (NodeId(ask.node), Incarnation(ask.incarnation));
        let heard = death.0 != self.options.me && self.has_met(death);
        let end = self.end_of_life(death) as i32;
        let (node, incarnation) = (ask.node, ask.incarnation);
        out.loose.push((from, Body::DeathTell(wire::DeathTell { node, incarnation, heard, end })));
    }

    pub(crate) fn on_death_tell(&mut self, from: NodeId, tell: &wire::DeathTell) {
        let death = (NodeId(tell.node), Incarnation(tell.incarnation));
        if death.0 != self.options.me {
            self.deaths.note_end(death, tell.end());
        }
        if let Some(known) = &mut self.deaths.0
            && let Some(inquest) = known.inquests.get_mut(&death)
        {
            match from == death.0 {
                true => inquest.is_told = true,
                false => _ = inquest.heard.insert(from, tell.heard),
            }
        }
    }
}
