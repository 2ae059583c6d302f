//! The resident memory of process groups, from `/proc`.

use std::collections::HashMap;
use std::time::Duration;

/// The interval at which the memory of commands with a limit is read.
pub(super) const MEASURED_EVERY: Duration = Duration::from_millis(500);

/// The resident bytes of each process group of this machine. Pages that processes share count for
/// each of them.
pub(super) fn of_groups() -> HashMap<i32, u64> {
    let mut groups = HashMap::new();
    let page = rustix::param::page_size() as u64;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let Ok(stat) = std::fs::read(entry.path().join("stat")) else { continue };
        if let Some((group, pages)) = group_and_pages(&String::from_utf8_lossy(&stat)) {
            *groups.entry(group).or_default() += pages * page;
        }
    }
    groups
}

/// The process group and the resident pages in the text of `/proc/PID/stat`.
fn group_and_pages(stat: &str) -> Option<(i32, u64)> {
    // The name of the program may have spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let pages: i64 = fields.get(21)?.parse().ok()?;
    Some((fields.get(2)?.parse().ok()?, u64::try_from(pages).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_process_is_read() {
        let stat = "77 (a) b) S 1 70 70 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 100 4096 25 99 1 1";
        assert_eq!(group_and_pages(stat), Some((70, 25)));
        assert_eq!(group_and_pages("77 (a"), None);
        let own = rustix::process::getpgrp().as_raw_nonzero().get();
        assert!(of_groups().get(&own).is_some_and(|bytes| *bytes > 0));
    }
}
