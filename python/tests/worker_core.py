"""A core without nodes that runs calls in real workers, for tests and harnesses of adapters.

The workers are those of worker.zip, so what a call needs has to travel with it.
"""

import itertools
import os
import queue
import threading

from starling._worker import wire

from . import fake_core, node


class Core(fake_core.Core):
    def open_job(self, name, on_ends, on_lost, silent_after, cancels):
        job = Job(self, len(self.jobs) + 1, on_ends)
        self.jobs.append(job)
        return job

    def printed(self, job, local, node, stderr):
        return self.jobs[job - 1].texts.get((local, 2 if stderr else 1), b"")

    def is_running(self, job, local):
        return local in self.jobs[job - 1].at_work

    def close(self):
        self.is_closed = True
        for job in self.jobs:
            job.close()


class Job(fake_core.Job):
    def __init__(self, core, number, on_ends):
        self.core, self.id, self.on_ends = core, number, on_ends
        self.next, self.lock, self.is_closed = 0, threading.RLock(), False
        self.ends, self.whole_ends, self.all, self.payloads = {}, {}, [], []
        self.tasks, self.readers, self.texts = {}, {}, {}
        self.at_work, self.cancelled, self.unstored = {}, set(), set()
        self.files = itertools.count()
        self.ready = queue.Queue()
        serve = range(core.workers)
        self.threads = [threading.Thread(target=self.serve, daemon=True) for _ in serve]
        for thread in self.threads:
            thread.start()

    def append(self, spec, payload, edges):
        assert len(payload) <= 16 << 10 and spec[3] == len(edges)
        parents = [parent for parent, _ in edges]
        with self.lock:
            self.next += 1
            local = self.next
            self.all.append((local, spec))
            self.payloads.append((local, bytes(payload)))
            left = {parent for parent in parents if parent not in self.ends}
            self.tasks[local] = spec, bytes(payload), parents, left
            for parent in left:
                self.readers.setdefault(parent, []).append(local)
            if not left:
                self.ready.put(local)
        return local

    def close(self):
        for _ in self.threads:
            self.ready.put(None)

    def cancel(self, locals):
        with self.lock:
            self.cancelled.update(locals)
            for local in locals:
                worker, call = self.at_work.get(local, (None, 0))
                if worker is not None:
                    worker.interrupt(call)
            return len([local for local in locals if local not in self.ends])

    def serve(self):
        worker, known = node.Worker(), set()
        while True:
            local = self.ready.get()
            if local is None:
                worker.close()
                return
            try:
                end = self.verdict(local) or self.call(worker, known, local)
            except node.Ended:
                worker.close()
                worker, known = node.Worker(), set()
                end = 1, 1, "its process died", 0, 0, None
            self.ended(local, end)

    def ended(self, local, end):
        with self.lock:
            self.at_work.pop(local, None)
            self.ends[local] = end[1]
            self.whole_ends[local] = end
            del self.tasks[local]
            for reader in self.readers.pop(local, ()):
                left = self.tasks[reader][3]
                left.discard(local)
                if not left:
                    self.ready.put(reader)
        self.on_ends([(local, *end)])

    def verdict(self, local):
        """The end of a call that does not run."""
        parents = [self.ends[parent] for parent in self.tasks[local][2]]
        if local in self.cancelled or 2 in parents:
            return 1, 2, "", 0, 0, None
        return (1, 3, "an input failed", 0, 0, None) if any(parents) else None

    def call(self, worker, known, local):
        """(attempt, verdict, error, size, node, inline)."""
        spec, payload, parents, _ = self.tasks[local]
        _, key, body, _ = spec
        if key not in known:
            data = body or self.core.kv[b"function/" + key.hex().encode()]
            worker.send(node.func_record(key, self.value(worker, wire.RAW, 0, data)))
            known.add(key)
        codec = wire.PICKLE if payload else wire.RAW
        args = wire.value(wire.INLINE, codec, wire.ARGS_SLOT, payload)
        inputs = []
        for slot, parent in enumerate(parents):
            data = self.core.objects[parent]
            codec = wire.SPB1 if data[:4] == b"SPB1" else wire.PICKLE
            inputs.append(self.value(worker, codec, slot, data))
        with self.lock:
            worker.calls += 1
            self.at_work[local] = worker, worker.calls
        more = {"inputs": inputs, "task": (self.id, local), "cpus": 1000 * spec[0]["cpus"]}
        worker.send(node.call_record(worker.calls, key, args, **more))
        others = []
        result = worker.result(others, wait=600)
        for _, printed in others:
            _, stream, _ = wire.PRINT_HEAD.unpack_from(printed)
            text = printed[wire.PRINT_HEAD.size :]
            self.texts[local, stream] = self.texts.get((local, stream), b"") + text
        return self.end(local, result)

    def value(self, worker, codec, slot, data):
        if len(data) <= wire.INLINE_MAX:
            return wire.value(wire.INLINE, codec, slot, data)
        path = os.path.join(worker.objects.name, "in.%d" % next(self.files))
        with open(path, "wb") as file:
            file.write(data)
        return wire.value(wire.FILE, codec, slot, path.encode())

    def end(self, local, result):
        how, _, _, data = result.values[0]
        if result.status == wire.OK:
            if how == wire.FILE:
                with open(os.fsdecode(data), "rb") as file:
                    data = file.read()
            data = bytes(data)
            self.core.objects[local] = data
            return 1, 0, "", len(data), 0, data if len(data) <= 4096 else None
        if result.status == wire.CANCELLED:
            return 1, 2, "", 0, 0, None
        error = result.error
        self.texts[local, 2] = self.texts.get((local, 2), b"") + error["frames"].encode()
        inline = bytes(result.values[1][3]) if len(result.values) > 1 else None
        return 1, 1, "%s: %s" % (error["type"], error["text"]), 0, 0, inline
