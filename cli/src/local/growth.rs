//! `starling up` with another number of nodes than an instance has: selects the nodes to start, and
//! reports the effects of the missing ones.

use std::path::Path;
use std::time::{Duration, Instant};

use client::{Client, ClientOptions, Instance};
use kvs::membership::{awaited, is_serving, member};
use proto::NodeId;
use proto::wire::{self, MemberPhase};
use verb::Context;
use verb::errors::Failure;
use verb::units::number_of;

use crate::cluster::node::removal::take_out;
use crate::local::later_nodes;

/// The time for the running nodes to declare the missing ones failed.
const LOSS_TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const MAP_TIMEOUT: Duration = Duration::from_secs(2);

/// The nodes of an `up`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Launch {
    /// Nodes of the instance that must run.
    pub(crate) nodes: Vec<u32>,
    /// The number of joining nodes.
    pub(crate) new: u32,
    /// Nodes of the instance that do not run.
    pub(crate) away: Vec<u32>,
    /// Nodes that joined here later and have lost their directories. New nodes replace them.
    pub(crate) lost: Vec<u32>,
}

impl Launch {
    /// `first`: the number of founding nodes; `wanted`: the number of nodes that must run, if
    /// given.
    pub(crate) fn of(
        instance: &Instance,
        first: u32,
        wanted: Option<u32>,
        is_running: impl Fn(&u32) -> bool,
        replicas: u32,
    ) -> Result<Self, Failure> {
        let there = daemon::instance::Instance::open(instance.dir())?;
        let known = there.startable(first);
        let known: Vec<u32> = known.into_iter().map(|node| node.0).collect();
        let lost = later_nodes::noted(instance.dir()).into_iter();
        let is_lost = |node: &u32| !known.contains(node) && there.is_listed(NodeId(*node));
        let mut lost: Vec<u32> = lost.filter(is_lost).collect();
        let wanted = wanted.map_or(known.len() + lost.len(), |wanted| wanted as usize);
        let dir = instance.dir().display();
        if replicas <= 1 && wanted != known.len() {
            let nodes = number_of(known.len() as u64, "node");
            let text = format!("{dir} has a cluster of {nodes} with --replicas 1");
            let hint = "this cannot change; leave out --nodes, or submit to an instance in \
                        another --dir: it keeps 2 copies by default";
            return Err(Failure::refused(text).hint(hint));
        }
        let (mut nodes, mut rest): (Vec<u32>, Vec<u32>) =
            known.iter().copied().partition(&is_running);
        if nodes.len() > wanted {
            let running = number_of(nodes.len() as u64, "node");
            let last = nodes[nodes.len() - 1];
            let text = format!("{running} of {dir} run, and {wanted} were asked for");
            let hint = format!("'starling node drain n{last}' removes a node without loss of data");
            return Err(Failure::refused(text).hint(hint));
        }
        let away = rest.split_off((wanted - nodes.len()).min(rest.len()));
        nodes.extend(rest);
        nodes.sort_unstable();
        let new = wanted.saturating_sub(known.len()) as u32;
        // A smaller cluster was asked for: nothing takes the places of the others.
        lost.truncate(new as usize);
        Ok(Self { nodes, new, away, lost })
    }
}

/// The parts of the cluster that wait for nodes that do not run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AwaitedNodes {
    /// The nodes with the only replicas of some partitions, and the number of these partitions.
    pub(crate) nodes: Vec<u32>,
    pub(crate) partitions: usize,
    /// Voters that do not run, if they are half of all or more.
    pub(crate) voters: Vec<u32>,
    /// Nodes that were not started and that the others have declared failed.
    pub(crate) given_up: Vec<u32>,
}

impl AwaitedNodes {
    /// The parts that wait for the nodes in `away`, by the map of a node of the launch.
    fn of(map: &wire::ClusterMap, away: &[u32]) -> Self {
        let of_these = |nodes: &[u32]| -> Vec<u32> {
            nodes.iter().copied().filter(|node| away.contains(node)).collect()
        };
        let is_down = |node: u32| {
            let member = member(map, NodeId(node));
            member.is_none_or(|it| matches!(it.phase(), MemberPhase::Down | MemberPhase::Removed))
        };
        let waits = awaited(map);
        let voters = of_these(&map.voters);
        let lacks_majority = voters.len() * 2 >= map.voters.len();
        Self {
            nodes: waits.nodes.into_iter().filter(|node| away.contains(node)).collect(),
            partitions: waits.partitions,
            voters: if lacks_majority { voters } else { Vec::new() },
            given_up: away.iter().copied().filter(|&node| is_down(node)).collect(),
        }
    }

