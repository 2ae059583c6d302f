//! The activation of a primary, and the filling of new replicas.

use crate::small::{NODES, Set};
use crate::state::{Copy, Mutant, Options, Position, Role, Ship, State, Told, Way, What};

impl State {
    /// No node that may have been replaced has a lease of this node.
    pub(crate) fn leases_ran_out(&self, options: &Options, giver: u8) -> bool {
        let map = self.seen(giver);
        let counts = |&primary: &u8| {
            self.leases[usize::from(primary)].has(giver)
                && map.may_still_run(primary, self.node(primary).incarnation)
        };
        let is_free = self.node(giver).given_before.is_empty() && !(0..NODES).any(|p| counts(&p));
        is_free || options.mutant == Some(Mutant::NoLeaseWait)
    }

    pub(crate) fn drained(&mut self, options: &Options, by: u8, to: u8) -> Option<()> {
        let Role::Draining { epoch, waiting } = self.node(to).role else { return None };
        let asked = self.node(by);
        let is_idle = !matches!(asked.role, Role::Serving { .. })
            && !self.ships.iter().any(|ship| ship.from == by && ship.is_awaited());
        let both_run = asked.running && self.node(to).running;
        if !waiting.has(by) || !is_idle || !both_run || self.seen(by).epoch != epoch {
            return None;
        }
        let waiting = waiting.without(by);
        self.node_mut(to).role = Role::Draining { epoch, waiting };
        self.ask_promises(options, to);
        Some(())
    }

    /// When all have drained, the primary asks the other members for their promises.
    pub(crate) fn ask_promises(&mut self, options: &Options, node: u8) {
        let members = self.seen(node).others(node);
        let Role::Draining { epoch, waiting } = self.node(node).role else { return };
        let needed = |waiting: Set| {
            let missing = u32::from(options.mutant == Some(Mutant::MajorityIsAsked));
            waiting.is_empty() || members.len() > 1 && waiting.len() <= missing
        };
        if needed(waiting) {
            let this = self.node_mut(node);
            this.live.promised = this.live.promised.max(epoch);
            this.role = Role::Promising { epoch, waiting: members, told: Vec::new() };
        }
    }

    pub(crate) fn promise(&mut self, options: &Options, by: u8, to: u8) -> Option<()> {
        let Role::Promising { epoch, waiting, .. } = self.node(to).role else { return None };
        let both_run = self.node(by).running && self.node(to).running;
        let is_ready = waiting.has(by) && both_run && self.seen(by).epoch == epoch;
        if !is_ready || !self.leases_ran_out(options, by) {
            return None;
        }
        let copy = &mut self.node_mut(by).live;
        copy.promised = copy.promised.max(epoch);
        Some(())
    }

    pub(crate) fn tell_promise(&mut self, options: &Options, by: u8, to: u8) -> Option<()> {
        let asked = self.node(by);
        let copy = asked.live;
        let careless = options.mutant == Some(Mutant::PromiseToldBeforeDurable);
        let is_synced = asked.disk == Copy { recent: 0, ..copy };
        let both_run = asked.running && self.node(to).running;
        let knows = self.seen(by).epoch;
        let Role::Promising { epoch, waiting, told } = &mut self.node_mut(to).role else {
            return None;
        };
        let has_promised = copy.promised == *epoch && (is_synced || careless);
        if !waiting.has(by) || !has_promised || !both_run || knows != *epoch {
            return None;
        }
        *waiting = waiting.without(by);
        told.push(Told { node: by, copy });
        told.sort_unstable_by_key(|told| told.node);
        Some(())
    }

