/*!
Starts a program without a copy of this process: the unsafe part of the start of commands.

The child runs in the memory of this process, on a stack of its own, until it executes another
program. The thread that started it stands still meanwhile. `posix_spawn` does the same and more: it
maps and unmaps a stack for each start, which interrupts the other threads. It also reads and sets
the disposition of each of the 64 signals. Here the stack is kept, and the process has no signal
handlers (see [`plain_signals`]), so only SIGPIPE must be reset. That saves a tenth of the cost of a
short command.

The child only makes a fixed list of system calls on data prepared before.
*/

#![expect(unsafe_code, reason = "there is no safe way to start a process in this memory")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Enough for a few calls of the C library.
const STACK_BYTES: usize = 64 << 10;
/// The out-of-memory score: the kernel kills a command before anything else on this machine. So the
/// node is never killed for the memory of its command. Any process may raise its own score.
const FIRST_TO_GO: &CStr = c"1000";
/// The exit code of a child that executed no program; no process sees it.
const NOTHING: c_int = 127;

/// The signals that ask a process to end.
const ENDS: [c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];
/// The signals of `ENDS` that this process ignores by its own choice, one bit each.
static DEAF_TO: AtomicI32 = AtomicI32::new(0);

/// The stack of a child until it executes another program.
pub(super) struct Stack(Vec<u128>);

impl Stack {
    pub(super) fn new() -> Self {
        Self(vec![0; STACK_BYTES / size_of::<u128>()])
    }
}

/// A list of strings for the kernel: pointers, the last one null.
pub(super) struct Strings<'a> {
    pointers: Vec<*const c_char>,
    of: PhantomData<&'a CStr>,
}

impl<'a> FromIterator<&'a CStr> for Strings<'a> {
    fn from_iter<I: IntoIterator<Item = &'a CStr>>(strings: I) -> Self {
        let mut pointers: Vec<_> = strings.into_iter().map(CStr::as_ptr).collect();
        pointers.push(std::ptr::null());
        Self { pointers, of: PhantomData }
    }
}

/// The program that a child must become.
pub(super) struct Wanted<'a> {
    /// A file; no search path is used.
    pub(super) program: &'a CStr,
    pub(super) argv: &'a Strings<'a>,
    pub(super) environment: &'a Strings<'a>,
    pub(super) directory: &'a CStr,
    /// The child's standard input, output and error. None of them may be 0, 1 or 2 here.
    pub(super) stdio: [BorrowedFd<'a>; 3],
    /// Further descriptors, each with its number in the program. Their numbers here are above all
    /// of those.
    pub(super) others: &'a [(OwnedFd, c_int)],
    /// The program runs on these cpus alone, and does not start if it may not have them all.
    pub(super) cpus: Option<libc::cpu_set_t>,
}

/// The step that failed.
#[derive(Debug)]
pub(super) enum Error {
    /// No process could be created.
    Process(io::Error),
    Directory(io::Error),
    Cpus(io::Error),
    Program(io::Error),
}

/// A set of cpus by their numbers; `None`: a number is beyond those that the kernel's set has here.
pub(super) fn cpu_set(cpus: &[u32]) -> Option<libc::cpu_set_t> {
    // SAFETY: the set is plain data, valid when zeroed, and each number is checked before its use.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            let cpu = usize::try_from(cpu).ok().filter(|cpu| *cpu < libc::CPU_SETSIZE as usize)?;
            libc::CPU_SET(cpu, &mut set);
        }
        Some(set)
    }
}

/// The data that parent and child share.
struct StartExchange<'a> {
    wanted: &'a Wanted<'a>,
    /// Set by the child before it exits without a program: the error of each step.
    directory_errno: AtomicI32,
    cpus_errno: AtomicI32,
    program_errno: AtomicI32,
}

