//! All possible steps and their effects.

use crate::map::Command;
use crate::small::{NODES, Set};
use crate::state::{Copy, Mutant, Options, Role, Ship, State, Way, What};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    // Steps that the nodes make by themselves, sooner or later.
    Sync(u8),
    Deliver {
        from: u8,
        to: u8,
    },
    Answer {
        from: u8,
        to: u8,
    },
    Acknowledge(u8),
    Learn {
        node: u8,
        map: u8,
    },
    Drained {
        by: u8,
        to: u8,
    },
    Promise {
        by: u8,
        to: u8,
    },
    TellPromise {
        by: u8,
        to: u8,
    },
    Reconcile(u8),
    Where {
        primary: u8,
        learner: u8,
    },
    Catch {
        primary: u8,
        learner: u8,
    },
    Expire {
        primary: u8,
        giver: u8,
    },
    /// A pending proposal is agreed on.
    Agree(Command),
    // External events.
    Decide(Command),
    Write(u8),
    Read(u8),
    Lease {
        primary: u8,
        giver: u8,
    },
    Cut(u8),
    Restart(u8),
}

/// True if the step happens without an external event.
pub(crate) fn comes_by_itself(step: Step) -> bool {
    !matches!(
        step,
        Step::Decide(_)
            | Step::Write(_)
            | Step::Read(_)
            | Step::Lease { .. }
            | Step::Cut(_)
            | Step::Restart(_)
    )
}

impl State {
    /// All steps that may happen now, apart from the bounds.
    pub(crate) fn steps(&self, steps: &mut Vec<Step>) {
        let nodes = 0..NODES;
        for node in nodes.clone() {
            steps.extend([Step::Acknowledge(node), Step::Read(node), Step::Sync(node)]);
            steps.extend([Step::Write(node), Step::Cut(node), Step::Restart(node)]);
            steps.push(Step::Reconcile(node));
            let known = self.node(node).seen + 1;
            steps.extend((known..self.maps.len() as u8).map(|map| Step::Learn { node, map }));
            for other in nodes.clone().filter(|&other| other != node) {
                let (from, to, by) = (node, other, other);
                steps.extend([Step::Deliver { from, to }, Step::Answer { from, to }]);
                let to = node;
                steps.extend([Step::Drained { by, to }, Step::Promise { by, to }]);
                steps.push(Step::TellPromise { by, to });
                let primary = node;
                steps.push(Step::Where { primary, learner: other });
                steps.push(Step::Catch { primary, learner: other });
                steps.push(Step::Expire { primary, giver: other });
                steps.push(Step::Lease { primary, giver: other });
            }
        }
        steps.extend(self.said.iter().map(|&said| Step::Agree(said)));
        self.decisions(steps);
    }

    pub(crate) fn decisions(&self, steps: &mut Vec<Step>) {
        let map = self.map();
        for node in 0..NODES {
            let known = map.member(node);
            let real = self.node(node);
            if real.incarnation > known.incarnation {
                let incarnation = real.incarnation;
                steps.push(Step::Agree(Command::Up { node, incarnation }));
            }
            // A failed node is detected; a running node may be declared failed.
            let down = Command::Down { node };
            steps.push(if real.running { Step::Decide(down) } else { Step::Agree(down) });
            steps.push(Step::Decide(Command::AddLearner { node }));
            steps.push(Step::Decide(Command::Handover { to: node }));
            steps.push(Step::Decide(Command::Drop { node, epoch: map.epoch }));
        }
    }

