"""The way of a running call to its node: requests, waits without a slot, and calls on top."""

import json
import os
import select
import sys
import threading
import time

from . import context, wire

IN = 3
# Larger data goes as a file.
DATA_MAX = 1 << 19


class Stuck(Exception):
    """The node says that the wait cannot end."""


class Line:
    """The requests of all calls of one worker. Calls that wait lie below the one that runs."""

    def __init__(self, worker):
        self.worker = worker
        self.seq = 0
        self.files = 0
        self.wanted = set()
        self.answers = {}
        # By call: news that it has not seen, its core, and whether it may go on.
        self.news = {}
        self.cores = {}
        self.going = {}
        self.poll = select.poll()
        self.poll.register(IN, select.POLLIN)

    # Requests.

    def tell(self, call, fields, data=b""):
        """Sends a request of a call, and waits for no answer. Returns its number."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("in a call only the main thread submits calls and waits for them")
        self.seq += 1
        head = json.dumps(fields).encode()
        numbers = wire.ASK_HEAD.pack(call, self.seq, len(head))
        self.worker.send(wire.record(wire.ASK, numbers + head + data))
        return self.seq

    def ask(self, call, fields, data=b""):
        """The answer of the node to a call: fields and bytes."""
        seq = self.tell(call, fields, data)
        self.wanted.add(seq)
        try:
            while seq not in self.answers:
                self.read(None)
        finally:
            self.wanted.discard(seq)
        fields, data = self.answers.pop(seq)
        if "error" in fields:
            raise exception(fields)
        if "path" in fields:
            return fields, taken(fields["path"])
        return fields, data

    def written(self, data):
        """The path of a file with these bytes, which the node removes."""
        self.files += 1
        name = "ask-%d.%d" % (os.getpid(), self.files)
        path = os.path.join(self.worker.objects, name)
        with open(path, "xb") as file:
            file.write(data)
        return path

    # Records from the node.

    def read(self, timeout):
        """Handles the next frame; False if none comes in time."""
        buffer = self.worker.buffer
        if not wire.whole_frame(buffer):
            # An interrupt ends this wait, but not the read of a frame.
            if not self.poll.poll(None if timeout is None else max(0, timeout) * 1000):
                return False
        data = self.worker.read()
        if data is None:
            # The node has gone, and so does its worker.
            os._exit(0)
        for kind, body in wire.records(data):
            self.worker.handle(kind, body)
        self.worker.raise_late()
        return True

    def answered(self, body):
        call, seq, length = wire.ASK_HEAD.unpack_from(body)
        at = wire.ASK_HEAD.size
        fields = json.loads(body[at : at + length])
        data = body[at + length :]
        if seq == 0:
            if call in self.cores:
                self.news.setdefault(call, []).append((fields, data))
        elif seq in self.wanted:
            self.answers[seq] = (fields, data)
        elif "path" in fields:
            os.unlink(fields["path"])

    def goes(self, body):
        call, is_stuck = wire.GO_BODY.unpack(body)
        self.going[call] = bool(is_stuck)

    # Waits.

    def look(self, core):
        """Takes the news of the running call."""
        for fields, data in self.news.pop(core.call, ()):
            core.hear(fields, data)

    def wait(self, core, is_done, timeout):
        """Waits without a slot until `is_done()`. Meanwhile calls of the call may run here."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.read(0):
            pass
        self.look(core)
        if is_done() or timeout == 0:
            return
        core.before_wait()
        # One of an earlier wait, which an interrupt has ended.
        self.going.pop(core.call, None)
        self.rest(core.call, True)
        while not is_done():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            self.read(left)
            self.look(core)
            if self.going.get(core.call):
                # It goes on at once, so that a slot may become free.
                del self.going[core.call]
                raise Stuck()
        # An interrupted wait does not come here: the node does not want it to go on.
        self.rest(core.call, False)
        # A GO that fails the wait may have crossed this record, which has a GO of its own.
        while self.going.pop(core.call, True):
            self.read(None)

    def rest(self, call, rests):
        self.worker.send(wire.record(wire.REST, wire.REST_BODY.pack(call, rests)))

    def call_ended(self, call):
        core = self.cores.pop(call, None)
        self.news.pop(call, None)
        self.going.pop(call, None)
        if core is not None:
            core.end()

    def make_room(self):
        """Room on the stack for a further call."""
        frame, depth = sys._getframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 1000 + depth))


def here():
    """The line of the call that runs here, or None outside calls."""
    return context._state["line"] if context._state["head"] is not None else None


def exception(fields):
    from starling import _errors

    kinds = {"ValueError": ValueError}
    kind = kinds.get(fields["error"]) or getattr(_errors, fields["error"], _errors.ClusterError)
    return kind(fields["text"])


def taken(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    os.unlink(path)
    return data
