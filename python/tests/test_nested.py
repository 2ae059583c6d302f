"""Calls that submit calls, with this process as the node."""

import json
import os
import pickle
import sys
import tempfile
import threading
import unittest
from unittest import mock

from tests import node
import starling
from starling._worker import wire
from starling._worker.worker import Worker


def factorial(n):
    import starling

    if n == 0:
        return 1
    return n * starling.Client().submit(factorial, n - 1).result()


def both_ways(n):
    import concurrent.futures
    import starling

    with starling.Client() as client:
        futures = [client.submit(abs, -k) for k in range(n)]
        done, _ = concurrent.futures.wait(futures)
        later = client.submit(sum, futures)
        ended = [future.result() for future in starling.as_completed([later])]
        return sorted(future.result() for future in done), ended


def awaits():
    import asyncio
    import starling

    client = starling.Client()

    async def main():
        first = await client.submit(abs, -1)
        return [first] + [f.result() async for f in starling.as_completed([client.submit(abs, -2)])]

    return asyncio.run(main())


def times_out():
    import starling

    future = starling.Client().submit(abs, -1)
    try:
        return future.result(timeout=0.05)
    except TimeoutError:
        return ["late", future.done()]


def waits_in_vain():
    import starling

    try:
        return starling.Client().submit(abs, -1).result()
    except starling.WouldDeadlock as error:
        return str(error)


def polls():
    import time

    import starling

    future = starling.Client().submit(abs, -3)
    while not future.done():
        time.sleep(0.001)
    return future.result()


def keeps_its_client():
    import starling

    kept = starling.context()
    if "client" in kept:
        try:
            kept["client"].submit(abs, 1)
        except starling.ClientClosed as error:
            return str(error)
    kept["client"] = starling.Client()
    kept["client"].submit(abs, 1)
    return "submitted"


def in_a_thread():
    import concurrent.futures
    import starling

    client = starling.Client()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(client.submit, abs, 1).exception(5).args


def in_an_executor(n):
    import concurrent.futures
    import starling

    with starling.Executor(2) as pool:
        first = pool.submit(abs, -7)
        ended = [first.result(timeout=10), sorted(pool.map(abs, range(-n, 0)))]
        late = [pool.submit(abs, -k) for k in range(3)]
        done, _ = concurrent.futures.wait(late[:1], timeout=10)
        ended.append(len(done))
        unread = pool.submit(abs, -9)
    return ended + [unread.done(), unread.result()]


def uses_the_client_of_another_call(n):
    import starling

    kept = starling.context()
    if n == 0:
        try:
            return kept["client"].submit(abs, -1)
        except RuntimeError as error:
            # A release is of the call that has made the client.
            kept["client"]._forget(kept.pop("local"))
            kept["client"]._release()
            return str(error)
    client = kept["client"] = starling.Client()
    kept["local"] = client.submit(abs, -1)._local
    return client.submit(uses_the_client_of_another_call, n - 1).result()


def waits_twice():
    import starling

    client = starling.Client()
    return [client.submit(abs, -1).result(), client.submit(abs, -2).result()]


def cannot_come_back():
    import starling

    return {"future": starling.Client().submit(abs, 1)}


def detaches():
    import starling

    starling.Client().detach()


def loses_its_job():
    import starling

    found = []
    for _ in range(2):
        try:
            starling.Client().submit(abs, 1).result(timeout=10)
        except starling.ClusterError as error:
            found.append(str(error))
    return found