    /// The state after a step; `None` if it cannot happen, or changes nothing.
    pub(crate) fn after(&self, options: &Options, step: Step) -> Option<Self> {
        let mut next = self.clone();
        let happened = match step {
            Step::Sync(node) => next.sync(node),
            Step::Deliver { from, to } => next.deliver(options, from, to),
            Step::Answer { from, to } => next.answer(options, from, to),
            Step::Acknowledge(node) => next.acknowledge(options, node),
            Step::Learn { node, map } => next.learn(options, node, map),
            Step::Drained { by, to } => next.drained(options, by, to),
            Step::Promise { by, to } => next.promise(options, by, to),
            Step::TellPromise { by, to } => next.tell_promise(options, by, to),
            Step::Reconcile(node) => next.reconcile(options, node),
            Step::Where { primary, learner } => next.where_it_is(options, primary, learner),
            Step::Catch { primary, learner } => next.catch_up(options, primary, learner),
            Step::Expire { primary, giver } => next.expire(primary, giver),
            Step::Agree(command) => next.agree(options, command),
            Step::Decide(command) => next.decide(options, command),
            Step::Write(node) => next.write(options, node),
            Step::Read(node) => next.read(options, node),
            Step::Lease { primary, giver } => next.lease(options, primary, giver),
            Step::Cut(node) => next.cut(options, node),
            Step::Restart(node) => next.restart(node),
        };
        happened?;
        next.settle(options);
        (next != *self).then_some(next)
    }

    /// The immediate consequences of a step.
    pub(crate) fn settle(&mut self, options: &Options) {
        for node in 0..NODES {
            // Without power failures to come it makes no difference which writes are synced.
            if self.cuts == options.cuts {
                self.sync(node);
            }
            self.speak(node);
            self.propose(options, node);
        }
        let epoch = self.map().epoch;
        self.said.retain(|said| said.epoch() == Some(epoch));
        self.said.sort_unstable();
        self.said.dedup();
        let oldest = self.nodes.iter().map(|node| node.seen).min().unwrap_or(0);
        self.maps.drain(..usize::from(oldest));
        self.nodes.iter_mut().for_each(|node| node.seen -= oldest);
    }

    /// Sends the messages of a step once every replica has logged its changes.
    pub(crate) fn speak(&mut self, node: u8) {
        let held = |batch: u8| {
            let concerns = |ship: &Ship| ship.from == node && ship.batch <= batch;
            self.ships.iter().any(|ship| concerns(ship) && !ship.is_logged())
        };
        let this = self.node(node);
        let by_map = this.by_map.iter().min().unwrap_or(u8::MAX);
        let spoken = (1..=this.wrote.len()).filter(|&batch| batch < by_map && !held(batch));
        let writes = this.wrote.as_slice();
        let spoken = Set::of(spoken.map(|batch| writes[usize::from(batch - 1)]));
        if this.running {
            self.spoken = self.spoken.or(spoken);
        }
    }

    pub(crate) fn propose(&mut self, options: &Options, node: u8) {
        let this = self.node(node);
        let map = self.seen(node);
        let incarnation = this.incarnation;
        if !this.running || map.member(node).incarnation != incarnation {
            return;
        }
        let mut said = Vec::new();
        match this.role {
            Role::Ready { epoch, .. } => {
                let is_awaited = |ship: &Ship| ship.from == node && ship.is_awaited();
                let careless = options.mutant == Some(Mutant::RefusalForgotten);
                if careless || !self.ships.iter().any(is_awaited) {
                    said.push(Command::Activated { node, incarnation, epoch });
                }
            }
            Role::Serving { epoch, ready, refusing, .. } => {
                if !map.former.is_empty() {
                    said.push(Command::Activated { node, incarnation, epoch });
                }
                for node in ready.iter().filter(|&node| !refusing.has(node)) {
                    let incarnation = self.node(node).incarnation;
                    said.push(Command::CaughtUp { node, incarnation, epoch });
                }
                said.extend(refusing.iter().map(|node| Command::Drop { node, epoch }));
            }
            _ => {}
        }
        self.said.extend(said);
    }

    pub(crate) fn sync(&mut self, node: u8) -> Option<()> {
        let this = self.node_mut(node);
        if !this.running {
            return None;
        }
        this.disk = Copy { recent: 0, ..this.live };
        let ships = self.ships.iter_mut().filter(|ship| ship.to == node);
        ships.filter(|ship| ship.way == Way::Taken).for_each(|ship| ship.way = Way::Synced);
        Some(())
    }

