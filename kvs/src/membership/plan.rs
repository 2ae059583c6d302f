//! What to do next, so that each partition has its copies and the nodes hold equally much.
//!
//! Stateless: it looks at the map alone, so any leader goes on where another stopped. It speaks
//! only of partitions that are active and waits for the rest. In this order:
//!
//! 1. Voters are exchanged, one at a time. (That it goes, a node that leaves says itself.) The
//!    number of copies in force follows the members (`growth.rs`).
//! 2. Homes of slow nodes are handed over, and their copies dropped once others have as many as
//!    there should be. What the planner calls up below is not slow.
//! 3. Copies too many are dropped, those of leaving nodes first, then the one that a move was
//!    planned for, or else the fullest node's. A home is handed over before its copy goes.
//! 4. Copies too few are made, on the nodes that hold least; on one that leaves only where without
//!    it nothing could be acknowledged.
//! 5. While the fullest node holds at least two copies more than the emptiest, one moves.
//! 6. While homes are uneven, they are handed over along chains of partitions' members.
//!
//! A keeper is home of nothing that a node which works can serve: such a home is handed over as a
//! slow node's is, and one of the copies of each partition is with a node that works.
//!
//! A copy moves by being made first and dropped at its old place when it has caught up: while it
//! is under way the old place counts as empty already. So what moves for a joining node is what it
//! should hold and no more.

use proto::limits::{PLAN_COMMANDS_MAX, PLAN_LEARNERS_MAX};
use proto::wire::MemberPhase::Leaving;
use proto::wire::map_command::Body;
use proto::{NodeId, wire};

use super::balance::Loads;
use super::growth::next_copies;
use super::{command, is_fit, is_serving, member, members, min_in_sync, wanted_voters};

/// The next commands, at most [`PLAN_COMMANDS_MAX`]. Empty: all is as it should be, or the rest
/// depends on nodes that have not answered yet.
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
            // What it is to drop when it serves counts for nothing now. Else its holders seem
            // fuller than they are, and more moves away from them than they have too much.
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

/// What a node that leaves says when it has nothing left that is not in the map, once the map
/// lets it go: it holds nothing, and has no vote.
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

    /// What others wait for a slow node for, they wait for no more, as far as enough of them stay.
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
        // As many as promised, and not one fewer: two of them may be dying this very moment.
        let is_enough = self.replicas_fit() >= loads.copies.max(min_in_sync(self.map.copies));
        slow(&entry.replicas).filter(|_| is_enough).map(|node| self.drop(node))
    }

    /// A keeper is home only where no node that works can be.
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

    /// All its copies are with keepers, and some node works: that one gets the copy of a keeper.
    fn towards_worker(&self, loads: &mut Loads) -> Option<wire::MapCommand> {
        let is_alone = self.is_settled(loads) && !loads.any_works(&self.entry.replicas);
        let node = loads.emptiest(|node| loads.works(node)).filter(|_| is_alone)?;
        let goes = loads.fullest(self.entry.replicas.iter().copied())?;
        loads.lose(goes);
        loads.gain(node);
        Some(self.add_copy(node, Some(goes)))
    }

    /// Where one more copy is made: on a node that works, as long as none has one.
    fn next_holder(&self, loads: &Loads) -> Option<u32> {
        let holders = self.entry.replicas.iter().chain(&self.entry.learners);
        let holders: Vec<u32> = holders.copied().collect();
        let has_worker = loads.any_works(&holders);
        let fresh = |node: u32| !self.has(node);
        let best = loads.emptiest(|node| fresh(node) && (has_worker || loads.works(node)));
        best.or_else(|| loads.emptiest(fresh))
    }

    /// It has too few copies, counting those that are being made.
    fn wants_learner(&self, loads: &Loads) -> bool {
        let learners = self.entry.learners.iter().filter(|&&node| is_fit(self.map, node)).count();
        self.replicas_fit() + learners < loads.copies
    }

    /// A node that leaves and was let go already, where the others have become too few since to
    /// acknowledge anything. It stays until there are more.
    fn called_back(&self) -> Option<u32> {
        let serving = self.entry.replicas.iter().filter(|&&node| is_serving(self.map, node));
        let lacks = serving.count() + self.entry.learners.len() < min_in_sync(self.map.copies);
        let leaves = |it: &&wire::Member| it.phase() == Leaving && !self.has(it.node);
        lacks.then(|| self.map.members.iter().find(leaves)).flatten().map(|member| member.node)
    }

    /// Nothing of it is under way.
    fn is_settled(&self, loads: &Loads) -> bool {
        let is_full =
            self.entry.replicas.len() == loads.copies && self.replicas_fit() == loads.copies;
        is_full && self.entry.learners.is_empty()
    }

    /// What to drop, and what has to happen first. Copies that will be dropped once another has
    /// caught up count as gone in `loads`.
    fn too_many(&self, loads: &mut Loads) -> Vec<wire::MapCommand> {
        let Self { entry, .. } = *self;
        let members = self.replicas_fit();
        if members > loads.copies && !entry.learners.is_empty() {
            return vec![self.drop(entry.learners[0])];
        }
        let leaving = entry.replicas.iter().find(|&&node| !is_fit(self.map, node));
        // Who leaves stays until there are as many others as may acknowledge anything.
        if let Some(&node) = leaving
            && members >= loads.copies.max(min_in_sync(self.map.copies))
        {
            return vec![self.let_go(node, loads)];
        }
        let Some(node) = self.will_be_too_many(loads) else { return Vec::new() };
        if members > loads.copies { vec![self.let_go(node, loads)] } else { Vec::new() }
    }

    /// Who is to drop its copy, now or when that is possible: it counts as gone in `loads`. It is
    /// the one that the move was planned for: chosen anew each time, it would be another one once
    /// other moves have come to their end, and what was even would be uneven again.
    fn will_be_too_many(&self, loads: &mut Loads) -> Option<u32> {
        if self.replicas_fit() + self.entry.learners.len() <= loads.copies {
            return None;
        }
        let fit = self.entry.replicas.iter().copied().filter(|&node| is_fit(self.map, node));
        let planned = fit.clone().find(|&node| self.entry.goes == Some(node));
        // Not the only one that works.
        let working = fit.clone().filter(|&node| loads.works(node)).count();
        let may_go = fit.filter(|&node| working != 1 || !loads.works(node));
        let goes = planned.or_else(|| loads.fullest(may_go))?;
        loads.lose(goes);
        Some(goes)
    }

    fn let_go(&self, node: u32, loads: &mut Loads) -> wire::MapCommand {
        if self.entry.replicas[0] != node {
            return self.drop(node);
        }
        let others = self.entry.replicas[1..].iter().copied();
        let to = loads.fewest_homes(others.filter(|&node| is_fit(self.map, node)));
        let to = to.expect("who may go is not alone");
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
