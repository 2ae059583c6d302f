//! A mount namespace for commands in which one directory of the node is read-only, to root as well.
//!
//! The namespace is the spawner's and so that of all its commands: it is made once, and a command
//! costs nothing more. Mounts of the machine still come in; those of commands do not get out.

use std::path::Path;

use rustix::io;
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount};
use rustix::thread::UnshareFlags;

/// The directory, in the spawner's environment; absent where the node needs no shield.
pub(crate) const SHIELD_VARIABLE: &str = "STARLING_SHIELDED_DIR";

/// Shields the directory that the environment names. Whether it is read-only from now on.
///
/// Threads that run already stay where they were: this comes before any is started.
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
    // SAFETY: only the mount namespace is left; descriptors and memory stay as they were.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
}
