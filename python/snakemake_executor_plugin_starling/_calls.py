"""What runs in the workers. These functions travel by value."""

import sys

from starling import _pickling


def shell(command, cwd, env):
    """Runs a command of a shell; what it prints is the text of the call."""
    import os
    import subprocess

    program, text = command
    child = subprocess.Popen(
        [program, "-c", text],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
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
    import os

    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        warm_child(argv, cwd, env)
    try:
        _, status = os.waitpid(pid, 0)
    except BaseException:
        end_group(pid)
        os.waitpid(pid, 0)
        raise
    code = os.waitstatus_to_exitcode(status)
    if code:
        raise RuntimeError("Snakemake ended with exit code %d" % code)


def warm_child(argv, cwd, env):
    import os
    import signal
    import traceback

    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.chdir(cwd)
        os.environ.update(env)
        sys.argv = ["snakemake", *argv]
        from snakemake.cli import main

        main(argv)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def end_group(pid):
    """Asks the processes of a session to end, and kills those that do not."""
    import os
    import signal
    import time

    for number, seconds in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 0.0)):
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
