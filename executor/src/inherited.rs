//! Files that were open when this process started: no process that it starts may keep them.

#![expect(unsafe_code, reason = "a file that this program did not open has no owner here")]

/// Marks all files beyond the standard streams to be closed where another program starts. A lock or
/// a pipe of the caller is then held by this process alone, and for no longer than it lives.
pub fn close_on_exec() {
    // SAFETY: it changes one flag of open files, none is closed and no memory is touched.
    let marked = unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) };
    if marked == 0 {
        return;
    }
    // A kernel before 5.11.
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let files: Vec<i32> = names.filter(|file: &i32| *file > 2).collect();
    for file in files {
        // SAFETY: as above; a number that is not open any more answers an error.
        unsafe { libc::fcntl(file, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
