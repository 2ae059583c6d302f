//! How the last life in a state directory ended: what a node tells of itself when others ask after
//! the death of what ran their tasks.
//!
//! A node that stops by itself notes that (`ended`). Of one that did not, the id that the
//! kernel draws when it starts (`boot`) tells whether the host has started again since: a power
//! cut, a reboot, or another host altogether.

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

/// Where a life notes how it ends.
#[derive(Clone, Debug)]
pub(crate) struct EndMark {
    pub(crate) state: PathBuf,
    pub(crate) incarnation: Incarnation,
}

impl EndMark {
    /// It was told to stop: what dies with it dies of that.
    pub(crate) fn stopped(&self) -> Result<(), StartError> {
        self.write("1")
    }
    /// The others take it for dead.
    pub(crate) fn fenced(&self) -> Result<(), StartError> {
        self.write("2")
    }
    fn write(&self, how: &str) -> Result<(), StartError> {
        let line = number_line(&format!("{} {how}", self.incarnation.0));
        replace(&self.state.join(ENDED), line.as_bytes())
    }
}

/// The last life before this one. To be called before anything of this one is noted.
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
