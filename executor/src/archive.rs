/*!
Several files as the bytes of one object: a directory, or the files that match a pattern.

The format is tar. The bytes depend on the files only: entries are sorted by name, and owners and
times are left out. So two attempts that write the same files make the same bytes. Modes are kept.

A symbolic link with a target inside the archive is kept as a link, even if there is no such file.
A link to a file outside is packed as that file. Any other link is an error, and so is an entry
that is no file, directory or link. [`unpack`] checks all of this again, because an archive from
another node is not trusted.
*/

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use tar::{Builder, EntryType, Header};

use crate::commands::names;
use crate::error::reason;

/// The number of files in one output that is a directory or a pattern, and their depth.
const ARCHIVE_ENTRIES_MAX: usize = 1_000_000;
const ARCHIVE_DEPTH_MAX: usize = 256;

/// Packs these paths below `root`: files, or whole directories.
pub(crate) fn pack(root: &Path, paths: &[PathBuf], to: impl Write) -> Result<(), String> {
    let mut packer = Packer { root, builder: Builder::new(to), entries: 0 };
    for path in paths {
        packer.add(path, 0)?;
    }
    packer.builder.finish().map_err(|error| reason(&error))
}

/// Packs the content of a directory.
pub fn pack_directory(directory: &Path, to: impl Write) -> Result<(), String> {
    let names = sorted_names(directory).map_err(|error| reason(&error))?;
    pack(directory, &names, to)
}

fn sorted_names(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(PathBuf::from(entry?.file_name()));
        if names.len() > ARCHIVE_ENTRIES_MAX {
            return Err(io::Error::other(format!("more than {ARCHIVE_ENTRIES_MAX} files")));
        }
    }
    names.sort_unstable();
    Ok(names)
}

struct Packer<'r, W: Write> {
    root: &'r Path,
    builder: Builder<W>,
    entries: usize,
}

impl<W: Write> Packer<'_, W> {
    fn add(&mut self, inside: &Path, depth: usize) -> Result<(), String> {
        let shown = inside.display();
        let wrong = |error: io::Error| format!("'{shown}': {}", reason(&error));
        self.entries += 1;
        if self.entries > ARCHIVE_ENTRIES_MAX {
            return Err(format!("has more than {ARCHIVE_ENTRIES_MAX} files"));
        }
        if depth > ARCHIVE_DEPTH_MAX {
            return Err(format!("'{shown}': more than {ARCHIVE_DEPTH_MAX} directories deep"));
        }
        let path = self.root.join(inside);
        let metadata = fs::symlink_metadata(&path).map_err(wrong)?;
        if metadata.is_dir() {
            let mut header = header(EntryType::Directory, 0, metadata.permissions().mode());
            self.builder.append_data(&mut header, inside, io::empty()).map_err(wrong)?;
            for name in sorted_names(&path).map_err(wrong)? {
                self.add(&inside.join(name), depth + 1)?;
            }
            return Ok(());
        }
        if metadata.is_symlink() {
            let target = fs::read_link(&path).map_err(wrong)?;
            // Also a link to nothing.
            if stays_inside(inside, &target) {
                let mut header = header(EntryType::Symlink, 0, 0o777);
                return self.builder.append_link(&mut header, inside, &target).map_err(wrong);
            }
            let behind = fs::metadata(&path).map_err(|error| {
                let target = target.display();
                format!("'{shown}' is a link to '{target}': {}", reason(&error))
            })?;
            if !behind.is_file() {
                return Err(format!("'{shown}' is a link that leads out of the output"));
            }
        } else if !metadata.is_file() {
            return Err(format!("'{shown}' is no file, directory or link"));
        }
        let mut file = File::open(&path).map_err(wrong)?;
        let metadata = file.metadata().map_err(wrong)?;
        let mut header = header(EntryType::Regular, metadata.len(), metadata.permissions().mode());
        self.builder.append_data(&mut header, inside, &mut file).map_err(wrong)
    }
}

fn header(kind: EntryType, size_bytes: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size_bytes);
    header.set_mode(mode & 0o777);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// True if a link with that name and target points to a place below the same root.