/// Starts a program as the leader of a process group of its own, with no signal blocked and SIGPIPE
/// not ignored. Returns its process id, and a descriptor that is readable once it has ended.
///
/// Must be called only after [`plain_signals`].
pub(super) fn start(stack: &mut Stack, wanted: &Wanted<'_>) -> Result<(Pid, OwnedFd), Error> {
    for fd in &wanted.stdio {
        assert!(fd.as_raw_fd() > 2, "the standard streams of this process are open");
    }
    let highest = wanted.others.iter().map(|(_, number)| *number).max().unwrap_or(2);
    let lowest = wanted.others.iter().map(|(fd, _)| fd.as_raw_fd()).min();
    assert!(lowest.is_none_or(|lowest| lowest > highest), "no copy replaces another's source");
    let mut meeting = StartExchange {
        wanted,
        directory_errno: AtomicI32::new(0),
        cpus_errno: AtomicI32::new(0),
        program_errno: AtomicI32::new(0),
    };
    let mut exit: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let top = stack.0.as_mut_ptr_range().end;
    // SAFETY: `top` is the aligned end of memory that only this call uses, since `stack` is
    // borrowed mutably. `child` gets `meeting`, which outlives the call. This thread stands still
    // until the child has executed another program or has ended, so the two never touch the stack
    // and the meeting at once. Other threads run on; `child` uses nothing of theirs: it allocates
    // nothing and takes no lock. CLONE_PIDFD puts the descriptor into `exit`.
    let number =
        unsafe { libc::clone(child, top.cast(), flags, (&raw mut meeting).cast(), &raw mut exit) };
    let Some(number) = Pid::from_raw(number).filter(|_| number > 0) else {
        return Err(Error::Process(io::Error::last_os_error()));
    };
    // SAFETY: the call succeeded, so the kernel has put a new descriptor there, and no other code
    // knows it.
    let exit = unsafe { OwnedFd::from_raw_fd(exit) };
    let error = |errno: &AtomicI32| match errno.load(Ordering::Relaxed) {
        0 => None,
        errno => Some(io::Error::from_raw_os_error(errno)),
    };
    let StartExchange { directory_errno, cpus_errno, program_errno, .. } = &meeting;
    let failed = error(directory_errno).map(Error::Directory);
    let failed = failed.or_else(|| error(cpus_errno).map(Error::Cpus));
    let failed = failed.or_else(|| error(program_errno).map(Error::Program));
    let Some(error) = failed else { return Ok((number, exit)) };
    let _ = waitid(WaitId::PidFd(exit.as_fd()), WaitIdOptions::EXITED);
    Err(error)
}

/// Runs in a child until it executes another program.
extern "C" fn child(meeting: *mut c_void) -> c_int {
    // SAFETY: the parent has lent it and stands still. From here on only system calls are made, on
    // descriptors and strings that the parent holds; `errno` is the parent thread's own.
    unsafe {
        let meeting = &*meeting.cast::<StartExchange<'_>>();
        let wanted = meeting.wanted;
        libc::setpgid(0, 0);
        // If the file is missing the step is skipped. During a vfork the score is the child's own:
        // the kernel does not apply it to the process that shares its memory.
        let flags = libc::O_WRONLY | libc::O_CLOEXEC;
        let oom_score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), flags);
        if oom_score >= 0 {
            libc::write(oom_score, FIRST_TO_GO.as_ptr().cast(), FIRST_TO_GO.count_bytes());
        }
        if libc::chdir(wanted.directory.as_ptr()) != 0 {
            meeting.directory_errno.store(*libc::__errno_location(), Ordering::Relaxed);
            libc::_exit(NOTHING);
        }
        if let Some(cpus) = &wanted.cpus
            && !takes_cpus(cpus)
        {
            // Without an error of the kernel: some of them were left out.
            let errno = *libc::__errno_location();
            let errno = if errno == 0 { libc::EINVAL } else { errno };
            meeting.cpus_errno.store(errno, Ordering::Relaxed);
            libc::_exit(NOTHING);
        }
        for (to, fd) in (0..).zip(&wanted.stdio) {
            // Cannot fail: both are open, or may be. The copy stays open in the program.
            libc::dup2(fd.as_raw_fd(), to);
        }
        for (fd, to) in wanted.others {
            libc::dup2(fd.as_raw_fd(), *to);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let deaf_to = DEAF_TO.load(Ordering::Relaxed);
        for signal in ENDS {
            if deaf_to & 1 << signal != 0 {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        let (argv, environment) = (&wanted.argv.pointers, &wanted.environment.pointers);
        libc::execve(wanted.program.as_ptr(), argv.as_ptr(), environment.as_ptr());
        meeting.program_errno.store(*libc::__errno_location(), Ordering::Relaxed);
        libc::_exit(NOTHING)
    }
}

/// Pins the caller to these cpus. False: it may not have all of them; `errno` is 0, or the reason.
///
/// # Safety
/// As for [`child`], only system calls are made.
unsafe fn takes_cpus(cpus: &libc::cpu_set_t) -> bool {
    // SAFETY: the kernel reads and writes sets of the given size. The set `got` is plain data,
    // valid when zeroed. `errno` is the caller's own.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        let mut got: libc::cpu_set_t = std::mem::zeroed();
        *libc::__errno_location() = 0;
        libc::sched_setaffinity(0, size, cpus) == 0
            && libc::sched_getaffinity(0, size, &raw mut got) == 0
            && libc::CPU_EQUAL(cpus, &got)
    }
}

