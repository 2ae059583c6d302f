use super::*;

fn owners(map: &wire::ClusterMap) -> Vec<u32> {
    map.partitions.iter().map(|entry| entry.replicas[0]).collect()
}

/// A hash of a whole table.
fn fingerprint(owners: &[u32]) -> u64 {
    let bytes: Vec<u8> = owners.iter().flat_map(|owner| owner.to_le_bytes()).collect();
    xxh3_64(&bytes)
}

#[test]
fn owners_are_golden() {
    let print = |nodes, partitions| fingerprint(&owners(&make_map(1, nodes, partitions)));
    let prints =
        [print(1, 4096), print(2, 4096), print(4, 4096), print(64, 4096), print(1000, 8192)];
    let golden = [
        13_244_528_742_850_077_904,
        7_573_995_729_121_902_660,
        7_252_644_661_511_544_704,
        16_953_541_576_835_187_670,
        125_943_310_737_430_551,
    ];
    assert_eq!(prints, golden);
    assert_eq!(
        owners(&make_map(1, 4, 4096))[..16],
        [0, 1, 2, 3, 2, 1, 0, 0, 0, 0, 1, 3, 1, 1, 0, 2]
    );
}

#[test]
fn every_node_has_the_floor_or_the_ceiling_of_the_mean() {
    for (nodes, partitions) in [(1, 4096), (2, 4096), (3, 8), (4, 4096), (64, 4096), (7, 4)] {
        let map = make_map(9, nodes, partitions);
        check_map(&map).unwrap();
        let held = partitions_by_node(&map);
        let counts: Vec<_> = held.iter().map(|list| list.len() as u32).collect();
        assert_eq!(counts.len(), nodes as usize);
        assert_eq!(counts.iter().sum::<u32>(), partitions);
        let floor = partitions / nodes;
        let ceiling = partitions.div_ceil(nodes);
        assert!(counts.iter().all(|count| (floor..=ceiling).contains(count)), "{counts:?}");
    }
}

#[test]
fn levelling_keeps_most_of_what_the_ring_proposed() {
    for nodes in [2u32, 4, 64] {
        let proposed = proposed_owners(nodes, 4096);
        let mut levelled = proposed.clone();
        level(&mut levelled, nodes);
        let moved = proposed.iter().zip(&levelled).filter(|(a, b)| a != b).count();
        let mut counts = vec![0usize; nodes as usize];
        proposed.iter().for_each(|&node| counts[node as usize] += 1);
        let mean = 4096 / nodes as usize;
        let excess: usize = counts.iter().map(|count| count.saturating_sub(mean)).sum();
        assert_eq!(moved, excess, "{nodes} nodes");
        assert!(moved < 4096 / 4, "{moved} of 4096 partitions moved for {nodes} nodes");
    }
}

#[test]
fn a_cluster_of_many_nodes_is_made_in_linear_time() {
    // One point per node, inserted in ring order. A quadratic construction would take minutes.
    let nodes = 100_000;
    let map = make_map(1, nodes, default_partitions(nodes));
    assert_eq!(map.partitions.len(), 1 << 20);
    check_map(&map).unwrap();
}

#[test]
fn default_partitions_are_at_least_eight_a_node() {
    assert_eq!(default_partitions(1), 4096);
    assert_eq!(default_partitions(512), 4096);
    assert_eq!(default_partitions(513), 8192);
    assert_eq!(default_partitions(NODES_MAX), 1 << 23);
}

#[test]
fn a_map_that_contradicts_itself_is_refused() {
    let good = make_map(1, 3, 8);
    let broken = |change: fn(&mut wire::ClusterMap)| {
        let mut map = good.clone();
        change(&mut map);
        check_map(&map).unwrap_err()
    };
    assert_eq!(broken(|map| map.partitions.truncate(7)), MapError::Partitions(7));
    assert_eq!(broken(|map| map.partitions.clear()), MapError::Partitions(0));
    assert_eq!(broken(|map| map.members.clear()), MapError::Members(0));
    assert_eq!(broken(|map| map.members.swap(0, 1)), MapError::Order(0));
    assert_eq!(broken(|map| map.partitions[2].replicas.clear()), MapError::NoOwner(2));
    assert_eq!(broken(|map| map.partitions[3].epoch = 0), MapError::NoOwner(3));
    let stranger = MapError::Stranger { partition: 4, node: 9 };
    assert_eq!(broken(|map| map.partitions[4].replicas.push(9)), stranger);
    assert_eq!(broken(|map| map.partitions[4].learners.push(9)), stranger);
    let twice = |map: &mut wire::ClusterMap| {
        let entry = &mut map.partitions[5];
        entry.learners.push(entry.replicas[0]);
    };
    let node = good.partitions[5].replicas[0];
    assert_eq!(broken(twice), MapError::Twice { partition: 5, node });
    assert_eq!(broken(|map| map.partitions[6].lost = true), MapError::LostAndActive(6));
    assert_eq!(broken(|map| map.copies = 0), MapError::Copies(0));
    assert_eq!(broken(|map| map.voters.clear()), MapError::Voters(vec![]));
    assert_eq!(broken(|map| map.voters = vec![1, 0]), MapError::Voters(vec![1, 0]));
    assert_eq!(broken(|map| map.voters = vec![7]), MapError::Voters(vec![7]));
}

#[test]
fn backups_are_on_other_nodes_and_even() {
    let cases =
        [(2, 4096, 2), (3, 8, 2), (3, 4096, 3), (5, 4096, 3), (7, 64, 2), (64, 4096, 5), (4, 8, 9)];
    for (nodes, partitions, copies) in cases {
        let copies = copies.min(COPIES_MAX);
        let map = make_replicated_map(9, nodes, partitions, copies);
        check_map(&map).unwrap();
        assert_eq!(owners(&map), owners(&make_map(9, nodes, partitions)), "homes stay");
        let each = copies.min(nodes) as usize;
        assert!(map.partitions.iter().all(|entry| entry.active && entry.replicas.len() == each));
        let spread = |holds: &dyn Fn(&wire::PartitionEntry, u32) -> bool| {
            let counts = (0..nodes)
                .map(|node| map.partitions.iter().filter(|entry| holds(entry, node)).count());
            let counts: Vec<usize> = counts.collect();
            counts.iter().max().unwrap() - counts.iter().min().unwrap()
        };
        assert!(spread(&|entry, node| entry.replicas[0] == node) <= 1);
        assert!(spread(&|entry, node| entry.replicas[1..].contains(&node)) <= 1, "{nodes}");
        assert!(spread(&|entry, node| entry.replicas.contains(&node)) <= 1, "{nodes}");
    }
}

/// If a node fails, its partitions must not all fail over to the same node.
#[test]
fn the_backups_of_one_node_lie_on_all_others() {
    let map = make_replicated_map(9, 5, 4096, 2);
    for node in 0..5 {
        let mut heirs = [0usize; 5];
        for entry in map.partitions.iter().filter(|entry| entry.replicas[0] == node) {
            heirs[entry.replicas[1] as usize] += 1;
        }
        let most = heirs.iter().max().unwrap();
        assert!(*most < 820 / 2, "of the homes of n{node}: {heirs:?}");
    }
}
