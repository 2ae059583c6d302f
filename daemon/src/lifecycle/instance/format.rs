//! The version of a state directory (`format`), which limits the content of its records and files.
//!
//! A program reads a list of versions, and writes the last of them. Version 2 has further records
//! (whole-job deletions, the history of jobs, numbered writes) and object names (with the wanted
//! number of copies). A program of version 1 would ignore them.

use std::fs;
use std::io;
use std::path::Path;

use proto::limits::{STATE_VERSION, STATE_VERSIONS_READ};

use super::replace;
use crate::error::StartError;

const FORMAT: &str = "format";

/// The version of a directory that this program can read. A new directory gets the last version.
pub(super) fn check(state: &Path) -> Result<u32, StartError> {
    let path = state.join(FORMAT);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            write(state)?;
            return Ok(STATE_VERSION);
        }
        Err(e) => return Err(StartError::io("read", &path, e)),
    };
    let found = text.trim();
    if found.is_empty() {
        let what = format!("it is empty and should hold a version, {STATE_VERSION} here");
        return Err(StartError::Damaged { path, what });
    }
    let version = found.parse().ok().filter(|version| STATE_VERSIONS_READ.contains(version));
    version.ok_or_else(|| StartError::NewerFormat {
        path: state.to_path_buf(),
        found: found.chars().take(32).collect(),
        known: STATE_VERSIONS_READ.map(|version| version.to_string()).join(" and "),
    })
}

/// Raises the version: from now on only programs of this version read the directory. This program
/// reads all older content as it is, so nothing else changes.
pub(super) fn write(state: &Path) -> Result<(), StartError> {
    replace(&state.join(FORMAT), format!("{STATE_VERSION}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<u32, StartError> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FORMAT), text).unwrap();
        check(dir.path())
    }

    #[test]
    fn each_version_of_the_list_is_read_and_no_other() {
        for version in STATE_VERSIONS_READ {
            assert_eq!(of(&format!("{version}\n")).unwrap(), version);
        }
        assert_eq!(STATE_VERSIONS_READ.iter().max(), Some(&STATE_VERSION));
        assert!(matches!(of("\n").unwrap_err(), StartError::Damaged { .. }));
        for other in ["0", "3", "1 2", "x"] {
            let error = of(other).unwrap_err();
            assert!(matches!(error, StartError::NewerFormat { .. }), "{error}");
        }
    }

    #[test]
    fn a_newer_version_is_refused_with_both_and_with_the_ways_back() {
        let error = of("3\n").unwrap_err();
        let said = format!("{error}; {}", error.hint());
        for part in ["format 3", "reads 1 and 2", "newer starling", "job fetch", "Upgrading"] {
            assert!(said.contains(part), "'{part}' is not in {said}");
        }
    }

    #[test]
    fn a_directory_keeps_its_version_until_it_is_upgraded() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(check(dir.path()).unwrap(), STATE_VERSION, "a new one");
        fs::write(dir.path().join(FORMAT), "1\n").unwrap();
        assert_eq!(check(dir.path()).unwrap(), 1);
        assert_eq!(check(dir.path()).unwrap(), 1, "to look at it changes nothing");
        write(dir.path()).unwrap();
        assert_eq!(check(dir.path()).unwrap(), STATE_VERSION);
    }
}
