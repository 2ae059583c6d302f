//! A mount namespace for commands, in which one directory of the node is read-only, even to root.
//!
//! The namespace belongs to the spawner and so to all its commands. It is made once, and a command
//! costs nothing more. Later mounts of the machine appear in it; mounts by commands do not leave
//! it.

use std::path::Path;

use rustix::io;
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount};
use rustix::thread::UnshareFlags;

/// The directory, in the spawner's environment; absent if the node needs no shield.
pub(crate) const SHIELD_VARIABLE: &str = "STARLING_SHIELDED_DIR";

/// Shields the directory that the environment names. True if it is read-only from now on.
///
/// Running threads keep their namespace, so this must precede the start of threads.
pub(super) fn raise() -> bool {
    let Some(directory) = std::env::var_os(SHIELD_VARIABLE) else { return false };
    make_read_only(Path::new(&directory)).is_ok()
}

fn make_read_only(directory: &Path) -> io::Result<()> {
    leave_namespace()?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    mount_bind(directory, directory)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount_remount(directory, flags, "")
}

#[expect(unsafe_code, reason = "the call may be unsafe for what shares file descriptors")]
fn leave_namespace() -> io::Result<()> {
    // SAFETY: only the mount namespace changes; descriptors and memory stay as they were.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
}
