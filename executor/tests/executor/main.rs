//! Executors at work: real commands, real processes, real deaths.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

mod call_memory;
mod calls;
mod commands;
mod common;
mod death;
mod devices;
mod files;
mod nested;
mod pins;

use std::os::unix::fs::FileTypeExt;

/// Not a test of its own: the spawner of all other tests. An executor starts this program with the
/// argument `__spawner`, which the test harness takes for the name of a test.
#[test]
fn __spawner() {
    let input = std::fs::metadata("/proc/self/fd/0");
    if input.is_ok_and(|input| input.file_type().is_socket()) {
        executor::spawner::main();
    }
}
