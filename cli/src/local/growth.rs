//! `starling up` with another number of nodes than an instance has: selects the nodes to start, and
//! reports the effects of the missing ones.

use std::time::{Duration, Instant};

use client::{Client, ClientOptions, Instance};
use kvs::membership::{awaited, is_serving, member};
use proto::NodeId;
use proto::wire::{self, MemberPhase};
use verb::Context;
use verb::errors::Failure;
use verb::units::number_of;

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
        let known = daemon::instance::Instance::open(instance.dir())?.startable(first);
        let known: Vec<u32> = known.into_iter().map(|node| node.0).collect();
        let wanted = wanted.map_or(known.len(), |wanted| wanted as usize);
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
        Ok(Self { nodes, new, away })
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
        let Launch { away, nodes, new } = launch;
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

/// Explains missing answers of nodes, some of which have lost their state.
pub(crate) fn explain(failure: Failure, lost: &[u32]) -> Failure {
    if lost.is_empty() {
        return failure;
    }
    let have = if lost.len() == 1 { "has" } else { "have" };
    let text = format!(
        "{} {have} lost the state directory, and no node with its own state directory gives the map: {}",
        named(lost),
        failure.message
    );
    Failure::lost(text).hint("start more nodes ('starling up'), or put the directory back")
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
        let launch = Launch { nodes: vec![0, 1], new: 0, away: vec![2, 3] };
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