    /// For people: the state of the nodes that were not started.
    pub(crate) fn lines(&self, launch: &Launch) -> Vec<String> {
        let Launch { away, nodes, new, .. } = launch;
        if away.is_empty() {
            return Vec::new();
        }
        let all = nodes.len() + *new as usize + away.len();
        let cure = format!("'starling up --nodes {all}' starts them");
        let are = |nodes: &[u32]| if nodes.len() == 1 { "is" } else { "are" };
        let mut lines = Vec::new();
        if !self.voters.is_empty() {
            lines.push(format!(
                "warning: {} {} not started, and without one more of them no majority agrees on \
                 the map: the partitions that they were home of wait; {cure}",
                named(&self.voters),
                are(&self.voters)
            ));
        } else if self.partitions > 0 {
            let held = number_of(self.partitions as u64, "partition");
            let drain: Vec<String> = self.nodes.iter().map(|node| format!("n{node}")).collect();
            lines.push(format!(
                "warning: {} {} not started, with the only copies of {held}: tasks that need \
                 them wait; {cure}, then 'starling node drain {}' takes them away and loses nothing",
                named(&self.nodes),
                are(&self.nodes),
                drain.join(" ")
            ));
        }
        let others = away.iter().filter(|node| !self.nodes.contains(node));
        let others = others.filter(|node| !self.voters.contains(node)).copied();
        let (given_up, unnoticed): (Vec<u32>, Vec<u32>) =
            others.partition(|node| self.given_up.contains(node));
        if !given_up.is_empty() {
            lines.push(format!(
                "{} {} not started and given up: other nodes serve what they had",
                named(&given_up),
                are(&given_up)
            ));
        }
        if !unnoticed.is_empty() {
            lines.push(format!(
                "warning: {} {} not started and not given up yet: what they were home of waits",
                named(&unnoticed),
                are(&unnoticed)
            ));
        }
        lines
    }
}

/// What became of later nodes that have lost their directories.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Replaced {
    /// Removed nodes: new ones have taken their places.
    pub(crate) nodes: Vec<u32>,
    /// For people: the nodes that stay members, the reason, and what to do.
    pub(crate) stay: Vec<String>,
}

impl Replaced {
    /// `dir`: the instance directory. `waits`: what waits for these nodes. `None`: nothing keeps
    /// them from being replaced.
    pub(crate) fn refused(dir: &Path, lost: &[u32], waits: &AwaitedNodes) -> Option<Self> {
        let (have, dir) = (if lost.len() == 1 { "has" } else { "have" }, dir.display());
        let cure = format!(
            "put {} back into {dir}/nodes and run 'starling up' again",
            if lost.len() == 1 { "the directory" } else { "the directories" }
        );
        let text = if !waits.voters.is_empty() {
            format!(
                "warning: {} {have} lost the state directory, and without the vote in it no \
                 majority agrees on the map: nothing can be replaced; {cure}, or make a new \
                 cluster in another --dir",
                named(&waits.voters)
            )
        } else if !waits.nodes.is_empty() {
            let held = number_of(waits.partitions as u64, "partition");
            format!(
                "warning: {} {have} lost the state directory, with the only copies of {held}: \
                 jobs and keys in them are lost, and tasks that need them wait; {cure}, or make a \
                 new cluster in another --dir",
                named(&waits.nodes)
            )
        } else {
            return None;
        };
        Some(Self { nodes: Vec::new(), stay: vec![text] })
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = self.stay.clone();
        if !self.nodes.is_empty() {
            let (have, their) =
                if self.nodes.len() == 1 { ("has", "its") } else { ("have", "their") };
            lines.push(format!(
                "{} {have} lost the state directory and {have} been removed: new nodes take {their} \
                 place, and other nodes had copies of what was there",
                named(&self.nodes)
            ));
        }
        lines
    }
}

