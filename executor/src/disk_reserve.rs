//! Room that objects leave to the records of the node. On a file system that is full to the last
//! byte the log of the node could not be written, and the node would have to stop.

use std::fs::File;
use std::io;

use proto::limits::{DISK_RESERVE_BYTES, DISK_RESERVE_SHARE};

/// Taking room beforehand pays from here on.
const RESERVE_BYTES_MIN: u64 = 1 << 20;

/// Whether so much more may be written there; an error as of a full disk if not.
pub(crate) fn check(file: &File, more_bytes: u64) -> io::Result<()> {
    // Where that cannot be told, it is found out while writing.
    let Ok(system) = rustix::fs::fstatvfs(file) else { return Ok(()) };
    let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
    let left_bytes = DISK_RESERVE_BYTES.min(bytes(system.f_blocks) / DISK_RESERVE_SHARE);
    if bytes(system.f_bavail) >= more_bytes.saturating_add(left_bytes) {
        return Ok(());
    }
    Err(rustix::io::Errno::NOSPC.into())
}

/// Takes room for all of a new file now, if it is a large one: a full disk is known before bytes
/// come in vain, and others that come at the same time do not count on it.
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
        // Not every file system can; then it is found out while writing.
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
