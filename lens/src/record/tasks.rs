//! Blocks of tasks, by column: ids, states, exit codes, names.
//!
//! A name is a template and a number, so the names of an array take almost nothing.

use std::collections::BTreeMap;

use proto::work::Used;
use proto::{LocalId, PartitionId};

use super::varint::{Reader, block, open_block, put, unzigzag, zigzag};
use super::{RecordError, TaskRow};
use crate::limits::RECORD_SECTION_BYTES_MAX;

const RUNS: usize = 0;
const INDEX: usize = 1;
const STATE: usize = 2;
const EXIT: usize = 3;
const TEMPLATE: usize = 4;
const NUMBER: usize = 5;
const TEMPLATES: usize = 6;
const COLUMNS: usize = 7;

/// Longer numbers are text.
const DIGITS_MAX: usize = 18;
/// The place of the number in a template: a sign that no digit follows.
const PLACE: char = '\u{1}';

/// A name without its last number. The number has at least `digits` digits; 0: there is none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Template {
    text: String,
    digits: u32,
}

/// Splits a name at its last number.
fn split(name: &str) -> (Template, u64) {
    let whole = || (Template { text: name.to_owned(), digits: 0 }, 0);
    let Some(last) = name.rfind(|letter: char| letter.is_ascii_digit()) else { return whole() };
    let before = &name[..=last];
    let first = before.rfind(|letter: char| !letter.is_ascii_digit());
    let start = first.map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    let digits = &before[start..];
    if digits.len() > DIGITS_MAX || name.contains(PLACE) {
        return whole();
    }
    let Ok(number) = digits.parse() else { return whole() };
    let is_padded = digits.len() > 1 && digits.starts_with('0');
    let text = format!("{}{PLACE}{}", &name[..start], &name[last + 1..]);
    let digits = if is_padded { digits.len() as u32 } else { 1 };
    (Template { text, digits }, number)
}

fn join(template: &Template, number: u64) -> String {
    match template.digits {
        0 => template.text.clone(),
        digits => {
            let number = format!("{number:0width$}", width = digits as usize);
            template.text.replacen(PLACE, &number, 1)
        }
    }
}

pub(super) fn write(rows: &[TaskRow]) -> Vec<u8> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let split: Vec<_> = rows.iter().map(|row| split(&row.name)).collect();
    let mut numbers: BTreeMap<&Template, (u64, u64)> = BTreeMap::new();
    for (template, _) in &split {
        numbers.entry(template).or_default();
    }
    let mut last = "";
    for (number, (template, place)) in numbers.iter_mut().enumerate() {
        place.0 = number as u64;
        let shared = shared(last, &template.text);
        put(&mut columns[TEMPLATES], shared as u64);
        put(&mut columns[TEMPLATES], (template.text.len() - shared) as u64);
        columns[TEMPLATES].extend_from_slice(&template.text.as_bytes()[shared..]);
        put(&mut columns[TEMPLATES], template.digits.into());
        last = &template.text;
    }
    let mut at = 0;
    for run in rows.chunk_by(|a, b| a.task.partition() == b.task.partition()) {
        put(&mut columns[RUNS], run[0].task.partition().0.into());
        put(&mut columns[RUNS], run.len() as u64);
        let mut expected = 0;
        for row in run {
            let (template, number) = &split[at];
            let Some(place) = numbers.get_mut(template) else { continue };
            put(&mut columns[INDEX], zigzag(expected, row.task.index()));
            columns[STATE].push(row.state);
            put(&mut columns[EXIT], zigzag(0, row.exit_code as u64));
            put(&mut columns[TEMPLATE], place.0);
            put(&mut columns[NUMBER], zigzag(place.1, *number));
            place.1 = *number;
            expected = row.task.index() + 1;
            at += 1;
        }
    }
    block(rows.len(), &columns)
}

/// The number of equal bytes at the beginning, up to a whole character.
fn shared(a: &str, b: &str) -> usize {
    let equal = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    (0..=equal).rev().find(|&at| b.is_char_boundary(at)).unwrap_or(0)
}

