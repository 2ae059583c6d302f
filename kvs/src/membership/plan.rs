//! The planner: proposes the next commands so that each partition has its replicas and all nodes
//! hold equally much. The group's leader calls it.
//!
//! The planner is stateless and reads only the map, so a new leader continues the work of the
//! previous one. Partitions that are not active have to wait. Its steps, in this order:
//!
//! 1. Voters are exchanged, one at a time. (A node that leaves proposes its own removal.) The
//!    number of replicas in force follows the members (`growth.rs`).
//! 2. Primaries on slow nodes are handed over. A slow node's replica is dropped once enough other
//!    replicas exist. In the steps below, "up" excludes slow nodes.
//! 3. Surplus replicas are dropped: first those of leaving nodes, then the one that a move was
//!    planned for, or else the fullest node's. A primary is handed over before its replica is
//!    dropped.
//! 4. Missing replicas are created on the nodes that hold least. A leaving node receives one only
//!    if nothing could be acknowledged otherwise.
//! 5. While the fullest node holds at least two replicas more than the emptiest, one replica moves.
//! 6. While primaries are uneven, they are handed over along chains of partitions' members.
//!
//! A keeper is primary only of partitions that no working node can serve. Other such primaries are
//! handed over like those of slow nodes, and each partition gets a replica on a working node.
//!
//! A replica moves by creation of the new one, and removal of the old one when the new one has
//! caught up. Meanwhile the old one counts as gone. So exactly the target number of replicas moves
//! to a joining node.

use proto::wire::MemberPhase::Leaving;
use proto::wire::map_command::Body;
use proto::{NodeId, wire};

use super::balance::Loads;
use super::growth::next_copies;
use super::{command, is_fit, is_serving, member, members, min_in_sync, wanted_voters};
use crate::limits::{PLAN_COMMANDS_MAX, PLAN_LEARNERS_MAX};

/// The next commands, at most `PLAN_COMMANDS_MAX`. Empty if the map is at its target, or if the
/// rest depends on nodes that have not answered yet.
#[must_use]
pub fn plan(map: &wire::ClusterMap) -> Vec<wire::MapCommand> {
    let mut commands: Vec<wire::MapCommand> =
        wanted_voters(map).map(set_voters).into_iter().collect();
    commands.extend(next_copies(map).map(set_copies));
    let mut loads = Loads::new(map);
    if loads.up.is_empty() {
        return commands;
    }
    let learners: usize = map.partitions.iter().map(|entry| entry.learners.len()).sum();
    let mut room = PLAN_LEARNERS_MAX.saturating_sub(learners);
    let mut moving = Vec::new();
    for (partition, entry) in (0..).zip(&map.partitions) {
        if commands.len() >= PLAN_COMMANDS_MAX {
            return commands;
        }
        let of = Partition { map, partition, entry };
        if !entry.active {
            // A replica that the partition will drop when it is active counts as gone. Otherwise
            // its holder would seem fuller than it is, and more replicas than its surplus would
            // move away.
            of.will_be_too_many(&mut loads);
            continue;
        }
        let away = of.away_from_slow(&mut loads).or_else(|| of.away_from_keeper(&mut loads));
        if let Some(command) = away {
            commands.push(command);
            continue;
        }
        let over = of.too_many(&mut loads);
        if !over.is_empty() {
            commands.extend(over);
            continue;
        }
        let may_add = room > 0;
        if of.wants_learner(&loads) && may_add {
            if let Some(node) = of.next_holder(&loads) {
                loads.gain(node);
                room -= 1;
                commands.push(of.add_learner(node));
            }
        } else if let Some(node) = of.called_back().filter(|_| may_add) {
            room -= 1;
            commands.push(of.add_learner(node));
        } else if let Some(command) = may_add.then(|| of.towards_worker(&mut loads)).flatten() {
            room -= 1;
            commands.push(command);
        } else if of.is_settled(&loads) {
            moving.push(partition);
        }
    }
    room = room.min(PLAN_COMMANDS_MAX.saturating_sub(commands.len()));
    commands.extend(loads.moves(map, &moving, room));
    if commands.is_empty() {
        commands.extend(loads.handovers(map, &moving));
    }
    commands
}

