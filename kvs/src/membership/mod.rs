/*!
How the map changes: commands, and what each of them does.

The group agrees on a sequence of commands; everybody who holds a map applies them with [`apply`],
which is pure, so that equal maps stay equal. A command says itself what it presumes (an epoch, an
incarnation). Where that does not hold, it changes nothing: repeated and late commands are harmless.
Each command that changes something makes the map's epoch greater by exactly one, so that a map
of epoch `e` and the commands since then make any newer map.

What a partition's entry means:

| state | who serves | who has all that was acknowledged |
|---|---|---|
| active | `replicas[0]` | every member of `replicas` |
| active, somebody is `former` | the same, and acknowledges nothing | every member of both |
| not active | nobody | every member of `replicas` and of `former`; `replicas[0]` is to activate |
| lost | nobody, for ever | nobody |

A primary acknowledges only what all of `replicas` have, and only once it is active in the entry's
epoch. So whoever leaves `replicas` may fall behind from then on, and comes back only through
`learners`; and one remaining member with its disk is enough. A partition whose last member is
down keeps it: nobody else may stand in but those of `former`, who left since a primary registered.
A primary that is left alone has to register anew before it acknowledges anything.

The [planner](plan()) says which commands bring the map closer to what it should be. It runs at
the group's leader, and what it says is agreed on like everything else.
*/

mod balance;
mod copies;
mod growth;
mod members;
mod mutant;
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

/// Carries out a command. False: it changed nothing.
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
    }
    map.epoch += 1;
    true
}

/// Whether a command would change this map: what it presumes holds, and it has not happened yet.
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
    }
}

/// Every partition is served, and has as many copies as are wanted or as there are fit nodes for;
/// and as many nodes vote as should, none of them dead: else the next loss could be one too many
/// for the group.
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

/// How many nodes, whichever, may be lost for good at once by now: every partition keeps a copy,
/// and those who agree on the map a majority. Of three that agree that is one, whatever the copies.
#[must_use]
pub fn losses_survived(map: &wire::ClusterMap) -> usize {
    let serving = |nodes: &[u32]| nodes.iter().filter(|&&node| is_serving(map, node)).count();
    let entries = map.partitions.iter();
    let copies = entries.map(|entry| if entry.active { serving(&entry.replicas) } else { 0 });
    let spare_copies = copies.min().unwrap_or(0).saturating_sub(1);
    let majority = map.voters.len() / 2 + 1;
    spare_copies.min(serving(&map.voters).saturating_sub(majority))
}

/// How many members of a configuration must have a change before it is acknowledged. Of three
/// copies two; with fewer, one alone goes on.
#[must_use]
pub fn min_in_sync(copies: u32) -> usize {
    if copies >= 3 { 2 } else { 1 }
}

/// The member of that number.
#[must_use]
pub fn member(map: &wire::ClusterMap, node: NodeId) -> Option<&wire::Member> {
    let at = map.members.binary_search_by_key(&node.0, |member| member.node).ok()?;
    Some(&map.members[at])
}

fn member_mut(map: &mut wire::ClusterMap, node: u32) -> &mut wire::Member {
    let at = map.members.binary_search_by_key(&node, |member| member.node);
    &mut map.members[at.expect("the command was checked")]
}

/// Whether a node runs nothing: it keeps copies, and votes.
#[must_use]
pub fn is_keeper(map: &wire::ClusterMap, node: u32) -> bool {
    member(map, NodeId(node)).is_some_and(|member| member.keeper)
}

/// Whether a node takes part in the work, as far as the map knows.
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

/// Shorthand: a command out of its body.
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
