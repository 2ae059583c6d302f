//! Reads QAPLIB: the size, the matrix of flows, the matrix of distances.

use crate::problems::qap::Instance;
use crate::problems::text::{InputError, Words, short};

/// The most facilities. A set of locations is one 64-bit word.
pub const SIZE_MAX: usize = 64;
/// The greatest entry of a matrix.
pub const ENTRY_MAX: i64 = 10_000_000;

/// Reads an instance.
///
/// # Errors
/// If the text is broken: the line and the reason.
pub fn parse(text: &str) -> Result<Instance, InputError> {
    let mut words = Words::new(text);
    let size = words.count("the size", 1, SIZE_MAX)?;
    let flows = matrix(&mut words, size, "flow")?;
    let distances = matrix(&mut words, size, "distance")?;
    if let Some(word) = words.next() {
        let reason = format!("`{}` follows two matrices of {size} rows", short(word));
        return Err(words.error(reason));
    }
    Ok(Instance { size, flows, distances })
}

fn matrix(words: &mut Words<'_>, size: usize, what: &str) -> Result<Vec<i64>, InputError> {
    let mut matrix = Vec::with_capacity(size * size);
    for row in 1..=size {
        for column in 1..=size {
            let what = format!("the {what} of {row} and {column}");
            matrix.push(words.number(&what, 0, ENTRY_MAX)?);
        }
    }
    Ok(matrix)
}
