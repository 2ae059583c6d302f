//! The placement of backups in the first map of a cluster.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use xxhash_rust::xxh3::xxh3_64;

/// The nodes that have capacity for backups, largest capacity first. Nodes of equal capacity are in
/// an order that depends on the capacity, so the backups of one node's partitions spread over all
/// other nodes.
struct Room {
    left: Vec<u32>,
    order: BTreeSet<(Reverse<u32>, u64, u32)>,
}

impl Room {
    /// Distributes `total` backups evenly. A node with one primary more than others is the last to
    /// get an additional backup, so the sums of primaries and backups are even too.
    fn new(owners: &[u32], nodes: u32, total: u64) -> Self {
        let mut homes = vec![0u32; nodes as usize];
        for &owner in owners {
            homes[owner as usize] += 1;
        }
        let mut by_homes: Vec<u32> = (0..nodes).collect();
        by_homes.sort_by_key(|&node| (homes[node as usize], node));
        let floor = u32::try_from(total / u64::from(nodes)).expect("backups are bounded");
        let mut left = vec![floor; nodes as usize];
        for &node in &by_homes[..(total % u64::from(nodes)) as usize] {
            left[node as usize] += 1;
        }
        let order = (0..nodes).map(|node| key(node, left[node as usize])).collect();
        Self { left, order }
    }

    fn take(&mut self, may: impl Fn(u32) -> bool) -> Option<u32> {
        let free = self.order.iter().take_while(|(Reverse(left), ..)| *left > 0);
        let node = free.map(|&(_, _, node)| node).find(|&node| may(node))?;
        self.change(node, |left| left - 1);
        Some(node)
    }

    fn change(&mut self, node: u32, change: impl Fn(u32) -> u32) {
        let left = &mut self.left[node as usize];
        self.order.remove(&key(node, *left));
        *left = change(*left);
        self.order.insert(key(node, *left));
    }

    /// A node with capacity left, if there is one.
    fn any(&self) -> Option<u32> {
        let &(Reverse(left), _, node) = self.order.first()?;
        (left > 0).then_some(node)
    }
}

fn key(node: u32, left: u32) -> (Reverse<u32>, u64, u32) {
    let mixed = xxh3_64(&(u64::from(node) << 32 | u64::from(left)).to_le_bytes());
    (Reverse(left), mixed, node)
}

/// The replicas of each partition, its primary first.
pub(super) fn with_backups(owners: &[u32], nodes: u32, copies: u32) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> = owners.iter().map(|&owner| vec![owner]).collect();
    let each = u64::from(copies - 1);
    let mut room = Room::new(owners, nodes, owners.len() as u64 * each);
    for partition in 0..all.len() {
        while (all[partition].len() as u64) <= each {
            let taken = room.take(|node| !all[partition].contains(&node));
            let node = taken.unwrap_or_else(|| exchange(&mut all, partition, &mut room));
            all[partition].push(node);
        }
    }
    all
}

/// Called when only members of this partition have capacity left. One of these members replaces a
/// backup of an earlier partition, and the replaced node becomes a backup of this partition.
fn exchange(all: &mut [Vec<u32>], partition: usize, room: &mut Room) -> u32 {
    let roomy = room.any().expect("an earlier step has made enough room");
    let (before, rest) = all.split_at_mut(partition);
    let here = &rest[0];
    for other in before.iter_mut().rev().filter(|other| !other.contains(&roomy)) {
        if let Some(backup) = other[1..].iter_mut().find(|node| !here.contains(node)) {
            room.change(roomy, |left| left - 1);
            return std::mem::replace(backup, roomy);
        }
    }
    // Too few partitions for an even spread: take the first node that is not a member.
    (0..).find(|node| !here.contains(node)).expect("there are as many nodes as copies")
}
