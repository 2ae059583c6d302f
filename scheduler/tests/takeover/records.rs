//! The records of homes, as if every home had perfect replicas.

use std::collections::{BTreeMap, BTreeSet};

use proto::{JobId, PartitionId, wire};
use scheduler::{Facts, LedgerRecord};

/// Records of one partition, in the order of keys: job, kind, number.
pub(crate) type Records = BTreeMap<(JobId, u8, u64), Kept>;

#[derive(Clone)]
pub(crate) enum Kept {
    Chunk(wire::Chunk),
    Visible(wire::VisibleRecord),
    Credit(wire::CreditRecord),
    End(wire::EndRecord),
    Holder(wire::HolderRecord),
    Start(wire::StartRecord),
}

impl Kept {
    pub(crate) fn record(self) -> LedgerRecord {
        match self {
            Self::Chunk(record) => LedgerRecord::Chunk(record),
            Self::Visible(record) => LedgerRecord::Visible(record),
            Self::Credit(record) => LedgerRecord::Credit(record),
            Self::End(record) => LedgerRecord::End(record),
            Self::Holder(record) => LedgerRecord::Holder(record),
            Self::Start(record) => LedgerRecord::Start(record),
        }
    }
}

pub(crate) fn touched(facts: &Facts) -> BTreeSet<PartitionId> {
    let places = facts.visible.keys().chain(facts.ends.keys());
    let places = places.chain(facts.credits.keys()).chain(facts.holders.keys());
    let places = places.chain(facts.starts.iter().flat_map(|starts| starts.keys()));
    places.map(|place| place.0).collect()
}

pub(crate) fn keep(
    records: &mut BTreeMap<PartitionId, Records>,
    jobs: &mut BTreeMap<JobId, wire::JobState>,
    facts: Facts,
    number: impl Fn(PartitionId) -> u64,
) {
    let mut put = |(partition, job), kind, number, stored| {
        records.entry(partition).or_default().insert((job, kind, number), stored);
    };
    for chunk in facts.chunks {
        let place = (PartitionId(chunk.partition), JobId(chunk.job));
        put(place, 1, chunk.number.into(), Kept::Chunk(chunk));
    }
    for (place, record) in facts.visible {
        put(place, 2, 0, Kept::Visible(record));
    }
    for (place, record) in facts.credits {
        put(place, 3, number(place.0), Kept::Credit(record));
    }
    for (place, record) in facts.ends {
        put(place, 4, number(place.0), Kept::End(record));
    }
    for (place, record) in facts.holders {
        put(place, 5, number(place.0), Kept::Holder(record));
    }
    for (place, record) in facts.starts.map(|starts| *starts).unwrap_or_default() {
        put(place, 6, number(place.0), Kept::Start(record));
    }
    jobs.extend(facts.jobs);
    for ((partition, job), chunk) in facts.dropped_chunks {
        records.entry(partition).or_default().remove(&(job, 1, chunk.into()));
    }
}