    pub(crate) fn deliver(&mut self, options: &Options, from: u8, to: u8) -> Option<()> {
        let flies = |ship: &&Ship| (ship.from, ship.to, ship.way) == (from, to, Way::Flying);
        let ship = *self.ships.iter().find(flies).filter(|_| self.node(to).running)?;
        let takes = self.takes(options, &ship);
        if takes {
            let recent = options.recent;
            let copy = &mut self.node_mut(to).live;
            match ship.what {
                What::Change { write, .. } => {
                    copy.log.push(write);
                    copy.recent = (copy.recent + 1).min(recent);
                }
                What::Fill { log } => {
                    (copy.log, copy.is_gone, copy.recent) = (log, false, 0);
                }
            }
        }
        // No node waits for the answer to a change of a dead node.
        let ship = self.ships.iter().position(|other| *other == ship).expect("found above");
        if self.node(from).running {
            self.ships[ship].way = if takes { Way::Taken } else { Way::Refused };
        } else {
            self.ships.remove(ship);
        }
        Some(())
    }

    pub(crate) fn takes(&self, options: &Options, ship: &Ship) -> bool {
        let node = self.node(ship.to);
        let is_earlier = ship.epoch < node.live.promised;
        if matches!(node.role, Role::Serving { .. })
            || is_earlier && options.mutant != Some(Mutant::EarlierEpochsTaken)
        {
            return false;
        }
        match ship.what {
            What::Change { before, .. } => {
                !node.live.is_gone && self.position(&node.live.log) == before
            }
            What::Fill { .. } => true,
        }
    }

    /// A primary receives the acknowledgement of a replica.
    pub(crate) fn answer(&mut self, options: &Options, from: u8, to: u8) -> Option<()> {
        if !self.node(from).running || !self.node(to).running {
            return None;
        }
        let (mut refused, mut completes) = (false, false);
        self.ships.retain_mut(|ship| {
            let is_between = (ship.from, ship.to) == (from, to);
            if is_between && ship.way == Way::Refused {
                ship.way = Way::RefusedTold;
                refused = true;
            }
            let is_synced = is_between && ship.way == Way::Synced;
            completes |= is_synced && ship.completes;
            !is_synced
        });
        let members = self.seen(from).others(from);
        let remembers = options.mutant != Some(Mutant::RefusalForgotten);
        let mut forgets = false;
        match &mut self.node_mut(from).role {
            Role::Ready { refusing, .. } if refused && remembers => {
                *refusing = refusing.with(to);
            }
            Role::Serving { refusing, .. } if refused && members.has(to) => {
                *refusing = refusing.with(to);
            }
            Role::Serving { caught, ready, refusing, .. } if caught.has(to) => {
                if refused && ready.has(to) {
                    *refusing = refusing.with(to);
                } else if refused {
                    *caught = caught.without(to);
                    forgets = true;
                } else if completes {
                    *ready = ready.with(to);
                }
            }
            _ => {}
        }
        if forgets {
            self.ships.retain(|ship| (ship.from, ship.to) != (from, to));
        }
        Some(())
    }

    /// Acknowledges the next write of a node to its client.
    pub(crate) fn acknowledge(&mut self, options: &Options, node: u8) -> Option<()> {
        let this = self.node(node);
        let batch = this.told + 1;
        let write = *this.wrote.as_slice().get(usize::from(this.told))?;
        let early = options.mutant == Some(Mutant::AcknowledgedBeforeSynced);
        let open = |ship: &&Ship| ship.from == node && ship.batch <= batch;
        let waits = |ship: &Ship| !early || !ship.is_logged();
        let alone = options.mutant == Some(Mutant::AcknowledgedBeforeCopied);
        let is_held = !alone && self.ships.iter().filter(open).any(waits)
            || this.by_map.iter().any(|waiting| waiting <= batch)
            || !early && !this.disk.log.has(write)
            || !this.running
            || self.must_register(options, node);
        if is_held {
            return None;
        }
        let history = this.live.log;
        let end = history.as_slice().iter().position(|&other| other == write);
        self.node_mut(node).told += 1;
        // A node that has lost its replica since knows only the number.
        match end {
            Some(end) => self.clients_know(history.up_to(end as u8 + 1)),
            None if self.acknowledged.has(write) => {}
            None => self.acknowledged.push(write),
        }
        Some(())
    }

