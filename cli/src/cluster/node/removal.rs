//! `starling node drain | remove`: nodes that leave the cluster permanently.

use std::time::Duration;

use client::Client;
use kvs::membership::{awaited, may_be_removed};
use proto::NodeId;
use proto::wire::{self, map_command};
use verb::Context;
use verb::cluster::survival::PATIENCE;
use verb::errors::{Done, Exit, Failure};
use verb::units;

use crate::cluster::node::known;

/// The default time for the nodes to agree on a removal.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// The hint for a leaving node that is down.
const TAKEN_OUT: &str = "'starling up' starts it, and then it can be drained; a node \
                         that never comes back is removed by 'starling node remove'";
/// The interval at which a drain checks its progress.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The time for the node to report it.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// Has nodes transfer their tasks, records and results to the others, and leave the cluster.
/// `by`: when tasks with a signal are killed and run elsewhere.
pub(crate) fn drain(
    context: &Context,
    nodes: &[NodeId],
    by: Option<Duration>,
    timeout: Option<Duration>,
) -> Done {
    let by_ns = by.map_or(0, |by| units::now_ns().saturating_add(by.as_nanos() as u64));

    verb::block_on(async {
        let client = context.connect().await?;
        let deadline = timeout.map(|timeout| tokio::time::Instant::now() + timeout);
        begin_drain(&client, nodes, by_ns).await?;
        let map = client.raw().newest_map(PATIENCE).await;
        for node in nodes {
            if let Some(kept_ns) = earlier_deadline(&map, *node, by_ns) {
                let left = units::seconds(kept_ns.saturating_sub(units::now_ns()) as f64 / 1e9);
                let text = format!("node {node} keeps its earlier deadline: {left} are left");
                context.output.note(&text);
            }
        }
        for node in nodes {
            let (mut has_room, mut was_down) = (true, false);
            loop {
                let map = client.raw().newest_map(PATIENCE).await;
                let left = left_on(&client, *node).await;
                if std::mem::replace(&mut has_room, !left.refused) && left.refused {
                    let text = format!("node {node} waits: no other node has room for {left}");
                    context.output.note(&text);
                }
                let phase = phase_of(&map, *node);
                if phase.is_none_or(|phase| phase == wire::MemberPhase::Removed) {
                    context.output.note(&format!("node {node} has left"));
                    break;
                }
                if phase == Some(wire::MemberPhase::Up) {
                    // The node failed meanwhile, and has returned like any other node.
                    client.raw().propose(leave(*node, by_ns)).await?;
                }
                let is_down = phase == Some(wire::MemberPhase::Down);
                let was_down = std::mem::replace(&mut was_down, is_down);
                if is_down && !was_down && !answers(&client, *node).await {
                    let text = format!("node {node} is down: the drain waits for it; {TAKEN_OUT}");
                    context.output.note(&text);
                }
                if deadline.is_some_and(|deadline| tokio::time::Instant::now() >= deadline) {
                    return Err(still_there(&map, *node, &left));
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        Ok(Exit::Ok)
    })
}

/// Asks these nodes to leave, if the others can take over their data. `by_ns`: the deadline, or 0.
pub(crate) async fn begin_drain(
    client: &Client,
    nodes: &[NodeId],
    by_ns: u64,
) -> Result<(), Failure> {
    for node in nodes {
        known(client, *node)?;
    }
    let map = client.raw().newest_map(PATIENCE).await;
    check_may_leave(&map, nodes)?;
    for node in nodes {
        if !answers(client, *node).await {
            check_is_there(&map, *node)?;
        }
    }
    for node in nodes {
        client.raw().propose(leave(*node, by_ns)).await?;
    }
    Ok(())
}

/// Checks that the remaining nodes can take over the data of these.
fn check_may_leave(map: &wire::ClusterMap, nodes: &[NodeId]) -> Result<(), Failure> {
    let stay = map.members.iter().filter(|member| {
        let phase = member.phase();
        phase == wire::MemberPhase::Up && !nodes.contains(&NodeId(member.node))
    });
    let (stay, needed) = (stay.count(), kvs::membership::min_in_sync(map.copies));
    if map.copies <= 1 || stay < needed {
        let text = match (map.copies, stay) {
            (0 | 1, _) => {
                "a cluster that keeps one copy of each partition cannot lose a node".to_owned()
            }
            (_, 0) => "no node would stay to take over the data of these nodes".to_owned(),
            (copies, _) => format!(
                "{} would stay, and {needed} have to write down each change where there are to \
                 be {copies} copies",
                units::number_of(stay as u64, "node")
            ),
        };
        let hint = match map.copies > 1 && stay > 0 {
            true => "drain them one after another: fewer nodes need fewer copies",
            false => "'starling down' stops a whole cluster",
        };
        return Err(Failure::refused(text).hint(hint));
    }
    Ok(())
}

/// True if a node answers, whatever the map shows: a node that has just started is not up in it
/// yet.
async fn answers(client: &Client, node: NodeId) -> bool {
    client.raw().node_state(node, LOOK_TIMEOUT).await.is_ok()
}

/// The error of a drain that has not ended in time.
fn still_there(map: &wire::ClusterMap, node: NodeId, left: &UnreplicatedOutputs) -> Failure {
    if phase_of(map, node) == Some(wire::MemberPhase::Down) {
        return Failure::new(Exit::TimedOut, format!("node {node} is down")).hint(TAKEN_OUT);
    }
    let held = held_by(map, node);
    let text = format!("node {node} still has copies of {held} partitions and {left}");
    Failure::new(Exit::TimedOut, text)
        .hint("the drain continues; 'starling node list' shows when it has ended")
}

fn phase_of(map: &wire::ClusterMap, node: NodeId) -> Option<wire::MemberPhase> {
    kvs::membership::member(map, node).map(wire::Member::phase)
}

/// The deadline of an earlier drain, if the node keeps it instead of this one (0: none).
fn earlier_deadline(map: &wire::ClusterMap, node: NodeId, by_ns: u64) -> Option<u64> {
    let kept_ns = kvs::membership::member(map, node)?.leaves_by_ns;
    (kept_ns > 0 && (by_ns == 0 || kept_ns < by_ns)).then_some(kept_ns)
}

/// A node that is down cannot transfer its data.
fn check_is_there(map: &wire::ClusterMap, node: NodeId) -> Result<(), Failure> {
    match may_be_removed(map, node) {
        false => Ok(()),
        true if phase_of(map, node) == Some(wire::MemberPhase::Down) => {
            Err(Failure::refused(format!("node {node} is down and cannot transfer its data"))
                .hint(TAKEN_OUT))
        }
        true => Err(Failure::refused(format!("node {node} was added and has never started"))
            .hint("'starling node remove' removes a node that never starts")),
    }
}

fn leave(node: NodeId, by_ns: u64) -> map_command::Body {
    map_command::Body::Leave(wire::MemberLeave { node: node.0, by_ns })
}

/// The objects of a leaving node that other nodes do not have yet.
struct UnreplicatedOutputs {
    objects: u64,
    bytes: u64,
    refused: bool,
}

impl std::fmt::Display for UnreplicatedOutputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let objects = units::number_of(self.objects, "output");
        write!(f, "{objects} of tasks, {}", units::bytes(self.bytes))
    }
}

async fn left_on(client: &Client, node: NodeId) -> UnreplicatedOutputs {
    // A node that does not answer may have left already.
    let state = client.raw().node_state(node, LOOK_TIMEOUT).await.unwrap_or_default();
    let (objects, bytes) = (state.leaving_objects, state.leaving_bytes);
    UnreplicatedOutputs { objects, bytes, refused: state.leaving_refused }
}

fn held_by(map: &wire::ClusterMap, node: NodeId) -> usize {
    let holds = |entry: &&wire::PartitionEntry| {
        entry.replicas.iter().chain(&entry.learners).any(|&holder| holder == node.0)
    };
    map.partitions.iter().filter(holds).count()
}

/// Removes nodes that never come back: nodes that are down, or that joined and never started.
pub(crate) fn remove(context: &Context, nodes: &[NodeId], timeout: Option<Duration>) -> Done {
    verb::block_on(async {
        let client = context.connect().await?;
        for node in nodes {
            known(&client, *node)?;
        }
        let map = client.raw().newest_map(PATIENCE).await;
        for node in nodes {
            check_is_lost(&map, *node)?;
            if answers(&client, *node).await {
                return Err(not_lost(*node));
            }
        }
        let timeout = timeout.unwrap_or(REMOVAL_TIMEOUT);
        let deadline = tokio::time::Instant::now() + timeout;
        for node in nodes {
            take_out(&client, *node, deadline).await?;
            let lost = match phase_of(&map, *node) {
                Some(wire::MemberPhase::Down) => ": data that only it had are lost",
                _ => "",
            };
            context.output.note(&format!("node {node} was removed{lost}"));
        }
        Ok(Exit::Ok)
    })
}

/// Proposes the removal until the map shows it: the node may have to lose its vote first.
async fn take_out(
    client: &Client,
    node: NodeId,
    deadline: tokio::time::Instant,
) -> Result<(), Failure> {
    let removal = map_command::Body::Remove(wire::MemberRemove { node: node.0 });
    loop {
        let proposed = client.raw().propose(removal.clone()).await;
        let map = client.raw().newest_map(PATIENCE).await;
        if phase_of(&map, node).is_none_or(|phase| phase == wire::MemberPhase::Removed) {
            return Ok(());
        }
        check_is_lost(&map, node)?;
        if tokio::time::Instant::now() >= deadline {
            let why = proposed.err().map_or_else(String::new, |error| format!(": {error}"));
            let text = format!("the nodes have not agreed that node {node} is removed{why}");
            return Err(Failure::new(Exit::TimedOut, text)
                .hint("a majority of the voters must be up; 'starling node list' shows them"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn not_lost(node: NodeId) -> Failure {
    let hint = format!("'starling node drain {node}' removes it without losing data");
    Failure::refused(format!("node {node} is up")).hint(hint)
}

/// A running node leaves by a drain. A node with data that others wait for must not be removed.
fn check_is_lost(map: &wire::ClusterMap, node: NodeId) -> Result<(), Failure> {
    if map.copies <= 1 {
        let text = "a cluster that keeps one copy of each partition cannot lose a node";
        return Err(Failure::refused(text).hint("'starling up' starts the nodes that are down"));
    }
    if !may_be_removed(map, node) {
        return Err(not_lost(node));
    }
    let waits = awaited(map);
    if waits.nodes.contains(&node.0) {
        let held = held_by(map, node).max(1) as u64;
        let text = format!(
            "{} wait for node {node}: no node that is up has a copy, and all that is in them would \
             be lost",
            units::number_of(held, "partition")
        );
        let hint = "start it ('starling up', or a launch of all ranks), then drain it";
        return Err(Failure::refused(text).hint(hint));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kvs::membership::{apply, command};
    use map_command::Body;

    use super::*;

    #[test]
    fn a_later_deadline_or_none_leaves_the_earlier_one() {
        let mut map = kvs::make_replicated_map(1, 3, 8, 2);
        let drained = |map: &mut wire::ClusterMap, by_ns| {
            apply(map, &command(leave(NodeId(2), by_ns)));
            earlier_deadline(map, NodeId(2), by_ns)
        };
        let up = wire::MemberUp { node: 2, incarnation: 1, store: 1, ..Default::default() };
        assert!(apply(&mut map, &command(Body::Up(up))));
        assert_eq!(drained(&mut map, 0), None);
        assert_eq!(drained(&mut map, 50), None, "the first deadline");
        assert_eq!(drained(&mut map, 60), Some(50));
        assert_eq!(drained(&mut map, 0), Some(50));
        assert_eq!(drained(&mut map, 40), None, "an earlier one");
    }

    #[test]
    fn a_node_that_is_down_is_removed_and_not_drained_and_one_that_is_awaited_is_neither() {
        let mut map = kvs::make_replicated_map(1, 3, 8, 2);
        let up = |node, incarnation| {
            let up = wire::MemberUp { node, incarnation, store: 1, ..Default::default() };
            command(Body::Up(up))
        };
        let down = |node| command(Body::Down(wire::MemberDown { node, incarnation: 1 }));
        for node in 0..3 {
            assert!(apply(&mut map, &up(node, 1)));
        }
        let text = |result: Result<(), Failure>| result.unwrap_err().message;
        check_is_there(&map, NodeId(2)).unwrap();
        assert!(text(check_is_lost(&map, NodeId(2))).contains("is up"));
        assert!(apply(&mut map, &down(2)));
        assert!(text(check_is_there(&map, NodeId(2))).contains("is down"));
        check_is_lost(&map, NodeId(2)).unwrap();
        // Now some partitions have no replica left.
        assert!(apply(&mut map, &down(1)));
        assert!(text(check_is_lost(&map, NodeId(2))).contains("wait for node n2"));
        let joins = wire::MemberJoin { store: 9, ..Default::default() };
        assert!(apply(&mut map, &command(Body::Join(joins))));
        assert!(text(check_is_there(&map, NodeId(3))).contains("has never started"));
        check_is_lost(&map, NodeId(3)).unwrap();
    }
}
