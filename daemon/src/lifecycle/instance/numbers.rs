//! The numbers of a state directory: its incarnation, and that of its records.

use std::fs;
use std::io;
use std::path::Path;

use proto::Incarnation;

use super::{DB, JOINED_AS, MADE, random_u64, replace};
use crate::error::StartError;

const NO_NUMBER: &str = "it should hold a number and its checksum";

pub(super) fn last_incarnation(state: &Path) -> Result<Incarnation, StartError> {
    let path = state.join("incarnation");
    let last = match fs::read_to_string(&path) {
        Ok(text) => {
            let number = number_of_line(&text).and_then(|digits| digits.parse::<u32>().ok());
            let what = NO_NUMBER.to_owned();
            number.ok_or_else(|| StartError::Damaged { path: path.clone(), what })?
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound && !state.join(MADE).exists() => 0,
        Err(e) => return Err(missing(&path, e)),
    };
    Ok(Incarnation(last))
}

/// Of a file that a node which has run before has.
fn missing(path: &Path, error: io::Error) -> StartError {
    match error.kind() {
        io::ErrorKind::NotFound => {
            StartError::Damaged { path: path.to_path_buf(), what: "it is missing".to_owned() }
        }
        _ => StartError::io("read", path, error),
    }
}

pub(super) fn next_incarnation(
    state: &Path,
    known: Incarnation,
) -> Result<Incarnation, StartError> {
    let path = state.join("incarnation");
    let Incarnation(last) = last_incarnation(state)?;
    let next = last.max(known.0).checked_add(1).ok_or_else(|| StartError::Damaged {
        path: path.clone(),
        what: "the last incarnation is used up".to_owned(),
    })?;
    replace(&path, number_line(&next.to_string()).as_bytes())?;
    Ok(Incarnation(next))
}

/// A number and its checksum: a smaller one would be believed as well.
pub(super) fn number_line(digits: &str) -> String {
    format!("{digits}-{:08x}\n", crc32fast::hash(digits.as_bytes()))
}

/// What [`number_line`] wrote. Lines without a checksum are from before there was one.
pub(super) fn number_of_line(line: &str) -> Option<&str> {
    let line = line.trim_end();
    let Some((digits, checksum)) = line.split_once('-') else { return Some(line) };
    let checksum = u32::from_str_radix(checksum, 16).ok()?;
    (crc32fast::hash(digits.as_bytes()) == checksum).then_some(digits)
}

/// The number of the records that are here, or of those that will be.
pub(super) fn store_id(state: &Path) -> Result<u64, StartError> {
    let (path, joined_as) = (state.join("store"), state.join(JOINED_AS));
    let read = |path: &Path| {
        let text = fs::read_to_string(path).map_err(|e| missing(path, e))?;
        let digits = number_of_line(&text);
        let id = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let (id, what) = (id.filter(|&id| id != 0), NO_NUMBER.to_owned());
        id.ok_or_else(|| StartError::Damaged { path: path.to_path_buf(), what })
    };
    if !state.join(DB).join("CURRENT").exists() {
        let id = match joined_as.exists() {
            true => read(&joined_as)?,
            false => random_u64()?.max(1), // 0 stands for none.
        };
        replace(&path, number_line(&format!("{id:016x}")).as_bytes())?;
        return Ok(id);
    }
    read(&path)
}
