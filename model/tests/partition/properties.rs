//! The properties: invariants, and situations that must be reachable.

use crate::small::NODES;
use crate::state::{Options, Role, State};
use crate::steps::{Step, comes_by_itself};

impl State {
    /// Each replica that the map counts as complete has all acknowledged writes.
    pub(crate) fn keeps_what_was_acknowledged(&self) -> bool {
        let map = self.map();
        let acknowledged = self.acknowledged.set();
        let former = if map.active { Default::default() } else { map.former };
        let full = map.replicas.set().or(former);
        full.iter().all(|node| acknowledged.is_within(self.node(node).disk.log.set()))
    }

    /// Every replica of an active partition that has not restarted since has all writes that other
    /// nodes have received messages about, as long as one replica stayed up.
    pub(crate) fn keeps_what_was_spoken(&self) -> bool {
        let map = self.map();
        let is_life = |node: &u8| {
            let this = self.node(*node);
            this.running && map.is_current(*node, this.incarnation)
        };
        !map.active
            || map.replicas.set().iter().filter(is_life).all(|node| {
                let has = self.node(node).live.log.set();
                let on_its_way = self.is_sent_or_refused(node);
                on_its_way || self.spoken.is_within(has)
            })
    }

    fn is_sent_or_refused(&self, node: u8) -> bool {
        self.ships.iter().any(|ship| ship.to == node)
    }

    /// Replicas at equal positions have equal content.
    pub(crate) fn equal_positions_are_equal_copies(&self) -> bool {
        let copies = self.nodes.iter().map(|node| &node.live).filter(|copy| !copy.is_gone);
        let copies: Vec<_> = copies.collect();
        copies.iter().all(|a| {
            let same = copies.iter().filter(|b| self.position(&a.log) == self.position(&b.log));
            same.into_iter().all(|b| a.log == b.log)
        })
    }

    /// No node answers a read without the writes acknowledged before.
    pub(crate) fn reads_are_fresh(&self, options: &Options) -> bool {
        (0..NODES)
            .filter(|&node| self.may_read(options, node))
            .all(|node| self.acknowledged.set().is_within(self.node(node).live.log.set()))
    }

    /// If no further step happens by itself, every pending operation has completed.
    pub(crate) fn ends_well(&self, options: &Options) -> bool {
        let mut steps = Vec::new();
        self.steps(&mut steps);
        let moves = steps.into_iter().filter(|&step| comes_by_itself(step)).any(|step| {
            let is_bounded = match step {
                Step::Agree(command) => self
                    .map()
                    .after(command, options.mutant)
                    .is_some_and(|map| map.epoch > options.epochs),
                _ => false,
            };
            is_bounded || self.after(options, step).is_some()
        });
        moves || self.no_waiting_message(options)
    }

    fn no_waiting_message(&self, options: &Options) -> bool {
        let map = self.map();
        let mut at_work = (0..NODES).filter(|&node| {
            let this = self.node(node);
            this.running && map.is_current(node, this.incarnation)
        });
        let all_told = at_work.clone().all(|node| {
            let this = self.node(node);
            this.told == this.wrote.len()
        });
        let is_served = matches!(self.node(map.primary()).role, Role::Serving { .. });
        let somebody_could = at_work.any(|node| map.replicas.has(node));
        // The planner would create another replica.
        let is_short = options.copies >= 3 && map.replicas.len() < 2;
        is_short || all_told && (is_served || !somebody_could)
    }

    /// A second primary has acknowledged a write after a first one had.
    pub(crate) fn fails_over(&self) -> bool {
        let known = self.acknowledged.as_slice();
        let epochs = known.iter().map(|&write| self.written.as_slice()[usize::from(write)]);
        let epochs: Vec<u8> = epochs.collect();
        epochs.first() != epochs.last()
    }

    /// A replaced primary is running while its successor serves.
    pub(crate) fn a_zombie_is_awake(&self) -> bool {
        let serves = |node: &u8| {
            let this = self.node(*node);
            this.running && matches!(this.role, Role::Serving { .. })
        };
        let now = self.map().primary();
        serves(&now) && (0..NODES).filter(|&node| node != now).any(|node| serves(&node))
    }
}
