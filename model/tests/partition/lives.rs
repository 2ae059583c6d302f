//! The effect of a newer map on a node, and of its end and restart.

use crate::map::{Command, Map};
use crate::small::{NODES, Set};
use crate::state::{Copy, Mutant, Options, Role, Ship, State, Way, serving};

impl State {
    pub(crate) fn decide(&mut self, options: &Options, command: Command) -> Option<()> {
        let (spent, budget) = match command {
            Command::Down { .. } => (&mut self.evictions, options.evictions),
            _ => (&mut self.moves, options.moves),
        };
        *spent += 1;
        if *spent > budget {
            return None;
        }
        self.agree(options, command)
    }

    pub(crate) fn agree(&mut self, options: &Options, command: Command) -> Option<()> {
        let map = self.map().after(command, options.mutant)?;
        if map.epoch > options.epochs {
            return None;
        }
        // A single member that restarts, or replaces a single member, has only its synced changes.
        // These are the ones that clients know.
        let before = self.map();
        if before.replicas.len() == 1 && map.replicas.len() == 1 && before.epoch < map.epoch {
            self.spoken = self.acknowledged.set();
        }
        self.maps.push(map);
        Some(())
    }

    pub(crate) fn cut(&mut self, options: &Options, node: u8) -> Option<()> {
        let this = self.node(node);
        if self.cuts >= options.cuts || !this.running {
            return None;
        }
        self.cuts += 1;
        let this = self.node_mut(node);
        this.live = this.disk;
        self.stop(node);
        Some(())
    }

    /// The node's pending acknowledgements are lost. Its writes stay on disk.
    pub(crate) fn stop(&mut self, node: u8) {
        let given = (0..NODES).filter(|&primary| self.leases[usize::from(primary)].has(node));
        let given_before = Set::of(given);
        let this = self.node_mut(node);
        this.running = false;
        this.disk = Copy { recent: 0, ..this.live };
        this.live = this.disk;
        this.role = Role::Idle;
        (this.wrote, this.told, this.by_map) = Default::default();
        this.given_before = this.given_before.or(given_before);
        self.leases[usize::from(node)] = Set::default();
        for other in &mut self.nodes {
            other.given_before = other.given_before.without(node);
        }
        self.ships.retain(|ship| ship.from != node || ship.way == Way::Flying);
        let nodes = &self.nodes;
        self.ships.retain_mut(|ship| {
            if ship.to == node && ship.way != Way::RefusedTold {
                ship.way = Way::Lost;
            }
            ship.to != node || nodes[usize::from(ship.from)].running
        });
    }

    /// The node restarts. The primaries that serve or fill it learn that at once.
    pub(crate) fn restart(&mut self, node: u8) -> Option<()> {
        let this = self.node_mut(node);
        if this.running {
            return None;
        }
        this.incarnation += 1;
        this.running = true;
        self.ships.retain(|ship| ship.from != node);
        for primary in (0..NODES).filter(|&primary| primary != node) {
            let Role::Serving { caught, ready, refusing, .. } = &mut self.node_mut(primary).role
            else {
                continue;
            };
            if ready.has(node) {
                *refusing = refusing.with(node);
            } else if caught.has(node) {
                *caught = caught.without(node);
                self.ships.retain(|ship| (ship.from, ship.to) != (primary, node));
            }
        }
        Some(())
    }

    pub(crate) fn learn(&mut self, options: &Options, node: u8, version: u8) -> Option<()> {
        let map = self.maps[usize::from(version)];
        let this = self.node_mut(node);
        if !this.running {
            return None;
        }
        this.seen = version;
        let incarnation = this.incarnation;
        let known = map.member(node);
        if known.incarnation > incarnation || known.incarnation == incarnation && !known.up {
            self.stop(node); // It is fenced.
            return Some(());
        }
        let is_current = map.is_current(node, incarnation);
        let is_mine = is_current && map.primary() == node;
        let role = std::mem::replace(&mut self.node_mut(node).role, Role::Idle);
        match role {
            Role::Serving { .. } if is_mine && map.active => {
                self.node_mut(node).role = role;
                self.update(options, node, &map);
            }
            Role::Ready { refusing, .. } if is_mine && map.active => {
                self.node_mut(node).role = serving(map.epoch, refusing);
                self.update(options, node, &map);
            }
            Role::Draining { epoch, .. }
            | Role::Promising { epoch, .. }
            | Role::Ready { epoch, .. }
                if is_mine && epoch == map.epoch =>
            {
                self.node_mut(node).role = role;
            }
            _ if is_mine && !map.active => {
                let (epoch, waiting) = (map.epoch, map.others(node));
                self.node_mut(node).role = Role::Draining { epoch, waiting };
                self.ask_promises(options, node);
            }
            _ => {}
        }
        self.drop_copy(node, &map, is_current);
        self.wait_for_map(options, node, &map);
        self.retain(options, node, &map);
        Some(())
    }

