//! The map that a client knows: fetched whole from a node, and corrected by redirects.

use proto::PartitionId;
use proto::wire::{ClusterMap, Member, Redirect};

/// The node that is primary of a partition.
pub(crate) fn home_of(map: &ClusterMap, partition: PartitionId) -> u32 {
    let entry = &map.partitions[partition.0 as usize];
    *entry.replicas.first().expect("the map gives every partition a primary")
}

/// Replaces the known map by a fetched one, unless that is older.
///
/// A redirect corrects one entry without the epoch of the whole map. So an entry that is newer than
/// the fetched map's stays, with its home.
pub(crate) fn merge(known: &ClusterMap, mut fetched: ClusterMap) -> Option<ClusterMap> {
    if known.partitions.is_empty() {
        return Some(fetched);
    }
    if fetched.epoch < known.epoch {
        return None;
    }
    for (entry, before) in fetched.partitions.iter_mut().zip(&known.partitions) {
        if before.epoch <= entry.epoch {
            continue;
        }
        entry.clone_from(before);
        let home = before.replicas.first().and_then(|&home| member(known, home));
        if let Some(home) = home.cloned() {
            keep_newer(&mut fetched.members, home);
        }
    }
    Some(fetched)
}

/// Updates the map's entry of one partition. The rest stays as it is.
pub(crate) fn correct(known: &mut ClusterMap, redirect: Redirect) {
    let Redirect { partition, entry, home, .. } = redirect;
    let (Some(entry), Some(before)) = (entry, known.partitions.get_mut(partition as usize)) else {
        return;
    };
    *before = entry;
    if let Some(home) = home {
        keep_newer(&mut known.members, home);
    }
}

/// True if the redirect has a newer entry than the known map.
pub(crate) fn is_newer(redirect: &Redirect, known: &ClusterMap) -> bool {
    let before = known.partitions.get(redirect.partition as usize);
    redirect
        .entry
        .as_ref()
        .zip(before)
        .is_some_and(|(entry, before)| entry.epoch > before.epoch && !entry.replicas.is_empty())
}

fn member(map: &ClusterMap, node: u32) -> Option<&Member> {
    let at = map.members.binary_search_by_key(&node, |member| member.node).ok()?;
    map.members.get(at)
}

fn keep_newer(members: &mut Vec<Member>, member: Member) {
    match members.binary_search_by_key(&member.node, |other| other.node) {
        Ok(at) if members[at].incarnation < member.incarnation => members[at] = member,
        Ok(_) => {}
        Err(at) => members.insert(at, member),
    }
}

#[cfg(test)]
mod tests {
    use proto::wire::PartitionEntry;

    use super::*;

    fn entry(epoch: u64, home: u32) -> PartitionEntry {
        PartitionEntry { epoch, replicas: vec![home], ..PartitionEntry::default() }
    }

    fn map(epoch: u64, nodes: &[u32], partitions: Vec<PartitionEntry>) -> ClusterMap {
        let members =
            nodes.iter().map(|&node| Member { node, incarnation: 1, ..Member::default() });
        ClusterMap { epoch, members: members.collect(), partitions, ..ClusterMap::default() }
    }

    #[test]
    fn a_fetched_map_does_not_undo_a_redirect() {
        let mut known = map(1, &[0, 1], vec![entry(1, 0), entry(1, 1)]);
        let home = Member { node: 7, incarnation: 3, ..Member::default() };
        let redirect =
            Redirect { partition: 0, entry: Some(entry(5, 7)), home: Some(home), map_epoch: 5 };
        assert!(is_newer(&redirect, &known));
        correct(&mut known, redirect);
        let fetched = map(3, &[0, 1], vec![entry(2, 1), entry(3, 0)]);
        let merged = merge(&known, fetched).expect("the fetched map is newer");
        assert_eq!(merged.epoch, 3);
        assert_eq!(merged.partitions, vec![entry(5, 7), entry(3, 0)]);
        assert_eq!(member(&merged, 7).map(|home| home.incarnation), Some(3));
    }

    #[test]
    fn an_older_map_is_refused_and_a_newer_one_replaces_all() {
        let known = map(4, &[0, 1], vec![entry(4, 0)]);
        assert_eq!(merge(&known, map(3, &[0, 1], vec![entry(3, 1)])), None);
        let newest = map(9, &[1], vec![entry(8, 1)]);
        assert_eq!(merge(&known, newest.clone()), Some(newest));
    }

    #[test]
    fn an_old_or_empty_redirect_is_no_news() {
        let known = map(4, &[0], vec![entry(4, 0)]);
        let redirect = |entry| Redirect { partition: 0, entry, ..Redirect::default() };
        assert!(!is_newer(&redirect(Some(entry(4, 1))), &known));
        assert!(!is_newer(
            &redirect(Some(PartitionEntry { epoch: 9, ..Default::default() })),
            &known
        ));
        assert!(!is_newer(&redirect(None), &known));
        assert!(!is_newer(&Redirect { partition: 7, ..redirect(Some(entry(9, 1))) }, &known));
    }
}