fn stays_inside(name: &Path, target: &Path) -> bool {
    let mut depth = name.components().count() as i64 - 1;
    for component in target.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir => depth -= 1,
            Component::RootDir | Component::Prefix(_) => return false,
        }
        if depth < 0 {
            return false;
        }
    }
    true
}

/// The modes of unpacked files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Modes {
    /// The packed modes; the owner may read and write.
    Packed,
    /// Modes by the umask of this process; the executable bit stays.
    Umask,
}

/// Unpacks an archive into a directory, which must exist. Returns the paths of its files and links
/// below the directory, in the order of the archive. Existing files are not replaced.
pub fn unpack(from: impl Read, directory: &Path, modes: Modes) -> Result<Vec<PathBuf>, io::Error> {
    let bad = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let mut archive = tar::Archive::new(from);
    let (mut files, mut closed, mut entries) = (Vec::new(), Vec::new(), 0_usize);
    for entry in archive.entries()? {
        let mut entry = entry?;
        entries += 1;
        if entries > ARCHIVE_ENTRIES_MAX {
            return Err(bad(format!("the archive has more than {ARCHIVE_ENTRIES_MAX} files")));
        }
        let inside = entry.path()?.into_owned();
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if inside.as_os_str().is_empty() || !inside.components().all(is_plain) {
            return Err(bad(format!("the archive has a file '{}'", inside.display())));
        }
        names::no_link_above(directory, &inside).map_err(bad)?;
        let path = directory.join(&inside);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mode = entry.header().mode()? & 0o777;
        match entry.header().entry_type() {
            EntryType::Directory => {
                fs::create_dir(&path).or_else(|error| match path.is_dir() {
                    true => Ok(()),
                    false => Err(error),
                })?;
                if modes == Modes::Packed {
                    closed.push((path, mode | 0o700));
                }
            }
            EntryType::Symlink => {
                let target = entry.link_name()?.unwrap_or_default().into_owned();
                if !stays_inside(&inside, &target) {
                    return Err(bad(format!("link '{}' leads out", inside.display())));
                }
                symlink(target, &path)?;
                files.push(inside);
            }
            EntryType::Regular => {
                let wanted = match (modes, mode & 0o111 != 0) {
                    (Modes::Packed, _) => mode | 0o600,
                    (Modes::Umask, true) => 0o777,
                    (Modes::Umask, false) => 0o666,
                };
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(wanted).open(&path)?;
                io::copy(&mut entry, &mut file)?;
                files.push(inside);
            }
            _ => return Err(bad(format!("'{}' is no file, directory or link", inside.display()))),
        }
    }
    // Last, because a directory may lack the executable bit.
    for (path, mode) in closed.into_iter().rev() {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(files)
}

/// The files of a directory that match a pattern, sorted, as paths below it. Files that are
/// reachable only through links are left out.
pub(crate) fn matching(directory: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let escaped = glob::Pattern::escape(&directory.to_string_lossy());
    let found = glob::glob_with(&format!("{escaped}/{pattern}"), options)
        .map_err(|error| format!("is not a pattern: {}", error.msg.to_lowercase()))?;
    let mut paths = Vec::new();
    for path in found {
        let path = path.map_err(|error| format!("cannot be read: {}", reason(error.error())))?;
        let Ok(inside) = path.strip_prefix(directory) else { continue };
        if path.is_dir() || names::no_link_above(directory, inside).is_err() {
            continue;
        }
        paths.push(inside.to_owned());
        if paths.len() > ARCHIVE_ENTRIES_MAX {
            return Err(format!("matches more than {ARCHIVE_ENTRIES_MAX} files"));
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("d");
        fs::create_dir_all(root.join("sub/empty")).unwrap();
        fs::write(root.join("sub/a b"), "one").unwrap();
        fs::write(root.join("run"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(root.join("run"), Permissions::from_mode(0o755)).unwrap();
        symlink("sub/a b", root.join("link")).unwrap();
        fs::write(dir.path().join("outside"), "outside").unwrap();
        symlink("../outside", root.join("out")).unwrap();
        dir
    }

    #[test]
    fn a_directory_comes_back_as_it_was() {
        let dir = tree();
        let mut bytes = Vec::new();
        pack_directory(&dir.path().join("d"), &mut bytes).unwrap();
        let to = dir.path().join("to");
        fs::create_dir(&to).unwrap();
        let files = unpack(&bytes[..], &to, Modes::Packed).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(names, ["link", "out", "run", "sub/a b"]);
        assert_eq!(fs::read_to_string(to.join("link")).unwrap(), "one");
        assert!(to.join("link").is_symlink() && to.join("sub/empty").is_dir());
        assert_eq!(fs::read_to_string(to.join("out")).unwrap(), "outside");
        assert!(!to.join("out").is_symlink(), "its target is not packed");
        assert_eq!(to.join("run").metadata().unwrap().permissions().mode() & 0o777, 0o755);
        let mut again = Vec::new();
        pack_directory(&dir.path().join("d"), &mut again).unwrap();
        assert_eq!(bytes, again, "the same files make the same bytes");
        assert!(unpack(&bytes[..], &to, Modes::Packed).is_err(), "nothing is replaced");
    }

    #[test]
    fn a_link_to_nowhere_inside_stays_a_link() {
        let dir = tree();
        symlink("sub/nowhere", dir.path().join("d/dangling")).unwrap();
        let mut bytes = Vec::new();
        pack_directory(&dir.path().join("d"), &mut bytes).unwrap();
        let to = dir.path().join("to");
        fs::create_dir(&to).unwrap();
        unpack(&bytes[..], &to, Modes::Packed).unwrap();
        assert_eq!(fs::read_link(to.join("dangling")).unwrap(), Path::new("sub/nowhere"));
        assert_eq!(fs::read_to_string(to.join("sub/a b")).unwrap(), "one");
    }

    #[test]
    fn links_that_lead_out_to_nothing_and_odd_files_are_named() {
        let dir = tree();
        let root = dir.path().join("d");
        let wrong = || pack_directory(&root, io::sink()).unwrap_err();
        symlink("/no/where", root.join("dangling")).unwrap();
        assert!(wrong().starts_with("'dangling' is a link to '/no/where': "), "{}", wrong());
        fs::remove_file(root.join("dangling")).unwrap();
        symlink("/", root.join("root")).unwrap();
        assert!(wrong().contains("'root' is a link that leads out"), "{}", wrong());
        fs::remove_file(root.join("root")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("s")).unwrap();
        assert!(wrong().contains("'s' is no file"), "{}", wrong());
    }

    #[test]
    fn no_entry_leads_out_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("to");
        fs::create_dir(&to).unwrap();
        let archive = |name: &str, link: Option<&str>| {
            let kind = if link.is_some() { EntryType::Symlink } else { EntryType::Regular };
            let mut header = header(kind, if link.is_some() { 0 } else { 1 }, 0o644);
            let bytes = name.as_bytes();
            header.as_old_mut().name[..bytes.len()].copy_from_slice(bytes);
            if let Some(link) = link {
                header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            }
            header.set_cksum();
            let mut builder = Builder::new(Vec::new());
            builder.append(&header, &b"x"[..link.map_or(1, |_| 0)]).unwrap();
            builder.into_inner().unwrap()
        };
        for name in ["../x", "/tmp/x", "a/../../x"] {
            assert!(unpack(&archive(name, None)[..], &to, Modes::Umask).is_err(), "{name}");
        }
        for link in ["..", "/etc", "a/../.."] {
            assert!(unpack(&archive("l", Some(link))[..], &to, Modes::Umask).is_err(), "{link}");
        }
        unpack(&archive("l", Some("a"))[..], &to, Modes::Umask).unwrap();
        fs::create_dir(to.join("a")).unwrap();
        let error = unpack(&archive("l/x", None)[..], &to, Modes::Umask).unwrap_err();
        assert!(error.to_string().contains("'l' is a link"), "{error}");
        assert!(!dir.path().join("x").exists());
    }

    #[test]
    fn patterns_match_files_alone() {
        let dir = tree();
        let root = dir.path().join("d");
        let found = |pattern: &str| {
            let found = matching(&root, pattern).unwrap();
            found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(found("*"), "link,out,run");
        assert_eq!(found("sub/*"), "sub/a b");
        assert_eq!(found("x*"), "");
    }
}
