//! The end of a process, with what it has used.

#![expect(unsafe_code, reason = "no safe call returns the resource usage of one child")]

use proto::work::Used;
use rustix::io::Errno;
use rustix::process::Pid;

/// The end of a process.
#[derive(Debug, Default)]
pub(super) struct End {
    /// `None`: a signal ended it, or its end is not known.
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    /// That of the process and of all descendants that were waited for. The memory is that of the
    /// largest of them, and at least that of this process when it started the command.
    pub(super) used: Used,
}

/// Waits for the end of a child and reaps it.
pub(super) fn reap(child: Pid) -> End {
    let mut status: libc::c_int = 0;
    // SAFETY: a structure of numbers, for which all bits 0 are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        let number = child.as_raw_nonzero().get();
        // SAFETY: both are valid for writes during the call, and the kernel keeps neither.
        match unsafe { libc::wait4(number, &raw mut status, 0, &raw mut usage) } {
            found if found == number => break,
            _ if Errno::from_io_error(&std::io::Error::last_os_error()) == Some(Errno::INTR) => {}
            _ => return End::default(),
        }
    }
    let microseconds = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000) + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    End {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        used: Used {
            cpu_us: microseconds(usage.ru_utime) + microseconds(usage.ru_stime),
            max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn an_end_has_what_the_process_used() {
        #[expect(clippy::zombie_processes, reason = "reaping it is what is tested")]
        let run = |script: &str| {
            let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            reap(Pid::from_raw(child.id() as i32).unwrap())
        };
        let ended = run("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 3");
        assert_eq!((ended.code, ended.signal), (Some(3), None));
        assert!(ended.used.cpu_us > 1_000 && ended.used.max_rss_kib > 100, "{ended:?}");
        let ended = run("kill -9 $$");
        assert_eq!((ended.code, ended.signal), (None, Some(9)));
        let gone = reap(Pid::from_raw(i32::MAX).unwrap());
        assert!(gone.code.is_none() && gone.signal.is_none() && gone.used.is_none());
    }
}
