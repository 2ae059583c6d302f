//! To whom a message speaks: to a node as such, or to the homes of what it is about. The latter
//! follow their partitions when these move.

use std::collections::BTreeMap;

use proto::wire::message::Body;
use proto::{JobId, LocalId, NodeId, PartitionId, wire};

use crate::homes::Homes;

/// Where a piece of a message goes: to a node, or nowhere before somebody serves the partition.
pub type Piece = (Result<NodeId, PartitionId>, Body);

/// The pieces of a message by the present homes of what it is about. None for a message to a
/// node as such: with the node it loses its meaning.
#[must_use]
pub fn reroute(body: Body, homes: &Homes) -> Vec<Piece> {
    split(body, homes, |partition| homes.speaker(partition).ok_or(partition)).unwrap_or_default()
}

/// Whether the message is about partitions, and each of them is as `holds` demands.
/// `None`: it speaks to a node as such.
pub(crate) fn all(body: &Body, homes: &Homes, holds: impl Fn(PartitionId) -> bool) -> Option<bool> {
    let local = |local: u64| holds(LocalId(local).partition());
    let exists = |partition: PartitionId| partition.0 >= homes.partitions() || holds(partition);
    Some(match body {
        Body::Finished(finished) => finished.completions.iter().all(|ended| local(ended.local)),
        Body::Credits(credits) => {
            credits.credits.iter().all(|credit| credit.child.iter().all(|&child| local(child)))
        }
        Body::CreditQuery(query) => query.asks.iter().all(|ask| local(ask.parent)),
        Body::Recall(recall) => exists(PartitionId(recall.partition)),
        Body::Recalled(answer) => exists(answer_partition(answer, homes)),
        Body::Visible(visible) => {
            let totals = visible.commit.iter().flat_map(|commit| &commit.partitions);
            totals.into_iter().all(|total| exists(PartitionId(total.partition)))
        }
        Body::Counts(counts) => exists(homes.job_partition(JobId(counts.job))),
        Body::PartTell(tell) => exists(homes.job_partition(JobId(tell.job))),
        Body::NotHeld(not_held) => not_held.tasks.iter().all(|held| local(held.local)),
        Body::Moved(moved) => moved.tasks.iter().all(|held| local(held.local)),
        Body::Consumed(consumed) => consumed.outputs.iter().all(|output| local(output.task)),
        _ => return None,
    })
}

/// Splits a message by what `key` says of the partitions it is about; `None`: it is about none.
pub(crate) fn split<K: Ord>(
    body: Body,
    homes: &Homes,
    key: impl Fn(PartitionId) -> K,
) -> Option<Vec<(K, Body)>> {
    let local = |local: u64| key(LocalId(local).partition());
    Some(match body {
        Body::Finished(finished) => group(finished.completions, |ended| local(ended.local))
            .map(|(key, completions)| (key, Body::Finished(wire::Finished { completions })))
            .collect(),
        Body::Credits(credits) => {
            let reconciled = credits.reconciled;
            let pieces = credits.credits.into_iter().flat_map(|credit| split_credit(credit, &key));
            group_pairs(pieces)
                .map(|(key, credits)| (key, Body::Credits(wire::Credits { credits, reconciled })))
                .collect()
        }
        Body::CreditQuery(query) => group(query.asks, |ask| local(ask.parent))
            .map(|(key, asks)| (key, Body::CreditQuery(wire::CreditQuery { asks })))
            .collect(),
        Body::Recall(recall) => {
            vec![(key(PartitionId(recall.partition)), Body::Recall(recall))]
        }
        Body::Recalled(answer) => {
            vec![(key(answer_partition(&answer, homes)), Body::Recalled(answer))]
        }
        Body::Visible(wire::Visible { commit: Some(commit), retried }) => {
            let bare = wire::JobCommit { partitions: Vec::new(), ..commit.clone() };
            group(commit.partitions, |total| key(PartitionId(total.partition)))
                .map(|(key, partitions)| {
                    let commit = Some(wire::JobCommit { partitions, ..bare.clone() });
                    (key, Body::Visible(wire::Visible { commit, retried: retried.clone() }))
                })
                .collect()
        }
        Body::Counts(counts) => {
            vec![(key(homes.job_partition(JobId(counts.job))), Body::Counts(counts))]
        }
        Body::PartTell(tell) => {
            vec![(key(homes.job_partition(JobId(tell.job))), Body::PartTell(tell))]
        }
        Body::NotHeld(not_held) => group(not_held.tasks, |held| local(held.local))
            .map(|(key, tasks)| (key, Body::NotHeld(wire::NotHeld { tasks })))
            .collect(),
        Body::Consumed(consumed) => group(consumed.outputs, |output| local(output.task))
            .map(|(key, outputs)| (key, Body::Consumed(wire::Consumed { outputs })))
            .collect(),
        _ => return None,
    })
}

/// The answer to a recall goes to the job's home, and from there to the parent's.
fn answer_partition(answer: &wire::Recalled, homes: &Homes) -> PartitionId {
    if answer.counted {
        LocalId(answer.parent).partition()
    } else {
        homes.job_partition(JobId(answer.job))
    }
}

/// One parent's credit by what is said of its children.
fn split_credit<K: Ord>(
    credit: wire::Credit,
    key: &impl Fn(PartitionId) -> K,
) -> BTreeMap<K, wire::Credit> {
    let bare =
        wire::Credit { child: Vec::new(), slot: Vec::new(), output: Vec::new(), ..credit.clone() };
    let mut pieces: BTreeMap<K, wire::Credit> = BTreeMap::new();
    for ((&child, &slot), &output) in credit.child.iter().zip(&credit.slot).zip(&credit.output) {
        let key = key(LocalId(child).partition());
        let piece = pieces.entry(key).or_insert_with(|| bare.clone());
        piece.child.push(child);
        piece.slot.push(slot);
        piece.output.push(output);
    }
    pieces
}

fn group<K: Ord, T>(items: Vec<T>, key: impl Fn(&T) -> K) -> impl Iterator<Item = (K, Vec<T>)> {
    group_pairs(items.into_iter().map(|item| (key(&item), item)).collect::<Vec<_>>())
}

/// In each group the order stays.
fn group_pairs<K: Ord, T>(
    pairs: impl IntoIterator<Item = (K, T)>,
) -> impl Iterator<Item = (K, Vec<T>)> {
    let mut groups: BTreeMap<K, Vec<T>> = BTreeMap::new();
    for (key, item) in pairs {
        groups.entry(key).or_default().push(item);
    }
    groups.into_iter()
}
