//! Blocks of what commands used: CPU time and peak memory of the tasks that were measured.

use proto::work::Used;

use super::varint::{block, open_block, put};
use super::{RecordError, TaskRow};
use crate::attempt::{fine_code, of_fine_code};
use crate::limits::RECORD_BLOCK_ROWS;

/// The number of tasks that are left out before this one; at the beginning of a block from task 0.
const GAP: usize = 0;
const CPU: usize = 1;
const MEMORY: usize = 2;
const COLUMNS: usize = 3;

/// The blocks of the tasks that were measured.
pub(super) fn blocks(tasks: &[TaskRow]) -> Vec<Vec<u8>> {
    let rows: Vec<(usize, Used)> = tasks
        .iter()
        .enumerate()
        .filter(|(_, task)| !task.used.is_none())
        .map(|(place, task)| (place, task.used))
        .collect();
    rows.chunks(RECORD_BLOCK_ROWS).map(of_rows).collect()
}

fn of_rows(rows: &[(usize, Used)]) -> Vec<u8> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let mut expected = 0;
    for &(place, used) in rows {
        put(&mut columns[GAP], (place - expected) as u64);
        put(&mut columns[CPU], fine_code(used.cpu_us).into());
        put(&mut columns[MEMORY], fine_code(used.max_rss_kib).into());
        expected = place + 1;
    }
    block(rows.len(), &columns)
}

/// Adds the rows of a block to the tasks before it.
pub(super) fn read(bytes: &[u8], at: usize, tasks: &mut [TaskRow]) -> Result<(), RecordError> {
    let (number, mut columns) = open_block::<COLUMNS>(bytes, at)?;
    let mut expected = 0usize;
    for _ in 0..number {
        let gap = usize::try_from(columns[GAP].number()?).unwrap_or(usize::MAX);
        let place = expected.saturating_add(gap);
        let Some(task) = tasks.get_mut(place) else {
            return Err(columns[GAP].wrong("the usage of an unknown task"));
        };
        task.used = Used {
            cpu_us: of_fine_code(columns[CPU].small()?),
            max_rss_kib: of_fine_code(columns[MEMORY].small()?),
        };
        expected = place + 1;
    }
    if columns.iter().any(|column| !column.is_empty()) {
        return Err(columns[GAP].wrong("columns of different lengths"));
    }
    Ok(())
}
