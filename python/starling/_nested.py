"""The core of a client inside a call: the node's own client does what is asked."""

import threading

from ._errors import ClientClosed, ClusterError, WouldDeadlock
from ._worker import nested

# Of a local id; the partition lies above.
INDEX_BITS = 40


def core():
    """The core of the call that runs here; None outside calls."""
    line = nested.here()
    if line is None:
        return None
    call = line.worker.word[0]
    found = line.cores.get(call)
    if found is None:
        found = line.cores[call] = Core(line, call)
    return found


def call():
    """The number of the call that runs here; None outside calls."""
    line = nested.here()
    return None if line is None else line.worker.word[0]


class Core:
    """As `starling._core.Core`. All clients of a call share one, and its job."""

    def __init__(self, line, number):
        self.line, self.call = line, number
        self.job = None
        self.clients = []
        self.hears = False
        self.unsent = False
        # The reason why no more ends come.
        self.lost = None

    # What the line calls.

    def hear(self, fields, data):
        self.hears = True
        try:
            if "lost" in fields:
                self.lost = fields["lost"]
                for client in self.clients:
                    client._lost(fields["lost"])
                return
            ends, at = [], 0
            for *end, length in fields["ends"]:
                inline = bytes(data[at : at + length]) if length else None
                at += length
                ends.append((*end, inline))
            for client in self.clients:
                client._ended(ends)
        finally:
            self.hears = False

    def before_wait(self):
        """Calls that start before others must be there before a slot is free."""
        if self.unsent:
            self.line.ask(self.call, {"ask": "flush"})
            self.unsent = False

    def end(self):
        """The call has ended."""
        clients, self.clients = self.clients, []
        for client in clients:
            client._end_with_call()

    # Waits.

    def pump(self, is_done, timeout=None):
        """Waits until `is_done()`, at most `timeout` seconds; 0: looks at what has come."""
        if self.hears or self.line.cores.get(self.call) is not self:
            return
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("in a call only the main thread waits for calls")
        if self.line.worker.word[0] != self.call:
            raise RuntimeError("this future belongs to a call that waits for the one that runs")
        try:
            self.line.wait(self, is_done, timeout)
        except nested.Stuck:
            text = (
                "all processes of this node wait for calls, and none is left for these; wait for fewer "
                "calls at a time, or give the node more slots"
            )
            raise WouldDeadlock(text) from None

    # The interface of `_core`.

    def ask(self, what, data=b"", **fields):
        if self.line.cores.get(self.call) is not self:
            raise ClientClosed("the call that made this client has ended")
        if self.line.worker.word[0] != self.call:
            raise RuntimeError("this client belongs to a call that waits for the one that runs")
        return self.line.ask(self.call, {"ask": what, **fields}, data)

    def nodes(self):
        return self.ask("nodes")[0]["nodes"]

    def open_job(self, name, on_ends, on_lost, silent_after, cancels):
        # The job ends with the call, so no silence of its client matters.
        if self.lost is not None:
            raise ClusterError(self.lost)
        client = on_ends.__self__
        if client not in self.clients:
            self.clients.append(client)
        if self.job is None:
            self.job = Job(self, self.ask("open", name=name)[0]["job"])
        return self.job

    def join_job(self, job, on_ends, on_lost):
        raise ClusterError("a call cannot attach to a job; attach where the job was submitted")

    attach_job = join_job

    def tasks(self, job):
        return self.join_job(job, None, None)

    def kv_insert(self, key, value):
        if len(value) <= nested.DATA_MAX:
            self.ask("kv_insert", value, key=key.decode(), path=None)
        else:
            self.ask("kv_insert", key=key.decode(), path=self.line.written(value))

    def kv_remove(self, key):
        self.line.tell(self.call, {"ask": "kv_remove", "key": key.decode()})

    def fetch(self, job, local, attempt, node, within=None):
        # The node answers in any case.
        return self.ask("fetch", local=local, attempt=attempt, node=node)[1]

    def printed(self, job, local, node, stderr):
        return bytes(self.ask("printed", local=local, node=node, stderr=stderr)[1])

    def explain(self, job, local):
        return self.ask("explain", local=local)[0]["lines"]

    def holders(self, job, local):
        answer = self.ask("place", local=local)[0]
        found = answer["place"]
        return None if found is None else (found[0], answer["holders"])

    def is_running(self, job, local):
        return self.ask("is_running", local=local)[0]["running"]

    def cancel(self, job, locals):
        return self.ask("cancel", locals=locals)[0]["cancelled"]

    @staticmethod
    def local_text(local):
        return "%d.%d" % (local >> INDEX_BITS, local & ((1 << INDEX_BITS) - 1))

    def close(self):
        """The job ends with the call."""


class Job:
    """As `starling._core.Job`."""

    def __init__(self, core, number):
        self.core, self.id = core, number

    def spec(self, options, runtime, function, body, inputs):
        fields = {"options": options, "runtime": runtime, "function": function.hex()}
        return self.core.ask("spec", body, inputs=inputs, **fields)[0]["spec"]

    def reader(self, name):
        return self.core.ask("reader", name=name)[0]["spec"]

    def append(self, spec, payload, parents):
        self.core.unsent = True
        return self.core.ask("append", payload, spec=spec, parents=parents)[0]["local"]

    def room(self):
        """Each append is answered, so that none can run ahead."""

    def flush(self):
        self.core.ask("flush")

    def release(self, locals):
        self.core.line.tell(self.core.call, {"ask": "release", "locals": locals})

    def close(self):
        """The job ends with the call."""
