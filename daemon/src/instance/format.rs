//! The version of a state directory (`format`): what its records and its files may say.
//!
//! A program reads each version of a list, and writes the last of it. Version 2 has further records
//! (what is removed of a whole job at once, the past of jobs, numbered writes) and names of objects
//! (on how many nodes they are to lie). A program of version 1 would pass over them.

use std::fs;
use std::io;
use std::path::Path;

use proto::limits::{STATE_VERSION, STATE_VERSIONS_READ};

use super::replace;
use crate::error::StartError;

const FORMAT: &str = "format";

/// The version of a directory that this program reads; a new one has the last.
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
    let version = found.parse().ok().filter(|version| STATE_VERSIONS_READ.contains(version));
    version.ok_or_else(|| StartError::NewerFormat {
        path: state.to_path_buf(),
        found: found.chars().take(32).collect(),
        known: STATE_VERSIONS_READ.map(|version| version.to_string()).join(" and "),
    })
}

/// From now on the directory has what only programs of this version read. All that an earlier
/// version has this one reads as it is: nothing else has to change.
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
        for other in ["0", "3", "", "1 2", "x"] {
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
