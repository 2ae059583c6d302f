/*!
How the nodes of a new cluster find each other: each writes its address into the instance directory.
It looks for the files of the others until all nodes answer or the deadline passes.

A file proves nothing, because an earlier launch may have left it behind. So the node greets the
address of each file. Only an answer with this cluster's id, the right node number and the file's
incarnation counts.
*/

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::{NodeId, wire};
use security::Dialer;
use tokio_stream::StreamExt;

use crate::error::StartError;
use crate::lifecycle::instance::Instance;
use crate::rpc::links;
use crate::rpc::peers;
use crate::rpc::service::Shared;
use proto::Span;

/// A node without records ends if for this long it has received only maps in which it is the only
/// voter.
const LOST_MAP_AFTER: Span = Span::from_secs(10);

const LOOK_AFTER: Duration = Duration::from_millis(2);
const LOOK_AFTER_MAX: Duration = Duration::from_millis(200);
/// The maximum of missing nodes that an error names; the others are counted.
const NAMED_MAX: usize = 8;
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
const MAP_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum of nodes that are asked for their version, one after another.
const ASKED_FOR_VERSION_MAX: usize = 8;

/// The way in which the cluster formed.
pub(crate) enum Formation {
    /// All nodes have answered.
    Together,
    /// The cluster began before; this is its map.
    Begun(wire::ClusterMap),
    /// All nodes that can start have answered. Contains the failures of the others.
    Partial(Vec<String>),
}

/// The nodes that a starting node looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JoinCondition {
    /// For a node with its state, or if homes never move: all awaited nodes.
    All,
    /// For a node without state, while no cluster is known to have begun: all awaited nodes, or one
    /// that was part of a cluster before.
    AllOrBegun,
    /// For a node without state after the cluster has begun: a node that was part of it. Without
    /// one this node would found a second cluster with the same id.
    Begun,
}

/// The awaited nodes, and the limits of the wait.
pub(crate) struct RendezvousOptions<'a> {
    pub(crate) awaited: &'a [NodeId],
    pub(crate) launch: &'a str,
    pub(crate) deadline: Duration,
    pub(crate) join_condition: JoinCondition,
    /// The voters, as far as the directory shows.
    pub(crate) voters: &'a [u32],
    /// Other nodes of the launch. Their voters are looked for if too few awaited nodes answer.
    pub(crate) further: &'a [NodeId],
    /// The directory of this node's state.
    pub(crate) state: &'a Path,
    /// This node, and its store number.
    pub(crate) node: NodeId,
    pub(crate) store: u64,
}

/// The decision about the nodes that have not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RendezvousProgress {
    /// A majority of the voters has answered, and no other awaited node will.
    Enough,
    /// Some may still answer.
    Wait,
    TooFew,
}

/// The reason why a node is missing.
struct Missing {
    seen: String,
    /// The node has written that it does not start.
    has_failed: bool,
}

impl From<String> for Missing {
    fn from(seen: String) -> Self {
        Self { seen, has_failed: false }
    }
}

/// Returns when all awaited nodes have answered. If this node looks for a cluster that has begun,
/// it also returns when a node that was part of it has sent the map. A node that has reported a
/// failed start is not awaited: the others go on if they have a majority of the voters.
pub(crate) async fn wait_for_all(
    shared: &Arc<Shared>,
    wait: &RendezvousOptions<'_>,
) -> Result<Formation, StartError> {
    let start = Instant::now();
    let (mut pause, mut lost_since) = (LOOK_AFTER, None);
    let mut come = BTreeSet::from([wait.node]);
    let mut missing: BTreeMap<NodeId, Missing> = wait
        .awaited
        .iter()
        .copied()
        .map(|node| (node, "has not said where it listens".to_owned().into()))
        .collect();
    loop {
        let nodes: Vec<NodeId> = missing.keys().copied().collect();
        let count = nodes.len();
        for node in nodes {
            match find(shared, node, wait).await {
                Ok(Some(map)) if wait.lost_the_vote(&map) => {
                    // The node that sent the map may not know yet that others vote now.
                    let since: Instant = *lost_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= Duration::from_nanos(LOST_MAP_AFTER.0) {
                        return Err(StartError::LostMap { path: wait.state.to_path_buf() });
                    }
                    let seen = "knows only a map by which this node alone votes";
                    missing.insert(node, seen.to_owned().into());
                }
                Ok(Some(map)) => return Ok(Formation::Begun(map)),
                Ok(None) => {
                    missing.remove(&node);
                    come.insert(node);
                }
                Err(seen) => _ = missing.insert(node, seen),
            }
        }
        let only_begun = wait.join_condition == JoinCondition::Begun;
        if missing.is_empty() && !only_begun {
            return Ok(Formation::Together);
        }
        let mut late = BTreeMap::new();
        if missing.values().all(|it| it.has_failed) && !only_begun {
            late = wait.further_voters(shared, &mut come).await;
        }
        match wait.outlook(&missing, &late, &come) {
            RendezvousProgress::Enough => return Ok(Formation::Partial(told(&missing))),
            RendezvousProgress::Wait if start.elapsed() < wait.deadline => {}
            _ => {
                missing.append(&mut late);
                return Err(wait.too_few(&missing, come.len(), start.elapsed()));
            }
        }
        // If some have answered, more will follow soon.
        pause = if missing.len() < count { LOOK_AFTER } else { (2 * pause).min(LOOK_AFTER_MAX) };
        tokio::time::sleep(pause.min(wait.deadline.saturating_sub(start.elapsed()))).await;
    }
}

