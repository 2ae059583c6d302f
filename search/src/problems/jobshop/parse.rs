//! Reads the standard format: numbers of jobs and machines, then a row for each job with machine
//! and duration of each operation. Machines count from 0. Lines that start with `#` are comments.

use crate::problems::jobshop::{Instance, Operation};
use crate::problems::text::{InputError, Words, short};

/// The most jobs. A set of jobs is one 64-bit word.
pub const JOBS_MAX: usize = 64;
/// The most machines.
pub const MACHINES_MAX: usize = 64;
/// The longest duration.
pub const DURATION_MAX: i64 = 1_000_000_000;

/// Reads an instance.
///
/// # Errors
/// If the text is broken: the line and the reason.
pub fn parse(text: &str) -> Result<Instance, InputError> {
    let mut words = Words::new(text);
    let count = words.count("the number of jobs", 1, JOBS_MAX)?;
    let machines = words.count("the number of machines", 1, MACHINES_MAX)?;
    let mut jobs = Vec::with_capacity(count);
    for job in 1..=count {
        let mut operations = Vec::with_capacity(machines);
        let mut visited = vec![false; machines];
        for step in 1..=machines {
            let of = format!("operation {step} of job {job}");
            let machine = words.count(&format!("the machine of {of}"), 0, machines - 1)?;
            if std::mem::replace(&mut visited[machine], true) {
                return Err(words.error(format!("job {job} visits machine {machine} twice")));
            }
            let duration = words.number(&format!("the duration of {of}"), 0, DURATION_MAX)?;
            operations.push(Operation { machine, duration });
        }
        jobs.push(operations);
    }
    if let Some(word) = words.next() {
        let reason = format!("`{}` follows the last of {count} jobs", short(word));
        return Err(words.error(reason));
    }
    Ok(Instance { machines, jobs })
}