    /// The primary was left alone. The removed members may continue without it until the map shows
    /// it as registered.
    pub(crate) fn must_register(&self, options: &Options, node: u8) -> bool {
        let is_serving = matches!(self.node(node).role, Role::Serving { .. });
        let careless = options.mutant == Some(Mutant::LonePrimaryGoesOn);
        is_serving && !careless && !self.seen(node).former.is_empty()
    }

    pub(crate) fn clients_know(&mut self, history: crate::small::Row) {
        if self.acknowledged.is_prefix_of(&history) {
            self.acknowledged = history;
        } else if !history.is_prefix_of(&self.acknowledged) {
            self.is_split = true;
        }
    }

    /// True if the node would answer reads now.
    pub(crate) fn may_read(&self, options: &Options, node: u8) -> bool {
        let this = self.node(node);
        let is_serving = this.running && matches!(this.role, Role::Serving { .. });
        is_serving
            && !self.must_register(options, node)
            && this.by_map.is_empty()
            && this.disk.log == this.live.log
            && !self.ships.iter().any(|ship| ship.from == node)
            && self.seen(node).others(node).is_within(self.leases[usize::from(node)])
    }

    pub(crate) fn read(&mut self, options: &Options, node: u8) -> Option<()> {
        let history = self.node(node).live.log;
        if !options.reads || !self.may_read(options, node) {
            return None;
        }
        self.clients_know(history);
        Some(())
    }

    pub(crate) fn write(&mut self, options: &Options, node: u8) -> Option<()> {
        let this = self.node(node);
        let write = self.written.len();
        let Role::Serving { epoch, caught, .. } = this.role else { return None };
        if write >= options.writes || !this.running {
            return None;
        }
        let seen = self.seen(node);
        let is_short = options.copies >= 3 && seen.replicas.len() < 2;
        let waits = is_short || self.must_register(options, node);
        let to = seen.others(node).or(caught);
        let before = self.position(&this.live.log);
        self.written.push(epoch);
        let this = self.node_mut(node);
        this.live.log.push(write);
        this.live.recent = (this.live.recent + 1).min(options.recent);
        this.wrote.push(write);
        let batch = this.wrote.len();
        if waits {
            this.by_map = this.by_map.with(batch);
        }
        let (from, completes, way) = (node, false, Way::Flying);
        let what = What::Change { before, write };
        for to in to.iter() {
            self.push_ship(Ship { from, to, batch, epoch, what, completes, way });
        }
        Some(())
    }

    pub(crate) fn lease(&mut self, options: &Options, primary: u8, giver: u8) -> Option<()> {
        let this = self.node(primary);
        let asks = matches!(this.role, Role::Serving { .. }) && this.running;
        let is_backup = self.seen(primary).others(primary).has(giver);
        let gives =
            self.node(giver).running && self.seen(giver).may_have_lease(primary, this.incarnation);
        if !asks || !is_backup || !gives || !options.reads {
            return None;
        }
        let leases = &mut self.leases[usize::from(primary)];
        *leases = leases.with(giver);
        Some(())
    }

    pub(crate) fn expire(&mut self, primary: u8, giver: u8) -> Option<()> {
        let leases = &mut self.leases[usize::from(primary)];
        *leases = leases.without(giver);
        let giver = self.node_mut(giver);
        giver.given_before = giver.given_before.without(primary);
        Some(())
    }
}
