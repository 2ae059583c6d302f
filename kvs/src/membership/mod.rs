/*!
The commands that change the map, and the effect of each.

The group agrees on a sequence of commands. Every node with a map applies them with [`apply`], which
is pure, so equal maps stay equal. A command contains its own preconditions (an epoch, an
incarnation). If one does not hold, the command changes nothing; repeated and late commands are
therefore harmless. Each effective command increments the map's epoch by exactly one. So a map of
epoch `e` and the commands since then yield every newer map.

The states of a partition's entry:

| state | serving node | nodes with all acknowledged writes |
|---|---|---|
| active, no `former` | `replicas[0]` | every member of `replicas` |
| active, with `former` | `replicas[0]`, acknowledges nothing | all of `replicas` and `former` |
| not active | none; `replicas[0]` is to activate | every member of `replicas` and of `former` |
| lost | none, permanently | none |

A primary acknowledges only writes that all of `replicas` have, and only once it is active in the
entry's epoch. So a node that leaves `replicas` may miss later writes, and returns only as one of
the `learners`. One remaining member with its disk is enough. A partition keeps its last member when
that one goes down. Only a node of `former`, which left since a primary registered, may replace it.
A primary that is left alone must register again before it acknowledges anything.

The [planner](plan()) returns the commands that bring the map closer to its target. It runs at the
group's leader, and the group agrees on its commands like on all others.
*/

mod balance;
mod copies;
mod growth;
mod members;
mod mutant;
mod pause;
mod plan;
mod slow;
mod survival;
mod voters;

use proto::wire::map_command::Body;
use proto::{NodeId, wire};

pub use growth::{first_copies, wanted_copies};
pub use members::may_be_removed;
pub use plan::{departure, plan};
pub use slow::{is_fit, slow_max};
pub use survival::{Awaited, Said, awaited, has_all_copies, losses_survived_by};
pub use voters::{first_voters, wanted_voters};

use wire::MemberPhase::{Leaving, Up};

/// Applies a command. Returns false if it changed nothing.
pub fn apply(map: &mut wire::ClusterMap, command: &wire::MapCommand) -> bool {
    let Some(body) = command.body.as_ref().filter(|body| body_holds(map, body)) else {
        return false;
    };
    match body {
        Body::Up(up) => members::up(map, up),
        Body::Down(down) => members::down(map, down),
        Body::Join(join) => members::join(map, join),
        Body::Leave(leave) => members::leave(map, leave),
        Body::Remove(remove) => members::remove(map, remove),
        Body::Activated(activated) => copies::activated(map, activated),
        Body::CaughtUp(caught_up) => copies::caught_up(map, caught_up),
        Body::AddLearner(add) => copies::add_learner(map, add),
        Body::Handover(handover) => copies::hand_over(map, handover),
        Body::DropReplica(drop) => copies::drop_replica(map, drop),
        Body::SetVoters(set) => map.voters.clone_from(&set.voters),
        Body::SetCopies(set) => growth::set(map, set),
        Body::SetSlow(set) => slow::set(map, set),
        Body::SetPaused(set) => pause::set(map, set),
    }
    map.epoch += 1;
    true
}

/// True if the command would change this map: its preconditions hold, and it has not been applied.
#[must_use]
pub fn would_change(map: &wire::ClusterMap, command: &wire::MapCommand) -> bool {
    command.body.as_ref().is_some_and(|body| body_holds(map, body))
}

