//! The choice of the nodes of a gang. They are of one node group: of one batch job, or with one
//! label `group:NAME`. Nodes without such a label are a node group too.

use std::collections::BTreeMap;

use proto::{NodeId, TaskId};

use crate::holder::task::Work;
use crate::{Mutant, Scheduler};

/// The nodes of each group, by its name.
type Groups<'a> = BTreeMap<Option<&'a str>, Vec<NodeId>>;

impl Scheduler {
    pub(super) fn group_of(&self, node: NodeId) -> Option<&str> {
        if self.options.mutant == Some(Mutant::GangAcrossGroups) {
            return None;
        }
        self.routing.homes().offer_of(node)?.group()
    }
    fn groups(&self, nodes: impl Iterator<Item = NodeId>) -> Groups<'_> {
        let mut groups = Groups::new();
        for node in nodes {
            groups.entry(self.group_of(node)).or_default().push(node);
        }
        groups
    }

    /// Whether the map shows the present life of the node. Until then its offer there, and so its
    /// group, is that of an earlier life, or of a join; a node that has joined may never start.
    /// Where homes never move, the map of a node may have no lives.
    pub(super) fn is_listed(&self, node: NodeId) -> bool {
        let homes = self.routing.homes();
        !homes.moves() || homes.incarnation_of(node) == self.life_of(node).1
    }

    /// The nodes that may have a part of the gang, in order: all nodes of each group with enough of
    /// them. If no group has enough, those of the largest group.
    pub(super) fn nodes_for(&self, work: &Work) -> Vec<NodeId> {
        let homes = self.routing.homes();
        let may_work = |node: &NodeId| !homes.is_paused(*node) && self.is_listed(*node);
        let working = homes.staying().filter(may_work);
        let groups = self.groups(working.filter(|&node| self.offers_enough(node, work)));
        let size = work.spec.nodes as usize;
        if groups.values().all(|nodes| nodes.len() < size) {
            return largest(groups).1;
        }
        let enough = groups.into_values().filter(|nodes| nodes.len() >= size);
        let mut nodes: Vec<NodeId> = enough.flatten().collect();
        nodes.sort_unstable();
        nodes
    }
    /// Those of the nodes that are of the group of this node.
    pub(super) fn of_own_group(&self, mut nodes: Vec<NodeId>) -> Vec<NodeId> {
        let own = self.group_of(self.options.me);
        nodes.retain(|&node| self.group_of(node) == own);
        nodes
    }
    /// The nodes that fit, working or not, of the group with most of them, and its name.
    pub(super) fn fitting_group(&self, work: &Work) -> (Option<&str>, Vec<NodeId>) {
        let members = self.routing.homes().not_removed();
        largest(self.groups(members.filter(|&node| self.offers_ever(node, work))))
    }
    /// Whether each group of the cluster has fewer nodes than the gang needs.
    pub(crate) fn lacks_nodes_for(&self, work: &Work) -> bool {
        if !work.is_gang() {
            return false;
        }
        let fitting = self.fitting_group(work).1.len();
        fitting > 0 && fitting < work.spec.nodes as usize
    }

    /// The node that leads the gang. Gangs are spread, so that they can run beside each other.
    pub(crate) fn leader_of(&self, task: TaskId, work: &Work) -> Option<NodeId> {
        let fitting = self.nodes_for(work);
        let number = task.job.0.wrapping_add(task.local.index());
        let at = number.wrapping_mul(work.spec.nodes.into()) % fitting.len().max(1) as u64;
        fitting.get(at as usize).copied()
    }
    pub(crate) fn leads_here(&self, task: TaskId, work: &Work) -> bool {
        self.leader_of(task, work).is_none_or(|leader| leader == self.options.me)
    }
}

/// The group with most nodes; of equal ones the first.
fn largest(groups: Groups<'_>) -> (Option<&str>, Vec<NodeId>) {
    let mut largest = (None, Vec::new());
    for (name, nodes) in groups {
        if nodes.len() > largest.1.len() {
            largest = (name, nodes);
        }
    }
    largest
}