/// Removes nodes that have lost their directories, after new ones have joined.
pub(crate) async fn remove_lost(context: &Context, lost: &[u32]) -> Result<Replaced, Failure> {
    if lost.is_empty() {
        return Ok(Replaced::default());
    }
    let client = Client::connect_with(&context.dir()?, ClientOptions::default()).await?;
    let mut replaced = Replaced::default();
    let deadline = tokio::time::Instant::now() + LOSS_TIMEOUT;
    for &node in lost {
        match take_out(&client, NodeId(node), deadline).await {
            Ok(()) => replaced.nodes.push(node),
            Err(failure) => replaced.stay.push(format!(
                "warning: n{node} has lost the state directory and is still a member: {}; \
                 'starling node remove n{node}' removes it",
                failure.message
            )),
        }
    }
    Ok(replaced)
}

/// Explains missing answers of nodes, some of which have lost their state. `away`: the nodes that
/// were not started.
pub(crate) fn explain(failure: Failure, dir: &Path, lost: &[u32], launch: &Launch) -> Failure {
    if lost.is_empty() {
        return failure;
    }
    let have = if lost.len() == 1 { "has" } else { "have" };
    let text = format!(
        "{} {have} lost the state directory, and no node with its own state directory gives the map: {}",
        named(lost),
        failure.message
    );
    let hint = match launch.away.is_empty() {
        false => {
            let all = launch.nodes.len() + launch.away.len();
            format!("'starling up --nodes {all}' starts the others too, which may have the map")
        }
        true => format!(
            "put the directory back into {}/nodes and run 'starling up' again; without it the \
             jobs and results of this cluster are lost, and 'starling up --dir OTHER' makes a new \
             one",
            dir.display()
        ),
    };
    Failure::lost(text).hint(hint)
}

fn named(nodes: &[u32]) -> String {
    let names: Vec<String> = nodes.iter().map(|node| format!("n{node}")).collect();
    names.join(", ")
}

