"""What runs in the workers. These functions travel by value."""

import sys

from starling import _pickling, _wrappers

# Of the 2 s between the interrupt of a call and the end of its worker (`kill_grace` of the node).
TERM_SECONDS = 1.0


def shell(command, cwd, env):
    """Runs a command of a shell; what it prints is the text of the call."""
    import os
    import signal
    import subprocess

    program, text = command
    die = dies_with(os.getpid(), signal.SIGKILL)
    if env.get("TMPDIR"):
        os.makedirs(os.path.join(cwd, env["TMPDIR"]), exist_ok=True)
    child = subprocess.Popen(
        [program, "-c", text],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=die,
    )
    try:
        code = child.wait()
    except BaseException:
        end_group(child.pid)
        child.wait()
        raise
    if code:
        raise RuntimeError("the command ended with exit code %d" % code)


def warm(argv, cwd, env):
    """Runs Snakemake in a fork of this worker, which has loaded it."""
    _wrappers.isolated(snakemake, argv, cwd, env)


def snakemake(argv, cwd, env):
    """In the fork, with a session of its own for its commands."""
    import os
    import signal

    def kill_session(*_):
        os.killpg(os.getpgrp(), signal.SIGKILL)

    stopped = []

    def end_session(*_):
        # Snakemake ends with its commands.
        stopped.append(True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, TERM_SECONDS)
        os.killpg(os.getpgrp(), signal.SIGTERM)

    parent = os.getppid()
    os.setsid()
    signal.signal(signal.SIGALRM, kill_session)
    signal.signal(signal.SIGINT, end_session)
    dies_with(parent, signal.SIGINT)()
    os.chdir(cwd)
    os.environ.update(env)
    sys.argv = ["snakemake", *argv]
    from snakemake.cli import main

    try:
        main(argv)
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError("Snakemake ended with exit code %s" % ended.code) from None
    finally:
        if stopped:
            kill_session()


def dies_with(parent, number):
    """What a child calls so that the kernel sends it this signal when the worker ends."""
    import ctypes
    import os

    prctl, parent_death_signal = ctypes.CDLL(None).prctl, 1

    def die():
        prctl(parent_death_signal, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return die


def end_group(pid):
    """Asks the processes of a session to end, and kills those that do not."""
    import os
    import signal
    import time

    for number, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, 0.0)):
        try:
            os.killpg(pid, number)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                state = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if state is not None:
                    break
                time.sleep(0.05)
        except (ProcessLookupError, ChildProcessError):
            return


_pickling.ship(__name__)
