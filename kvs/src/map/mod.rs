//! The first cluster map, look-ups in a map, and the check of maps from outside.
//!
//! The map is an explicit table of partitions. A look-up is an index, and a change moves single
//! partitions. The consistent hash ring only chooses the first primaries.

use consistent_hash_ring::{Ring, RingBuilder};
use proto::limits::{COPIES_MAX, NODES_MAX, PARTITIONS_MAX};
use proto::{NodeId, PartitionId, wire};
use xxhash_rust::xxh3::xxh3_64;

use crate::hash::StableHash;
use crate::membership::{first_copies, first_voters, wanted_copies};

mod backups;
use crate::limits::VOTERS_MAX;

const PARTITIONS_DEFAULT: u32 = 1 << 12;
/// The minimum number of partitions for each expected node.
const PARTITIONS_PER_NODE_MIN: u32 = 8;
const _: () = assert!(PARTITIONS_DEFAULT.is_power_of_two());
const _: () = assert!(PARTITIONS_DEFAULT <= PARTITIONS_MAX);

/// The number of points of all nodes on the ring. The ring inserts into a sorted vector, so its
/// construction is quadratic in this number. [`level`] balances the table afterwards, so more
/// points would not improve the balance.
const RING_POINTS: u32 = 1 << 14;
const RING_POINTS_PER_NODE_MAX: u32 = 64;

/// The default number of partitions of a cluster with this number of nodes.
#[must_use]
pub fn default_partitions(nodes: u32) -> u32 {
    let wanted = nodes.saturating_mul(PARTITIONS_PER_NODE_MIN).min(PARTITIONS_MAX);
    wanted.next_power_of_two().max(PARTITIONS_DEFAULT)
}

/// The first map of a cluster with one replica of each partition, see [`make_replicated_map`].
#[must_use]
pub fn make_map(cluster: u64, nodes: u32, partitions: u32) -> wire::ClusterMap {
    make_replicated_map(cluster, nodes, partitions, 1)
}

/// The first map of a cluster. Nodes `0..nodes` are up and have no address yet, and all partitions
/// are active. Each partition has `copies` replicas on different nodes, or one on every node if
/// there are fewer nodes. The missing replicas are recorded as wanted, and created when nodes join.
///
/// Each node has the floor or the ceiling of the mean number of primaries, of backups, and of both.
/// Every machine computes the same map. The primaries do not depend on `copies`.
///
/// # Panics
/// When there is no node, more than [`NODES_MAX`], `partitions` is not a power of two, or `copies`
/// is not in `1..=COPIES_MAX`.
#[must_use]
pub fn make_replicated_map(
    cluster: u64,
    nodes: u32,
    partitions: u32,
    copies: u32,
) -> wire::ClusterMap {
    assert!(nodes > 0, "a cluster has at least one node");
    assert!(nodes <= NODES_MAX, "{nodes} nodes exceed {NODES_MAX}");
    assert!(partitions.is_power_of_two(), "{partitions} partitions are not a power of two");
    assert!(partitions <= PARTITIONS_MAX, "{partitions} partitions exceed {PARTITIONS_MAX}");
    assert!((1..=COPIES_MAX).contains(&copies), "{copies} copies: expected 1 to {COPIES_MAX}");
    let mut owners = proposed_owners(nodes, partitions);
    level(&mut owners, nodes);
    let member = |node| wire::Member {
        node,
        phase: wire::MemberPhase::Up as i32,
        ..wire::Member::default()
    };
    let in_force = first_copies(copies, nodes);
    let replicas = backups::with_backups(&owners, nodes, copies.min(nodes));
    let entry = |replicas| wire::PartitionEntry {
        epoch: 1,
        replicas,
        active: true,
        ..wire::PartitionEntry::default()
    };
    wire::ClusterMap {
        cluster,
        epoch: 1,
        members: (0..nodes).map(member).collect(),
        partitions: replicas.into_iter().map(entry).collect(),
        copies: in_force,
        wanted: if in_force < copies { copies } else { 0 },
        voters: first_voters(nodes),
        speaks: 0,
    }
}

/// The primary of a partition: the home of its keys and tasks.
#[must_use]
pub fn home(map: &wire::ClusterMap, partition: PartitionId) -> Option<NodeId> {
    map.partitions.get(partition.0 as usize)?.replicas.first().map(|&node| NodeId(node))
}

/// The partitions of which each node is primary, by node id. Empty for nodes without one.
#[must_use]
pub fn partitions_by_node(map: &wire::ClusterMap) -> Vec<Vec<PartitionId>> {
    let nodes = map.members.iter().map(|member| member.node as usize + 1).max().unwrap_or(0);
    let mut held = vec![Vec::new(); nodes];
    for partition in (0..map.partitions.len() as u32).map(PartitionId) {
        if let Some(node) = home(map, partition)
            && let Some(list) = held.get_mut(node.0 as usize)
        {
            list.push(partition);
        }
    }
    held
}

