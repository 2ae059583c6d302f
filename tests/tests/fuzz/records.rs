//! Fuzzing of maps and records, which a node reads when it starts.

use std::sync::Arc;

use kvs::{Record, check_map, home, keys, make_map, partitions_by_node};
use node::{Config, Node};
use prost::Message;
use proto::{JobId, NodeId, PartitionId, Time, wire};

use crate::{fuzz, golden};

#[test]
fn maps_are_refused_or_answer() {
    let samples: Vec<Vec<u8>> = [(1, 16), (3, 64), (5, 256)]
        .into_iter()
        .map(|(nodes, partitions)| make_map(7, nodes, partitions).encode_to_vec())
        .collect();
    fuzz(&samples, |_, bytes| {
        let Ok(map) = wire::ClusterMap::decode(bytes) else { return };
        if check_map(&map).is_err() {
            return;
        }
        let partitions = map.partitions.len();
        assert_eq!(partitions_by_node(&map).iter().map(Vec::len).sum::<usize>(), partitions);
        assert!((0..partitions as u32).all(|p| home(&map, PartitionId(p)).is_some()));
    });
}

#[test]
fn damaged_records_are_refused_or_loaded() {
    let map = Arc::new(make_map(7, 1, 16));
    let (names, samples): (Vec<String>, Vec<Vec<u8>>) = golden("wire.hex")
        .into_iter()
        .filter(|(name, _)| name.ends_with("Record") || name == "Chunk" || name == "JobCommit")
        .unzip();
    // The bytes before the record select its key.
    let samples: Vec<Vec<u8>> =
        samples.into_iter().map(|sample| [vec![0; 4], sample].concat()).collect();
    let kinds: Vec<u8> = (b'a'..=b'z').collect();
    fuzz(&samples, |sample, bytes| {
        let Some((&[partition, index, kind, space], value)) = bytes.split_first_chunk() else {
            return;
        };
        let spaces = [keys::USER, keys::TASK, keys::JOB, keys::META, keys::NUMBERS];
        let space = spaces[usize::from(space) % spaces.len()];
        let own = names[sample].bytes().next().unwrap_or(b'c').to_ascii_lowercase();
        let kind = if kind == 0 { own } else { kinds[usize::from(kind) % kinds.len()] };
        let record = Record {
            partition: PartitionId(u32::from(partition % 16)),
            key: match space {
                keys::NUMBERS => keys::number(index.into(), kind),
                _ => keys::job_record(space, JobId(1), kind, index.into()).to_vec(),
            },
            value: value.to_vec(),
        };
        let config = Config { seed: 1, ..Config::new(NodeId(0), Arc::clone(&map)) };
        let recovered = Node::recover(config, std::iter::once(record), Time(1));
        // Refused with an error text, or loaded.
        if let Err(error) = recovered {
            assert!(!error.to_string().is_empty());
        }
    });
}
