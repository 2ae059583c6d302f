//! Blocks of attempts, by column.
//!
//! Attempts are in the order of their node and start. A slot is named by its place in the list of
//! the node's slots by last end: a free slot takes the next task, so the place is nearly always 0.
//! A start is the pause after that end. An index is a step from the last one of its partition.

use proto::limits::SLOTS_MAX;
use proto::{LocalId, PartitionId};

use super::RecordError;
use super::varint::{Reader, block, open_block, put, unzigzag, zigzag};
use crate::attempt::{AttemptRow, Outcome, SLOT_UNKNOWN, code, of_code};
use crate::limits::RECORD_TIME_MAX_US;

/// The numbers of the columns.
const RUNS: usize = 0;
const SLOT: usize = 1;
const SLOT_NEW: usize = 2;
const PAUSE: usize = 3;
const RAN: usize = 4;
const WAIT: usize = 5;
const FETCH: usize = 6;
const KIND: usize = 7;
const END: usize = 8;
const MORE: usize = 9;
const MORE_SLOTS: usize = 10;
const MOVED: usize = 11;
const LOCAL: usize = 12;
const PARTITION: usize = 13;
const PARTITION_NEW: usize = 14;
const INDEX: usize = 15;
const COLUMNS: usize = 16;

/// The attempts of one node so far, on both sides.
#[derive(Default)]
struct Node {
    /// (last end, slot), in order.
    slots: Vec<(u64, u32)>,
    last_start: u64,
    /// (partition, last index), the latest first.
    partitions: Vec<(u32, u64)>,
}

impl Node {
    fn place(&self, slot: u32) -> Option<usize> {
        self.slots.iter().position(|known| known.1 == slot)
    }

    fn ended(&mut self, slot: u32, end: u64) {
        if let Some(place) = self.place(slot) {
            self.slots.remove(place);
        }
        let at = self.slots.partition_point(|known| *known <= (end, slot));
        self.slots.insert(at, (end, slot));
    }

    /// Notes an attempt.
    fn see(&mut self, row: &AttemptRow) {
        let end = row.end_us();
        self.ended(row.slot, end);
        row.more.iter().for_each(|&slot| self.ended(slot, end));
        self.last_start = row.start_us;
    }
}

pub(super) fn write(rows: &[AttemptRow]) -> Vec<u8> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    for run in rows.chunk_by(|a, b| a.node == b.node) {
        put(&mut columns[RUNS], run[0].node.into());
        put(&mut columns[RUNS], run.len() as u64);
        let mut node = Node::default();
        for row in run {
            write_row(&mut columns, &mut node, row);
            node.see(row);
        }
    }
    block(rows.len(), &columns)
}

fn write_row(columns: &mut [Vec<u8>; COLUMNS], node: &mut Node, row: &AttemptRow) {
    let mut column = |number: usize, n: u64| put(&mut columns[number], n);
    let after = match node.place(row.slot) {
        Some(place) => {
            column(SLOT, place as u64);
            node.slots[place].0
        }
        None => {
            column(SLOT, node.slots.len() as u64);
            column(SLOT_NEW, row.slot.into());
            node.last_start
        }
    };
    column(PAUSE, zigzag(after, row.start_us));
    column(RAN, row.ran_us);
    column(WAIT, code(row.wait_us).into());
    column(FETCH, code(row.fetch_us).into());
    column(KIND, row.kind.into());
    // A first attempt that succeeded is 0.
    let again = u64::from(row.number.wrapping_sub(1));
    column(END, row.outcome as u64 | again << 2);
    column(MORE, row.more.len() as u64);
    row.more.iter().for_each(|&slot| column(MORE_SLOTS, slot.into()));
    column(MOVED, row.moved_bytes);
    column(LOCAL, row.local_bytes);
    let (partition, index) = (row.task.partition().0, row.task.index());
    let place = node.partitions.iter().position(|known| known.0 == partition);
    column(PARTITION, place.unwrap_or(node.partitions.len()) as u64);
    let (_, last) = match place {
        Some(place) => node.partitions.remove(place),
        None => {
            column(PARTITION_NEW, partition.into());
            (partition, u64::MAX)
        }
    };
    column(INDEX, zigzag(last.wrapping_add(1), index));
    node.partitions.insert(0, (partition, index));
}

