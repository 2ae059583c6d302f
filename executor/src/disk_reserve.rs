//! The disk space that objects leave for the records of the node. On a completely full file system
//! the node could not write its log, and would have to stop.

use std::fs::File;
use std::io;

/// The space of the file system that objects leave to records and logs, and the share on a small
/// one.
const DISK_RESERVE_BYTES: u64 = 32 << 20;
const DISK_RESERVE_SHARE: u64 = 16;

/// From this size on, reserving space is worthwhile.
const RESERVE_BYTES_MIN: u64 = 1 << 20;

/// Checks that this number of further bytes may be written; returns the error of a full disk if
/// not.
pub(crate) fn check(file: &File, more_bytes: u64) -> io::Result<()> {
    // If the space is unknown, a write detects a full disk.
    let Ok(system) = rustix::fs::fstatvfs(file) else { return Ok(()) };
    let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
    let left_bytes = DISK_RESERVE_BYTES.min(bytes(system.f_blocks) / DISK_RESERVE_SHARE);
    if bytes(system.f_bavail) >= more_bytes.saturating_add(left_bytes) {
        return Ok(());
    }
    Err(rustix::io::Errno::NOSPC.into())
}

/// Reserves space for a large new file. So a full disk is detected before the bytes arrive, and
/// concurrent writers do not count on the same space.
pub(crate) fn reserve(file: &File, total_bytes: u64) -> io::Result<()> {
    if total_bytes < RESERVE_BYTES_MIN {
        return Ok(());
    }
    check(file, total_bytes)?;
    let mode = rustix::fs::FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, mode, 0, total_bytes) {
        Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
            Err(rustix::io::Errno::NOSPC.into())
        }
        // Some file systems cannot reserve space; then a write detects a full disk.
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_fill_the_file_system_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(check(&file, 0).is_ok(), "a machine that runs tests has some room");
        let system = rustix::fs::fstatvfs(&file).unwrap();
        let all_bytes = system.f_bavail * system.f_frsize;
        let error = check(&file, all_bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
