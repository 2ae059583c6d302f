//! Divides key-value operations into groups of one partition each, and the groups into requests.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::wire::{self, KvKind, request};
use proto::{PartitionId, limits};

use crate::call::Repeat;
use crate::kv::numbered::Writes;
use crate::link;
use crate::map::home_of;

/// The maximum size of an operation in a request without its key and value.
const OP_BYTES: usize = 64;

/// Packs groups of one node into requests, as many as a frame takes. A group that must not happen
/// twice is sent alone, so that its result is known alone. So is a numbered one, because its number
/// may be forgotten.
pub(crate) fn request_groups(
    map: &wire::ClusterMap,
    groups: Vec<Group>,
    writes: &Writes,
) -> Vec<RequestGroup> {
    let mut open: BTreeMap<u32, RequestGroup> = BTreeMap::new();
    let mut full = Vec::new();
    for group in groups {
        let node = home_of(map, group.partition);
        let new = || RequestGroup { node, groups: Vec::new(), size_bytes: 0 };
        if repeat_of(&group, writes) != Repeat::Safe {
            full.push(RequestGroup { groups: vec![group], ..new() });
            continue;
        }
        let sizes = group.ops.iter().map(|op| op.key.len() + op.value.len() + OP_BYTES);
        let size_bytes = sizes.sum::<usize>();
        let parcel = open.entry(node).or_insert_with(new);
        if parcel.size_bytes + size_bytes > limits::CHUNK_BYTES_MAX && parcel.size_bytes > 0 {
            full.push(std::mem::replace(parcel, new()));
        }
        parcel.size_bytes += size_bytes;
        parcel.groups.push(group);
    }
    full.extend(open.into_values());
    full
}

/// Operations of one partition, which are consecutive in the order of partitions.
pub(crate) struct Group {
    pub(crate) partition: PartitionId,
    /// The place of the first one in that order.
    pub(crate) first: usize,
    pub(crate) ops: Vec<wire::KvOp>,
    pub(crate) number: Option<wire::KvNumber>,
}

/// Groups that are sent in one request.
pub(crate) struct RequestGroup {
    pub(crate) node: u32,
    pub(crate) groups: Vec<Group>,
    size_bytes: usize,
}

impl RequestGroup {
    /// Encodes the request. Copies no operation: they are moved into it and back.
    pub(crate) fn encode(&mut self, map: &wire::ClusterMap, id: u64) -> Bytes {
        let batch = |group: &mut Group| wire::KvBatch {
            partition: group.partition.0,
            epoch: epoch_of(map, group.partition),
            ops: std::mem::take(&mut group.ops),
            number: group.number,
        };
        let mut batches: Vec<_> = self.groups.iter_mut().map(batch).collect();
        let body = match batches.len() {
            1 => request::Body::Kv(batches.remove(0)),
            _ => request::Body::KvMany(wire::KvBatches { batches }),
        };
        let request = wire::Request { id, body: Some(body) };
        let (bytes, request) = link::encode_and_keep(request);
        let batches = match request.body {
            Some(request::Body::Kv(batch)) => vec![batch],
            Some(request::Body::KvMany(many)) => many.batches,
            _ => unreachable!("it was made above"),
        };
        for (group, batch) in self.groups.iter_mut().zip(batches) {
            group.ops = batch.ops;
        }
        bytes
    }
}

/// A repeated append or swap has another effect than a single one.
pub(crate) fn repeat_of(group: &Group, writes: &Writes) -> Repeat {
    if group.number.is_some() {
        return Repeat::Numbered { in_doubt: false };
    }
    let is_once = matches!(writes, Writes::Once);
    let is_safe = |op: &wire::KvOp| match op.kind() {
        KvKind::Lookup => true,
        KvKind::Insert | KvKind::Remove => !is_once,
        KvKind::Append | KvKind::Cas => false,
    };
    if group.ops.iter().all(is_safe) { Repeat::Safe } else { Repeat::Never }
}

pub(crate) fn has_writes(ops: &[wire::KvOp]) -> bool {
    ops.iter().any(|op| op.kind() != KvKind::Lookup)
}

fn epoch_of(map: &wire::ClusterMap, partition: PartitionId) -> u64 {
    map.partitions[partition.0 as usize].epoch
}

pub(crate) fn kv_batch(map: &wire::ClusterMap, group: &Group) -> wire::KvBatch {
    let epoch = epoch_of(map, group.partition);
    let (partition, ops) = (group.partition.0, group.ops.clone());
    wire::KvBatch { partition, epoch, ops, number: group.number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{KvKind, KvOp};

    fn group(partition: u32, kind: KvKind, value_bytes: usize) -> Group {
        let ops = vec![KvOp::new(kind, b"k", &vec![0; value_bytes]).into_record()];
        let partition_id = PartitionId(partition);
        Group { partition: partition_id, first: partition as usize, ops, number: None }
    }

    #[test]
    fn what_must_not_happen_twice_travels_alone() {
        let entry = |node| wire::PartitionEntry {
            epoch: 1,
            replicas: vec![node],
            active: true,
            ..Default::default()
        };
        let partitions = [0, 0, 0, 0, 1, 0, 0, 0].map(entry).to_vec();
        let map = wire::ClusterMap { partitions, ..wire::ClusterMap::default() };
        let half = limits::CHUNK_BYTES_MAX / 2;
        let groups = vec![
            group(0, KvKind::Insert, 1),
            group(1, KvKind::Append, 1),
            group(2, KvKind::Lookup, 0),
            group(3, KvKind::Cas, 1),
            group(4, KvKind::Insert, 1),
            group(5, KvKind::Insert, half),
            group(6, KvKind::Insert, half),
        ];
        let mut sent: Vec<(u32, Vec<usize>)> = request_groups(&map, groups, &Writes::Plain)
            .into_iter()
            .map(|parcel| (parcel.node, parcel.groups.iter().map(|g| g.first).collect()))
            .collect();
        sent.sort_unstable_by_key(|(_, places)| places[0]);
        let alone = |place| vec![place];
        let together = vec![0, 2, 5];
        let expected = [(0, together), (0, alone(1)), (0, alone(3)), (1, alone(4)), (0, alone(6))];
        assert_eq!(sent, expected);
        let groups = [KvKind::Insert, KvKind::Remove, KvKind::Lookup, KvKind::Lookup];
        let four = || (0..4).zip(groups).map(|(at, kind)| group(at, kind, 0));
        let once = request_groups(&map, four().collect(), &Writes::Once);
        assert_eq!(once.len(), 3, "writes that happen once travel alone");
        let number = Some(wire::KvNumber { client: 1, sequence: 1, ticket: 0 });
        let numbered = four().map(|group| match has_writes(&group.ops) {
            true => Group { number, ..group },
            false => group,
        });
        let numbered = request_groups(&map, numbered.collect(), &Writes::Plain);
        assert_eq!(numbered.len(), 3, "numbered writes travel alone");
    }
}