    pub(crate) fn drop_copy(&mut self, node: u8, map: &Map, is_current: bool) {
        let holders = map.replicas.set().or(map.learners).or(map.former);
        if is_current && map.active && !holders.has(node) {
            let copy = &mut self.node_mut(node).live;
            let promised = copy.promised.max(map.epoch);
            *copy = Copy { is_gone: true, promised, ..Copy::default() };
        }
    }

    /// Updates the configuration of a serving node.
    pub(crate) fn update(&mut self, options: &Options, node: u8, map: &Map) {
        let Role::Serving { epoch, mut caught, mut ready, mut refusing } = self.node(node).role
        else {
            return;
        };
        let (members, learners) = (map.others(node), map.learners);
        if epoch != map.epoch {
            if options.mutant == Some(Mutant::RefusalForgotten) {
                refusing = refusing.and(caught).and(members);
            }
            // The report that it has caught up is void, so it may start again.
            for learner in refusing.and(caught).and(learners).iter() {
                (caught, ready) = (caught.without(learner), ready.without(learner));
                self.ships.retain(|ship| (ship.from, ship.to) != (node, learner));
            }
            refusing = refusing.and(members);
        }
        refusing = refusing.and(members.or(learners));
        (caught, ready) = (caught.and(learners), ready.and(learners));
        let epoch = map.epoch;
        self.node_mut(node).role = Role::Serving { epoch, caught, ready, refusing };
    }

    /// Changes that removed members have not acknowledged wait until the map shows the
    /// configuration without them. Until then they may still take the changes.
    pub(crate) fn wait_for_map(&mut self, options: &Options, node: u8, map: &Map) {
        let is_serving = matches!(self.node(node).role, Role::Serving { .. });
        let forgets = match options.mutant {
            Some(Mutant::LonePrimaryGoesOn) => is_serving,
            Some(Mutant::WhoLeftIsForgotten) => !is_serving,
            _ => false,
        };
        if !forgets {
            let is_open = |ship: &&Ship| ship.from == node && map.former.has(ship.to);
            let open = Set::of(self.ships.iter().filter(is_open).map(|ship| ship.batch));
            let this = self.node_mut(node);
            this.by_map = this.by_map.or(open);
        }
    }

    /// Removed members are not waited for any more.
    pub(crate) fn retain(&mut self, options: &Options, node: u8, map: &Map) {
        let replicas = map.replicas.set();
        let is_short = options.copies >= 3 && map.replicas.len() < 2;
        let waits = is_short || self.must_register(options, node);
        let (counts, waits) = match self.node(node).role {
            Role::Serving { caught, .. } => (replicas.or(caught), waits),
            Role::Idle if !replicas.has(node) => (Set::default(), false),
            Role::Idle => (replicas, !map.former.is_empty()),
            _ => (replicas, true),
        };
        let open = |ship: &&Ship| ship.from == node;
        let is_left = self.ships.iter().filter(open).any(|ship| ship.batch > 0)
            || !self.node(node).by_map.is_empty();
        let is_dropped = self.node(node).role == Role::Idle && !replicas.has(node);
        if is_dropped && is_left && options.mutant != Some(Mutant::WhoIsDroppedGoesOn) {
            self.stop(node); // Its writes may be lost, so it must not continue.
            return;
        }
        self.ships.retain(|ship| ship.from != node || counts.has(ship.to));
        if !waits {
            self.node_mut(node).by_map = Set::default();
        }
    }
}
