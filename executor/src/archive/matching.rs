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

/// The files that match, sorted, as paths below the directory. Files that are reachable only
/// through links are left out. In a name that is not UTF-8, each bad byte is one character.
pub(crate) fn matching(directory: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let parts: Result<Vec<Pattern>, _> =
        pattern.split('/').filter(|part| !matches!(*part, "" | ".")).map(Pattern::new).collect();
    let parts = parts.map_err(|error| format!("is not a pattern: {}", error.msg.to_lowercase()))?;
    let mut paths = Vec::new();
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
                    true if !entry.path().is_dir() => paths.push(path),
                    false if is_directory => waiting.push((path, depth + 1)),
                    _ => {}
                }
            }
            if paths.len() > ARCHIVE_ENTRIES_MAX {
                return Err(format!("matches more than {ARCHIVE_ENTRIES_MAX} files"));
            }
        }
    }
    paths.sort_unstable();
    paths.dedup();
    Ok(paths)
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