# The functions of this module travel by value, as those of a script do.
node._cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Host:
    """The node of one worker: it runs the calls of its call on top of it, or in its own way."""

    def __init__(self, worker, on_top=False, answers=True):
        self.worker, self.on_top, self.answers = worker, on_top, answers
        self.specs, self.functions, self.tasks, self.rests = [], {}, {}, []
        self.waiting, self.depth, self.deepest = [], 0, 0
        self.is_stuck = False
        self.asked = []

    def run(self, function, *args):
        key = self.worker.learn(function)
        return self.serve(self.worker.begin(key, node.python_args(*args)))

    def serve(self, call):
        while True:
            kind, body = self.worker.next_record()
            if kind == wire.RESULT:
                result = node.Result(body)
                if result.call == call:
                    return result
                raise AssertionError("a result of call %d" % result.call)
            if kind == wire.REST:
                number, rests = wire.REST_BODY.unpack(body)
                self.rest(number, bool(rests))
            else:
                assert kind == wire.ASK, kind
                number, seq, length = wire.ASK_HEAD.unpack_from(body)
                fields = json.loads(body[20 : 20 + length])
                self.ask(number, seq, fields, bytes(body[20 + length :]))

    def answer(self, number, seq, fields, data=b""):
        head = json.dumps(fields).encode()
        body = wire.ASK_HEAD.pack(number, seq, len(head)) + head + data
        self.worker.send(wire.record(wire.ANSWER, body))

    def ask(self, number, seq, fields, data):
        what = fields["ask"]
        self.asked.append((number, what))
        if what == "open":
            self.answer(number, seq, {"job": 5})
        elif what == "spec":
            self.specs.append(fields)
            self.functions.setdefault(fields["function"], data)
            self.answer(number, seq, {"spec": len(self.specs) - 1})
        elif what == "append":
            local = len(self.tasks) + 1
            self.tasks[local] = (number, self.specs[fields["spec"]], data, fields["parents"])
            self.waiting.append(local)
            self.answer(number, seq, {"local": local})
            if self.answers == "at once":
                self.run_waiting()
        elif what == "kv_insert":
            self.functions[fields["key"].rpartition("/")[2]] = data
            self.answer(number, seq, {})
        else:
            self.answer(number, seq, {})

    def rest(self, number, rests):
        self.rests.append(rests)
        if not rests or self.is_stuck:
            self.go(number, rests)
        elif self.answers:
            self.run_waiting()

    def go(self, number, is_stuck=False):
        self.worker.send(wire.record(wire.GO, wire.GO_BODY.pack(number, is_stuck)))

    def run_waiting(self):
        while self.waiting:
            local = self.waiting.pop(0)
            number, spec, payload, parents = self.tasks[local]
            if not self.on_top:
                value = self.value_of(spec, payload, parents)
                self.tasks[local] += (value,)
            else:
                value = self.run_on_top(spec, payload)
            self.end(number, local, value)

    def value_of(self, spec, payload, parents):
        from starling._worker import context

        context._state["slots"] = lambda k: pickle.loads(self.tasks[parents[k][0]][4])
        function, _ = pickle.loads(self.functions[spec["function"]][2:])
        args, kwargs = pickle.loads(payload)
        context._state["slots"] = None
        return pickle.dumps(function(*args, **kwargs), 5)

    def run_on_top(self, spec, payload):
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)
        key = self.worker.learn(wire.value(wire.INLINE, wire.RAW, 0, self.functions[spec["function"]]))
        args = wire.value(wire.INLINE, wire.PICKLE, wire.ARGS_SLOT, payload)
        result = self.serve(self.worker.begin(key, args))
        assert result.status == wire.OK, result.error
        self.depth -= 1
        return bytes(result.values[0][3])

    def end(self, number, local, value):
        self.answer(number, 0, {"ends": [[local, 1, 0, "", len(value), 3, len(value)]]}, value)


