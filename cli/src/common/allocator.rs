//! Options of the memory allocator for processes that run for months.

/// Threads of a node come and go. By default the allocator keeps the pages of an ended thread until
/// a new thread of the same pool asks for them, so a node grew by 20 MB an hour. With these options
/// any thread takes over such a page when it frees memory in it, and unused pages soon go back to
/// the system.
#[expect(unsafe_code, reason = "the allocator offers its options in C only")]
pub(crate) fn return_memory() {
    use libmimalloc_sys::{mi_option_set, mi_option_t};
    /// `mi_option_purge_delay`, in ms, and `mi_option_page_reclaim_on_free`. The crate does not
    /// name them.
    const OPTIONS: [(mi_option_t, std::ffi::c_long); 2] = [(15, 10), (35, 1)];
    for (option, value) in OPTIONS {
        // SAFETY: any thread may set an option at any time, and both numbers are of version 3.
        unsafe { mi_option_set(option, value) };
    }
}

#[cfg(test)]
mod tests {
    /// A change of the allocator's version may move the options.
    #[test]
    #[expect(unsafe_code, reason = "the allocator offers its options in C only")]
    fn the_options_are_those_of_this_version() {
        use libmimalloc_sys::{_mi_option_last, mi_option_get, mi_version};
        // SAFETY: both only read.
        let (version, delay) = unsafe { (mi_version(), mi_option_get(15)) };
        assert_eq!((version / 10_000, _mi_option_last), (3, 47), "version {version}");
        assert!(delay == 1_000 || delay == 10, "{delay} ms by default, or as set: purge_delay");
    }
}
