//! Turns facts into records of the store, and back.

use bytes::Bytes;
use kvs::{Record, Write, keys};
use prost::Message;
use proto::{JobId, PartitionId, wire};
use scheduler::{Facts, LedgerRecord, Place};

// Kinds of ledger records; within a job and partition they are read in this order.
const CHUNK: u8 = 1;
const VISIBLE: u8 = 2;
const CREDIT: u8 = 3;
const END: u8 = 4;
const HOLDER: u8 = 5;
const START: u8 = 6;
const TURN: u8 = 7;
const MAIL: u8 = 8;
// Kinds of records of a job at its home.
const STATE: u8 = 0;
const VARIABLE: u8 = 1;

/// Appends the writes of a step's facts. `number` is never used twice in one partition, and grows.
pub(crate) fn write_facts(
    facts: Facts,
    partitions: u32,
    number: impl Fn(PartitionId) -> u64,
    writes: &mut Vec<Write>,
) {
    for chunk in &facts.chunks {
        let place = (PartitionId(chunk.partition), JobId(chunk.job));
        writes.push(put(place, CHUNK, chunk.number.into(), chunk));
    }
    for (place, record) in &facts.visible {
        writes.push(put(*place, VISIBLE, 0, record));
    }
    for (place, record) in &facts.credits {
        writes.push(put(*place, CREDIT, number(place.0), record));
    }
    for (place, record) in &facts.ends {
        writes.push(put(*place, END, number(place.0), record));
    }
    for (place, record) in &facts.holders {
        writes.push(put(*place, HOLDER, number(place.0), record));
    }
    for (place, record) in facts.starts.iter().flat_map(|starts| starts.iter()) {
        writes.push(put(*place, START, number(place.0), record));
    }
    for (&(place, index), record) in facts.turns.iter().flat_map(|turns| turns.iter()) {
        writes.push(put(place, TURN, index, record));
    }
    for (&(place, letter), record) in facts.mail.iter().flat_map(|mail| mail.iter()) {
        writes.push(match record {
            Some(record) => put(place, MAIL, letter, record),
            None => drop_record(place, MAIL, letter),
        });
    }
    for (&job, state) in &facts.jobs {
        let partition = kvs::job_partition(job, partitions);
        let key = keys::job_record(keys::JOB, job, 0, 0).to_vec();
        writes.push(Write { partition, key, value: Some(state.encode_to_vec()) });
    }
    let variables = facts.variables.as_deref();
    for (&(job, index), variable) in variables.iter().flat_map(|all| all.changed.iter()) {
        let partition = kvs::job_partition(job, partitions);
        let key = keys::job_record(keys::JOB, job, VARIABLE, index.into()).to_vec();
        writes.push(Write { partition, key, value: Some(variable.encode_to_vec()) });
    }
    for &(job, index) in variables.iter().flat_map(|all| all.dropped.iter()) {
        let partition = kvs::job_partition(job, partitions);
        let key = keys::job_record(keys::JOB, job, VARIABLE, index.into()).to_vec();
        writes.push(Write { partition, key, value: None });
    }
    for &job in &facts.dropped_jobs {
        let partition = kvs::job_partition(job, partitions);
        let key = keys::job_record(keys::JOB, job, 0, 0).to_vec();
        writes.push(Write { partition, key, value: None });
    }
    for &(partition, job) in &facts.forgotten {
        let key = keys::job_prefix(keys::TASK, job).to_vec();
        writes.push(Write { partition, key, value: None });
    }
    for &(place, chunk) in &facts.dropped_chunks {
        writes.push(drop_record(place, CHUNK, chunk.into()));
    }
}

fn drop_record((partition, job): Place, kind: u8, index: u64) -> Write {
    Write { partition, key: keys::job_record(keys::TASK, job, kind, index).to_vec(), value: None }
}

fn put((partition, job): Place, kind: u8, index: u64, record: &impl Message) -> Write {
    let key = keys::job_record(keys::TASK, job, kind, index).to_vec();
    Write { partition, key, value: Some(record.encode_to_vec()) }
}

/// A record in the form that the scheduler loads.
pub(crate) enum Loaded {
    Ledger(JobId, Box<LedgerRecord>),
    Job(Box<wire::JobState>),
    Variable(JobId, Box<wire::Variable>),
    /// A record of the user's key-value store: a key, or a numbered batch.
    User,
    /// A record of the shell.
    Meta,
}

pub(crate) fn read(record: &Record) -> Result<Loaded, String> {
    let malformed = |error: prost::DecodeError| format!("a record does not decode: {error}");
    match keys::namespace(&record.key) {
        Some(keys::USER | keys::NUMBERS) => Ok(Loaded::User),
        Some(keys::META) => Ok(Loaded::Meta),
        Some(keys::JOB) => {
            let (job, kind, _) =
                keys::parse_job_record(&record.key).ok_or("a job record's key is malformed")?;
            let value = record.value.as_slice();
            Ok(match kind {
                STATE => Loaded::Job(Box::new(wire::JobState::decode(value).map_err(malformed)?)),
                VARIABLE => {
                    let variable = wire::Variable::decode(value).map_err(malformed)?;
                    Loaded::Variable(job, Box::new(variable))
                }
                other => return Err(format!("a job record has the unknown kind {other}")),
            })
        }
        Some(keys::TASK) => {
            let (job, kind, index) =
                keys::parse_job_record(&record.key).ok_or("a task record's key is malformed")?;
            let value = Bytes::copy_from_slice(&record.value);
            let loaded = match kind {
                CHUNK => LedgerRecord::Chunk(wire::Chunk::decode(value).map_err(malformed)?),
                VISIBLE => {
                    LedgerRecord::Visible(wire::VisibleRecord::decode(value).map_err(malformed)?)
                }
                CREDIT => {
                    LedgerRecord::Credit(wire::CreditRecord::decode(value).map_err(malformed)?)
                }
                END => LedgerRecord::End(wire::EndRecord::decode(value).map_err(malformed)?),
                HOLDER => {
                    LedgerRecord::Holder(wire::HolderRecord::decode(value).map_err(malformed)?)
                }
                START => LedgerRecord::Start(wire::StartRecord::decode(value).map_err(malformed)?),
                TURN => LedgerRecord::Turn(wire::TurnRecord::decode(value).map_err(malformed)?),
                MAIL => {
                    let record = wire::MailRecord::decode(value).map_err(malformed)?;
                    LedgerRecord::Mail(index, record)
                }
                other => return Err(format!("a task record has the unknown kind {other}")),
            };
            Ok(Loaded::Ledger(job, Box::new(loaded)))
        }
        other => Err(format!("a record has the unknown namespace {other:?}")),
    }
}