/// Greets a node. Returns its map if the node was part of the cluster and this node looks for that.
async fn find(
    shared: &Shared,
    node: NodeId,
    wait: &RendezvousOptions<'_>,
) -> Result<Option<wire::ClusterMap>, Missing> {
    // A node with state counts, regardless of its launch.
    let launch = (wait.join_condition != JoinCondition::Begun).then_some(wait.launch);
    let hello = look(shared, node, launch, wait.launch).await?;
    if hello.formed && wait.join_condition != JoinCondition::All {
        // The run loop of that node may be busy until this node answers, so the next look asks it
        // again.
        let dialer = shared.tls.dialer();
        let asked = map_of(&hello.address, &dialer);
        return match tokio::time::timeout(MAP_TIMEOUT, asked).await {
            Ok(Ok(map)) => Ok(Some(map)),
            Ok(Err(reason)) => Err(reason.into()),
            Err(_) => Err("does not tell the map yet".to_owned().into()),
        };
    }
    match wait.join_condition {
        JoinCondition::Begun => Err("has no state either".to_owned().into()),
        _ => Ok(None),
    }
}

impl RendezvousOptions<'_> {
    /// Looks for the voters of the launch that are not awaited. Returns those that do not answer.
    async fn further_voters(
        &self,
        shared: &Shared,
        come: &mut BTreeSet<NodeId>,
    ) -> BTreeMap<NodeId, Missing> {
        let mut late = BTreeMap::new();
        for node in self.further.iter().copied().filter(|node| self.voters.contains(&node.0)) {
            match look(shared, node, Some(self.launch), self.launch).await {
                Ok(_) => _ = come.insert(node),
                Err(seen) => _ = late.insert(node, seen),
            }
        }
        late
    }

    /// A voter that is not awaited counts only once it has answered, because it may be anywhere.
    fn outlook(
        &self,
        missing: &BTreeMap<NodeId, Missing>,
        late: &BTreeMap<NodeId, Missing>,
        come: &BTreeSet<NodeId>,
    ) -> RendezvousProgress {
        if !missing.values().all(|it| it.has_failed) {
            return RendezvousProgress::Wait;
        }
        let voting = self.voters.iter().filter(|voter| come.contains(&NodeId(**voter))).count();
        let is_majority = 2 * voting > self.voters.len();
        match self.join_condition != JoinCondition::Begun && is_majority {
            true => RendezvousProgress::Enough,
            false if late.values().all(|it| it.has_failed) => RendezvousProgress::TooFew,
            false => RendezvousProgress::Wait,
        }
    }

    /// True if by this map only this node votes, and it has lost its records.
    fn lost_the_vote(&self, map: &wire::ClusterMap) -> bool {
        let own = kvs::membership::member(map, self.node);
        let is_other = own.is_some_and(|own| own.store != 0 && own.store != self.store);
        is_other && map.voters == [self.node.0]
    }

    fn too_few(
        &self,
        missing: &BTreeMap<NodeId, Missing>,
        come: usize,
        waited: Duration,
    ) -> StartError {
        let (present, expected) = (come as u32, (come + missing.len()) as u32);
        let (waited_s, path) = (waited.as_secs(), self.state.to_path_buf());
        let missing = told(missing).join("; ");
        match self.join_condition {
            JoinCondition::Begun if self.awaited.is_empty() => StartError::LostMap { path },
            JoinCondition::Begun => StartError::LostState { path, waited_s, missing },
            _ => StartError::Missing { present, expected, waited_s, missing },
        }
    }
}

