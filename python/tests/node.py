"""The node's side of the worker protocol, for tests of workers."""

import array
import json
import mmap
import os
import pathlib
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

# scripts/test-python runs a copy of the tests.
ROOT = pathlib.Path(os.environ.get("STARLING_SOURCES") or pathlib.Path(__file__).resolve().parents[2])
# After PYTHONPATH, which may have a package with its extension module.
sys.path.append(str(ROOT / "python"))

from starling import _cloudpickle  # noqa: E402
from starling._worker import wire  # noqa: E402

ZIP = ROOT / "python" / "worker.zip"
PERL = ROOT / "examples" / "workers" / "worker.pl"
WAIT = 60.0


class Ended(Exception):
    """The worker closed its pipe."""


def function_id(data):
    import hashlib

    return hashlib.sha256(data).digest()[:16]


def python_function(function, retry_on=None):
    data = bytes(sys.version_info[:2]) + _cloudpickle.dumps((function, retry_on), 5)
    return wire.value(wire.INLINE, wire.RAW, 0, data)


def python_args(*args, **kwargs):
    return wire.value(wire.INLINE, wire.PICKLE, wire.ARGS_SLOT, pickle.dumps((args, kwargs), 5))


def json_args(*args):
    return wire.value(wire.INLINE, wire.JSON, wire.ARGS_SLOT, json.dumps(args).encode())


NO_ARGS = wire.value(wire.INLINE, wire.RAW, wire.ARGS_SLOT, b"")


def func_record(key, function):
    return wire.record(wire.FUNC, key + function)


def call_record(call, key, args=NO_ARGS, inputs=(), flags=0, attempt=1, task=(7, 9), cpus=1000):
    head = wire.CALL_HEAD.pack(call, key, attempt, *task, 0, cpus, flags, 1 + len(inputs))
    return wire.record(wire.CALL, head + args + b"".join(inputs))


class Result:
    def __init__(self, body):
        head = wire.RESULT_HEAD.unpack_from(body)
        self.call, self.start, self.end, self.rss, self.status, self.flags, count, _ = head
        self.values = wire.values(body, wire.RESULT_HEAD.size, count)

    @property
    def error(self):
        return json.loads(bytes(self.values[0][3]))

    @property
    def value(self):
        from starling._worker import values

        how, codec, _, data = self.values[0]
        return values.load(how, codec, data)


class Descriptors:
    """The five descriptors of one worker, and the node's ends of them."""

    def __init__(self):
        worker_in, self.to = os.pipe2(os.O_CLOEXEC)
        self.back, worker_out = os.pipe2(os.O_CLOEXEC)
        self.printed = {}
        for stream in (1, 2):
            self.printed[stream] = os.open(
                "/proc/self/fd/%d" % os.memfd_create("out"), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
            )
        word = os.memfd_create("word")
        os.ftruncate(word, 4096)
        self.word = memoryview(mmap.mmap(word, 4096)).cast("Q")
        self.fds = [worker_in, worker_out, self.printed[1], self.printed[2], word]

    def given(self):
        """After the worker has them."""
        for fd in (self.fds[0], self.fds[1], self.fds[4]):
            os.close(fd)

    def close(self):
        for fd in (self.to, self.back, *self.printed.values()):
            os.close(fd)


