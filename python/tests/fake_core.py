"""A core in this process, for tests of the Python layer: it runs calls in a thread."""

import os
import pickle
import queue
import threading

from starling._errors import ClusterError, ResultLost
from starling._worker import context, failures, modules, values, wire


class Gate:
    """Calls of `gate.call` with `gate.fd` and 1 run until the gate is opened, once for each."""

    # By reference in pickles; a lock could not be pickled.
    call = staticmethod(os.read)

    def __init__(self):
        # They stay open: a call may begin after its test.
        self.fd, self.writer = os.pipe()

    def open(self, calls=1):
        os.write(self.writer, bytes(calls))


class Core:
    def __init__(self, workers=2, is_inline=True):
        self.kv = {}
        self.objects = {}
        # The times that reads had left.
        self.within = []
        # Of results that were made again: (attempt, node).
        self.places = {}
        # Lost results; a reader has them made again.
        self.lost = {}
        # The number of readers whose results are lost again before they are read.
        self.lost_again = 0
        self.jobs = []
        self.released = []
        self.detached = []
        self.is_inline = is_inline
        self.workers = workers
        self.is_closed = False

    def nodes(self):
        return [{"id": 0, "state": "up", "slots": self.workers}]

    def open_job(self, name, on_ends, on_lost, silent_after, cancels):
        self.silence = (silent_after, cancels)
        job = Job(self, len(self.jobs) + 1, on_ends)
        self.jobs.append(job)
        return job

    def tasks(self, job):
        return [(local, spec[0]["name"]) for local, spec in self.jobs[job - 1].all]

    def join_job(self, job, on_ends, on_lost):
        found = self.jobs[job - 1]
        found.on_ends = on_ends
        # The ends from the first on, as homes send them; without the values.
        on_ends([(local, *end[:-1], None) for local, end in list(found.whole_ends.items())])
        return found

    def attach_job(self, job, on_ends, on_lost):
        found = self.join_job(job, on_ends, on_lost)
        return ClosedJob(found) if found.is_closed else found

    def kv_insert(self, key, value):
        assert len(value) <= 8 << 20
        self.kv[bytes(key)] = bytes(value)

    def kv_remove(self, key):
        self.kv.pop(bytes(key), None)

    def fetch(self, job, local, attempt, node, within=None):
        self.within.append(within)
        data = self.objects.get(local)
        if data is None:
            raise ResultLost("no object of task %d" % local)
        if (attempt, node) != self.places.get(local, (attempt, node)):
            raise ClusterError("node %d does not answer" % node)
        return bytearray(data)

    def lose(self, local):
        self.lost[local] = self.objects.pop(local)

    def holders(self, job, local):
        self.jobs[job - 1].known(local)
        attempt, node = self.places.get(local, (1, 0))
        return attempt, [node] if local in self.objects else []

    def ended(self, job, local):
        end = self.jobs[job - 1].whole_ends.get(local)
        return None if end is None else (end[1] == 0, end[4], end[2])

    def make_again(self, local):
        if local in self.objects:
            return 1, 0, "", 0, 0, None
        if local not in self.lost:
            return 1, 3, "its record has left memory", 0, 0, None
        self.places[local] = (self.places.get(local, (1, 0))[0] + 1, 1)
        if self.lost_again:
            self.lost_again -= 1
        else:
            self.objects[local] = self.lost.pop(local)
        return 1, 0, "", 0, 1, None

    def explain(self, job, local):
        self.jobs[job - 1].known(local)
        return ["it waits in the fake core"]

    def printed(self, job, local, node, stderr):
        return self.jobs[job - 1].printed.get(local, b"") if stderr else b""

    def is_running(self, job, local):
        self.jobs[job - 1].known(local)
        return self.jobs[job - 1].running == local

    def cancel(self, job, locals):
        return self.jobs[job - 1].cancel(locals)

    def local_text(self, local):
        return "0.%d" % local

    def close(self):
        self.is_closed = True