    /// Brings the members to the highest position among them.
    pub(crate) fn reconcile(&mut self, options: &Options, node: u8) -> Option<()> {
        let this = self.node(node);
        let Role::Promising { epoch, waiting, told } = &this.role else { return None };
        let (epoch, told) = (*epoch, told.clone());
        let missing = u32::from(options.mutant == Some(Mutant::MajorityIsAsked));
        let is_asked = waiting.is_empty() || !told.is_empty() && waiting.len() <= missing;
        let careless = options.mutant == Some(Mutant::PromiseToldBeforeDurable);
        let is_durable = this.disk.promised >= epoch || careless;
        if !is_asked || !is_durable || !this.running || !self.leases_ran_out(options, node) {
            return None;
        }
        let own = self.position(&this.live.log);
        let whole = told.iter().filter(|told| !told.copy.is_gone);
        let furthest = whole.max_by_key(|told| self.position(&told.copy.log));
        let further = furthest.filter(|told| self.position(&told.copy.log) > own);
        let tail = further.and_then(|told| self.since(&told.copy, own)).unwrap_or_default();
        for (_, write) in tail {
            let copy = &mut self.node_mut(node).live;
            copy.log.push(write);
            copy.recent = (copy.recent + 1).min(options.recent);
        }
        let mut refusing = Set::default();
        let batch = self.node(node).wrote.len();
        for Told { node: member, copy } in told {
            let at = self.position(&copy.log);
            let missing = self.since(&self.node(node).live, at).filter(|_| !copy.is_gone);
            if missing.is_none() && options.mutant != Some(Mutant::RefusalForgotten) {
                refusing = refusing.with(member);
            }
            let changes = missing.unwrap_or_default();
            self.ship_changes(node, member, epoch, batch, &changes);
        }
        // The members have refused changes in transit from before their promises.
        let refused = |ship: &&Ship| ship.from == node && ship.way == Way::RefusedTold;
        if options.mutant != Some(Mutant::RefusalForgotten) {
            refusing = refusing.or(Set::of(self.ships.iter().filter(refused).map(|it| it.to)));
        }
        self.node_mut(node).role = Role::Ready { epoch, refusing };
        Some(())
    }

    pub(crate) fn ship_changes(
        &mut self,
        from: u8,
        to: u8,
        epoch: u8,
        batch: u8,
        changes: &[(Position, u8)],
    ) {
        for (at, &(before, write)) in (1..).zip(changes) {
            let completes = at == changes.len();
            let what = What::Change { before, write };
            let way = Way::Flying;
            self.push_ship(Ship { from, to, batch, epoch, what, completes, way });
        }
    }

    /// A primary asks a learner for its position. The learner promises to refuse changes of earlier
    /// epochs.
    pub(crate) fn where_it_is(
        &mut self,
        options: &Options,
        primary: u8,
        learner: u8,
    ) -> Option<()> {
        let Role::Serving { epoch, .. } = self.node(primary).role else { return None };
        if !self.may_catch_up(primary, learner) {
            return None;
        }
        let copy = &mut self.node_mut(learner).live;
        if options.mutant != Some(Mutant::LearnerPromisesNothing) {
            copy.promised = copy.promised.max(epoch);
        }
        Some(())
    }

    pub(crate) fn may_catch_up(&self, primary: u8, learner: u8) -> bool {
        let (this, other) = (self.node(primary), self.node(learner));
        let Role::Serving { caught, refusing, .. } = this.role else { return false };
        self.seen(primary).learners.has(learner)
            && !caught.or(refusing).has(learner)
            && this.running
            && other.running
            && other.seen >= this.seen
    }

    /// The answer has arrived: the primary sends the missing changes.
    pub(crate) fn catch_up(&mut self, options: &Options, primary: u8, learner: u8) -> Option<()> {
        let (this, other) = (self.node(primary), self.node(learner));
        let Role::Serving { epoch, caught, ready, refusing } = this.role else { return None };
        let has_promised =
            other.live.promised >= epoch || options.mutant == Some(Mutant::LearnerPromisesNothing);
        let is_synced = other.disk == Copy { recent: 0, ..other.live };
        if !self.may_catch_up(primary, learner) || !is_synced || !has_promised {
            return None;
        }
        let (batch, log) = (this.wrote.len(), this.live.log);
        let at = self.position(&other.live.log);
        let tail = self.since(&this.live, at).filter(|_| !other.live.is_gone);
        let ready =
            if tail.as_ref().is_some_and(Vec::is_empty) { ready.with(learner) } else { ready };
        let caught = caught.with(learner);
        match tail {
            Some(changes) => self.ship_changes(primary, learner, epoch, batch, &changes),
            None => {
                let (from, to, what) = (primary, learner, What::Fill { log });
                let (completes, way) = (true, Way::Flying);
                self.push_ship(Ship { from, to, batch, epoch, what, completes, way });
            }
        }
        self.node_mut(primary).role = Role::Serving { epoch, caught, ready, refusing };
        Some(())
    }
}
