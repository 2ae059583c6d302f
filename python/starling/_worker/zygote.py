"""The zygote: one process that has loaded an environment and forks its workers."""

import array
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import sys

from . import safety, wire, worker

SOCKET = 3
PACKET_MAX = 1 << 16
FDS = (worker.IN, worker.OUT, 1, 2, worker.WORD)
# Above all descriptors that a worker has in fixed places.
FREE_FD = 16


def start():
    """Serves until the node closes the socket. Returns an exit code; a worker's in its process."""
    # One thread per library before the fork; a worker sets the cpus of each call.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        if name not in os.environ:
            os.environ[name] = "1"
            worker.THREAD_NAMES.append(name)
    control = socket.socket(fileno=_away(SOCKET))
    error = None
    try:
        worker.preload()
    except BaseException as failed:
        error = worker.load_error(failed)
    control.sendall(wire.json_record(wire.HELLO, worker.hello(error)))
    if error is not None:
        return 1
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    gc.collect()
    gc.freeze()
    return serve(control)


def serve(control):
    reader, writer = (_away(fd) for fd in os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(reader, select.POLLIN)
    children = set()
    try:
        return _loop(control, poll, reader, writer, children)
    except ConnectionError:
        # The node has died.
        return _end(children)


def _loop(control, poll, reader, writer, children):
    while True:
        ready = dict(poll.poll())
        if reader in ready:
            os.read(reader, 4096)
            _reap(control, children)
        if control.fileno() in ready:
            data, ancillary, _, _ = control.recvmsg(PACKET_MAX, socket.CMSG_SPACE(8 * 4))
            if not data:
                return _end(children)
            fds = _descriptors(ancillary)
            try:
                pid = _fork(control, data, fds)
            finally:
                for fd in fds:
                    os.close(fd)
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                control.close()
                os.close(reader)
                os.close(writer)
                worker.reseed()
                return worker.start(preloaded=True)
            if pid is not None:
                children.add(pid)


def _away(fd):
    """The same file at a descriptor that no worker's file takes."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FREE_FD)
    os.close(fd)
    return moved


def _descriptors(ancillary):
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)


def _fork(control, packet, fds):
    """The pid of the new worker; 0 in it; None if there is none."""
    try:
        ((kind, body),) = wire.records(packet)
        (seq,) = wire.U64.unpack_from(body)
        env = json.loads(body[8:].decode())["env"]
    except (wire.Garbage, ValueError, KeyError, struct.error) as error:
        os.write(2, ("starling zygote: garbage from the node: %s\n" % error).encode())
        os._exit(wire.GARBAGE_EXIT)
    if kind != wire.FORK or len(fds) != len(FDS):
        return _refuse(control, seq, "failed", "record %d with %d fds" % (kind, len(fds)))
    obstacle = safety.fork_obstacle()
    if obstacle is not None:
        return _refuse(control, seq, *obstacle)
    try:
        pid = os.fork()
    except OSError as error:
        return _refuse(control, seq, "failed", "fork: %s" % error)
    if pid == 0:
        _place(fds)
        _environment(env)
        return 0
    control.sendall(wire.record(wire.FORKED, wire.FORKED_BODY.pack(seq, pid)))
    return pid


def _refuse(control, seq, reason, text):
    fields = {"reason": reason, "text": text}
    control.sendall(wire.json_record(wire.REFUSED_FORK, fields, wire.U64.pack(seq)))


def _place(fds):
    """Puts the received descriptors in their fixed places."""
    free = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FREE_FD) for fd in fds]
    for fd in fds:
        os.close(fd)
    del fds[:]
    for source, target in zip(free, FDS):
        os.dup2(source, target, inheritable=target in (1, 2))
        os.close(source)


def _environment(env):
    for name, value in env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    cpus = os.environ.get("OMP_NUM_THREADS", "1")
    if cpus.isdigit():
        worker.limit_threads(int(cpus))


def _reap(control, children):
    while children:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        pid = ended.si_pid
        if pid in children:
            # Its own children may hold its pipe open. Its number is still in use, so that the
            # group is the worker's.
            try:
                os.killpg(pid, signal.SIGKILL)
            except OSError:
                # It has had no group of its own.
                pass
        _, status = os.waitpid(pid, 0)
        if pid in children:
            children.discard(pid)
            control.sendall(wire.record(wire.EXITED, wire.EXITED_BODY.pack(pid, status)))


def _end(children):
    for pid in children:
        for kill in (os.killpg, os.kill):
            try:
                kill(pid, signal.SIGKILL)
            except OSError:
                # It has ended, or has no group yet.
                pass
    return 0