class Worker:
    def __init__(self, argv=None, zygote=None, env=None):
        self.objects = tempfile.TemporaryDirectory(prefix="starling-worker-")
        self.parts = Descriptors()
        self.process = None
        self.buffer = bytearray()
        self.records = []
        self.calls = 0
        if zygote is None:
            self._spawn(argv or [sys.executable, str(ZIP), "worker"], env or {})
        else:
            self.pid = zygote.fork(self.parts.fds, self.environment(env or {}))
        self.parts.given()
        kind, body = self.next_record()
        assert kind == wire.HELLO, kind
        self.hello = json.loads(body)

    def environment(self, env):
        return {"STARLING_WORKER_OBJECTS": self.objects.name, **env}

    def _spawn(self, argv, env):
        first, out, one, two, word = self.parts.fds

        def place():
            import fcntl

            free = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (first, out, one, two, word)]
            for source, target in zip(free, (3, 4, 1, 2, 5)):
                os.dup2(source, target)

        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            preexec_fn=place,
            close_fds=False,
            env={**os.environ, **self.environment(env)},
        )
        self.pid = self.process.pid

    def send(self, *records):
        wire.write_all(self.parts.to, wire.frame(b"".join(records)))

    def send_bytes(self, data):
        wire.write_all(self.parts.to, data)

    def learn(self, function):
        data = function if isinstance(function, bytes) else python_function(function)
        key = function_id(data)
        self.send(func_record(key, data))
        return key

    def begin(self, key, args=NO_ARGS, **more):
        self.calls += 1
        self.send(call_record(self.calls, key, args, **more))
        return self.calls

    def next_record(self, wait=WAIT):
        end = time.monotonic() + wait
        while not self.records:
            whole = wire.whole_frame(self.buffer)
            if not whole and not select.select([self.parts.back], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the worker sent nothing")
            data = wire.read_frame(self.parts.back, self.buffer)
            if data is None:
                raise Ended()
            self.records.extend(wire.records(data))
        return self.records.pop(0)

    def result(self, others=None, wait=WAIT):
        """The next RESULT; records before it go to `others`."""
        while True:
            kind, body = self.next_record(wait)
            if kind == wire.RESULT:
                return Result(body)
            if others is None:
                raise AssertionError("record %d: %r" % (kind, body[:200]))
            others.append((kind, body))

    def run(self, function, args=NO_ARGS, others=None, **more):
        self.begin(self.learn(function), args, **more)
        return self.result(others)

    def interrupt(self, call):
        self.parts.word[3] = call
        os.kill(self.pid, signal.SIGINT)

    def until_running(self, call):
        end = time.monotonic() + WAIT
        while self.parts.word[0] != call:
            if time.monotonic() > end:
                raise TimeoutError("the call never began")
            time.sleep(0.001)

    def printed(self, stream):
        size = os.fstat(self.parts.printed[stream]).st_size
        return os.pread(self.parts.printed[stream], size, 0)

    def close(self):
        """Ends the worker; the exit code where it is a child of this process."""
        code = None
        self.parts.close()
        if self.process is not None:
            try:
                code = self.process.wait(WAIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                code = self.process.wait()
        self.objects.cleanup()
        return code


class Zygote:
    def __init__(self, env=None):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket = ours
        self.process = subprocess.Popen(
            [sys.executable, str(ZIP), "zygote"],
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: os.dup2(theirs.fileno(), 3),
            close_fds=False,
            env={**os.environ, **(env or {})},
        )
        theirs.close()
        self.seq = 0
        self.exits = []
        kind, body = self.receive()
        assert kind == wire.HELLO
        self.hello = json.loads(body)

    def receive(self, wait=WAIT):
        self.socket.settimeout(wait)
        data = self.socket.recv(1 << 16)
        if not data:
            raise Ended()
        ((kind, body),) = wire.records(data)
        return kind, body

    def fork(self, fds, env):
        self.seq += 1
        packet = wire.json_record(wire.FORK, {"env": env}, wire.U64.pack(self.seq))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        self.socket.sendmsg([packet], rights)
        while True:
            kind, body = self.receive()
            if kind == wire.EXITED:
                self.exits.append(wire.EXITED_BODY.unpack(body))
            elif kind == wire.REFUSED_FORK:
                raise Refused(json.loads(body[8:]))
            else:
                seq, pid = wire.FORKED_BODY.unpack(body)
                assert (kind, seq) == (wire.FORKED, self.seq)
                return pid

    def exited(self, pid):
        while True:
            for found, status in self.exits:
                if found == pid:
                    return status
            kind, body = self.receive()
            assert kind == wire.EXITED, kind
            self.exits.append(wire.EXITED_BODY.unpack(body))

    def close(self):
        self.socket.close()
        return self.process.wait(WAIT)


class Refused(Exception):
    pass
