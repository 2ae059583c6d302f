"""Functions around the function of a call, which run in its worker. They travel by value."""

from . import _pickling


def retried(fn, kinds, most, /, *args, **kwargs):
    """Calls `fn` again, `most` times at most, while it raises one of these exceptions."""
    while True:
        try:
            return fn(*args, **kwargs)
        except kinds:
            if most == 0:
                raise
            most -= 1


class Initialised:
    """Calls `init` once in each worker, before the first call of `fn` there.

    The calls of the call have the same `init` and the same `memory`.
    """

    def __init__(self, fn, init, key, memory=0):
        self.func, self.init, self.key, self.memory = fn, init, key, memory

    def __call__(self, /, *args, **kwargs):
        from starling._worker import context

        done = context._state.setdefault("inits", set())
        if self.init is not None and self.key not in done:
            self.init()
            done.add(self.key)
        head, running = context._state["head"], context._state.setdefault("runtimes", {})
        if head is None:
            return self.func(*args, **kwargs)
        running[head[0]] = self
        try:
            return self.func(*args, **kwargs)
        finally:
            running.pop(head[0], None)


def isolated(fn, /, *args, **kwargs):
    """Calls `fn` in a fork of the worker, so that what it changes there ends with it."""
    return forked(fn, args, kwargs)


def forked(fn, args, kwargs, meanwhile=None):
    """As `isolated`. `meanwhile` gets a descriptor, which can be read when the fork has ended."""
    import os
    import sys

    from starling._worker import safety, values

    obstacle = safety.fork_obstacle()
    if obstacle is not None:
        from starling._errors import CallFailed

        raise CallFailed("isolate: the worker cannot fork, it has %s" % obstacle[1])
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    place = os.memfd_create("result")
    reader, writer = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            in_fork(fn, args, kwargs, place, writer)
        os.close(writer)
        writer = -1
        told, code = ended(pid, reader, meanwhile)
        if code or not told:
            raise died(code)
        if told[0] == 0:
            return values.load_file(told[1], "/proc/self/fd/%d" % place)
        raise failure(told[0], told[1:])
    finally:
        for fd in (place, reader, writer):
            if fd >= 0:
                os.close(fd)


def in_fork(fn, args, kwargs, place, writer):
    """Runs the function and ends the process. Tells 0 and a codec, or an exception."""
    import json
    import os
    import sys

    from starling._worker import context, failures, values, wire, worker

    code = 1
    try:
        worker.reseed()
        context._state["send_note"] = context._state["line"] = None
        try:
            codec, parts = values.dumps(fn(*args, **kwargs))
            for part in parts:
                wire.write_all(place, part)
            told = bytes([0, codec])
        except BaseException as error:
            fields = json.loads(failures.raised_values(error, 1)[0][8:])
            pickled = failures.round_trip(error)
            known = pickled is not None
            kept = pickled if known else json.dumps([fields["text"], fields["type"]]).encode()
            told = bytes([1 if known else 2]) + len(kept).to_bytes(4, "little") + kept
            told += fields["frames"].encode("utf-8", "replace")
        wire.write_all(writer, told)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        code = 0
    finally:
        os._exit(code)


def ended(pid, reader, meanwhile=None):
    """(what the fork told, its exit code). An interrupt goes on to the fork."""
    import os
    import signal

    told = bytearray()
    try:
        if meanwhile is not None:
            meanwhile(reader)
        while True:
            more = os.read(reader, 1 << 16)
            if not more:
                break
            told += more
        _, status = os.waitpid(pid, 0)
    except BaseException:
        # The node kills both if the function goes on.
        os.kill(pid, signal.SIGINT)
        os.waitpid(pid, 0)
        raise
    return bytes(told), os.waitstatus_to_exitcode(status)


def died(code):
    from starling._errors import CallFailed

    if code < 0:
        return CallFailed("the fork of the call died of signal %d" % -code)
    return CallFailed("the fork of the call ended with exit code %d" % code)


def failure(kind, data):
    """The exception of the fork, with its traceback as the cause."""
    import json
    import pickle

    from starling._errors import RemoteError, RemoteTraceback

    length = int.from_bytes(data[:4], "little")
    kept, frames = data[4 : 4 + length], data[4 + length :].decode("utf-8", "replace")
    if kind == 1:
        error = pickle.loads(kept)
    else:
        error = RemoteError(*json.loads(kept), frames)
    error.__cause__ = RemoteTraceback(frames)
    return error


_pickling.ship(__name__)
