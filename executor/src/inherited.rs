//! Files that were open when this process started: processes that it starts must not inherit them.

#![expect(unsafe_code, reason = "a file that this program did not open has no owner here")]

/// Marks all files beyond the standard streams as close-on-exec. Then only this process holds a
/// lock or a pipe of its caller, and no longer than it lives.
pub fn close_on_exec() {
    let (first, last, flag) = (3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // By its number: the C library has a name for this call since glibc 2.34 only.
    // SAFETY: it changes one flag of open files; none is closed and no memory is touched.
    let marked = unsafe { libc::syscall(libc::SYS_close_range, first, last, flag) };
    if marked == 0 {
        return;
    }
    // A kernel before 5.11.
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let files: Vec<i32> = names.filter(|file: &i32| *file > 2).collect();
    for file in files {
        // SAFETY: as above; for a number that is not open any more the call returns an error.
        unsafe { libc::fcntl(file, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