class NestedTest(unittest.TestCase):
    def setUp(self):
        self.worker = node.Worker()
        self.addCleanup(self.worker.close)

    def test_a_call_waits_without_a_slot_and_gets_the_value(self):
        host = Host(self.worker)
        self.assertEqual(host.run(both_ways, 4).value, ([0, 1, 2, 3], [6]))
        self.assertEqual(host.rests, [True, False, True, False])
        self.assertIsNone(host.specs[0]["runtime"], "that of the call")

    def test_calls_run_on_top_of_the_calls_that_wait_for_them(self):
        host = Host(self.worker, on_top=True)
        self.assertEqual(host.run(factorial, 60).value, __import__("math").factorial(60))
        self.assertEqual(host.deepest, 60)
        # The worker serves further calls, with nothing left of these.
        self.assertEqual(Host(self.worker, on_top=True).run(factorial, 3).value, 6)

    def test_await_and_polls_bring_ends(self):
        self.assertEqual(Host(self.worker).run(awaits).value, [1, 2])
        host = Host(self.worker, answers="at once")
        self.assertEqual(host.run(polls).value, 3)
        self.assertEqual(host.rests, [])

    def test_a_wait_with_a_timeout_gets_its_slot_back(self):
        host = Host(self.worker, answers=False)
        self.assertEqual(host.run(times_out).value, ["late", False])
        self.assertEqual(host.rests, [True, False])

    def test_a_wait_that_cannot_end_raises(self):
        host = Host(self.worker)
        host.is_stuck = True
        self.assertIn("all processes of this node wait", host.run(waits_in_vain).value)
        self.assertEqual(host.rests, [True], "it has its slot already")

    def test_a_cancelled_wait_ends(self):
        host = Host(self.worker, answers=False)
        host.rest = lambda number, rests: self.worker.interrupt(number)
        self.assertEqual(host.run(factorial, 1).status, wire.CANCELLED)
        self.assertEqual(Host(self.worker).run(polls_not).value, 7)

    def test_a_client_ends_with_its_call(self):
        self.assertEqual(Host(self.worker).run(keeps_its_client).value, "submitted")
        self.assertEqual(Host(self.worker).run(keeps_its_client).value, "the client is closed")

    def test_an_executor_in_a_call_brings_ends(self):
        result = Host(self.worker).run(in_an_executor, 9)
        self.assertEqual(result.status, wire.OK, result.values)
        self.assertEqual(result.value, [7, list(range(1, 10)), 1, True, 9])

    def test_requests_are_those_of_the_call_that_made_the_client(self):
        host = Host(self.worker, on_top=True)
        text = host.run(uses_the_client_of_another_call, 1).value
        self.assertIn("belongs to a call that waits", text)
        self.assertEqual({number for number, what in host.asked if what == "release"}, {1})

    def test_a_go_that_fails_a_wait_and_crosses_its_end_is_no_slot(self):
        host = Host(self.worker)
        rest = Host.rest
        went_on = []

        def crossing(number, rests):
            rest(host, number, rests)
            if rests and len(host.rests) == 1:
                self.worker.send(wire.record(wire.GO, wire.GO_BODY.pack(number, 1)))

        def late(number, rests):
            if len(host.rests) < 3:
                return crossing(number, rests)
            host.rests.append(rests)
            threading.Timer(0.3, lambda: (went_on.append(1), host.go(number))).start()

        host.rest = late
        self.assertEqual(host.run(waits_twice).value, [1, 2])
        self.assertEqual(host.rests, [True, False, True, False])
        self.assertEqual(went_on, [1], "the second wait has its own GO")

    def test_calls_of_calls_have_the_init_and_the_memory_of_the_runtime(self):
        with tempfile.TemporaryDirectory() as directory:
            mark = os.path.join(directory, "mark")

            def init():
                with open(mark, "a") as file:
                    file.write("x")

            runtime = starling.Runtime(init=init, memory="1MiB")
            host = Host(self.worker)
            self.assertEqual(host.run(runtime._wrapped(both_ways), 2).value, ([0, 1], [1]))
            # Once in the worker, and once here, where its calls run.
            self.assertEqual(os.path.getsize(mark), 2)
        self.assertEqual([spec["options"]["memory_bytes"] for spec in host.specs], [1 << 20] * 2)
        self.assertEqual({spec["runtime"] for spec in host.specs}, {None})
        host = Host(self.worker)
        host.run(both_ways, 2)
        self.assertEqual(host.specs[0]["options"]["memory_bytes"], 0, "another call has its own")

    def test_wrong_use_is_an_exception(self):
        self.assertIn("only the main thread", Host(self.worker).run(in_a_thread).value[0])
        result = Host(self.worker).run(cannot_come_back)
        self.assertEqual(result.status, wire.RAISED)
        self.assertIn("at result['future'] (a Future)", result.error["text"])
        self.assertIn("a future can be pickled only", result.error["text"])
        self.assertIn("cannot detach", Host(self.worker).run(detaches).error["text"])

    def test_a_lost_job_fails_later_clients_too(self):
        host = Host(self.worker)

        def lost(number, rests):
            if not host.rests:
                host.answer(number, 0, {"lost": "the home is gone"})
            host.rests.append(rests)
            if not rests:
                host.go(number)

        host.rest = lost
        self.assertEqual(host.run(loses_its_job).value, ["the home is gone"] * 2)


class Frames(unittest.TestCase):
    def test_an_interrupt_waits_for_the_end_of_a_frame(self):
        worker = Worker.__new__(Worker)
        worker.word, worker.in_call, worker.child = [5, 0, 0, 5], True, 0
        worker.in_frame = worker.is_late = worker.alarm = False
        worker.out, worker.out_bytes, written = [], 0, []

        def halves(_fd, data):
            written.append(data[:9])
            worker.interrupted(2, None)
            written.append(data[9:])

        with mock.patch.object(wire, "write_all", halves), self.assertRaises(KeyboardInterrupt):
            worker.send(b"a record")
        self.assertEqual(b"".join(written)[4:], b"a record")
        self.assertFalse(worker.in_frame)


def polls_not():
    return 7


if __name__ == "__main__":
    unittest.main()