/// Appends the rows of a block. Their names take from `names_left` bytes.
pub(super) fn read(
    bytes: &[u8],
    at: usize,
    rows: &mut Vec<TaskRow>,
    names_left: &mut usize,
) -> Result<(), RecordError> {
    let (number, mut columns) = open_block::<COLUMNS>(bytes, at)?;
    let mut templates = templates(&mut columns[TEMPLATES], number)?;
    let mut left = number;
    while !columns[RUNS].is_empty() {
        let (partition, run) = (columns[RUNS].small()?, columns[RUNS].number()?);
        left = usize::try_from(run)
            .ok()
            .and_then(|run| left.checked_sub(run))
            .filter(|_| partition < 1 << 24)
            .ok_or_else(|| columns[RUNS].wrong("a run of rows that is too long"))?;
        let mut expected = 0;
        for _ in 0..run {
            let index = unzigzag(expected, columns[INDEX].number()?);
            if index >> proto::id::INDEX_BITS != 0 {
                return Err(columns[INDEX].wrong("a task id out of range"));
            }
            expected = index + 1;
            let state = columns[STATE].take(1)?[0];
            let exit_code = unzigzag(0, columns[EXIT].number()?) as i32;
            let place = columns[TEMPLATE].number()? as usize;
            let Some((template, last)) = templates.get_mut(place) else {
                return Err(columns[TEMPLATE].wrong("an unknown template"));
            };
            *last = unzigzag(*last, columns[NUMBER].number()?);
            let name = join(template, *last);
            *names_left = names_left
                .checked_sub(name.len())
                .ok_or(RecordError::TooLarge("the names of the tasks"))?;
            let task = LocalId::new(PartitionId(partition), index);
            rows.push(TaskRow { task, name, state, exit_code, used: Used::default() });
        }
    }
    if left > 0 || columns.iter().any(|column| !column.is_empty()) {
        return Err(columns[RUNS].wrong("columns of different lengths"));
    }
    Ok(())
}

/// Each template with its last number. Together they are not longer than a section may be.
fn templates(column: &mut Reader<'_>, rows: usize) -> Result<Vec<(Template, u64)>, RecordError> {
    let mut templates: Vec<(Template, u64)> = Vec::new();
    let (mut last, mut bytes) = (String::new(), 0);
    while !column.is_empty() {
        let (shared, more) = (column.number()? as usize, column.number()?);
        let more = column.take(usize::try_from(more).unwrap_or(usize::MAX))?;
        let Ok(more) = std::str::from_utf8(more) else {
            return Err(column.wrong("a name that is not UTF-8"));
        };
        if !last.is_char_boundary(shared) {
            return Err(column.wrong("a name without its beginning"));
        }
        last.truncate(shared);
        last.push_str(more);
        let digits = column.small()?;
        bytes += last.len();
        if digits as usize > DIGITS_MAX || templates.len() >= rows {
            return Err(column.wrong("a template that no name has"));
        }
        if last.len() > proto::limits::NAME_BYTES_MAX + PLACE.len_utf8()
            || bytes > RECORD_SECTION_BYTES_MAX
        {
            return Err(RecordError::TooLarge("the names of a block"));
        }
        templates.push((Template { text: last.clone(), digits }, 0));
    }
    Ok(templates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_template_and_a_number() {
        let parts = |name: &str| {
            let (template, number) = split(name);
            assert_eq!(join(&template, number), name);
            (template.text.replace(PLACE, "{}"), template.digits, number)
        };
        assert_eq!(parts("a-7"), ("a-{}".to_owned(), 1, 7));
        assert_eq!(parts("x01_0009.fits"), ("x01_{}.fits".to_owned(), 4, 9));
        assert_eq!(parts("0"), ("{}".to_owned(), 1, 0));
        assert_eq!(parts("ä00ö"), ("ä{}ö".to_owned(), 2, 0));
        assert_eq!(parts("plain"), ("plain".to_owned(), 0, 0));
        assert_eq!(parts("").2, 0);
        assert_eq!(parts("99999999999999999999").1, 0);
        assert_eq!(parts("odd\u{1}4").1, 0);
    }
}
