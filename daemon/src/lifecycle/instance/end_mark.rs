//! The end of the previous incarnation in a state directory. The node reports it when a home asks
//! about the death of a node that ran its tasks.
//!
//! A node that stops in order notes that (`ended`). For other ends the kernel's boot id (`boot`)
//! shows whether the host has restarted since: after a power failure, after a reboot, or on another
//! host.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use proto::Incarnation;
use proto::wire::LifeEnd;

use super::{number_line, number_of_line, replace};
use crate::error::StartError;

const ENDED: &str = "ended";
const BOOT: &str = "boot";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The place where an incarnation notes its end.
#[derive(Clone, Debug)]
pub(crate) struct EndMark {
    pub(crate) state: PathBuf,
    pub(crate) incarnation: Incarnation,
}

impl EndMark {
    /// Notes that the node was told to stop. Tasks that end with it end because of that.
    pub(crate) fn stopped(&self) -> Result<(), StartError> {
        self.write("1")
    }
    /// Notes that the cluster has declared this incarnation failed.
    pub(crate) fn fenced(&self) -> Result<(), StartError> {
        self.write("2")
    }
    fn write(&self, how: &str) -> Result<(), StartError> {
        let line = number_line(&format!("{} {how}", self.incarnation.0));
        replace(&self.state.join(ENDED), line.as_bytes())
    }
}

/// The previous incarnation and its end. Must be called before this incarnation notes anything.
pub(super) fn look(state: &Path, last: Incarnation) -> Result<(Incarnation, LifeEnd), StartError> {
    let end = match marked(state, last) {
        Some(end) => end,
        None if replaced(state)? => LifeEnd::LifeRebooted,
        None => LifeEnd::LifeDied,
    };
    if let Some(boot) = boot_id() {
        replace(&state.join(BOOT), boot.as_bytes())?;
    }
    Ok((last, end))
}

fn marked(state: &Path, last: Incarnation) -> Option<LifeEnd> {
    let text = fs::read_to_string(state.join(ENDED)).ok()?;
    let (incarnation, how) = number_of_line(&text)?.split_once(' ')?;
    let is_of_last = incarnation.parse() == Ok(last.0);
    match how {
        "1" if is_of_last => Some(LifeEnd::LifeStopped),
        "2" if is_of_last => Some(LifeEnd::LifeFenced),
        _ => None,
    }
}

fn replaced(state: &Path) -> Result<bool, StartError> {
    let path = state.join(BOOT);
    match fs::read_to_string(&path) {
        Ok(before) => Ok(boot_id().is_some_and(|now| before != now)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(StartError::io("read", &path, e)),
    }
}

fn boot_id() -> Option<String> {
    fs::read_to_string(BOOT_ID).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_mark_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let mark = |incarnation| EndMark {
            state: dir.path().to_path_buf(),
            incarnation: Incarnation(incarnation),
        };
        let look = |last| look(dir.path(), Incarnation(last)).unwrap().1;
        assert_eq!(look(1), LifeEnd::LifeDied);
        mark(2).stopped().unwrap();
        assert_eq!([look(2), look(3)], [LifeEnd::LifeStopped, LifeEnd::LifeDied]);
        mark(4).fenced().unwrap();
        assert_eq!(look(4), LifeEnd::LifeFenced);
    }

    #[test]
    fn a_reboot_of_the_host_is_distinguished_from_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let look = |last| look(dir.path(), Incarnation(last)).unwrap().1;
        assert_eq!(look(1), LifeEnd::LifeDied);
        fs::write(dir.path().join(BOOT), "another\n").unwrap();
        assert_eq!([look(2), look(3)], [LifeEnd::LifeRebooted, LifeEnd::LifeDied]);
    }
}