/// Checks that no running node has another version. Must be called before this node's state gets a
/// format that only this version reads. Until then the earlier program can still use it.
pub(crate) async fn refuse_other_versions(shared: &Shared, state: &Path) -> Result<(), StartError> {
    let files = shared.others.all().into_iter().filter_map(|node| shared.addresses.read(node));
    for file in files.take(ASKED_FOR_VERSION_MAX) {
        let probed = tokio::time::timeout(MAP_TIMEOUT, links::probe(shared, &file.address)).await;
        if let Ok(Err(reason)) = probed
            && reason.contains(peers::SPEAKS)
        {
            let (node, address, path) = (NodeId(file.node), file.address, state.to_path_buf());
            return Err(StartError::OtherVersion { node, address, reason, path });
        }
    }
    Ok(())
}

/// Knocks at the lower nodes of a running cluster, so that they dial this node.
pub(crate) async fn request_dial(shared: Arc<Shared>) {
    for node in shared.others.all().into_iter().filter(|&it| it < shared.identity.node) {
        if let Some(file) = shared.addresses.read(node) {
            // A node that is down needs no knock: it dials when it starts.
            let _ = links::probe(&shared, &file.address).await;
        }
    }
}

/// `launch`: the launch that the node must belong to. Failures count if they are of the launch
/// `failed_in`.
async fn look(
    shared: &Shared,
    node: NodeId,
    launch: Option<&str>,
    failed_in: &str,
) -> Result<wire::Hello, Missing> {
    let greeted = greet(shared, node, launch).await;
    greeted.map_err(|seen| match shared.addresses.failure(node, failed_in) {
        Some(reason) => Missing { seen: format!("did not start: {reason}"), has_failed: true },
        None => seen.into(),
    })
}

async fn greet(shared: &Shared, node: NodeId, launch: Option<&str>) -> Result<wire::Hello, String> {
    let Some(file) = shared.addresses.read(node) else {
        return Err("has not said where it listens".to_owned());
    };
    if launch.is_some_and(|launch| file.launch != launch) {
        return Err(format!("left the address {} in an earlier launch", file.address));
    }
    let hello = links::probe(shared, &file.address)
        .await
        .map_err(|reason| format!("does not answer at {}: {reason}", file.address))?;
    if (hello.node, hello.incarnation) != (node.0, file.incarnation) {
        return Err(format!("is not the one that answers at {}", file.address));
    }
    Ok(hello)
}

/// Lists a few missing nodes, and the number of the others.
fn told(missing: &BTreeMap<NodeId, Missing>) -> Vec<String> {
    let named = missing.iter().take(NAMED_MAX);
    let mut named: Vec<String> =
        named.map(|(node, it)| format!("node {} {}", node.0, it.seen)).collect();
    if missing.len() > NAMED_MAX {
        named.push(format!("and {} more", missing.len() - NAMED_MAX));
    }
    named
}

/// The address of a node of the same launch that answers with its map. A new node joins through it.
pub(crate) fn await_member(
    instance: &Instance,
    dialer: &Dialer,
    launch: &str,
    deadline: Duration,
) -> Result<String, StartError> {
    let start = Instant::now();
    let mut seen = "no node of this launch has said where it listens".to_owned();
    while start.elapsed() < deadline {
        let all = instance.read_addresses();
        for file in all.into_iter().filter(|file| file.launch == launch) {
            match ask_map(&file.address, dialer) {
                Ok(map) if kvs::membership::is_serving(&map, file.node) => {
                    return Ok(file.address);
                }
                Ok(_) => seen = format!("node {} is not up yet", file.node),
                Err(error) => seen = error.to_string(),
            }
        }
        std::thread::sleep(LOOK_AFTER_MAX);
    }
    Err(StartError::NoMember { seen, waited_s: deadline.as_secs() })
}

/// Asks a running node for the cluster's map, on a thread and runtime of its own.
pub(crate) fn ask_map(address: &str, dialer: &Dialer) -> Result<wire::ClusterMap, StartError> {
    apart(address, JOIN_TIMEOUT, async { map_of(address, dialer).await })
}

/// Asks a cluster to accept a new node. Returns the node's number.
pub(crate) fn enter(
    address: &str,
    dialer: &Dialer,
    join: &wire::MemberJoin,
    within: Duration,
) -> Result<NodeId, StartError> {
    apart(address, within, async {
        let body = Some(wire::map_command::Body::Join(join.clone()));
        let propose = wire::request::Body::Propose(wire::MapCommand { body });
        ask(address, dialer, propose).await?;
        loop {
            let map = map_of(address, dialer).await?;
            let own = map.members.iter().find(|member| member.store == join.store);
            if let Some(own) = own {
                return Ok(NodeId(own.node));
            }
            tokio::time::sleep(LOOK_AFTER_MAX).await;
        }
    })
}