/// A cluster map from a file or a peer that contradicts itself. No node may use it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapError {
    #[error("the cluster map has {0} partitions; expected a power of two up to {PARTITIONS_MAX}")]
    Partitions(usize),
    #[error("the cluster map has {0} members; expected 1 to {NODES_MAX}")]
    Members(usize),
    #[error("the members of the cluster map are not in ascending order at n{0}")]
    Order(u32),
    #[error("partition {0} of the cluster map has no owner or epoch 0")]
    NoOwner(u32),
    #[error("partition {partition} of the cluster map names n{node}, which is no member")]
    Stranger { partition: u32, node: u32 },
    #[error("partition {partition} of the cluster map names n{node} twice")]
    Twice { partition: u32, node: u32 },
    #[error("partition {0} of the cluster map is lost and served at once")]
    LostAndActive(u32),
    #[error("the cluster map wants {0} copies; expected 1 to {COPIES_MAX}")]
    Copies(u32),
    #[error("the cluster map has the voters {0:?}; expected members, in ascending order")]
    Voters(Vec<u32>),
}

/// Checks the properties of a map that [`home`] and the store rely on. Callers check every map that
/// came from outside.
pub fn check_map(map: &wire::ClusterMap) -> Result<(), MapError> {
    let partitions = map.partitions.len();
    if !partitions.is_power_of_two() || partitions > PARTITIONS_MAX as usize {
        return Err(MapError::Partitions(partitions));
    }
    if map.members.is_empty() || map.members.len() > NODES_MAX as usize {
        return Err(MapError::Members(map.members.len()));
    }
    if let Some(pair) = map.members.windows(2).find(|pair| pair[0].node >= pair[1].node) {
        return Err(MapError::Order(pair[1].node));
    }
    if let Some(&copies) =
        [map.copies, wanted_copies(map)].iter().find(|it| !(1..=COPIES_MAX).contains(it))
    {
        return Err(MapError::Copies(copies));
    }
    // The map has one extra voter while a new voter replaces another one.
    let fits = (1..=VOTERS_MAX + 1).contains(&map.voters.len());
    let ascending = map.voters.is_sorted_by(|a, b| a < b);
    if !fits || !ascending || !map.voters.iter().all(|&node| is_member(map, node)) {
        return Err(MapError::Voters(map.voters.clone()));
    }
    (0u32..).zip(&map.partitions).try_for_each(|(at, entry)| check_entry(map, at, entry))
}

fn is_member(map: &wire::ClusterMap, node: u32) -> bool {
    map.members.binary_search_by_key(&node, |member| member.node).is_ok()
}

fn check_entry(
    map: &wire::ClusterMap,
    partition: u32,
    entry: &wire::PartitionEntry,
) -> Result<(), MapError> {
    if entry.epoch == 0 || entry.replicas.is_empty() {
        return Err(MapError::NoOwner(partition));
    }
    if entry.lost && entry.active {
        return Err(MapError::LostAndActive(partition));
    }
    if let Some(&node) = entry.former.iter().find(|&&node| !is_member(map, node)) {
        return Err(MapError::Stranger { partition, node });
    }
    let holders = || entry.replicas.iter().chain(&entry.learners);
    for (at, &node) in holders().enumerate() {
        if !is_member(map, node) {
            return Err(MapError::Stranger { partition, node });
        }
        if holders().take(at).any(|&earlier| earlier == node) {
            return Err(MapError::Twice { partition, node });
        }
    }
    Ok(())
}

fn proposed_owners(nodes: u32, partitions: u32) -> Vec<u32> {
    let ring = first_ring(nodes);
    (0..partitions).map(|partition| ring.get(xxh3_64(&partition.to_le_bytes())).node).collect()
}

/// A node on the ring. Its ring position derives from `hash`, not from a derived `Hash`.
#[derive(Clone, PartialEq, Eq)]
struct Point {
    node: u32,
    hash: u64,
}

impl std::hash::Hash for Point {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

fn first_ring(nodes: u32) -> Ring<Point, StableHash> {
    use std::hash::BuildHasher;
    let per_node = (RING_POINTS / nodes).clamp(1, RING_POINTS_PER_NODE_MAX);
    let mut points: Vec<_> =
        (0..nodes).map(|node| Point { node, hash: xxh3_64(&node.to_le_bytes()) }).collect();
    // Points sorted in ring order: each insertion then appends to the ring's sorted vector. With
    // one point per node, which is the only case with more nodes than points, the construction is
    // linear.
    points.sort_by_key(|point| StableHash.hash_one(point));
    RingBuilder::new(StableHash).vnodes(per_node as usize).nodes_iter(points).build()
}

/// Moves as few partitions as possible until every node owns the floor or the ceiling of the mean.
fn level(owners: &mut [u32], nodes: u32) {
    let mut counts = vec![0u32; nodes as usize];
    for &owner in owners.iter() {
        counts[owner as usize] += 1;
    }
    let floor = owners.len() as u32 / nodes;
    let with_one_more = owners.len() % nodes as usize;
    // The nodes that own the most partitions keep one more, which saves moves. Ties go to the lower
    // id.
    let mut by_count: Vec<u32> = (0..nodes).collect();
    by_count.sort_by_key(|&node| (std::cmp::Reverse(counts[node as usize]), node));
    let mut room = vec![floor; nodes as usize];
    for &node in &by_count[..with_one_more] {
        room[node as usize] += 1;
    }
    let mut homeless = Vec::new();
    for (partition, &owner) in owners.iter().enumerate() {
        match room[owner as usize].checked_sub(1) {
            Some(left) => room[owner as usize] = left,
            None => homeless.push(partition),
        }
    }
    let free = (0..nodes).flat_map(|node| std::iter::repeat_n(node, room[node as usize] as usize));
    for (partition, node) in homeless.into_iter().zip(free) {
        owners[partition] = node;
    }
}

#[cfg(test)]
mod tests;