fn body_holds(map: &wire::ClusterMap, body: &Body) -> bool {
    match body {
        Body::Up(up) => members::up_holds(map, up),
        Body::Down(down) => members::down_holds(map, down),
        Body::Join(join) => members::join_holds(map, join),
        Body::Leave(leave) => members::leave_holds(map, leave),
        Body::Remove(remove) => members::remove_holds(map, remove),
        Body::Activated(activated) => copies::activated_holds(map, activated),
        Body::CaughtUp(caught_up) => copies::caught_up_holds(map, caught_up),
        Body::AddLearner(add) => copies::add_learner_holds(map, add),
        Body::Handover(handover) => copies::hand_over_holds(map, handover),
        Body::DropReplica(drop) => copies::drop_replica_holds(map, drop),
        Body::SetVoters(set) => voters::set_holds(map, set),
        Body::SetCopies(set) => growth::set_holds(map, set),
        Body::SetSlow(set) => slow::set_holds(map, set),
        Body::SetPaused(set) => pause::set_holds(map, set),
    }
}

/// True for a map at full replication. Each partition is active and has the wanted number of
/// serving replicas, or one on every fit node if there are fewer. The voters are as wanted and none
/// of them is down, because otherwise one more loss could stop the group.
#[must_use]
pub fn is_fully_replicated(map: &wire::ClusterMap) -> bool {
    if wanted_voters(map).is_some() || growth::next_copies(map).is_some() {
        return false;
    }
    let fit = map.members.iter().filter(|member| is_fit(map, member.node)).count();
    let wanted = fit.min(wanted_copies(map) as usize).max(1);
    map.partitions.iter().all(|entry| {
        let copies = entry.replicas.iter().filter(|&&node| is_serving(map, node)).count();
        entry.active && copies >= wanted
    })
}

/// How many nodes, in any combination, can be lost permanently at once. Every partition must keep a
/// replica, and the voters a majority. With three voters this is at most 1 for any number of
/// replicas.
#[must_use]
pub fn losses_survived(map: &wire::ClusterMap) -> usize {
    let serving = |nodes: &[u32]| nodes.iter().filter(|&&node| is_serving(map, node)).count();
    let entries = map.partitions.iter();
    let copies = entries.map(|entry| if entry.active { serving(&entry.replicas) } else { 0 });
    let spare_copies = copies.min().unwrap_or(0).saturating_sub(1);
    let majority = map.voters.len() / 2 + 1;
    spare_copies.min(serving(&map.voters).saturating_sub(majority))
}

/// How many members of a configuration must have a change before the primary acknowledges it. With
/// three or more replicas it is two; with fewer, one member can continue alone.
#[must_use]
pub fn min_in_sync(copies: u32) -> usize {
    if copies >= 3 { 2 } else { 1 }
}

/// The member with this number.
#[must_use]
pub fn member(map: &wire::ClusterMap, node: NodeId) -> Option<&wire::Member> {
    let at = map.members.binary_search_by_key(&node.0, |member| member.node).ok()?;
    Some(&map.members[at])
}

fn member_mut(map: &mut wire::ClusterMap, node: u32) -> &mut wire::Member {
    let at = map.members.binary_search_by_key(&node, |member| member.node);
    &mut map.members[at.expect("the command was checked")]
}

/// True for a keeper, which runs no tasks, stores replicas and may vote.
#[must_use]
pub fn is_keeper(map: &wire::ClusterMap, node: u32) -> bool {
    member(map, NodeId(node)).is_some_and(|member| member.keeper)
}

/// True if the map shows the node as up or leaving.
#[must_use]
pub fn is_serving(map: &wire::ClusterMap, node: u32) -> bool {
    member(map, NodeId(node)).is_some_and(|member| matches!(member.phase(), Up | Leaving))
}

/// Whether a node was let in and never started. Where no node can join, none is registered.
#[must_use]
pub fn never_came(map: &wire::ClusterMap, node: NodeId) -> bool {
    map.copies > 1 && member(map, node).is_some_and(|member| member.incarnation == 0)
}

fn is_up(map: &wire::ClusterMap, node: u32) -> bool {
    member(map, NodeId(node)).is_some_and(|member| member.phase() == Up)
}

/// Wraps a command body.
#[must_use]
pub fn command(body: Body) -> wire::MapCommand {
    wire::MapCommand { body: Some(body) }
}

#[cfg(test)]
mod directed_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod safety_tests;
