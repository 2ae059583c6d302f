//! The files of a directory that match a pattern.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::ARCHIVE_ENTRIES_MAX;
use super::pack::shown;
use crate::error::reason;

const ANY_DIRECTORIES: &str = "**";

/// The paths that match, sorted, below the directory.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Matches {
    pub(crate) files: Vec<PathBuf>,
    /// Directories, and links to some. A pattern with `**` reaches their files, so it has none.
    pub(crate) directories: Vec<PathBuf>,
}

/// The files and directories that match. Files that are reachable only through links are left out.
/// In a name that is not UTF-8, each bad byte is one character.
pub(crate) fn matching(directory: &Path, pattern: &str) -> Result<Matches, String> {
    let parts: Result<Vec<Pattern>, _> =
        pattern.split('/').filter(|part| !matches!(*part, "" | ".")).map(Pattern::new).collect();
    let parts = parts.map_err(|error| format!("is not a pattern: {}", error.msg.to_lowercase()))?;
    let goes_deeper = parts.iter().any(|part| part.as_str() == ANY_DIRECTORIES);
    let mut found = Matches::default();
    // Directories, each with the number of parts that its path matches.
    let mut waiting = vec![(PathBuf::new(), 0)];
    while let Some((inside, depth)) = waiting.pop() {
        let Some(part) = parts.get(depth) else { continue };
        let is_any = part.as_str() == ANY_DIRECTORIES;
        let is_last = depth + 1 == parts.len();
        if is_any {
            waiting.push((inside.clone(), depth + 1)); // It matches no directory, too.
        }
        for entry in entries(&directory.join(&inside), &inside)? {
            let (name, path) = (entry.file_name(), inside.join(entry.file_name()));
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_any {
                if is_directory && !is_hidden(&name) {
                    waiting.push((path, depth));
                }
            } else if matches(part, &name) {
                match is_last {
                    true if !entry.path().is_dir() => found.files.push(path),
                    true if !goes_deeper => found.directories.push(path),
                    false if is_directory => waiting.push((path, depth + 1)),
                    _ => {}
                }
            }
            if found.files.len() + found.directories.len() > ARCHIVE_ENTRIES_MAX {
                return Err(format!("matches more than {ARCHIVE_ENTRIES_MAX} files"));
            }
        }
    }
    for paths in [&mut found.files, &mut found.directories] {
        paths.sort_unstable();
        paths.dedup();
    }
    Ok(found)
}

fn entries(directory: &Path, inside: &Path) -> Result<Vec<fs::DirEntry>, String> {
    let listed = fs::read_dir(directory).and_then(Iterator::collect);
    match listed {
        // It was removed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed
            .map_err(|error| format!("cannot be read: '{}': {}", shown(inside), reason(&error))),
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn matches(part: &Pattern, name: &OsStr) -> bool {
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    part.matches_with(&name.to_string_lossy(), options)
}