/// The command with which a leaving node asks for its removal, once it holds nothing outside the
/// map. `None` while the map shows that it has a replica or a vote.
#[must_use]
pub fn departure(map: &wire::ClusterMap, node: NodeId) -> Option<wire::MapCommand> {
    let remove = wire::MemberRemove { node: node.0 };
    let leaves = member(map, node).is_some_and(|member| member.phase() == Leaving);
    (leaves && members::remove_holds(map, &remove)).then(|| command(Body::Remove(remove)))
}

fn set_voters(voters: Vec<u32>) -> wire::MapCommand {
    command(Body::SetVoters(wire::SetVoters { voters }))
}

fn set_copies(copies: u32) -> wire::MapCommand {
    command(Body::SetCopies(wire::SetCopies { copies }))
}

struct Partition<'a> {
    map: &'a wire::ClusterMap,
    partition: u32,
    entry: &'a wire::PartitionEntry,
}

impl Partition<'_> {
    fn has(&self, node: u32) -> bool {
        self.entry.replicas.contains(&node) || self.entry.learners.contains(&node)
    }

    fn replicas_fit(&self) -> usize {
        self.entry.replicas.iter().filter(|&&node| is_fit(self.map, node)).count()
    }

    fn is_slow(&self, node: u32) -> bool {
        member(self.map, NodeId(node)).is_some_and(|member| member.slow)
    }

    /// Removes a slow node from the partition, as primary or as member, as far as enough others
    /// remain.
    fn away_from_slow(&self, loads: &mut Loads) -> Option<wire::MapCommand> {
        let Self { entry, .. } = *self;
        let slow = |of: &[u32]| of.iter().copied().find(|&node| self.is_slow(node));
        let home = entry.replicas[0];
        if self.is_slow(home) {
            let others = entry.replicas[1..].iter().copied();
            let to = loads.fewest_homes(others.filter(|&node| is_fit(self.map, node)))?;
            loads.move_home(home, to);
            return Some(self.hand_over(to));
        }
        if let Some(node) = slow(&entry.learners) {
            return Some(self.drop(node));
        }
        // Keeps the full number of fit replicas, since two of them may be failing at this moment.
        let is_enough = self.replicas_fit() >= loads.copies.max(min_in_sync(self.map.copies));
        slow(&entry.replicas).filter(|_| is_enough).map(|node| self.drop(node))
    }

    /// Hands a keeper's partition over to a working node, if a member is one.
    fn away_from_keeper(&self, loads: &mut Loads) -> Option<wire::MapCommand> {
        let home = self.entry.replicas[0];
        let others = self.entry.replicas[1..].iter().copied();
        let to = loads.fewest_homes(others.filter(|&node| loads.works(node)))?;
        if loads.works(home) || !is_fit(self.map, home) {
            return None;
        }
        loads.move_home(home, to);
        Some(self.hand_over(to))
    }

    /// If all replicas are on keepers and a working node exists, moves one keeper's replica to it.
    fn towards_worker(&self, loads: &mut Loads) -> Option<wire::MapCommand> {
        let is_alone = self.is_settled(loads) && !loads.any_works(&self.entry.replicas);
        let node = loads.emptiest(|node| loads.works(node)).filter(|_| is_alone)?;
        let goes = loads.fullest(self.entry.replicas.iter().copied())?;
        loads.lose(goes);
        loads.gain(node);
        Some(self.add_copy(node, Some(goes)))
    }

    /// The node that gets one more replica: a working node as long as the partition has none.
    fn next_holder(&self, loads: &Loads) -> Option<u32> {
        let holders = self.entry.replicas.iter().chain(&self.entry.learners);
        let holders: Vec<u32> = holders.copied().collect();
        let has_worker = loads.any_works(&holders);
        let fresh = |node: u32| !self.has(node);
        let best = loads.emptiest(|node| fresh(node) && (has_worker || loads.works(node)));
        best.or_else(|| loads.emptiest(fresh))
    }

    /// Too few replicas, including those being created.
    fn wants_learner(&self, loads: &Loads) -> bool {
        let learners = self.entry.learners.iter().filter(|&&node| is_fit(self.map, node)).count();
        self.replicas_fit() + learners < loads.copies
    }

    /// A leaving node that dropped its replica, if the remaining members have become too few to
    /// acknowledge anything. It gets a replica again until there are more members.
    fn called_back(&self) -> Option<u32> {
        let serving = self.entry.replicas.iter().filter(|&&node| is_serving(self.map, node));
        let lacks = serving.count() + self.entry.learners.len() < min_in_sync(self.map.copies);
        let leaves = |it: &&wire::Member| it.phase() == Leaving && !self.has(it.node);
        lacks.then(|| self.map.members.iter().find(leaves)).flatten().map(|member| member.node)
    }

    /// The partition has its exact number of fit replicas and no learners.
    fn is_settled(&self, loads: &Loads) -> bool {
        let is_full =
            self.entry.replicas.len() == loads.copies && self.replicas_fit() == loads.copies;
        is_full && self.entry.learners.is_empty()
    }

    /// The commands to drop a surplus replica, or to prepare that. A replica that will be dropped
    /// once another has caught up counts as gone in `loads`.
    fn too_many(&self, loads: &mut Loads) -> Vec<wire::MapCommand> {
        let Self { entry, .. } = *self;
        let members = self.replicas_fit();
        if members > loads.copies && !entry.learners.is_empty() {
            return vec![self.drop(entry.learners[0])];
        }
        let leaving = entry.replicas.iter().find(|&&node| !is_fit(self.map, node));
        // A leaving node stays until enough other members exist to acknowledge writes.
        if let Some(&node) = leaving
            && members >= loads.copies.max(min_in_sync(self.map.copies))
        {
            return vec![self.drop_replica(node, loads)];
        }
        let Some(node) = self.will_be_too_many(loads) else { return Vec::new() };
        if members > loads.copies { vec![self.drop_replica(node, loads)] } else { Vec::new() }
    }

    /// The node that is to drop its replica, now or later; it counts as gone in `loads`. If a move
    /// was planned, it is the node recorded there. A new choice each time would differ once other
    /// moves have finished, and would make an even distribution uneven.
    fn will_be_too_many(&self, loads: &mut Loads) -> Option<u32> {
        if self.replicas_fit() + self.entry.learners.len() <= loads.copies {
            return None;
        }
        let fit = self.entry.replicas.iter().copied().filter(|&node| is_fit(self.map, node));
        let planned = fit.clone().find(|&node| self.entry.goes == Some(node));
        // Not the only working node.
        let working = fit.clone().filter(|&node| loads.works(node)).count();
        let may_go = fit.filter(|&node| working != 1 || !loads.works(node));
        let goes = planned.or_else(|| loads.fullest(may_go))?;
        loads.lose(goes);
        Some(goes)
    }

    fn drop_replica(&self, node: u32, loads: &mut Loads) -> wire::MapCommand {
        if self.entry.replicas[0] != node {
            return self.drop(node);
        }
        let others = self.entry.replicas[1..].iter().copied();
        let to = loads.fewest_homes(others.filter(|&node| is_fit(self.map, node)));
        let to = to.expect("a node that may leave is not alone");
        loads.move_home(node, to);
        self.hand_over(to)
    }

    fn drop(&self, node: u32) -> wire::MapCommand {
        let (partition, epoch) = (self.partition, self.entry.epoch);
        command(Body::DropReplica(wire::DropReplica { partition, epoch, node }))
    }

    fn hand_over(&self, to: u32) -> wire::MapCommand {
        let (partition, epoch) = (self.partition, self.entry.epoch);
        command(Body::Handover(wire::Handover { partition, epoch, to }))
    }

    fn add_learner(&self, node: u32) -> wire::MapCommand {
        self.add_copy(node, None)
    }

    fn add_copy(&self, node: u32, replaces: Option<u32>) -> wire::MapCommand {
        let (partition, epoch) = (self.partition, self.entry.epoch);
        command(Body::AddLearner(wire::AddLearner { partition, epoch, node, replaces }))
    }
}