/// Appends the rows of a block. Their further slots take from `more_left`.
pub(super) fn read(
    bytes: &[u8],
    at: usize,
    rows: &mut Vec<AttemptRow>,
    more_left: &mut u64,
) -> Result<(), RecordError> {
    let (number, mut columns) = open_block::<COLUMNS>(bytes, at)?;
    let mut left = number;
    while !columns[RUNS].is_empty() {
        let (node, run) = (columns[RUNS].small()?, columns[RUNS].number()?);
        left = usize::try_from(run)
            .ok()
            .and_then(|run| left.checked_sub(run))
            .ok_or_else(|| columns[RUNS].wrong("a run of rows that is too long"))?;
        let mut known = Node::default();
        for _ in 0..run {
            let mut row = read_row(&mut columns, &mut known, more_left)?;
            row.node = node;
            known.see(&row);
            rows.push(row);
        }
    }
    if left > 0 || columns.iter().any(|column| !column.is_empty()) {
        return Err(columns[RUNS].wrong("columns of different lengths"));
    }
    Ok(())
}

fn read_row(
    columns: &mut [Reader<'_>; COLUMNS],
    node: &mut Node,
    more_left: &mut u64,
) -> Result<AttemptRow, RecordError> {
    let place = columns[SLOT].number()? as usize;
    let (after, slot) = match node.slots.get(place) {
        Some(&known) => known,
        None if place == node.slots.len() => (node.last_start, slot_of(&mut columns[SLOT_NEW])?),
        None => return Err(columns[SLOT].wrong("an unknown slot")),
    };
    let start_us = unzigzag(after, columns[PAUSE].number()?);
    let ran_us = columns[RAN].number()?;
    if start_us > RECORD_TIME_MAX_US || ran_us > RECORD_TIME_MAX_US {
        return Err(columns[RAN].wrong("a time out of range"));
    }
    let wait_us = of_code(columns[WAIT].small()?);
    let fetch_us = of_code(columns[FETCH].small()?);
    if wait_us.max(fetch_us) > RECORD_TIME_MAX_US {
        return Err(columns[WAIT].wrong("a time out of range"));
    }
    let kind = columns[KIND].small()?;
    let end = columns[END].number()?;
    let again = u32::try_from(end >> 2).map_err(|_| columns[END].wrong("a number out of range"))?;
    let more = columns[MORE].number()?;
    if more > SLOTS_MAX.into() {
        return Err(columns[MORE].wrong("more slots than a node has"));
    }
    *more_left =
        more_left.checked_sub(more).ok_or(RecordError::TooLarge("the slots of wide attempts"))?;
    // No memory is taken before the slots are there.
    let mut slots = Vec::new();
    for _ in 0..more {
        slots.push(slot_of(&mut columns[MORE_SLOTS])?);
    }
    let (moved_bytes, local_bytes) = (columns[MOVED].number()?, columns[LOCAL].number()?);
    Ok(AttemptRow {
        node: 0,
        slot,
        more: slots.into(),
        start_us,
        ran_us,
        wait_us,
        fetch_us,
        task: read_task(columns, node)?,
        number: again.wrapping_add(1),
        kind,
        outcome: Outcome::ALL[(end & 3) as usize],
        moved_bytes,
        local_bytes,
        is_part: false,
    })
}

/// The number of a slot.
fn slot_of(column: &mut Reader<'_>) -> Result<u32, RecordError> {
    let slot = column.small()?;
    if slot >= SLOTS_MAX && slot != SLOT_UNKNOWN {
        return Err(column.wrong("a slot out of range"));
    }
    Ok(slot)
}

fn read_task(columns: &mut [Reader<'_>; COLUMNS], node: &mut Node) -> Result<LocalId, RecordError> {
    let place = columns[PARTITION].number()? as usize;
    let (partition, last) = match node.partitions.len() {
        known if place < known => node.partitions.remove(place),
        known if place == known => (columns[PARTITION_NEW].small()?, u64::MAX),
        _ => return Err(columns[PARTITION].wrong("an unknown partition")),
    };
    let index = unzigzag(last.wrapping_add(1), columns[INDEX].number()?);
    if partition >= 1 << 24 || index >> proto::id::INDEX_BITS != 0 {
        return Err(columns[INDEX].wrong("a task id out of range"));
    }
    node.partitions.insert(0, (partition, index));
    Ok(LocalId::new(PartitionId(partition), index))
}
