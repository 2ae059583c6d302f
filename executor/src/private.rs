//! Directories and files that only this user can access, regardless of umask and set-group-id.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::Mode;

const PRIVATE: u32 = 0o700;

/// The user's umask before [`keep_files_private`] changed it.
static USER_UMASK: OnceLock<u32> = OnceLock::new();

/// Makes a private directory, and the missing ones above it, with mode 0700. An existing one keeps
/// its mode.
pub fn make_dir(path: &Path) -> io::Result<()> {
    let build = || DirBuilder::new().mode(PRIVATE).create(path);
    let made = build().or_else(|error| match (error.kind(), path.parent()) {
        (io::ErrorKind::NotFound, Some(parent)) if !parent.as_os_str().is_empty() => {
            make_dir(parent)?;
            build()
        }
        _ => Err(error),
    });
    match made {
        // A umask removes bits, and a set-group-id directory above adds one.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(PRIVATE)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// As [`make_dir`], for a directory inside a private directory: if an existing one is open to
/// others, its mode is corrected.
pub fn own_dir(path: &Path) -> io::Result<()> {
    make_dir(path)?;
    let metadata = fs::symlink_metadata(path)?;
    let is_ours = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    if is_ours && metadata.mode() & 0o7777 != PRIVATE {
        fs::set_permissions(path, Permissions::from_mode(PRIVATE))?;
    }
    Ok(())
}

/// Sets the umask so that this process, libraries included, creates no file that others can read.
/// Commands get the user's umask. For processes that are only a node.
pub fn keep_files_private() {
    let user = rustix::process::umask(Mode::from_raw_mode(0o077));
    let _ = USER_UMASK.set(user.as_raw_mode());
}

/// The user's umask, if this process has changed its own.
pub(crate) fn user_umask() -> Option<u32> {
    USER_UMASK.get().copied()
}

/// Removes a directory with its content, even if a command removed the permissions. Links are
/// removed, never followed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_tree(path);
            fs::remove_dir_all(path)
        }
        removed => removed,
    }
}

/// Restores the owner's permissions that a removal needs, as far as possible.
fn open_tree(path: &Path) {
    let mut waiting = vec![path.to_owned()];
    while let Some(directory) = waiting.pop() {
        let _ = fs::set_permissions(&directory, Permissions::from_mode(PRIVATE));
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        let inner = entries.filter_map(Result::ok);
        let inner = inner.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        waiting.extend(inner.map(|entry| entry.path()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn own_directories_are_private_in_a_set_group_id_directory() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("group");
        fs::create_dir(&group).unwrap();
        fs::set_permissions(&group, Permissions::from_mode(0o2775)).unwrap();
        let inner = group.join("a/b");
        make_dir(&inner).unwrap();
        assert_eq!((mode(&inner), mode(&group.join("a"))), (0o700, 0o700));
        assert_eq!(mode(&group), 0o2775, "what was there is the user's");
        fs::set_permissions(&inner, Permissions::from_mode(0o755)).unwrap();
        make_dir(&inner).unwrap();
        assert_eq!(mode(&inner), 0o755);
        own_dir(&inner).unwrap();
        assert_eq!(mode(&inner), 0o700);
        fs::write(root.path().join("file"), b"").unwrap();
        assert!(make_dir(&root.path().join("file")).is_err());
    }

    #[test]
    fn a_tree_without_write_permission_is_removed_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (tree, other) = (root.path().join("tree"), root.path().join("other"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(tree.join("a/b/file"), b"x").unwrap();
        std::os::unix::fs::symlink(&other, tree.join("a/link")).unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o555)).unwrap();
        for directory in ["a/b", "a"] {
            fs::set_permissions(tree.join(directory), Permissions::from_mode(0o000)).unwrap();
        }
        open_tree(&tree); // The superuser needs no permissions: then only this call is tested.
        assert_eq!(mode(&tree.join("a/b")), 0o700);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(mode(&other), 0o555);
    }
}