class Job:
    def __init__(self, core, number, on_ends):
        self.core, self.id, self.on_ends = core, number, on_ends
        self.queue = queue.Queue()
        self.is_closed = False
        self.next = 0
        self.ends = {}
        self.all = []
        self.payloads = []
        self.whole_ends = {}
        self.cancelled = set()
        # As homes: a call that is not stored is not known.
        self.unstored = set()
        self.running = None
        self.printed = {}
        # A lock, because context is one for the process.
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def spec(self, options, runtime, function, body, inputs):
        return options, function, body, inputs

    def reader(self, name):
        return {"name": name}, None, None, 1

    def room(self):
        pass

    def flush(self):
        self.unstored.clear()

    def detach(self):
        self.core.detached.append(self.id)

    def known(self, local):
        if local in self.unstored:
            raise ClusterError("job %d: no task 0.%d" % (self.id, local))

    def append(self, spec, payload, edges):
        assert len(payload) <= 16 << 10 and spec[3] == len(edges)
        self.next += 1
        self.all.append((self.next, spec))
        self.unstored.add(self.next)
        self.payloads.append((self.next, bytes(payload)))
        self.queue.put((self.next, spec, bytes(payload), list(edges)))
        return self.next

    def release(self, locals):
        self.core.released += locals

    def close(self):
        self.is_closed = True
        self.queue.put(None)

    def cancel(self, locals):
        for local in locals:
            self.known(local)
        self.cancelled.update(locals)
        return len([local for local in locals if local not in self.ends])

    def run(self):
        while True:
            task = self.queue.get()
            if task is None:
                return
            local, spec, payload, edges = task
            self.unstored.discard(local)
            self.running = local
            end = self.call(local, spec, payload, edges)
            self.running = None
            self.ends[local] = end[1]
            self.whole_ends[local] = end
            self.on_ends([(local, *end)])

    def call(self, local, spec, payload, edges):
        """(attempt, verdict, error, size, node, inline)."""
        if local in self.cancelled:
            return 1, 2, "", 0, 0, None
        if any(self.ends.get(parent) == 2 for parent, _ in edges):
            return 1, 2, "", 0, 0, None
        if any(self.ends.get(parent) != 0 for parent, _ in edges):
            return 1, 3, "an input failed", 0, 0, None
        _, function, body, _ = spec
        if function is None:
            return self.core.make_again(edges[0][0])
        body = body or self.core.kv[b"function/" + function.hex().encode()]
        inputs = [self.core.objects[parent] for parent, _ in edges]
        context._state["slots"] = lambda k: pickle.loads(inputs[k]) if inputs[k][:1] == b"\x80" else (
            values.load(wire.INLINE, wire.SPB1, inputs[k])
        )
        try:
            function, _ = pickle.loads(body[2:])
            if type(function) is modules.Carried:
                # This process has them.
                function = function.fn
            args, kwargs = pickle.loads(payload) if payload else ((), {})
            _, parts = values.dumps(function(*args, **kwargs))
        except BaseException as error:
            found = failures.raised_values(error, 1)
            self.printed[local] = b"Traceback (most recent call last):\n  in the call\n"
            text = "%s: %s" % (failures.name_of(error), failures.text_of(error))
            return 1, 1, text, 0, 0, found[1][8:] if len(found) > 1 else None
        finally:
            context._state["slots"] = None
        data = b"".join(parts)
        self.core.objects[local] = data
        is_inline = self.core.is_inline and len(data) <= 4096
        return 1, 0, "", len(data), 0, data if is_inline else None


class ClosedJob:
    """A job that takes no more calls."""

    def __init__(self, job):
        self.job, self.id, self.flush = job, job.id, job.flush
        self.spec, self.reader = job.spec, job.reader

    def room(self):
        raise ClusterError("job %d is closed: no call can be added to it" % self.id)

    def append(self, spec, payload, edges):
        self.room()

    def release(self, locals):
        pass

    def close(self):
        pass
