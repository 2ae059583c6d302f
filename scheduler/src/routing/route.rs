//! Messages to the owners of partitions: whether one node owns all of a message, and how it is
//! split among several owners.

use std::collections::{BTreeMap, BTreeSet};

use proto::wire::message::Body;
use proto::{LocalId, PartitionId, wire};

use super::traits::{AddressedTo, traits};
use crate::routing::partition_owners::Homes;

/// A message, split by the owners of the partitions that it is about.
pub(crate) enum Split<K> {
    /// The message is for a node as such, and stays as it is.
    ToNode(Body),
    /// The message is for one owner, and is never split.
    Undivided(wire::TasksMoved),
    /// One message for each key of a partition, in order.
    ByOwner(Vec<(K, Body)>),
}

/// Whether `holds` is true of each partition that the message is about. True for a message to a
/// node as such.
pub(crate) fn all(
    to: &AddressedTo<'_>,
    homes: &Homes,
    holds: impl Fn(PartitionId) -> bool,
) -> bool {
    let mut all = true;
    to.each_partition(homes, |partition| all = all && holds(partition));
    all
}

/// Partitions of which the message names an attempt of a later term: this node does not own them
/// any more and does not know that yet. By its records the attempt would be stale.
pub(crate) fn surpassed(to: &AddressedTo<'_>, homes: &Homes) -> BTreeSet<PartitionId> {
    let mut found = BTreeSet::new();
    to.each_attempt(|task, attempt| {
        let partition = task.partition();
        if homes.term(partition).is_some_and(|term| attempt.term() > term) {
            found.insert(partition);
        }
    });
    found
}

/// Splits a message by the key of each partition that it is about.
pub(crate) fn split<K: Ord>(body: Body, homes: &Homes, key: impl Fn(PartitionId) -> K) -> Split<K> {
    let local = |local: u64| key(LocalId(local).partition());
    let pieces = match traits(&body).addressed_to {
        AddressedTo::Node => return Split::ToNode(body),
        AddressedTo::TasksMoved(moved) => return Split::Undivided(moved.clone()),
        AddressedTo::Partition(partition) => vec![(key(partition), body)],
        AddressedTo::Turn(turn) => vec![(local(turn.local), body)],
        AddressedTo::Job(job) => vec![(key(homes.job_partition(job)), body)],
        AddressedTo::Commit(visible) => split_commit(visible, key),
        AddressedTo::Children(credits) => split_credits(credits, key),
        AddressedTo::Ended(ends) => group(ends, |ended| local(ended.local))
            .into_iter()
            .map(|(key, completions)| (key, Body::Finished(wire::Finished { completions })))
            .collect(),
        AddressedTo::Parents(asks) => group(asks, |ask| local(ask.parent))
            .into_iter()
            .map(|(key, asks)| (key, Body::CreditQuery(wire::CreditQuery { requests: asks })))
            .collect(),
        AddressedTo::TasksNotHeld(told) => group(&told.tasks, |held| local(held.local))
            .into_iter()
            .map(|(key, tasks)| (key, Body::TasksNotHeld(wire::TasksNotHeld { tasks, ..*told })))
            .collect(),
        AddressedTo::Makers(outputs) => group(outputs, |output| local(output.task))
            .into_iter()
            .map(|(key, outputs)| (key, Body::ReadersFinished(wire::ReadersFinished { outputs })))
            .collect(),
    };
    Split::ByOwner(pieces)
}

fn split_commit<K: Ord>(visible: &wire::Visible, key: impl Fn(PartitionId) -> K) -> Vec<(K, Body)> {
    let Some(commit) = &visible.commit else { return Vec::new() };
    group(&commit.partitions, |total| key(PartitionId(total.partition)))
        .into_iter()
        .map(|(key, partitions)| {
            let commit = Some(wire::JobCommit { partitions, ..commit.clone() });
            (key, Body::Visible(wire::Visible { commit, retried: visible.retried.clone() }))
        })
        .collect()
}

fn split_credits<K: Ord>(
    credits: &wire::Credits,
    key: impl Fn(PartitionId) -> K,
) -> Vec<(K, Body)> {
    let reconciled = credits.reconciled;
    let pieces = credits.credits.iter().flat_map(|credit| split_credit(credit, &key));
    group_pairs(pieces)
        .into_iter()
        .map(|(key, credits)| (key, Body::Credits(wire::Credits { credits, reconciled })))
        .collect()
}

/// Splits one parent's credit by the owners of its children.
fn split_credit<K: Ord>(
    credit: &wire::Credit,
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

fn group<K: Ord, T: Clone>(items: &[T], key: impl Fn(&T) -> K) -> BTreeMap<K, Vec<T>> {
    group_pairs(items.iter().map(|item| (key(item), item.clone())))
}

/// Groups items by key; in each group the order stays.
fn group_pairs<K: Ord, T>(pairs: impl IntoIterator<Item = (K, T)>) -> BTreeMap<K, Vec<T>> {
    let mut groups: BTreeMap<K, Vec<T>> = BTreeMap::new();
    for (key, item) in pairs {
        groups.entry(key).or_default().push(item);
    }
    groups
}