/// Removes all signal handlers of this process and unblocks all signals. The standard library has
/// handlers for its messages about stack overflow. A signal that reaches a child before it executes
/// its program must not run code of this one. And no program may begin with blocked signals. Must
/// be called before any thread starts.
pub(super) fn plain_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: `action` is plain data, valid when zeroed, and filled in by the first call. No
        // code here relies on a handler. For signals that cannot be changed the call returns an
        // error.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction != libc::SIG_IGN
                && action.sa_sigaction != libc::SIG_DFL
            {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
    // SAFETY: `none` is plain data, filled in by the first call.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Makes this process ignore requests to end, which a batch system sends to all processes of a job:
/// the node decides when this process ends. Its children receive such signals, unless this process
/// ignored them from the beginning. Must be called after [`plain_signals`].
pub(super) fn outlive_requests() {
    for signal in ENDS {
        // SAFETY: a disposition is changed, and no handler is involved.
        let before = unsafe { libc::signal(signal, libc::SIG_IGN) };
        if before != libc::SIG_IGN && before != libc::SIG_ERR {
            DEAF_TO.fetch_or(1 << signal, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs::File;
    use std::io::Read;

    use super::*;

    struct Ended {
        result: Result<i32, Error>,
        printed: String,
    }

    fn run(program: &CStr, argv: &[&CStr], environment: &[&CStr], directory: &CStr) -> Ended {
        run_on(&mut Stack::new(), program, argv, environment, directory)
    }

    fn run_on(
        stack: &mut Stack,
        program: &CStr,
        argv: &[&CStr],
        environment: &[&CStr],
        directory: &CStr,
    ) -> Ended {
        plain_signals(); // The caller of the tests may have blocked some.
        let argv: Strings<'_> = argv.iter().copied().collect();
        let environment: Strings<'_> = environment.iter().copied().collect();
        let null = File::open("/dev/null").unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let stdio = [null.as_fd(), writer.as_fd(), writer.as_fd()];
        let wanted = Wanted {
            program,
            argv: &argv,
            environment: &environment,
            directory,
            stdio,
            others: &[],
            cpus: None,
        };
        let started = start(stack, &wanted);
        drop(writer);
        let mut printed = String::new();
        reader.read_to_string(&mut printed).unwrap();
        let result = started.map(|(_, exit)| {
            let status = waitid(WaitId::PidFd(exit.as_fd()), WaitIdOptions::EXITED);
            status.unwrap().unwrap().exit_status().expect("it was not killed")
        });
        Ended { result, printed }
    }

    #[test]
    fn a_program_gets_what_it_was_given_and_nothing_else() {
        let script = c"echo $0 $1; env | sort; pwd; exit 3";
        let argv = [c"name", c"-c", script, c"zero", c"one"];
        let environment = [c"PATH=/usr/bin:/bin", c"A=b=c"];
        let ended = run(c"/bin/sh", &argv, &environment, c"/usr");
        assert!(matches!(ended.result, Ok(3)), "{:?}", ended.result);
        let mut lines = ended.printed.lines().filter(|line| !line.starts_with("_="));
        assert_eq!(lines.next(), Some("zero one"));
        assert_eq!(lines.next(), Some("A=b=c"));
        let rest: Vec<_> = lines.collect();
        assert_eq!(rest, ["PATH=/usr/bin:/bin", "PWD=/usr", "/usr"]);
    }

    #[test]
    fn it_leads_a_group_and_has_no_signal_blocked_or_sigpipe_ignored() {
        // Not those of a waiting shell, which may block signals meanwhile.
        let script =
            c"echo $$; cut -d' ' -f5 /proc/$$/stat; exec grep -E 'Sig(Blk|Ign)' /proc/self/status";
        let ended = run(c"/bin/sh", &[c"sh", c"-c", script], &[c"PATH=/usr/bin:/bin"], c"/");
        let lines: Vec<_> = ended.printed.lines().collect();
        assert_eq!(lines[0], lines[1], "its number is its group's");
        assert_eq!(lines[2], "SigBlk:\t0000000000000000");
        let ignored = u64::from_str_radix(lines[3].trim_start_matches("SigIgn:\t"), 16).unwrap();
        assert_eq!(ignored >> (libc::SIGPIPE - 1) & 1, 0);
    }

    #[test]
    fn it_goes_first_where_memory_runs_out_and_its_parent_does_not() {
        let own = || std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        let before = own();
        let ended = run(c"/bin/cat", &[c"cat", c"/proc/self/oom_score_adj"], &[], c"/");
        assert_eq!((ended.printed.as_str(), own()), ("1000\n", before));
    }

    #[test]
    fn a_failed_start_names_its_step() {
        let sh = [c"sh"];
        let ended = run(c"/no/such/program", &sh, &[], c"/");
        assert!(
            matches!(ended.result, Err(Error::Program(error)) if error.raw_os_error() == Some(2))
        );
        let ended = run(c"/bin/sh", &sh, &[], c"/no/such/directory");
        assert!(
            matches!(ended.result, Err(Error::Directory(error)) if error.raw_os_error() == Some(2))
        );
        let ended = run(c"/proc/version", &sh, &[], c"/");
        assert!(
            matches!(ended.result, Err(Error::Program(error)) if error.raw_os_error() == Some(13))
        );
    }

    #[test]
    fn one_stack_serves_many_starts_on_threads_side_by_side() {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let code = CString::new(format!("exit {thread}")).unwrap();
                    let (mut stack, argv) = (Stack::new(), [c"sh", c"-c", &code]);
                    for _ in 0..25 {
                        let ended = run_on(&mut stack, c"/bin/sh", &argv, &[], c"/");
                        assert!(
                            matches!(ended.result, Ok(it) if it == thread),
                            "{:?}",
                            ended.result
                        );
                    }
                });
            }
        });
    }
}
