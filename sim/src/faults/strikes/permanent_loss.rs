//! Permanent losses at the end of the faults. The second phase of a run demands progress from the
//! nodes that remain, after as many losses as the cluster must survive.

use kvs::membership::{is_serving, losses_survived, member, min_in_sync};
use proto::limits::{PROBE_PERIOD, SUSPECT_FOR};
use proto::{NodeId, Span, wire};

use crate::faults::lifecycle::WHOLE_BOUND;
use crate::faults::world::World;
use crate::state::machine::Machine;

impl World {
    /// Removes some machines permanently after the other faults have ended, if the cluster must
    /// survive it. Only a whole cluster must: while configurations change, a few live nodes may
    /// hold the only complete records.
    pub(crate) fn lose_some_permanently(&mut self) {
        let wanted = self.injection.options().left_away;
        let is_lost = |machine: &Machine| machine.is_lost;
        if wanted == 0 || !self.homes_move() || self.machines.iter().any(is_lost) {
            return;
        }
        // Other checks demand that the cluster becomes whole.
        let mut is_whole = self.run_until(self.now + WHOLE_BOUND, Self::is_whole);
        if is_whole {
            // For the map, a node that was declared failed by mistake is a loss as well. It counts
            // toward the losses that the cluster survives.
            self.run_for(Span(SUSPECT_FOR.0 + PROBE_PERIOD.0));
            is_whole = self.is_whole();
        }
        let most = wanted.min(losses_survived(&self.map) as u32);
        let is_clear = is_whole
            && self.voters_know_of_a_map()
            && !self.a_loss_is_unnoticed()
            && !self.has_hidden_damage()
            && !self.is_unsettled()
            && !self.start_a_departure();
        if most == 0 || !is_clear {
            return;
        }
        let first = self.dice.index(self.machines.len());
        let mut away = Vec::new();
        for step in 0..self.machines.len() {
            let node = (first + step) % self.machines.len();
            let others: Vec<usize> = away.iter().copied().chain([node]).collect();
            // No node probes a joined node before it has started, so nothing would detect its loss.
            let is_watched = is_serving(&self.map, node as u32);
            let may_go = self.machines[node].may_run() && is_watched;
            if away.len() < most as usize && may_go && self.is_core(&others) {
                away = others;
            }
        }
        for node in away {
            self.count_fault("away");
            self.tell(|| format!("n{node} goes away"));
            self.lose(node);
        }
    }

    /// True if the machines outside `away` have a replica of everything, a majority of the votes
    /// and slots for every task. They must also suffice to acknowledge every change.
    fn is_core(&self, away: &[usize]) -> bool {
        // A node that has just left may not know it yet.
        let is_there = |node: usize| is_serving(&self.map, node as u32);
        let may_run = |node: usize| self.machines[node].may_run() && is_there(node);
        let stays = |node: usize| may_run(node) && !away.contains(&node);
        let left: Vec<usize> = (0..self.machines.len()).filter(|&node| stays(node)).collect();
        let has_disk = |node: u32| {
            let known = member(&self.map, NodeId(node)).map_or(0, |member| member.store);
            stays(node as usize) && (known == 0 || known == self.machines[node as usize].store)
        };
        let has_copy = |entry: &wire::PartitionEntry| entry.replicas.iter().any(|&n| has_disk(n));
        let votes = self.map.voters.iter().filter(|&&voter| has_disk(voter)).count();
        let widest = |nodes: &[usize]| nodes.iter().map(|&node| self.machines[node].slots).max();
        left.len() >= min_in_sync(self.map.copies).max(1)
            && votes * 2 > self.map.voters.len()
            && widest(&left) >= widest(away)
            && self.map.partitions.iter().all(has_copy)
    }
}