/// The parts that wait for these nodes, once the others have declared them failed.
pub(crate) async fn wait_for_losses(
    context: &Context,
    away: &[u32],
) -> Result<AwaitedNodes, Failure> {
    let client = Client::connect_with(&context.dir()?, ClientOptions::default()).await?;
    let deadline = Instant::now() + LOSS_TIMEOUT;
    loop {
        let map = client.raw().newest_map(MAP_TIMEOUT).await;
        let unnoticed = away.iter().filter(|&&node| is_serving(&map, node));
        let unnoticed: Vec<u32> = unnoticed.copied().collect();
        let is_over = Instant::now() >= deadline;
        if unnoticed.is_empty() || is_over {
            let mut waiting = AwaitedNodes::of(&map, away);
            if unnoticed.is_empty() {
                waiting.voters.clear(); // A majority has agreed that they are down.
            }
            return Ok(waiting);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(joined: &[u32], left: &[u32]) -> (tempfile::TempDir, Instance) {
        let dir = tempfile::tempdir().unwrap();
        for (nodes, name) in [(joined, "late"), (left, "removed")] {
            for node in nodes {
                let state = dir.path().join(format!("nodes/{node}/state"));
                std::fs::create_dir_all(&state).unwrap();
                std::fs::write(state.join(name), "1").unwrap();
            }
        }
        let instance = Instance::new(dir.path());
        (dir, instance)
    }

    #[test]
    fn those_that_run_stay_and_the_first_ones_come() {
        let (_dir, there) = instance(&[3, 5], &[1]);
        let of = |wanted, running: &[u32], replicas| {
            Launch::of(&there, 3, wanted, |node| running.contains(node), replicas)
        };
        let launch = |nodes: &[u32], new, away: &[u32]| Launch {
            nodes: nodes.to_vec(),
            new,
            away: away.to_vec(),
            lost: Vec::new(),
        };
        assert_eq!(of(None, &[], 2).unwrap(), launch(&[0, 2, 3, 5], 0, &[]));
        assert_eq!(of(Some(6), &[], 2).unwrap(), launch(&[0, 2, 3, 5], 2, &[]));
        assert_eq!(of(Some(2), &[], 2).unwrap(), launch(&[0, 2], 0, &[3, 5]));
        assert_eq!(of(Some(2), &[5], 2).unwrap(), launch(&[0, 5], 0, &[2, 3]));
        let error = of(Some(1), &[0, 5], 2).unwrap_err();
        assert!(error.message.contains("2 nodes of"), "{error:?}");
        assert!(of(Some(2), &[], 1).is_err());
        assert!(of(None, &[], 1).is_ok());
    }

    #[test]
    fn a_later_node_without_its_directory_is_lost_and_one_that_has_left_is_not() {
        let (dir, there) = instance(&[3], &[]);
        let members = r#"{"format": 1, "epoch": 9, "voters": [0], "left": [5], "members": [
            {"node": 0, "incarnation": 1, "address": ""},
            {"node": 1, "incarnation": 1, "address": ""},
            {"node": 3, "incarnation": 1, "address": ""},
            {"node": 4, "incarnation": 1, "address": ""},
            {"node": 6, "incarnation": 1, "address": ""}]}"#;
        std::fs::write(dir.path().join("members.json"), members).unwrap();
        // Node 6 joined from another directory.
        later_nodes::note(dir.path(), [3, 4, 5], |_| false).unwrap();
        let of = |wanted| Launch::of(&there, 2, wanted, |_| false, 2).unwrap();
        let launch = |new, lost: &[u32]| Launch {
            nodes: vec![0, 1, 3],
            new,
            away: Vec::new(),
            lost: lost.to_vec(),
        };
        assert_eq!(of(None), launch(1, &[4]));
        assert_eq!(of(Some(5)), launch(2, &[4]));
        assert_eq!(of(Some(3)), launch(0, &[]));
    }

    #[test]
    fn what_is_lost_with_a_directory_is_named() {
        let calm = AwaitedNodes::default();
        assert_eq!(Replaced::refused(Path::new("D"), &[2], &calm), None);
        let only = AwaitedNodes { nodes: vec![2], partitions: 3, ..AwaitedNodes::default() };
        let lines = Replaced::refused(Path::new("D"), &[2], &only).unwrap().lines();
        assert!(lines[0].contains("n2 has lost the state directory, with the only"), "{lines:?}");
        assert!(lines[0].contains("3 partitions") && lines[0].contains("D/nodes"), "{lines:?}");
        let torn = AwaitedNodes { voters: vec![2], ..AwaitedNodes::default() };
        let lines = Replaced::refused(Path::new("D"), &[2], &torn).unwrap().lines();
        assert!(lines[0].contains("no majority"), "{lines:?}");
        let failure = || Failure::lost("no answer");
        let launch = Launch { nodes: vec![0], ..Launch::default() };
        let hint = explain(failure(), Path::new("D"), &[0], &launch).hint.unwrap();
        assert!(hint.contains("D/nodes"), "the command that failed is no remedy: {hint}");
        let launch = Launch { nodes: vec![0], away: vec![1], ..Launch::default() };
        let hint = explain(failure(), Path::new("D"), &[0], &launch).hint.unwrap();
        assert!(hint.contains("up --nodes 2"), "{hint}");
    }

    #[test]
    fn only_what_the_map_calls_down_is_given_up() {
        let mut map = kvs::make_replicated_map(1, 4, 8, 2);
        for member in &mut map.members {
            member.phase = MemberPhase::Up as i32;
        }
        let torn = AwaitedNodes::of(&map, &[1, 2, 3]);
        assert_eq!((torn.given_up.as_slice(), torn.voters.as_slice()), (&[][..], &[1, 2][..]));
        map.members[3].phase = MemberPhase::Down as i32;
        let calm = AwaitedNodes::of(&map, &[3]);
        assert_eq!((calm.given_up.as_slice(), calm.voters.as_slice()), (&[3][..], &[][..]));
    }

    #[test]
    fn what_waits_is_named_with_its_cure() {
        let launch = Launch { nodes: vec![0, 1], away: vec![2, 3], ..Launch::default() };
        let waiting = AwaitedNodes { nodes: vec![2, 3], partitions: 7, ..AwaitedNodes::default() };
        let lines = waiting.lines(&launch);
        assert!(
            lines[0].contains("7 partitions") && lines[0].contains("up --nodes 4"),
            "{lines:?}"
        );
        assert!(lines[0].contains("node drain n2 n3"), "{lines:?}");
        let calm = AwaitedNodes { given_up: vec![2, 3], ..AwaitedNodes::default() }.lines(&launch);
        assert!(calm[0].contains("n2, n3 are not started and given up"), "{calm:?}");
        let torn = AwaitedNodes { voters: vec![2], ..AwaitedNodes::default() };
        let lines = torn.lines(&launch);
        assert!(lines[0].contains("majority"), "{lines:?}");
        assert!(lines[1].contains("n3 is not started and not given up"), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("other nodes serve")), "{lines:?}");
    }
}