/// Runs a request on a thread and runtime of its own, with a timeout.
fn apart<T: Send>(
    address: &str,
    within: Duration,
    asked: impl Future<Output = Result<T, String>> + Send,
) -> Result<T, StartError> {
    let ask = || -> Result<T, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        runtime.block_on(async {
            let asked = tokio::time::timeout(within, asked).await;
            asked.map_err(|_| "no answer in time".to_owned())?
        })
    };
    std::thread::scope(|scope| scope.spawn(ask).join())
        .unwrap_or_else(|_| Err("asking it failed".to_owned()))
        .map_err(|reason| StartError::Join { address: address.to_owned(), reason })
}

async fn map_of(address: &str, dialer: &Dialer) -> Result<wire::ClusterMap, String> {
    match ask(address, dialer, wire::request::Body::Map(wire::MapQuery {})).await? {
        // An earlier version sends no version.
        Some(wire::response::Body::Map(map)) => peers::check_peer_version(map.speaks.max(1))
            .map(|()| wire::ClusterMap { speaks: 0, ..map }),
        _ => Err("it does not tell its map".to_owned()),
    }
}

async fn ask(
    address: &str,
    dialer: &Dialer,
    body: wire::request::Body,
) -> Result<Option<wire::response::Body>, String> {
    let mut client = peers::connect(None, address, dialer).await?;
    let request = wire::Request { id: 1, body: Some(body) };
    let requests = wire::Requests { requests: vec![request] };
    // The stream stays open until the answer arrives: its end would cancel the request.
    let outgoing = tokio_stream::once(requests).chain(tokio_stream::pending());
    let said = |status: tonic::Status| security::dial::explain(&status);
    let mut incoming = client.session(outgoing).await.map_err(said)?.into_inner();
    while let Some(responses) = incoming.message().await.map_err(said)? {
        if let Some(response) = responses.responses.into_iter().next() {
            return match response.error {
                Some(error) => Err(error.text),
                None => Ok(response.body),
            };
        }
    }
    Err("it closed the session".to_owned())
}

/// The members of a map with their addresses.
pub(crate) fn addresses(map: &wire::ClusterMap) -> impl Iterator<Item = &wire::Member> {
    map.members.iter().filter(|member| !member.address.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(
        numbers: impl IntoIterator<Item = u32>,
        has_failed: bool,
    ) -> BTreeMap<NodeId, Missing> {
        let missing = |node| (NodeId(node), Missing { seen: String::new(), has_failed });
        numbers.into_iter().map(missing).collect()
    }

    #[test]
    fn a_voter_counts_once_it_has_answered_and_voters_are_those_of_now() {
        let awaited = [0, 1].map(NodeId);
        let further = [3, 4].map(NodeId);
        let wait = |voters: &'static [u32]| RendezvousOptions {
            awaited: &awaited,
            launch: "",
            deadline: Duration::ZERO,
            join_condition: JoinCondition::All,
            voters,
            further: &further,
            state: Path::new("/"),
            node: NodeId(2),
            store: 1,
        };
        let come = |numbers: &[u32]| numbers.iter().copied().map(NodeId).collect();
        let (failed, none) = (nodes([0, 1], true), nodes([], true));
        // Of three founding nodes two have failed, and two that joined vote as well.
        let all = wait(&[0, 1, 2, 3, 4]);
        let late = nodes([3, 4], false);
        assert_eq!(all.outlook(&failed, &late, &come(&[2])), RendezvousProgress::Wait);
        assert_eq!(
            all.outlook(&failed, &nodes([4], false), &come(&[2, 3])),
            RendezvousProgress::Wait
        );
        assert_eq!(all.outlook(&failed, &none, &come(&[2, 3, 4])), RendezvousProgress::Enough);
        assert_eq!(
            all.outlook(&failed, &nodes([4], true), &come(&[2, 3])),
            RendezvousProgress::TooFew
        );
        assert_eq!(
            all.outlook(&nodes([1], false), &none, &come(&[0, 2, 3])),
            RendezvousProgress::Wait
        );
        // Voters outside the launch have not answered.
        let others = wait(&[2, 5, 6]);
        assert_eq!(others.outlook(&failed, &none, &come(&[2])), RendezvousProgress::TooFew);
        let begun = RendezvousOptions { join_condition: JoinCondition::Begun, ..all };
        assert_eq!(begun.outlook(&failed, &none, &come(&[2, 3, 4])), RendezvousProgress::TooFew);
    }
}
