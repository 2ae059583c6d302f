"""What runs in the workers. These functions travel by value."""

import sys

from starling import _pickling, _wrappers

# Of the 2 s between the interrupt of a call and the end of its worker (`kill_grace` of the node).
TERM_SECONDS = 1.0
# Seconds between two looks at a command that may store files.
GATE_SECONDS = 0.02
# Between two returns of its slot. The pause grows: a large file needs the slot once, and late.
GATE_SECONDS_MAX = 0.5
# As in the storage plugin; its tasks come before these calls.
GATE_VARIABLE = "STARLING_STORE_GATE"
GATE_PRIORITY = 999_999
# The directory for the copies of one job, as Snakemake gets it.
COPIES_VARIABLE = "STARLING_STORE_COPIES"
# Instead of a directory: all jobs have their copies in that of the workflow.
SHARED = "shared"


def shell(command, cwd, env, copies=None):
    """Runs a command of a shell; what it prints is the text of the call.

    A command may store files with the storage plugin. `copies` is where a directory is made for its
    copies of them: "" for the temporary directory of the node, `SHARED` for none of its own. None:
    it stores nothing.
    """
    import os
    import signal
    import subprocess

    program, text = command
    die = dies_with(os.getpid(), signal.SIGKILL)
    if env.get("TMPDIR"):
        os.makedirs(os.path.join(cwd, env["TMPDIR"]), exist_ok=True)
    gate = Gate(copies, cwd, env) if copies is not None else None
    given = gate.variables if gate else {}
    child = subprocess.Popen(
        [program, "-c", text],
        cwd=cwd,
        env={**os.environ, **env, **given},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=die,
    )
    try:
        if gate:
            gate.serve(lambda: child.poll() is not None)
        code = child.wait()
    except BaseException:
        end_group(child.pid)
        child.wait()
        raise
    finally:
        if gate:
            gate.close()
    if code:
        raise RuntimeError("the command ended with exit code %d" % code)


def warm(argv, cwd, env, copies=None):
    """Runs Snakemake in a fork of this worker, which has loaded it. `copies` as for `shell`."""
    if copies is None:
        _wrappers.isolated(snakemake, argv, cwd, env)
        return
    gate = Gate(copies, cwd, env)
    try:
        env = {**env, **gate.variables}
        _wrappers.forked(snakemake, (argv, cwd, env), {}, gate.until_readable)
    finally:
        gate.close()


class Gate:
    """Gives the slot of this call back while its command stores a file.

    To store a file needs a slot for a moment. If all slots are taken by commands that store files,
    none would be left for it. A call gives its slot back while it waits for a call of its own, and
    the task that stores the file has the higher priority of the two.
    It also has the directory of the copies, which ends with the command.
    """

    def __init__(self, copies, cwd, env):
        import os
        import socket
        import string
        import tempfile

        self.name = "starling-gate-" + os.urandom(8).hex()
        self.variables, self.folder = {GATE_VARIABLE: self.name}, None
        if copies != SHARED:
            parent = None
            if copies:
                place = string.Template(copies).safe_substitute({**os.environ, **env})
                parent = os.path.join(cwd, place)
                os.makedirs(parent, exist_ok=True)
            self.folder = tempfile.mkdtemp(prefix="starling-snakemake-", dir=parent)
            self.variables[COPIES_VARIABLE] = self.folder
        self.listener = socket.socket(socket.AF_UNIX)
        # Without a file in a directory.
        self.listener.bind("\0" + self.name)
        self.listener.listen()

    def serve(self, is_over):
        while not is_over():
            if readable(self.listener, GATE_SECONDS):
                connection, _ = self.listener.accept()
                with connection:
                    self.give_way(connection, is_over)

    def give_way(self, connection, is_over):
        """Until the other side closes the connection."""
        import starling

        with starling.Client() as client:
            calls = client.options(name="store", priority=GATE_PRIORITY)
            pause = GATE_SECONDS
            while not is_over() and not readable(connection, pause):
                calls.submit(nothing).result()
                pause = min(pause * 1.2, GATE_SECONDS_MAX)

    def until_readable(self, reader):
        self.serve(lambda: readable(reader, 0))

    def close(self):
        import shutil

        self.listener.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def readable(file, seconds):
    import select

    return bool(select.select([file], [], [], seconds)[0])


def nothing():
    """Waits for the slot of its call."""


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
